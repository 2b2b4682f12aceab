// Collects the numbers of a head that an evaluation leaves on the ranks: by sequence, on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "corpus/blend.h"
#include "run/head_scores.h"
#include "runtime/engine.h"
#include "runtime/step_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::run {

// The numbers of a row with a target.
struct RowNumbers {
  int64_t token = 0;  // index in the sequence
  std::vector<double> numbers;
};

// For each sequence of the plan its rows with a target, in order. `tokens` and `rows` are this rank's.
// `gather` returns the strings of all ranks, and is called once.
using GatherTexts = std::function<std::vector<std::string>(const std::string&)>;
std::vector<std::vector<RowNumbers>> sequence_numbers(const strategy::StepPlan& plan, int world_size,
                                                      int rank, const runtime::StepTokens& tokens,
                                                      const runtime::RowFigures& rows,
                                                      const GatherTexts& gather);

// Adds the rows of a sequence from a blend whose documents, or tokens, have labels.
void add_rows(const corpus::Blend& blend, const strategy::Sequence& sequence,
              const std::vector<RowNumbers>& rows, ClassScores& scores);

}  // namespace sluice::run
