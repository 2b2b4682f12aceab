#include "published/lane_reference.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::published {
LaneReference::LaneReference(const strategy::Scheme& scheme, int64_t lane_tokens,
                             std::span<const int64_t> lengths, const cost::CostModel& cost, int world_size)
    : cost_(cost::choosing_from(cost, {.heads = false, .nested = false})),
      scheme_(scheme, cost_, world_size),
      pipeline_(strategy::parse_strategy(base::text("1x", to_text(scheme)), world_size).pipelines.front()),
      lane_tokens_(scheme_.lane_max_len_tokens()),
      lengths_(lengths) {
  if (lane_tokens > 0) lane_tokens_ = std::min(lane_tokens_, lane_tokens);
}

std::optional<base::Infeasible> LaneReference::lacks_lanes() const {
  if (lengths_.empty()) return std::nullopt;
  const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
  if (lane_tokens_ > 0 && fewest_lanes(longest) <= lanes()) return std::nullopt;
  return base::Infeasible{base::text("a sequence of ", longest, " tokens needs more than the ", lanes(),
                                     " lanes of ", to_text(scheme_.scheme()), ", each of which holds ",
                                     lane_tokens_, " tokens: raise cp or tp")};
}

std::vector<int> LaneReference::longest_first() const {
  std::vector<int> order(lengths_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return length(a) > length(b); });
  return order;
}

int LaneReference::fewest_lanes(int64_t length) const {
  if (length <= lane_tokens_) return 1;
  const int64_t two_chunks = std::max<int64_t>(2, lane_tokens_ / 2 * 2);
  return static_cast<int>((length + two_chunks - 1) / two_chunks);
}

int64_t LaneReference::micro_batch_ns(const strategy::PipelineMicroBatch& micro_batch) const {
  cost::Work work;
  for (const strategy::MicroBatchSequence& sequence : micro_batch.sequences)
    work += scheme_.share_of(sequence.length_tokens, micro_batch.lanes);
  return scheme_.micro_batch_work_ns(work, micro_batch.lanes);
}

strategy::StepPlan LaneReference::plan(std::vector<strategy::PipelineMicroBatch> micro_batches) const {
  micro_batches = strategy::in_injection_order(std::move(micro_batches), lanes());
  plan::MicroBatchTimer timer(pipeline_, scheme_);
  strategy::StepPlan plan;
  for (const int64_t length : lengths_) plan.sequences.push_back({.length_tokens = length});
  plan.estimated_ns = timer.makespan_ns(micro_batches);
  plan.pipelines.push_back(timer.plan(std::move(micro_batches)));
  return plan;
}

}  // namespace sluice::published
