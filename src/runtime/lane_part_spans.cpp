#include "runtime/lane_part_spans.h"

#include <map>

#include "base/interval.h"
#include "strategy/branches.h"

namespace sluice::runtime {

using layers::PieceSpan;

std::vector<PieceSpan> lane_part_spans(const strategy::PipelineMicroBatch& micro_batch, int lane,
                                       const strategy::StepPlan& plan) {
  // By sequence of the plan, shared ones first, so that all lanes give those the same numbers.
  std::map<int32_t, int> numbers;
  int next = 0;
  const auto number = [&](const std::vector<strategy::MicroBatchSequence>& sequences) {
    for (const strategy::MicroBatchSequence& of : sequences) {
      numbers[of.sequence] = next;
      next += 1 + static_cast<int>(plan.sequences[static_cast<size_t>(of.sequence)].branches.size());
    }
  };
  number(micro_batch.sequences);
  const int shared_numbers = next;
  if (!micro_batch.own.empty()) number(micro_batch.own[static_cast<size_t>(lane - micro_batch.first_lane)]);
  std::vector<PieceSpan> spans;
  for (const strategy::Piece& scheduled : micro_batch.pieces_on(lane)) {
    const strategy::Sequence& sequence = plan.sequences[static_cast<size_t>(scheduled.sequence)];
    const int first = numbers.at(scheduled.sequence);
    // A sequence of one token lies on one lane even under a ring.
    const bool cut = strategy::exchanges_heads(micro_batch.exchange) && first < shared_numbers;
    const bool shared = cut || !plan.is_whole(scheduled);
    const int family = sequence.branches.empty() ? -1 : first;
    strategy::for_each_part(sequence, scheduled, [&](int branch, base::Interval tokens) {
      spans.push_back({.length = tokens.size(),
                       .begin = tokens.begin,
                       .shared = shared ? first + 1 + branch : -1,
                       .family = family,
                       .branch = branch >= 0});
    });
  }
  return spans;
}

}  // namespace sluice::runtime
