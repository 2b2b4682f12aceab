#include "runtime/unit_spans.h"

#include <map>

#include "base/interval.h"

namespace sluice::runtime {
namespace {

using layers::PieceSpan;

// Adds a piece's part of the prefix, and its parts of branches; `first`: the number of the prefix in the
// unit.
void add_family(const strategy::Piece& piece, const strategy::Sequence& sequence, int first, bool shared,
                std::vector<PieceSpan>& spans) {
  const int64_t prefix = sequence.prefix_tokens();
  const base::Interval rows{piece.begin, piece.end};
  const base::Interval of_prefix = base::intersect(rows, {0, prefix});
  if (!of_prefix.empty()) {
    spans.push_back({.length = of_prefix.size(),
                     .begin = of_prefix.begin,
                     .shared = shared ? first : -1,
                     .family = first});
  }
  int64_t begin = prefix;
  int number = first;
  for (const int64_t length : sequence.branches) {
    ++number;
    const base::Interval part = base::intersect(rows, {begin, begin + length});
    if (!part.empty()) {
      spans.push_back({.length = part.size(),
                       .begin = prefix + part.begin - begin,
                       .shared = shared ? number : -1,
                       .family = first,
                       .branch = true});
    }
    begin += length;
  }
}

}  // namespace

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
  if (!unit.own.empty()) number(unit.own[static_cast<size_t>(lane - unit.first_lane)]);
  std::vector<PieceSpan> spans;
  for (const strategy::Piece& piece : unit.pieces_on(lane)) {
    const strategy::Sequence& sequence = plan.sequences[static_cast<size_t>(piece.sequence)];
    const int first = numbers.at(piece.sequence);
    const bool shared = unit.head_lanes() > 1 || !plan.is_whole(piece);
    if (!sequence.branches.empty()) {
      add_family(piece, sequence, first, shared, spans);
    } else {
      spans.push_back({.length = piece.tokens(), .begin = piece.begin, .shared = shared ? first : -1});
    }
  }
  return spans;
}

}  // namespace sluice::runtime
