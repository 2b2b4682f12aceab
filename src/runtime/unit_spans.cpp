#include "runtime/unit_spans.h"

#include <map>

#include "base/interval.h"
#include "strategy/branches.h"

namespace sluice::runtime {

using layers::PieceSpan;

std::vector<PieceSpan> unit_spans(const strategy::Unit& unit, int lane, const strategy::StepPlan& plan) {
  // By sequence of the plan; shared ones first, so that all lanes number these alike.
  std::map<int32_t, int> numbers;
  int next = 0;
  const auto number = [&](const std::vector<strategy::UnitSequence>& sequences) {
    for (const strategy::UnitSequence& of : sequences) {
      numbers[of.sequence] = next;
      next += 1 + static_cast<int>(plan.sequences[static_cast<size_t>(of.sequence)].branches.size());
    }
  };
  number(unit.sequences);
  const int shared_numbers = next;
  if (!unit.own.empty()) number(unit.own[static_cast<size_t>(lane - unit.first_lane)]);
  std::vector<PieceSpan> spans;
  for (const strategy::Piece& piece : unit.pieces_on(lane)) {
    const strategy::Sequence& sequence = plan.sequences[static_cast<size_t>(piece.sequence)];
    const int first = numbers.at(piece.sequence);
    // One token lies on one lane even where it is cut.
    const bool cut = strategy::exchanges_heads(unit.exchange) && first < shared_numbers;
    const bool shared = cut || !plan.is_whole(piece);
    const int family = sequence.branches.empty() ? -1 : first;
    strategy::for_each_part(sequence, piece, [&](int branch, base::Interval tokens) {
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
