#include "train/step_tokens.h"

#include <algorithm>

namespace sluice::train {

namespace {

using strategy::Piece;
using strategy::Sequence;

void append_tokens(const corpus::Blend& blend, const Sequence& sequence, const Piece& piece,
                   std::vector<int64_t>& tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(piece.tokens()));
  blend.read(sequence.document, sequence.begin_token + piece.begin, piece.tokens(), ids.data());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

void append_targets(const corpus::Blend& blend, const Sequence& sequence, const Piece& piece,
                    std::vector<int64_t>& targets) {
  const int64_t count = std::min(piece.end, sequence.length_tokens - 1) - piece.begin;
  const int64_t first = sequence.begin_token + piece.begin + 1;
  std::vector<int32_t> ids(static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::vector<uint8_t> mask(ids.size(), 1);
  if (count > 0) {
    blend.read(sequence.document, first, count, ids.data());
    if (blend.has_mask()) blend.read_mask(sequence.document, first, count, mask.data());
  }
  for (size_t i = 0; i < ids.size(); ++i) targets.push_back(mask[i] != 0 ? ids[i] : -1);
  if (count < piece.tokens()) targets.push_back(-1);
}

}  // namespace

runtime::StepTokens read_step_tokens(const corpus::Blend& blend, const strategy::StepPlan& plan,
                                     int world_size, int rank) {
  const strategy::Place place = strategy::places(plan.strategy(), world_size)[static_cast<size_t>(rank)];
  runtime::StepTokens step;
  if (place.pipeline < 0) return step;
  const strategy::PipelinePlan& pipeline = plan.pipelines[static_cast<size_t>(place.pipeline)];
  const bool first_stage = place.stage == 0;
  const bool last_stage = place.stage == pipeline.pipeline.scheme.pp - 1;
  for (const strategy::Unit& unit : pipeline.units) {
    if (!unit.covers(place.lane)) continue;
    runtime::MicroBatchTokens& rows = step.emplace_back();
    for (const Piece& piece : unit.pieces_on(place.lane)) {
      const Sequence& sequence = plan.sequences[static_cast<size_t>(piece.sequence)];
      if (first_stage) append_tokens(blend, sequence, piece, rows.tokens);
      if (last_stage) append_targets(blend, sequence, piece, rows.targets);
    }
  }
  return step;
}

}  // namespace sluice::train
