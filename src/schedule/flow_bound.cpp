#include "schedule/flow_bound.h"

#include <algorithm>

namespace sluice::schedule {
namespace {

// The lowest stage that gradients reach; without backwards the last stage.
size_t lowest_stage(const MicroBatchTable& table, int row) {
  return static_cast<size_t>(std::min(table.head(row).first_backward_stage, table.stages() - 1));
}

}  // namespace

int64_t FlowBound::at_least_ns(const MicroBatchTable& table, std::span<const int> order,
                               int64_t credit_tokens) {
  if (order.empty()) return 0;
  const int64_t last_finish_ns = pass_stages(table, order, credit_tokens);
  const auto stages = static_cast<size_t>(table.stages());
  const size_t lowest = lowest_stage(table, order.front());
  std::vector<int64_t>& tails_ns = heads_ns_;
  tails_ns.assign(stages, 0);
  int64_t least_ns = last_finish_ns;
  for (size_t i = order.size(); i-- > 0;) {
    const MicroBatchTable::Cells* row = table.row(order[i]).data();
    int64_t tail_ns = tails_ns[lowest] += row[lowest].backward_input_ns + row[lowest].backward_weight_ns;
    for (size_t s = lowest + 1; s < stages; ++s) {
      tail_ns = tails_ns[s] =
          std::max(tails_ns[s], tail_ns + row[s - 1].transfer_ns) + row[s].backward_input_ns;
    }
    least_ns = std::max(least_ns, reached_ns_[i] + tail_ns);
    if (i + 1 == order.size()) {
      least_ns = std::max(least_ns, turned_ns_ + tail_ns - row[stages - 1].backward_input_ns);
    }
  }
  return least_ns;
}

int64_t FlowBound::at_least_ns(const MicroBatchTable& table, std::span<const int> order, int lanes,
                               int64_t credit_tokens, int64_t enough_ns) {
  if (lanes == 1) return at_least_ns(table, order, credit_tokens);
  int64_t least_ns = 0;
  for (int lane = 0; lane < lanes && least_ns <= enough_ns; ++lane) {
    lane_order_.clear();
    for (const int row : order) {
      const MicroBatchTable::Head& head = table.head(row);
      if (lane >= head.first_lane && lane < head.first_lane + head.lanes) lane_order_.push_back(row);
    }
    least_ns = std::max(least_ns, at_least_ns(table, lane_order_, credit_tokens));
  }
  return least_ns;
}

// Sends one micro-batch after the other through all stages and back. Each stage keeps the order of injection,
// for forwards and for input gradients separately. Their sum bounds the time of the first stage, and of the
// last stage from its first cell on.
int64_t FlowBound::pass_stages(const MicroBatchTable& table, std::span<const int> order,
                               int64_t credit_tokens) {
  const auto stages = static_cast<size_t>(table.stages());
  const size_t last = stages - 1;
  const size_t lowest = lowest_stage(table, order.front());
  heads_ns_.assign(stages, 0);
  returns_ns_.assign(stages, 0);
  reached_ns_.resize(order.size());
  finished_ns_.resize(order.size());
  int64_t first_ns = 0, last_ns = 0, used_tokens = 0, finished_ns = 0;
  turned_ns_ = 0;
  size_t oldest = 0;  // the oldest in flight when micro-batch i begins
  for (size_t i = 0; i < reached_ns_.size(); ++i) {
    const MicroBatchTable::Cells* row = table.row(order[i]).data();
    for (used_tokens += table.head(order[i]).tokens; used_tokens > credit_tokens; ++oldest) {
      used_tokens -= table.head(order[oldest]).tokens;
      heads_ns_[0] = std::max(heads_ns_[0], finished_ns_[oldest]);
    }
    int64_t end_ns = heads_ns_[0] += row[0].forward_ns;
    for (size_t s = 1; s < stages; ++s) {
      end_ns = heads_ns_[s] = std::max(heads_ns_[s], end_ns + row[s - 1].transfer_ns) + row[s].forward_ns;
    }
    reached_ns_[i] = end_ns;
    if (i == 0) turned_ns_ = last_ns = end_ns - row[last].forward_ns;
    turned_ns_ += row[last].forward_ns + row[last].backward_input_ns;
    last_ns += row[last].all_ns();
    first_ns += row[0].all_ns();
    end_ns = returns_ns_[last] =
        std::max(std::max(returns_ns_[last], end_ns) + row[last].backward_input_ns, turned_ns_);
    for (size_t s = last; s-- > lowest;) {
      end_ns = returns_ns_[s] =
          std::max(returns_ns_[s], end_ns + row[s].transfer_ns) + row[s].backward_input_ns;
    }
    finished_ns = std::max({finished_ns, end_ns + row[lowest].backward_weight_ns, first_ns, last_ns});
    finished_ns_[i] = finished_ns;
  }
  return finished_ns;
}

}  // namespace sluice::schedule
