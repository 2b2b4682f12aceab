#include "run/text_steps.h"

#include "base/error.h"
#include "base/text.h"
#include "session/head_labels.h"

namespace sluice::run {
namespace {

using strategy::Piece;
using strategy::Sequence;

// Tokens of texts: a sequence's document number is the index of its text. Borrows them.
class TextTokens final : public TokenSource {
 public:
  TextTokens(const std::vector<GroupText>& texts, corpus::LabelRow row) : texts_(texts), row_(row) {}

  void add_tokens(const Sequence& sequence, const Piece& scheduled,
                  runtime::LanePartTokens& rows) const override {
    const std::vector<int32_t>& tokens = texts_[static_cast<size_t>(sequence.document)].tokens;
    rows.tokens.insert(rows.tokens.end(), tokens.begin() + scheduled.begin, tokens.begin() + scheduled.end);
  }

  void add_targets(const Sequence& sequence, const Piece& scheduled,
                   runtime::LanePartTokens& rows) const override {
    const size_t first = rows.targets.size();
    rows.targets.insert(rows.targets.end(), static_cast<size_t>(scheduled.tokens()), -1);
    const std::optional<size_t> row = row_of_text(sequence, scheduled, row_);
    if (!row) return;
    rows.targets[first + *row] = 0;
    const std::vector<double>& given = texts_[static_cast<size_t>(sequence.document)].given;
    rows.given.insert(rows.given.end(), given.begin(), given.end());
  }

 private:
  const std::vector<GroupText>& texts_;
  corpus::LabelRow row_;
};

}  // namespace

PreparedStep prepare_texts(const StepInputs& inputs, const std::vector<GroupText>& texts, int64_t step,
                           graph::Purpose purpose) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < texts.size(); ++i) {
    sequences.push_back({.document = static_cast<int64_t>(i),
                         .length_tokens = std::ssize(texts[i].tokens),
                         .loss_tokens = 1});
  }
  const TextTokens tokens(texts, session::label_row(inputs.table.model.head()));
  return prepare_step(inputs, sequences, &tokens, step, purpose);
}

std::vector<TextNumbers> numbers_by_text(const PreparedStep& prepared, int world_size, int rank,
                                         const runtime::RowFigures& rows, const GatherTexts& gather) {
  const auto of_sequences = sequence_numbers(prepared.plan, world_size, rank, prepared.tokens, rows, gather);
  std::vector<TextNumbers> numbers(of_sequences.size());
  for (size_t i = 0; i < of_sequences.size(); ++i) {
    SLUICE_ASSERT(of_sequences[i].size() == 1, base::text(of_sequences[i].size(), " rows of a text"));
    numbers[static_cast<size_t>(prepared.plan.sequences[i].document)] = of_sequences[i].front().numbers;
  }
  return numbers;
}

}  // namespace sluice::run
