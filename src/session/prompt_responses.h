// Responses to one prompt as sequences that share it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/run_config.h"
#include "model/model.h"
#include "plan/planner.h"
#include "strategy/step_plan.h"

namespace sluice::session {

// Texts that begin with the same prompt of at least one token.
struct PromptResponses {
  int64_t prompt_tokens = 0;
  std::vector<int64_t> lengths;  // each text's, prompt included
};

// Whether a run computes a prompt once for several responses. False if results would depend on their number:
// with recurrent layers, or if a loss or a bias correction counts the experts' rows. InputError if the
// configuration asks for it all the same.
bool shares_prompts(const config::RunConfig& config, const model::Model& model);

// All texts in order; at most `together` of them are branches of one sequence. A branch begins with the
// prompt's last token, which each needs for itself because a row has one target. A sequence's document is the
// number of its first text; its loss is on responses alone.
std::vector<strategy::Sequence> response_sequences(std::span<const PromptResponses> answers,
                                                   int64_t together);

// The same with all responses to a prompt together, half of them, and so on down to one: the choice whose
// plan ends soonest. Large groups compute prompts less often, small ones spread over more pipelines. If none
// can be planned, the responses are one by one.
std::vector<strategy::Sequence> best_response_sequences(const plan::Planner& planner, int64_t step,
                                                        std::span<const PromptResponses> answers);

// The prompt tokens that a batch of such sequences does not compute again.
int64_t shared_tokens(std::span<const strategy::Sequence> sequences);

}  // namespace sluice::session
