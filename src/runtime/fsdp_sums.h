// Gradients on their way into the sums of lanes that share parameters.
//
// Where a group lies on several nodes gradients are summed in runs of lanes inside nodes first
// (strategy::FsdpRuns): of each run's parts a lane sums those of its own place in the run. While the next
// operation is at work it sends each of these to the lane of that place in the part's run, which adds them
// run by run. The sums of runs of one operation and those between runs of the operation before are one
// exchange; so are those of pieces of a cell's last operation (cost::last_pieces). What travels in fewer bits
// is made numbers again before it is added.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "base/interval.h"
#include "cost/pass_times.h"
#include "ops/memory_account.h"
#include "runtime/fsdp_channel.h"
#include "runtime/parameter_store.h"
#include "runtime/wire_codec.h"
#include "strategy/strategy.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {

// Who holds the shard of a bucket that a member of a share group computes with: the whole group, or of
// experts' those that have the same experts, every `stride`-th. They sum in runs of neighbours.
struct FsdpHolders {
  int64_t elements = 0;  // of the shard
  int stride = 1;
  int count = 1;
  int own = 0;                        // this one
  int run = 1;                        // holders of a run
  std::vector<base::Interval> exact;  // of the shard: what no codec may change

  int runs() const { return count / run; }
  int own_run() const { return own / run; }
  // The holder of a run that has this one's place there.
  int alike(int of_run) const { return of_run * run + own % run; }
  // Of the group, the member that is a holder of what `member` holds some of.
  int member(int holder, int member) const { return holder * stride + member % stride; }
  base::Interval part(int holder) const;
  CodedPart coded(strategy::Codec codec, int holder) const;
  // Whether sums are made in runs, then between them.
  bool in_runs() const { return run > 1 && runs() > 1; }
};
// By bucket. `run_lanes`: strategy::FsdpRuns::lanes.
std::vector<FsdpHolders> fsdp_holders(const model::ParameterTable& table, const strategy::Pipeline& pipeline,
                                      int member, int t, int run_lanes);

// Something that went beside the operations, for timelines: a gather for an operation, or a sum of its
// gradients. From its issue until it was found done.
struct FsdpMove {
  int node = 0;  // of the cell that issued it
  int64_t position = 0;
  cost::Movement movement = cost::Movement::kGather;
  std::chrono::steady_clock::time_point start, end;
};

// What the moves of a step share.
struct FsdpTraffic {
  ParameterStore& store;
  FsdpChannel& channel;
  ops::MemoryAccount& memory;
  int node = -1;  // of the cell at work
  int64_t waited_ns = 0;
  std::vector<FsdpMove> moves = {};

  size_t note(int64_t position, cost::Movement movement);
  void wait(FsdpChannel::Passing& passing, const at::Device& device);
  at::Tensor take(int64_t elements, const at::TensorOptions& options);
  void give_back(const at::Tensor& tensor);
};

class FsdpSums {
 public:
  // `seed`: of this step, on this rank. `spans_nodes`: whether the group does.
  FsdpSums(FsdpTraffic& traffic, const std::vector<FsdpHolders>& holders, const strategy::LevelCodecs& codecs,
           bool spans_nodes, uint64_t seed)
      : traffic_(traffic), holders_(holders), codecs_(codecs), spans_nodes_(spans_nodes), seed_(seed) {}

  // This member's gradients of a bucket, undefined where it has none, which it took; `contributes`: which
  // holders have some; `in_pieces`: whether sums in runs may go so (cost::last_pieces).
  void add(int bucket, int64_t position, const std::vector<char>& contributes, const at::Tensor& made,
           bool in_pieces);
  bool any() const { return !sums_.empty() || !behind_.empty(); }
  // Begins to send all that waits; returns when all that was begun is added.
  void start();
  void finish();

 private:
  // What came: of a holder, a part as it travels.
  struct Came {
    int from = 0;
    int part = 0;
    at::Tensor numbers;
  };
  struct Sum {
    int bucket = 0;
    int64_t position = 0;
    int piece = 0;  // of so many
    int pieces = 1;
    std::vector<char> contributes;  // by holder
    bool between = false;           // runs, whose own sums are there
    strategy::Codec codec = strategy::Codec::kNone;
    // By the holder whose part it is: as it travels, or as it is where this member adds it up. Empty where
    // the member has none; between runs those of its own place alone.
    std::vector<at::Tensor> parts;
    std::vector<at::Tensor> taken;  // what all of this lies in
    std::vector<Came> came;
    size_t move = 0;
  };
  using Parcels = std::vector<FsdpChannel::Parcel>;

  const FsdpHolders& holders_of(const Sum& sum) const { return holders_[static_cast<size_t>(sum.bucket)]; }
  int member_of(const FsdpHolders& holders, int holder) const {
    return holders.member(holder, traffic_.channel.member());
  }
  strategy::Codec first_codec(const FsdpHolders& holders) const;
  // What a sum has of a holder's part.
  base::Interval part(const Sum& sum, int holder) const;
  bool gives(const Sum& sum, int run) const;
  // Whether this member adds up a holder's part in what is under way.
  bool adds_up(const Sum& sum, int holder) const;
  at::Tensor taken(Sum& sum, int64_t elements, const at::TensorOptions& options);
  void let_go(std::vector<at::Tensor>& taken);
  // The same parts as they travel; those that are added up here in memory of their own.
  void code(Sum& sum);
  void expect(Sum& sum, int from, int part, Parcels& parcels);
  void pack_in_run(Sum& sum, Parcels& parcels);
  void pack_between(Sum& sum, Parcels& parcels);
  void add_came(const Sum& sum, int from, int part, const at::Tensor& into) const;
  // What this member's run has of a part, in the order of its lanes.
  void add_in_run(const Sum& sum, int part, const at::Tensor& into) const;
  // What runs have of this member's own part, in their order.
  void add_runs(const Sum& sum, const at::Tensor& into) const;
  Sum sums_of_run(const Sum& sum);

  FsdpTraffic& traffic_;
  const std::vector<FsdpHolders>& holders_;
  strategy::LevelCodecs codecs_;
  bool spans_nodes_;
  uint64_t seed_;
  std::vector<Sum> sums_;                   // the oldest first
  std::map<int, std::vector<Sum>> behind_;  // by piece, each of which waits until the one before is there
  std::optional<FsdpChannel::Passing> passing_;
};

}  // namespace sluice::runtime
