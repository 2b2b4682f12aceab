// The parameters that a rank has at hand where lanes share them: those of the operation at work and of the
// next one, gathered, and the gradients of the one at work and of the one before, on their way into their
// sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "base/interval.h"
#include "cost/pass_times.h"
#include "ops/memory_account.h"
#include "runtime/parameter_store.h"
#include "runtime/share_channel.h"
#include "strategy/strategy.h"

namespace sluice::runtime {

// For one step. All members of a share group go through the same operations in the same order, those without
// tokens too. Around each operation it issues the gather of the next one, then the sum of the one before, and
// waits for both behind it (cost::pass_ns): never more than two operations are at hand.
//
// Where a group lies on several nodes gradients are summed in runs of lanes inside nodes first
// (strategy::ShareRuns): of each run's parts a lane sums those of its own place in the run. While the next
// operation is at work it sends each of these to the lane of that place in the part's run, which adds them
// run by run. The sums of runs of one operation and those between runs of the operation before are one
// exchange.
class ShareWindow {
 public:
  struct Operation {
    int64_t position = 0;      // in the model program
    std::vector<int> buckets;  // ascending
    bool gathers = true;       // their parameters, which are not there yet
    bool keeps = false;        // them at hand, for an operation that gathers nothing
    bool makes_gradients = false;
    bool sums_gradients = false;  // of those that it makes; others are gone behind it
  };

  // Something that went beside the operations, for timelines: a gather for an operation, or a sum of its
  // gradients. From its issue until it was found done.
  struct Move {
    int node = 0;  // of the cell that issued it
    int64_t position = 0;
    cost::Movement movement = cost::Movement::kGather;
    std::chrono::steady_clock::time_point start, end;
  };

  // `pipeline`: the group's. `run_lanes`: strategy::ShareRuns::lanes. What is at hand counts in `memory`.
  ShareWindow(ParameterStore& store, ShareChannel& channel, const strategy::Pipeline& pipeline, int t,
              int run_lanes, ops::MemoryAccount& memory);

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

  // Of this step: parameters received from others and gradients sent to them, and how long it has waited for
  // either.
  int64_t moved_bytes() const { return channel_.moved_bytes() - moved_before_; }
  int64_t waited_ns() const { return waited_ns_; }
  const std::vector<Move>& moves() const { return moves_; }

 private:
  struct Gather {
    int bucket = 0;
    at::Tensor whole;
    ShareChannel::Passing passing;
    size_t move = 0;  // index
  };
  // Who holds the shard of a bucket that this member computes with: the whole group, or of experts' those
  // that have the same experts, every `stride`-th. They sum in runs of neighbours.
  struct Holders {
    int64_t elements = 0;  // of the shard
    int stride = 1;
    int count = 1;
    int own = 0;  // this one
    int run = 1;  // holders of a run

    int runs() const { return count / run; }
    int own_run() const { return own / run; }
    // The holder of a run that has this one's place there.
    int alike(int of_run) const { return of_run * run + own % run; }
  };
  struct Sum {
    int bucket = 0;
    int64_t position = 0;
    std::vector<char> contributes;  // by holder
    bool between = false;           // runs, whose own sums are there
    // As they travel, and empty where there are none: the member's gradients, between runs the sums of its
    // run that it has made, by run. And what came of others: by member of the run, or by run.
    at::Tensor sent;
    at::Tensor received;
    size_t move = 0;  // index
  };

  bool trained(int bucket) const;
  const Holders& holders_of(int bucket) const { return holders_[static_cast<size_t>(bucket)]; }
  int member_of(const Holders& holders, int holder) const {
    return holder * holders.stride + channel_.member() % holders.stride;
  }
  // Whether the lanes that visit a holder have tokens, itself or its expert group.
  bool contributes(const Holders& holders, int holder) const;
  size_t note_move(int64_t position, cost::Movement movement);
  // Which is on the device of the step.
  void wait(ShareChannel::Passing& passing, const at::Device& device);
  at::Tensor take(int64_t elements, const at::TensorOptions& options);
  void give_back(const at::Tensor& tensor);
  // The format of gradients between lanes, and gradients that were made in it; empty where there are none.
  at::TensorOptions travelling() const;
  at::Tensor as_they_travel(at::Tensor made);
  void start_gathers(const Operation& operation);
  void finish_gathers();
  void start_sums();
  void finish_sums();

  bool gives(const Sum& sum, int run) const;
  base::Interval part_of(int bucket, int holder) const;
  // Of this lane's place: where the part of a run begins when all runs' lie end to end.
  int64_t offset_of(int bucket, int run) const;
  using Parcels = std::vector<ShareChannel::Parcel>;
  void pack_in_run(Sum& sum, Parcels& parcels);
  void pack_between(Sum& sum, Parcels& parcels);
  // To `into`, the part of this lane's place in `run`: what its own run's lanes have of it, in their order.
  void add_in_run(const Sum& sum, int run, const at::Tensor& into) const;
  at::Tensor sums_of_run(const Sum& sum);
  // The runs' sums of this lane's own part, in their order.
  void add_runs(const Sum& sum, const at::Tensor& into) const;

  ParameterStore& store_;
  ShareChannel& channel_;
  std::vector<Holders> holders_;  // by bucket
  ops::MemoryAccount& memory_;
  int64_t moved_before_;
  int64_t waited_ns_ = 0;
  std::vector<Move> moves_;
  int node_ = -1;
  Operation operation_;
  bool last_ = false;
  std::vector<char> contributes_;
  std::map<int, at::Tensor> parameters_;  // by bucket, of the operations at hand
  std::map<int, at::Tensor> gradients_;   // by bucket, of the operation at work
  std::vector<Gather> gathers_;           // under way
  std::vector<Sum> sums_;                 // of the operations before, the oldest first
  std::optional<ShareChannel::Passing> summing_;
};

}  // namespace sluice::runtime
