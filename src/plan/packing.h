// The input and output of all packers: a pipeline's sequences,
// and micro-batches with the end that the schedule gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/never.h"
#include "plan/lane_runs.h"
#include "plan/scheme_cost.h"
#include "plan/seeds.h"
#include "schedule/micro_batch_table.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/recurrence.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

struct PackOptions {
  bool improves = false;  // runs local search (plan/improve.h) after the packer
  int64_t enough_ns = 0;  // a packing that ends by then is good enough
  Seeds seeds;
  // Only a packing that ends sooner is wanted.
  int64_t below_ns = base::kNever;
};

// Micro-batches in the order of injection, each with the exchange
// that costs it least, and the end of the schedule that will run.
struct TimedMicroBatches {
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  int64_t makespan_ns = 0;
};

// Times micro-batches of one pipeline in their order of injection. Each micro-batch of
// several lanes gets the exchange that costs it least. The arguments must outlive this.
class MicroBatchTimer {
 public:
  MicroBatchTimer(const strategy::Pipeline& pipeline, const SchemeCost& scheme);

  // The end of the schedule; base::kNever if above `limit_ns`. REQUIRES:
  // each micro-batch fits its lanes; each has a pass where lanes share parameters.
  int64_t makespan_ns(std::span<const strategy::PipelineMicroBatch> micro_batches,
                      int64_t limit_ns = base::kNever - 1);
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
  // The micro-batch's row in table_, timed unless an equal one was. For lanes that share nothing.
  int row_of(const strategy::PipelineMicroBatch& micro_batch);

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  schedule::MicroBatchTimes times_;
  schedule::MicroBatchTable table_;
  // Rows of all micro-batches timed so far, by lanes and lengths. A search's
  // neighbours differ in few micro-batches, so most are found here.
  std::unordered_map<std::vector<int64_t>, int, ContentHash> rows_;
  std::vector<int64_t> content_;
  schedule::Recurrence recurrence_;
  std::vector<int> order_;  // rows, in the order of injection
};

// One pipeline's sequences, which packers identify by their places in `sequences`. The arguments must outlive
// this.
struct Packing {
  // `members`: indices into `all_lengths`. REQUIRES: every length <= of.max_len_tokens().
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
  std::vector<int64_t> lengths;                         // lengths of `sequences`
  std::vector<LaneRun> nodes;                           // the runs of lanes that lie inside one node
  int node_lanes = 1;                                   // the longest such run's lanes
  MicroBatchTimer timer;
};

}  // namespace sluice::plan
