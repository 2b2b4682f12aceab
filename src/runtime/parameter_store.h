// A rank's parameters in both phases. Owner slices (masters, Adam states, summed gradients) never move.
// Compute shards and their gradient accumulators exist for one step, laid out for its strategy.
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

// One bucket's slice in the optimisation phase: elements [owned.begin, owned.end) of its flat
// array. Moments and gradient are empty for buckets that are not trained, and in stores that do not
// train.
struct OwnerSlice {
  base::Interval owned;
  at::Tensor master;    // as masters are kept (Precision::kept_master), 1-D; a coded bucket's words, in the
                        // compute dtype
  Moment exp_avg;       // first Adam moment
  Moment exp_avg_sq;    // second Adam moment
  at::Tensor gradient;  // summed over all holders by push
};

// The master as wide as masters are. Bits of narrower words (codes, in bfloat16) stand above zero bits.
at::Tensor wide_master(const OwnerSlice& slice);
// Sets elements from `first` on from wide numbers; narrower masters are rounded to the nearest.
void set_master(const OwnerSlice& slice, int64_t first, const at::Tensor& numbers);

// One held bucket in the propagation phase; both laid out as the shard's intervals end to end.
struct ComputeShard {
  at::Tensor parameters;  // compute dtype
  at::Tensor gradients;   // master dtype; zero at the start of a step; empty where nothing is trained
  at::Tensor sent;        // the parameters padded to Holding::room_elements: the input of an all-gather
};

class ParameterStore {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    Precision precision;
    c10::Device device = c10::kCPU;
    bool trains = true;  // false: no slice has moments or gradient
    strategy::PullCodec pull = strategy::PullCodec::kNone;
    // Format of moments in buckets of strategy::kLeastDifferences elements or more, which owners cut between
    // coding groups. Moments of smaller buckets are as wide as masters.
    base::MomentFormat moments = base::MomentFormat::kWide;
  };
  // All slices are zero.
  ParameterStore(const model::ParameterTable& table, const Options& options);

  const model::ParameterTable& table() const { return table_; }
  const Options& options() const { return options_; }

  OwnerSlice& owner(int bucket) { return owners_[static_cast<size_t>(bucket)]; }
  const OwnerSlice& owner(int bucket) const { return owners_[static_cast<size_t>(bucket)]; }
  // The owner slice in compute precision, current after either of the next two functions: pull sends it.
  const at::Tensor& compute_copy(int bucket) const { return compute_copies_[static_cast<size_t>(bucket)]; }
  // Sets the copies from the masters, rounded to the bits of the pull codec.
  void refresh_compute_copies();
  // The same after an update. If holders follow by differences, adds one difference to the copies.
  void follow_masters();
  // Whether copies are numbers other than the masters in compute precision.
  bool copies_apart() const { return options_.pull != strategy::PullCodec::kNone; }
  // How often copies have changed, and whether the last change was a difference: then difference() has this
  // rank's part of it.
  int64_t copies_version() const { return copies_version_; }
  bool followed() const { return followed_; }
  const CodedNumbers& difference(int bucket) const { return differences_[static_cast<size_t>(bucket)]; }

  // Runs of the rank's slice of a bucket that learn alike; empty if the bucket is not trained. Without
  // set_parameter_groups no parameter is in a group.
  const std::vector<model::ParameterGroupRun>& parameter_groups(int bucket) const {
    return learning_[static_cast<size_t>(bucket)];
  }
  // `runs`: for whole buckets.
  void set_parameter_groups(model::ParameterGroupRuns runs);

  // `wait(bucket)` is called before an update changes that bucket's slice, in the table's order. It returns
  // when no reader of that slice is left.
  void set_before_update(std::function<void(int bucket)> wait) { before_update_ = std::move(wait); }
  void wait_for_readers(int bucket) const {
    if (before_update_) before_update_(bucket);
  }

  // Lays out the shards of a step; steps of one size reuse memory. Gradients start at zero with kMade and are
  // empty with kNone.
  enum class Gradients : uint8_t { kMade, kNone };
  void open_step(const std::vector<link::Holding>& holdings, Gradients gradients = Gradients::kMade);
  // Frees the shards and their memory.
  void close_step();
  // REQUIRES: the bucket is held in this step.
  ComputeShard& shard(int bucket);
  bool holds(int bucket) const { return held_[static_cast<size_t>(bucket)]; }

  // Bytes of owner slices and their copies, and of the latest step's shards.
  int64_t owner_bytes() const;
  int64_t compute_bytes() const;

 private:
  // Copies from the masters those elements that no codec may change.
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

// Codes this rank's slice of a coded bucket. `source` gives numbers of the bucket as if it were not coded
// (model::plain_bucket), one whole matrix or expert's matrix at a time. Call refresh_compute_copies() after
// the last bucket.
using PlainSource = std::function<void(const model::Bucket& plain, base::Interval interval, float* values)>;
void load_coded(ParameterStore& store, const model::Bucket& bucket, const PlainSource& source);

// Sets this rank's slices of magnitudes to the norms of their matrices' outputs, as the run computes with
// these matrices: coded and expanded again if the base is coded. Each norm is the same however slices are
// cut. `source` gives numbers of any bucket as if it were not coded (model::plain_bucket). Does nothing
// without magnitudes. Call refresh_compute_copies() afterwards.
void load_magnitudes(ParameterStore& store, const PlainSource& source);

// LLaMA's initialisation, by each parameter's model::Start: normal(0, 0.02), residual outputs (attention-out,
// down) divided by √(2·layers), norms one, biases zero. Each element is a pure function of (seed, operation,
// its place among the operation's): the same on any number of ranks, whichever are frozen. With kLeft coded
// buckets stay as they are, for callers that load them afterwards.
enum class Coded : uint8_t { kDrawn, kLeft };
void initialize(ParameterStore& store, uint64_t seed, Coded coded = Coded::kDrawn);

// Fills the masters from a source of flat values: fill(bucket, interval, destination). The source may leave
// values unchanged.
using MasterSource = std::function<void(int bucket, base::Interval interval, float* values)>;
// `coded`: the source of coded buckets. REQUIRES: given if there are coded buckets.
void load_masters(ParameterStore& store, const MasterSource& source, const PlainSource& coded = {});

}  // namespace sluice::runtime
