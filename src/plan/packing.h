// What all packers are given and give back: a pipeline's sequences, and micro-batches of which the schedule
// says when they end.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "plan/lane_runs.h"
#include "plan/scheme_cost.h"
#include "plan/seeds.h"
#include "schedule/micro_batch_table.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/recurrence.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

struct PackOptions {
  bool improves = false;  // by local search (plan/improve.h) behind the packer
  int64_t enough_ns = 0;  // a packing that ends by then is good enough
  Seeds seeds;
  // Only a packing that ends sooner is looked for.
  int64_t below_ns = std::numeric_limits<int64_t>::max();
};

// Micro-batches in the order of injection, and when the schedule that will run ends with them, each with the
// exchange that costs it least.
struct TimedMicroBatches {
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  int64_t makespan_ns = 0;
};

// Times micro-batches of one pipeline, in their order of injection, each of several lanes with the exchange
// that costs it least. What it is made from must outlive it.
class MicroBatchTimer {
 public:
  MicroBatchTimer(const strategy::Pipeline& pipeline, const SchemeCost& scheme);

  // schedule::Recurrence::kLate above `limit_ns`. REQUIRES: each micro-batch fits its lanes; where lanes
  // share parameters each has a pass.
  int64_t makespan_ns(std::span<const strategy::PipelineMicroBatch> micro_batches,
                      int64_t limit_ns = schedule::Recurrence::kLate - 1);
  // By lane, schedule::Recurrence::ends_ns of the micro-batches timed last.
  const std::vector<int64_t>& ends_ns() const { return recurrence_.ends_ns(); }
  // Sequences of a micro-batch in ascending order; micro-batches of several lanes are numbered in the order
  // of injection.
  strategy::PipelinePlan plan(std::vector<strategy::PipelineMicroBatch> micro_batches) const;
  const schedule::MicroBatchTimes& times() const { return times_; }

 private:
  struct ContentHash {
    size_t operator()(const std::vector<int64_t>& content) const {
      return base::hash_bytes(content.data(), content.size() * sizeof(int64_t));
    }
  };

  cost::ExchangeChoice exchange_of(const strategy::PipelineMicroBatch& micro_batch) const {
    return times_.cheapest_exchange(micro_batch, scheme_.lane_max_len_tokens());
  }

  void choose_exchange(strategy::PipelineMicroBatch& micro_batch) const;
  // Where lanes share nothing: its row in the table, timed where none like it was before.
  int row_of(const strategy::PipelineMicroBatch& micro_batch);

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  schedule::MicroBatchTimes times_;
  schedule::MicroBatchTable table_;
  // Of the micro-batches that were ever timed, by lanes and lengths: a search's neighbours differ in few of
  // them.
  std::unordered_map<std::vector<int64_t>, int, ContentHash> rows_;
  std::vector<int64_t> content_;
  schedule::Recurrence recurrence_;
  std::vector<int> order_;  // rows, in the order of injection
};

// One pipeline's sequences, which packers know by their places. What it is made from must outlive it.
struct Packing {
  // `members`: indices into `lengths`. REQUIRES: every length <= of.max_len_tokens().
  Packing(const strategy::Pipeline& pipeline, const SchemeCost& of, std::span<const int64_t> all_lengths,
          std::span<const int> members, const PackOptions& with);

  int lanes() const { return scheme.scheme().cp; }
  int64_t length(int place) const { return lengths[static_cast<size_t>(place)]; }
  const strategy::MicroBatchSequence& sequence(int place) const {
    return sequences[static_cast<size_t>(place)];
  }

  const strategy::Pipeline& pipeline;
  const SchemeCost& scheme;
  PackOptions options;
  std::vector<strategy::MicroBatchSequence> sequences;  // the longest first, equal ones as in `members`
  std::vector<int64_t> lengths;                         // of these
  std::vector<LaneRun> nodes;                           // the runs of lanes that lie inside one node
  int node_lanes = 1;                                   // the most of these
  MicroBatchTimer timer;
};

}  // namespace sluice::plan
