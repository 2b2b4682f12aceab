// Steps on texts with one or more numbers at one of their tokens.
#pragma once

#include <vector>

#include "run/head_objective.h"
#include "run/plan_ahead.h"
#include "run/sequence_numbers.h"

namespace sluice::run {

struct GroupText {
  std::vector<int32_t> tokens;
  std::vector<double> given;  // the loss's inputs at that row (layers::found_gradient)
};

// A planned step on the texts, with tokens. `step` is for messages.
PreparedStep prepare_texts(const StepInputs& inputs, const std::vector<GroupText>& texts, int64_t step,
                           graph::Purpose purpose);

// The numbers of each text after an evaluation that leaves `rows` on this rank; the same on all ranks.
std::vector<TextNumbers> numbers_by_text(const PreparedStep& prepared, int world_size, int rank,
                                         const runtime::RowFigures& rows, const GatherTexts& gather);

}  // namespace sluice::run
