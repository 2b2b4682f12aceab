#include "run/step_tokens.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::run {

using strategy::Piece;
using strategy::Sequence;

void BlendTokens::add_tokens(const Sequence& sequence, const Piece& scheduled,
                             runtime::LanePartTokens& rows) const {
  std::vector<int32_t> ids(static_cast<size_t>(scheduled.tokens()));
  blend_.read(sequence.document, sequence.begin_token + scheduled.begin, scheduled.tokens(), ids.data());
  rows.tokens.insert(rows.tokens.end(), ids.begin(), ids.end());
}

void BlendTokens::add_targets(const Sequence& sequence, const Piece& scheduled,
                              runtime::LanePartTokens& rows) const {
  const int64_t count = std::min(scheduled.end, sequence.length_tokens - 1) - scheduled.begin;
  const int64_t first = sequence.begin_token + scheduled.begin + 1;
  std::vector<int32_t> ids(static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::vector<uint8_t> mask(ids.size(), 1);
  if (count > 0) {
    blend_.read(sequence.document, first, count, ids.data());
    if (blend_.has_mask()) blend_.read_mask(sequence.document, first, count, mask.data());
  }
  for (size_t i = 0; i < ids.size(); ++i) rows.targets.push_back(mask[i] != 0 ? ids[i] : -1);
  if (count < scheduled.tokens()) rows.targets.push_back(-1);
}

void TokenSource::add_mtp(const Sequence&, const Piece&, runtime::LanePartTokens&) const {
  SLUICE_ASSERT(false, "an MTP layer learns documents alone");
}

// The target of a row's MTP layer is that of the row behind it.
void BlendTokens::add_mtp(const Sequence& sequence, const Piece& scheduled,
                          runtime::LanePartTokens& rows) const {
  const int64_t length = sequence.length_tokens;
  const Piece next{.sequence = scheduled.sequence,
                   .begin = std::min(scheduled.begin + 1, length),
                   .end = std::min(scheduled.end + 1, length)};
  runtime::LanePartTokens found;
  if (next.tokens() > 0) {
    add_tokens(sequence, next, found);
    BlendTokens::add_targets(sequence, next, found);
  }
  found.tokens.resize(static_cast<size_t>(scheduled.tokens()), -1);
  found.targets.resize(found.tokens.size(), -1);
  rows.next_tokens.insert(rows.next_tokens.end(), found.tokens.begin(), found.tokens.end());
  rows.mtp_targets.insert(rows.mtp_targets.end(), found.targets.begin(), found.targets.end());
}

std::optional<size_t> row_of_text(const Sequence& sequence, const Piece& scheduled, corpus::LabelRow row) {
  if (row == corpus::LabelRow::kFirst) return scheduled.begin == 0 ? std::optional<size_t>(0) : std::nullopt;
  if (scheduled.end != sequence.length_tokens) return std::nullopt;
  return static_cast<size_t>(scheduled.tokens() - 1);
}

void LabelTokens::add_targets(const Sequence& sequence, const Piece& scheduled,
                              runtime::LanePartTokens& rows) const {
  std::vector<std::optional<corpus::RowLabel>> labels(static_cast<size_t>(scheduled.tokens()));
  if (blend_.label_rule()->of_tokens) {
    labels =
        blend_.token_labels(sequence.document, sequence.begin_token + scheduled.begin, scheduled.tokens());
  } else if (const std::optional<size_t> row = row_of_text(sequence, scheduled, blend_.label_rule()->row)) {
    labels[*row] = blend_.row_label(sequence.document);
  }
  for (const std::optional<corpus::RowLabel>& label : labels) {
    rows.targets.push_back(label ? label->target : -1);
    if (label) rows.given.insert(rows.given.end(), label->figures.begin(), label->figures.end());
  }
}

std::unique_ptr<TokenSource> tokens_of(const corpus::Blend& blend) {
  if (blend.label_rule() != nullptr) return std::make_unique<LabelTokens>(blend);
  return std::make_unique<BlendTokens>(blend);
}

void BlendTokens::fetch_ahead(std::span<const Sequence> sequences, std::span<const Piece> pieces) const {
  std::vector<corpus::TokenRange> ranges;
  for (const Piece& scheduled : pieces) {
    const Sequence& sequence = sequences[static_cast<size_t>(scheduled.sequence)];
    ranges.push_back({sequence.document, sequence.begin_token + scheduled.begin, scheduled.tokens()});
  }
  blend_.fetch_ahead(ranges);
}

std::vector<std::vector<Piece>> pieces_of_rank(const strategy::StepPlan& plan, int world_size, int rank) {
  const strategy::Place place = strategy::places(plan.strategy(), world_size)[static_cast<size_t>(rank)];
  std::vector<std::vector<Piece>> micro_batches;
  if (place.pipeline < 0) return micro_batches;
  for (const strategy::PipelineMicroBatch& micro_batch :
       plan.pipelines[static_cast<size_t>(place.pipeline)].micro_batches) {
    if (!micro_batch.covers(place.lane)) continue;
    const auto pieces = micro_batch.pieces_on(place.lane);
    micro_batches.emplace_back(pieces.begin(), pieces.end());
  }
  return micro_batches;
}

runtime::StepTokens read_step_tokens(const TokenSource& source, const strategy::StepPlan& plan,
                                     int world_size, int rank, Mtp mtp) {
  const strategy::Place place = strategy::places(plan.strategy(), world_size)[static_cast<size_t>(rank)];
  runtime::StepTokens step;
  if (place.pipeline < 0) return step;
  const bool first_stage = place.stage == 0;
  const bool last_stage =
      place.stage == plan.pipelines[static_cast<size_t>(place.pipeline)].pipeline.scheme.pp - 1;
  const std::vector<std::vector<Piece>> micro_batches = pieces_of_rank(plan, world_size, rank);
  if (first_stage || last_stage) {
    std::vector<Piece> all;
    for (const std::vector<Piece>& pieces : micro_batches)
      all.insert(all.end(), pieces.begin(), pieces.end());
    source.fetch_ahead(plan.sequences, all);
  }
  for (const std::vector<Piece>& pieces : micro_batches) {
    runtime::LanePartTokens& rows = step.emplace_back();
    for (const Piece& scheduled : pieces) {
      const Sequence& sequence = plan.sequences[static_cast<size_t>(scheduled.sequence)];
      if (first_stage) source.add_tokens(sequence, scheduled, rows);
      if (last_stage) source.add_targets(sequence, scheduled, rows);
      if (last_stage && mtp == Mtp::kTrains) source.add_mtp(sequence, scheduled, rows);
    }
  }
  return step;
}

}  // namespace sluice::run
