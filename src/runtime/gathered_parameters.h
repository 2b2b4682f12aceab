// Parameters and gradients that a rank holds whole under FSDP. Parameters: those of the current operation and
// of the next one, gathered. Gradients: those of the current operation and of the one before, on their way
// into their reduce-scatter.
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

// For one step. All members of a share group run the same operations in the same order, also those without
// tokens. Around each operation the rank issues the gather of the next one, then the sum of the one before.
// It waits for both afterwards (cost::pass_ns), so never more than two operations are gathered.
class GatheredParameters {
 public:
  struct Operation {
    int64_t position = 0;      // in the model program
    std::vector<int> buckets;  // ascending
    bool gathers = true;       // gathers its parameters, which are not there yet
    bool keeps = false;        // keeps its parameters for an operation that gathers nothing
    bool makes_gradients = false;
    bool sums_gradients = false;  // reduce-scatters the gradients that it makes; else they are dropped
  };

  struct Options {
    int run_lanes = 1;  // strategy::FsdpRuns::lanes
    strategy::WireCodecs codecs;
    uint64_t seed = 0;  // differs for each step and rank
  };
  // `pipeline`: the group's. Gathered parameters and gradients are counted in `memory`.
  GatheredParameters(ParameterStore& store, FsdpChannel& channel, const strategy::Pipeline& pipeline, int t,
                     ops::MemoryAccount& memory, const Options& options);

  // Begins the operation that follows the last one. `next`: the operation after it; null: it ends its pass.
  // `contributes`: by member, whether it has tokens; only those add gradients. Experts' gradients come from
  // members whose expert group has tokens. `node`: the cell's.
  void begin(const Operation& operation, const Operation* next, const std::vector<char>& contributes,
             int node);
  // Whether the parameters of the current operation are gathered.
  bool holds(const Operation& operation) const { return parameters_.contains(operation.buckets.front()); }
  // The whole shards of the current operation, one-dimensional. Gradients start at zero.
  at::Tensor parameters(int bucket) const;
  // Undefined if this lane makes no gradients of the bucket.
  at::Tensor gradients(int bucket) const {
    const auto made = gradients_.find(bucket);
    return made == gradients_.end() ? at::Tensor() : made->second;
  }
  void end();

  // In this step: bytes received of others' parameters plus bytes sent of gradients.
  int64_t moved_bytes() const { return traffic_.channel.moved_bytes() - moved_before_; }
  const std::vector<FsdpMove>& moves() const { return traffic_.moves; }

 private:
  struct Gather {
    int bucket = 0;
    at::Tensor own;   // as it travels
    at::Tensor came;  // parts of all holders
    FsdpChannel::Passing passing;
    size_t move = 0;  // index
  };

  bool trained(int bucket) const {
    return traffic_.store.table().buckets[static_cast<size_t>(bucket)].trained;
  }
  const FsdpHolders& holders_of(int bucket) const { return holders_[static_cast<size_t>(bucket)]; }
  // Whether any lane that visits the holder's parameters has tokens: itself or its expert group's.
  bool contributes(const FsdpHolders& holders, int holder) const;
  // Bytes that each holder sends for a coded bucket.
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
  std::vector<Gather> gathers_;           // not finished yet
};

}  // namespace sluice::runtime
