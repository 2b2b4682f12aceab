// A rank's parameters in both phases. Owner slices (masters, Adam states, summed gradients) never move;
// compute shards and their gradient accumulators exist for one step, laid out for its strategy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "link/layout.h"
#include "model/parameters.h"
#include "model/tuning.h"
#include "runtime/differences.h"
#include "runtime/moment.h"
#include "runtime/precision.h"

namespace sluice::runtime {

// One bucket's slice in the optimisation phase: elements [owned.begin, owned.end) of its flat array.
// Buckets that are not trained, and stores that train none, have neither moments nor gradient: these are
// empty.
struct OwnerSlice {
  base::Interval owned;
  at::Tensor master;    // as masters are kept (Precision::kept_master), 1-D; of a coded bucket its words, in
                        // the compute dtype
  Moment exp_avg;       // first Adam moment
  Moment exp_avg_sq;    // second Adam moment
  at::Tensor gradient;  // summed over all holders by push
};

// The master as wide as masters are: bits of narrower words (those of codes, in bfloat16) stand above zeros.
at::Tensor wide_master(const OwnerSlice& slice);
// Sets some of it, from `first` on, from such numbers; others are rounded to the nearest.
void set_master(const OwnerSlice& slice, int64_t first, const at::Tensor& numbers);

// One held bucket in the propagation phase; both laid out as the shard's intervals end to end.
struct ComputeShard {
  at::Tensor parameters;  // compute dtype
  at::Tensor gradients;   // master dtype; zero at the start of a step; empty where nothing is trained
  at::Tensor sent;        // the parameters and the rest of Holding::room_elements: what a gather takes
};

class ParameterStore {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    Precision precision;
    c10::Device device = c10::kCPU;
    bool trains = true;  // else no slice has moments and gradient
    strategy::PullCodec pull = strategy::PullCodec::kNone;
    // Of buckets of strategy::kLeastDifferences elements or more, which are cut between groups; of smaller
    // ones they are as wide as masters.
    base::MomentFormat moments = base::MomentFormat::kWide;
  };
  // All slices zero.
  ParameterStore(const model::ParameterTable& table, const Options& options);

  const model::ParameterTable& table() const { return table_; }
  const Options& options() const { return options_; }

  OwnerSlice& owner(int bucket) { return owners_[static_cast<size_t>(bucket)]; }
  const OwnerSlice& owner(int bucket) const { return owners_[static_cast<size_t>(bucket)]; }
  // The owner slice in compute precision, current after either of the following: what pull sends.
  const at::Tensor& compute_copy(int bucket) const { return compute_copies_[static_cast<size_t>(bucket)]; }
  // From the masters, or as near to them as what is pulled has bits.
  void refresh_compute_copies();
  // The same behind an update; where holders follow by differences, by one of these.
  void follow_masters();
  // Whether copies are other numbers than the masters in compute precision.
  bool copies_apart() const { return options_.pull != strategy::PullCodec::kNone; }
  // How often copies have changed, and whether the last time by a difference: that is then, of what this rank
  // owns, difference().
  int64_t copies_version() const { return copies_version_; }
  bool followed() const { return followed_; }
  const CodedNumbers& difference(int bucket) const { return differences_[static_cast<size_t>(bucket)]; }

  // Which runs of its slice of a bucket learn alike; none of one that is not trained. Without
  // set_parameter_groups each parameter is in no group.
  const std::vector<model::ParameterGroupRun>& parameter_groups(int bucket) const {
    return learning_[static_cast<size_t>(bucket)];
  }
  // `runs`: of whole buckets.
  void set_parameter_groups(model::ParameterGroupRuns runs);

  // `wait(bucket)` is called before an update changes that bucket's slice, in the table's order: it returns
  // when nobody else reads that slice any more.
  void set_before_update(std::function<void(int bucket)> wait) { before_update_ = std::move(wait); }
  void wait_for_readers(int bucket) const {
    if (before_update_) before_update_(bucket);
  }

  // Lays out the shards of a step; memory is reused by steps of one size. Gradients, where they are made,
  // start at zero; else they are empty.
  enum class Gradients : uint8_t { kMade, kNone };
  void open_step(const std::vector<link::Holding>& holdings, Gradients gradients = Gradients::kMade);
  // Lets go of shards and their memory.
  void close_step();
  // REQUIRES: the bucket is held in this step.
  ComputeShard& shard(int bucket);
  bool holds(int bucket) const { return held_[static_cast<size_t>(bucket)]; }

  // Bytes of owner slices and copies of them, and of the newest step's shards.
  int64_t owner_bytes() const;
  int64_t compute_bytes() const;

 private:
  // Takes over from the masters elements that no codec may change.
  void copy_exact(const model::Bucket& bucket);

  const model::ParameterTable& table_;
  Options options_;
  std::function<void(int)> before_update_;
  model::ParameterGroupRuns learning_;
  std::vector<OwnerSlice> owners_;          // by bucket
  std::vector<at::Tensor> compute_copies_;  // by bucket; aliases master when they are the same numbers
  std::vector<CodedNumbers> differences_;   // by bucket
  int64_t copies_version_ = 0;
  bool followed_ = false;
  std::vector<ComputeShard> shards_;  // by bucket
  std::vector<char> held_;            // by bucket
  at::Tensor parameter_arena_;
  at::Tensor gradient_arena_;
};

// Codes what this rank owns of a coded bucket; `source` gives the numbers of the bucket as it would be if it
// were not coded (model::plain_bucket), a whole matrix or expert's at a time. Behind the last one
// refresh_compute_copies().
using PlainSource = std::function<void(const model::Bucket& plain, base::Interval interval, float* values)>;
void load_coded(ParameterStore& store, const model::Bucket& bucket, const PlainSource& source);

// LLaMA's initialisation, as each parameter's kind says (model::Start): normal(0, 0.02), residual outputs
// (attention-out, down) divided by √(2·layers), norms one, biases zero. Each element is a pure function of
// (seed, operation, its place among the operation's): the same on any number of ranks and whatever is frozen.
// Coded buckets may be left as they are, where they are loaded behind it.
enum class Coded : uint8_t { kDrawn, kLeft };
void initialize(ParameterStore& store, uint64_t seed, Coded coded = Coded::kDrawn);

// Fills the masters from a source of flat values, which may leave some as they are: fill(bucket, interval,
// destination).
using MasterSource = std::function<void(int bucket, base::Interval interval, float* values)>;
// `coded`: of coded buckets. REQUIRES: it is given where there are some.
void load_masters(ParameterStore& store, const MasterSource& source, const PlainSource& coded = {});

}  // namespace sluice::runtime
