#include "runtime/test_tokens.h"

#include <algorithm>

#include "base/rng.h"
#include "model/model.h"
#include "strategy/pass.h"

namespace sluice::runtime {

int64_t token_at(int64_t document, int64_t position, int64_t vocab) {
  const int64_t stride = 1 + document % 3;
  return (document + position * stride) % vocab;
}

bool has_loss(const strategy::Sequence& sequence, int64_t position, int64_t one_in) {
  if (position + 1 == sequence.length_tokens) return false;
  const auto document = static_cast<uint64_t>(sequence.document), at = static_cast<uint64_t>(position);
  return base::random_bits(11, document, at) % static_cast<uint64_t>(one_in) == 0;
}

namespace {

// Calls visit(rows, sequence, position) for the rows of this rank's micro-batches.
template <typename Visit>
StepTokens tokens_by_row(const strategy::StepPlan& plan, int world_size, int rank, const Visit& visit) {
  const strategy::Place place = strategy::places(plan.strategy(), world_size)[static_cast<size_t>(rank)];
  StepTokens step;
  if (place.pipeline < 0) return step;
  for (const strategy::PipelineMicroBatch& micro_batch :
       plan.pipelines[static_cast<size_t>(place.pipeline)].micro_batches) {
    if (!micro_batch.covers(place.lane)) continue;
    LanePartTokens& rows = step.emplace_back();
    for (const strategy::Piece& scheduled : micro_batch.pieces_on(place.lane)) {
      const strategy::Sequence& sequence = plan.sequences[static_cast<size_t>(scheduled.sequence)];
      for (int64_t position = scheduled.begin; position < scheduled.end; ++position)
        visit(rows, sequence, position);
    }
  }
  return step;
}

}  // namespace

// For a head of numbers: the last or the first token's row; for a token head, about one row in three.
bool has_number(const strategy::Sequence& sequence, int64_t position, const model::Model& model) {
  const bool first = model.head().pooling == model::Pooling::kCls;
  if (model.head().kind != model::HeadKind::kTokens)
    return first ? position == 0 : position + 1 == sequence.length_tokens;
  return position == 0 || (sequence.document + position) % 3 == 0;
}

namespace {

// Like the targets of the row behind, if the sequence has one.
void add_mtp(LanePartTokens& rows, const strategy::Sequence& sequence, int64_t position, int64_t vocab,
             int64_t loss_one_in) {
  const bool ends = position + 1 == sequence.length_tokens;
  rows.next_tokens.push_back(ends ? -1 : token_at(sequence.document, position + 1, vocab));
  const bool loss = !ends && has_loss(sequence, position + 1, loss_one_in);
  rows.mtp_targets.push_back(loss ? token_at(sequence.document, position + 2, vocab) : -1);
}

}  // namespace

StepTokens made_up_tokens(const strategy::StepPlan& plan, int world_size, int rank, int64_t vocab,
                          int64_t loss_one_in) {
  return tokens_by_row(plan, world_size, rank,
                       [&](LanePartTokens& rows, const strategy::Sequence& sequence, int64_t position) {
                         rows.tokens.push_back(token_at(sequence.document, position, vocab));
                         const bool loss = has_loss(sequence, position, loss_one_in);
                         rows.targets.push_back(loss ? token_at(sequence.document, position + 1, vocab) : -1);
                         add_mtp(rows, sequence, position, vocab, loss_one_in);
                       });
}

StepTokens made_up_numbers(const strategy::StepPlan& plan, int world_size, int rank,
                           const model::Model& model, int64_t figures) {
  return tokens_by_row(
      plan, world_size, rank,
      [&](LanePartTokens& rows, const strategy::Sequence& sequence, int64_t position) {
        rows.tokens.push_back(token_at(sequence.document, position, model.vocab()));
        const bool has = has_number(sequence, position, model);
        const int64_t label = sequence.document + position;
        rows.targets.push_back(has ? label % std::max<int64_t>(1, model.head().numbers) : -1);
        for (int64_t i = 0; has && i < figures; ++i)
          rows.given.push_back(static_cast<double>((label + i) % 5) / 5);
      });
}

}  // namespace sluice::runtime
