#include "run/sequence_numbers.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "run/step_tokens.h"

namespace sluice::run {
namespace {

void append(std::string& bytes, const void* from, size_t size) {
  bytes.append(static_cast<const char*>(from), size);
}

// A row's message: its sequence, its token, the number of its numbers, and these.
void append_row(std::string& bytes, int64_t sequence, int64_t token, const double* numbers, int64_t count) {
  const int64_t head[] = {sequence, token, count};
  append(bytes, head, sizeof head);
  append(bytes, numbers, static_cast<size_t>(count) * sizeof(double));
}

std::string own_rows(const strategy::StepPlan& plan, int world_size, int rank,
                     const runtime::StepTokens& tokens, const runtime::RowFigures& rows) {
  std::string bytes;
  const auto micro_batches = pieces_of_rank(plan, world_size, rank);
  for (size_t m = 0; m < rows.numbers.size(); ++m) {
    const std::vector<int64_t>& targets = tokens[m].targets;
    const int64_t with_target = std::ranges::count_if(targets, [](int64_t target) { return target >= 0; });
    if (with_target == 0 || rows.numbers[m].empty()) continue;
    const int64_t count = std::ssize(rows.numbers[m]) / with_target;
    const double* next = rows.numbers[m].data();
    size_t row = 0;
    for (const strategy::Piece& scheduled : micro_batches[m]) {
      for (int64_t token = scheduled.begin; token < scheduled.end; ++token) {
        if (targets[row++] < 0) continue;
        append_row(bytes, scheduled.sequence, token, next, count);
        next += count;
      }
    }
    SLUICE_ASSERT(next == rows.numbers[m].data() + rows.numbers[m].size(),
                  "numbers of other rows than those with a target");
  }
  return bytes;
}

}  // namespace

std::vector<std::vector<RowNumbers>> sequence_numbers(const strategy::StepPlan& plan, int world_size,
                                                      int rank, const runtime::StepTokens& tokens,
                                                      const runtime::RowFigures& rows,
                                                      const GatherTexts& gather) {
  std::vector<std::vector<RowNumbers>> all(plan.sequences.size());
  for (const std::string& bytes : gather(own_rows(plan, world_size, rank, tokens, rows))) {
    for (size_t at = 0; at < bytes.size();) {
      int64_t head[3];
      std::memcpy(head, bytes.data() + at, sizeof head);
      at += sizeof head;
      RowNumbers& row = all[static_cast<size_t>(head[0])].emplace_back();
      row.token = head[1];
      row.numbers.resize(static_cast<size_t>(head[2]));
      std::memcpy(row.numbers.data(), bytes.data() + at, row.numbers.size() * sizeof(double));
      at += row.numbers.size() * sizeof(double);
    }
  }
  for (std::vector<RowNumbers>& of_sequence : all) std::ranges::sort(of_sequence, {}, &RowNumbers::token);
  return all;
}

void add_rows(const corpus::Blend& blend, const strategy::Sequence& sequence,
              const std::vector<RowNumbers>& rows, ClassScores& scores) {
  if (rows.empty()) return;
  if (!blend.label_rule()->of_tokens)
    return scores.add(blend.row_label(sequence.document), rows.front().numbers);
  const auto labels = blend.token_labels(sequence.document, sequence.begin_token, sequence.length_tokens);
  for (const RowNumbers& row : rows) scores.add(*labels[static_cast<size_t>(row.token)], row.numbers);
}

}  // namespace sluice::run
