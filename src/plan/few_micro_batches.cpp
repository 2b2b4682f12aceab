#include "plan/few_micro_batches.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/never.h"

namespace sluice::plan {
namespace {

// Deals sequences, longest first, to so many lanes, each to the lane with
// the fewest tokens. `ring`: one micro-batch that cuts the longest over
// all lanes and keeps the rest whole; otherwise one micro-batch per lane.
std::vector<strategy::PipelineMicroBatch> few_micro_batches(
    std::span<const strategy::MicroBatchSequence> sequences, int lanes, bool ring) {
  std::vector<int64_t> tokens(static_cast<size_t>(lanes), 0);
  std::vector<std::vector<strategy::MicroBatchSequence>> dealt(tokens.size());
  for (const strategy::MicroBatchSequence& sequence : sequences.subspan(ring ? 1 : 0)) {
    const auto least = std::ranges::min_element(tokens) - tokens.begin();
    tokens[static_cast<size_t>(least)] += sequence.length_tokens;
    dealt[static_cast<size_t>(least)].push_back(sequence);
  }
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  if (ring) {
    micro_batches.push_back({.lanes = lanes, .sequences = {sequences.front()}, .own = std::move(dealt)});
    if (sequences.size() == 1) micro_batches.back().own.clear();
    return micro_batches;
  }
  for (int lane = 0; lane < lanes; ++lane)
    micro_batches.push_back({.first_lane = lane, .sequences = std::move(dealt[static_cast<size_t>(lane)])});
  return micro_batches;
}

}  // namespace

void start_from_few_micro_batches(const Packing& packing, int64_t most_cells, MicroBatchImprover& improver,
                                  TimedMicroBatches& best) {
  const auto start = [&](int lanes, bool ring) {
    TimedMicroBatches next{.micro_batches = few_micro_batches(packing.sequences, lanes, ring)};
    const bool fit =
        std::ranges::all_of(next.micro_batches, [&](const strategy::PipelineMicroBatch& micro_batch) {
          return micro_batch.tokens() <= packing.scheme.lane_max_len_tokens();
        });
    if (!fit || best.makespan_ns <= packing.options.enough_ns) return;
    next.makespan_ns = improver.makespan_ns(next.micro_batches, base::kNever - 1);
    improver.improve(next, most_cells);
    if (next.makespan_ns < best.makespan_ns) best = std::move(next);
  };
  const auto count = static_cast<int>(packing.sequences.size());
  for (const int lanes : improver.widths()) {
    if (lanes <= count) start(lanes, false);
    if (lanes > 1 && count > 0 && packing.length(0) >= int64_t{2} * lanes) start(lanes, true);
  }
}

}  // namespace sluice::plan
