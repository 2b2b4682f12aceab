// Reduce-scatter of gradients in FSDP share groups.
//
// A group that spans nodes sums gradients inside nodes first, in runs of lanes (strategy::FsdpRuns). Each run
// has as many parts as lanes; the lane at place i of its run sums the parts with place i. While the next
// operation computes, it sends each sum to the lane of that place in the part's run, which adds the sums run
// by run. Sums in runs of one operation and sums between runs of the operation before share one exchange, and
// so do the pieces of a cell's last operation (cost::last_pieces). Coded numbers are decoded before they are
// added.
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

// Holders of the shard of a bucket that a member of a share group computes with. They are the whole group or,
// for experts, the members with the same experts, every `stride`-th. Runs of neighbouring holders sum first.
struct FsdpHolders {
  int64_t elements = 0;  // elements of the shard
  int stride = 1;
  int count = 1;
  int own = 0;                        // this member's index among the holders
  int run = 1;                        // holders of a run
  std::vector<base::Interval> exact;  // intervals of the shard that no codec may change

  int runs() const { return count / run; }
  int own_run() const { return own / run; }
  // The holder in run `of_run` with this holder's place inside its run.
  int alike(int of_run) const { return of_run * run + own % run; }
  // The group member that is the holder of this index for the shard that `member` holds a part of.
  int member(int holder, int member) const { return holder * stride + member % stride; }
  base::Interval part(int holder) const;
  CodedPart coded(strategy::Codec codec, int holder) const;
  // Whether gradients are summed in runs first, then between runs.
  bool in_runs() const { return run > 1 && runs() > 1; }
};
// By bucket. `run_lanes`: strategy::FsdpRuns::lanes.
std::vector<FsdpHolders> fsdp_holders(const model::ParameterTable& table, const strategy::Pipeline& pipeline,
                                      int member, int t, int run_lanes);

// A transfer beside the operations, for timelines: an all-gather for an operation or a reduce-scatter of its
// gradients. It lasts from its issue until it was found done.
struct FsdpMove {
  int node = 0;  // id of the cell's node that issued it
  int64_t position = 0;
  cost::Movement movement = cost::Movement::kGather;
  std::chrono::steady_clock::time_point start, end;
};

// State that all moves of a step share.
struct FsdpTraffic {
  ParameterStore& store;
  FsdpChannel& channel;
  ops::MemoryAccount& memory;
  int node = -1;  // the current cell's node
  std::vector<FsdpMove> moves = {};

  size_t note(int64_t position, cost::Movement movement);
  at::Tensor take(int64_t elements, const at::TensorOptions& options);
  void give_back(const at::Tensor& tensor);
};

class FsdpSums {
 public:
  // `seed`: differs for each step and rank. `spans_nodes`: whether the share group does.
  FsdpSums(FsdpTraffic& traffic, const std::vector<FsdpHolders>& holders, const strategy::LevelCodecs& codecs,
           bool spans_nodes, uint64_t seed)
      : traffic_(traffic), holders_(holders), codecs_(codecs), spans_nodes_(spans_nodes), seed_(seed) {}

  // Adds and takes over this member's gradients of a bucket; undefined: it has none. `contributes`: by
  // holder, whether it has gradients. `in_pieces`: sums in runs may go in pieces (cost::last_pieces).
  void add(int bucket, int64_t position, const std::vector<char>& contributes, const at::Tensor& made,
           bool in_pieces);
  bool any() const { return !sums_.empty() || !behind_.empty(); }
  // start() begins to send all waiting sums; finish() returns when all sums that were begun are added.
  void start();
  void finish();

 private:
  // A part of a sum that has come from a holder, as it travels.
  struct Came {
    int from = 0;
    int part = 0;
    at::Tensor numbers;
  };
  struct Sum {
    int bucket = 0;
    int64_t position = 0;
    int piece = 0;  // index among `pieces`
    int pieces = 1;
    std::vector<char> contributes;  // by holder
    bool between = false;           // a sum between runs: the runs' own sums are made
    strategy::Codec codec = strategy::Codec::kNone;
    // By the part's holder: as it travels, or uncoded if this member adds it up. Empty if the member has no
    // gradients; between runs, only parts of its own place are set.
    std::vector<at::Tensor> parts;
    std::vector<at::Tensor> taken;  // memory of the parts and of `came`
    std::vector<Came> came;
    size_t move = 0;
  };
  using Parcels = std::vector<FsdpChannel::Parcel>;

  const FsdpHolders& holders_of(const Sum& sum) const { return holders_[static_cast<size_t>(sum.bucket)]; }
  int member_of(const FsdpHolders& holders, int holder) const {
    return holders.member(holder, traffic_.channel.member());
  }
  strategy::Codec first_codec(const FsdpHolders& holders) const;
  // The interval of a holder's part that a sum covers: one piece of it.
  base::Interval part(const Sum& sum, int holder) const;
  bool gives(const Sum& sum, int run) const;
  // Whether this member adds up a holder's part in this stage of the sum.
  bool adds_up(const Sum& sum, int holder) const;
  at::Tensor taken(Sum& sum, int64_t elements, const at::TensorOptions& options);
  void let_go(std::vector<at::Tensor>& taken);
  // Codes the parts for travel; copies parts that this member adds up to memory of their own.
  void code(Sum& sum);
  void expect(Sum& sum, int from, int part, Parcels& parcels);
  void pack_in_run(Sum& sum, Parcels& parcels);
  void pack_between(Sum& sum, Parcels& parcels);
  void add_came(const Sum& sum, int from, int part, const at::Tensor& into) const;
  // Adds all parts of the lanes in this member's run, in the order of lanes.
  void add_in_run(const Sum& sum, int part, const at::Tensor& into) const;
  // Adds all runs' sums of this member's own part, in the order of runs.
  void add_runs(const Sum& sum, const at::Tensor& into) const;
  Sum sums_of_run(const Sum& sum);

  FsdpTraffic& traffic_;
  const std::vector<FsdpHolders>& holders_;
  strategy::LevelCodecs codecs_;
  bool spans_nodes_;
  uint64_t seed_;
  std::vector<Sum> sums_;                   // oldest first
  std::map<int, std::vector<Sum>> behind_;  // by piece; each waits for the one before
  std::optional<FsdpChannel::Passing> passing_;
};

}  // namespace sluice::runtime
