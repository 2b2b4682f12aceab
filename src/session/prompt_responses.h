// Answers to one prompt as sequences that share it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/run_config.h"
#include "model/shape.h"
#include "plan/planner.h"
#include "strategy/step_plan.h"

namespace sluice::session {

// Texts that begin with the same prompt, which has a token at least.
struct PromptResponses {
  int64_t prompt_tokens = 0;
  std::vector<int64_t> lengths;  // of the texts, prompt included
};

// Whether a run computes a prompt once for several answers. It does not where results would change by how
// many those are: where experts' loads count rows, in a loss or a correction; nor where layers are recurrent.
// InputError where it is told to there.
bool shares_prompts(const config::RunConfig& config, const model::Shape& shape);

// All texts in their order, of which at most so many are branches of one sequence: behind all of the prompt
// but its last token, which each branch has for itself, because a row has one target. A sequence's document
// is the number of its first text; its loss is on answers alone.
std::vector<strategy::Sequence> response_sequences(std::span<const PromptResponses> answers,
                                                   int64_t together);

// The same with all answers to a prompt together, half of them, and so on down to one: whichever the planner
// ends soonest with. Many together compute prompts less often, few spread over more pipelines. Where none can
// be planned, one by one.
std::vector<strategy::Sequence> best_response_sequences(const plan::Planner& planner, int64_t step,
                                                        std::span<const PromptResponses> answers);

// Tokens of prompts that a batch of such sequences does not compute again.
int64_t shared_tokens(std::span<const strategy::Sequence> sequences);

}  // namespace sluice::session
