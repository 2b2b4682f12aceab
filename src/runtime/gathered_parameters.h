// The parameters that a rank has at hand where lanes share them: those of the operation at work and of the
// next one, gathered, and the gradients of the one at work and of the one before, on their way into their
// sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "ops/memory_account.h"
#include "runtime/fsdp_channel.h"
#include "runtime/fsdp_sums.h"
#include "runtime/parameter_store.h"
#include "strategy/strategy.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {

// For one step. All members of a share group go through the same operations in the same order, those without
// tokens too. Around each operation it issues the gather of the next one, then the sum of the one before, and
// waits for both behind it (cost::pass_ns): never more than two operations are at hand.
class GatheredParameters {
 public:
  struct Operation {
    int64_t position = 0;      // in the model program
    std::vector<int> buckets;  // ascending
    bool gathers = true;       // their parameters, which are not there yet
    bool keeps = false;        // them at hand, for an operation that gathers nothing
    bool makes_gradients = false;
    bool sums_gradients = false;  // of those that it makes; others are gone behind it
  };

  struct Options {
    int run_lanes = 1;  // strategy::FsdpRuns::lanes
    strategy::WireCodecs codecs;
    uint64_t seed = 0;  // of this step, on this rank
  };
  // `pipeline`: the group's. What is at hand counts in `memory`.
  GatheredParameters(ParameterStore& store, FsdpChannel& channel, const strategy::Pipeline& pipeline, int t,
                     ops::MemoryAccount& memory, const Options& options);

  // The operation that follows the last one; `next` is the one behind it, null: it ends its pass.
  // `contributes`: by member, whether it has tokens; only those add gradients, and to experts those whose
  // expert group has some. `node`: of the cell.
  void begin(const Operation& operation, const Operation* next, const std::vector<char>& contributes,
             int node);
  // Whether the parameters of the operation at work are at hand.
  bool holds(const Operation& operation) const { return parameters_.contains(operation.buckets.front()); }
  // The whole shards of the operation at work, one-dimensional. Gradients start at zero.
  at::Tensor parameters(int bucket) const;
  // Undefined where this lane makes none of a bucket's.
  at::Tensor gradients(int bucket) const {
    const auto made = gradients_.find(bucket);
    return made == gradients_.end() ? at::Tensor() : made->second;
  }
  void end();

  // Of this step: bytes received of others' parameters and sent of gradients, and how long it has waited for
  // either.
  int64_t moved_bytes() const { return traffic_.channel.moved_bytes() - moved_before_; }
  int64_t waited_ns() const { return traffic_.waited_ns; }
  const std::vector<FsdpMove>& moves() const { return traffic_.moves; }

 private:
  struct Gather {
    int bucket = 0;
    at::Tensor own;   // as it travels
    at::Tensor came;  // of all holders
    FsdpChannel::Passing passing;
    size_t move = 0;  // index
  };

  bool trained(int bucket) const {
    return traffic_.store.table().buckets[static_cast<size_t>(bucket)].trained;
  }
  const FsdpHolders& holders_of(int bucket) const { return holders_[static_cast<size_t>(bucket)]; }
  // Whether the lanes that visit a holder have tokens, itself or its expert group.
  bool contributes(const FsdpHolders& holders, int holder) const;
  // Bytes of what each holder sends of a bucket that is coded.
  int64_t coded_room(const FsdpHolders& holders) const;
  at::Tensor own_part(int bucket, const FsdpHolders& holders);
  at::Tensor as_numbers(const Gather& gather);
  void start_gathers(const Operation& operation);
  void finish_gathers();

  const Options options_;
  const std::vector<FsdpHolders> holders_;  // by bucket
  FsdpTraffic traffic_;
  FsdpSums sums_;
  int64_t moved_before_;
  Operation operation_;
  bool last_ = false;
  std::vector<char> contributes_;
  std::map<int, at::Tensor> parameters_;  // by bucket, of the operations at hand
  std::map<int, at::Tensor> gradients_;   // by bucket, of the operation at work
  std::vector<Gather> gathers_;           // under way
};

}  // namespace sluice::runtime
