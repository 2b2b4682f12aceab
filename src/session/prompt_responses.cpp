#include "session/prompt_responses.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/interval.h"
#include "base/text.h"
#include "session/planned_step.h"

namespace sluice::session {
namespace {

using strategy::Sequence;

// The time of a plan's step, as its planner compares candidates.
int64_t step_ns(const plan::Planner& planner, const strategy::StepPlan& plan) {
  return plan.estimated_ns + planner.step_overhead_ns(plan);
}

Sequence sequence_of(const PromptResponses& answers, base::Interval texts, int64_t first) {
  Sequence sequence{.document = first + texts.begin, .loss_tokens = 0};
  const int64_t prefix = texts.size() > 1 ? answers.prompt_tokens - 1 : 0;
  sequence.length_tokens = prefix;
  for (int64_t text = texts.begin; text < texts.end; ++text) {
    const int64_t length = answers.lengths[static_cast<size_t>(text)];
    sequence.length_tokens += length - prefix;
    *sequence.loss_tokens += length - answers.prompt_tokens;
    if (prefix > 0) sequence.branches.push_back(length - prefix);
  }
  return sequence;
}

// The reason why a prompt cannot be computed once for several responses; empty: it can.
std::string reason_against_sharing(const config::RunConfig& config, const model::Model& model) {
  if (model.has_states()) return "recurrent layers keep the state of one text only";
  if (model.experts().count == 0) return "";
  if (config.train.moe_aux_loss_coeff > 0)
    return "train.moe_aux_loss_coeff counts the experts' rows of every answer's prompt";
  const bool corrects = model.experts().corrected && config.train.moe_router_bias_update_rate > 0;
  return corrects ? "train.moe_router_bias_update_rate counts the experts' rows of every answer's prompt"
                  : "";
}

}  // namespace

bool shares_prompts(const config::RunConfig& config, const model::Model& model) {
  if (!config.rl.share_prompts.value_or(true)) return false;
  const std::string reason = reason_against_sharing(config, model);
  if (reason.empty() || !config.rl.share_prompts) return reason.empty();
  throw base::InputError(
      base::text("[config] rl.share_prompts is true, but ", reason, ": leave it at \"auto\", or give false"));
}

std::vector<Sequence> response_sequences(std::span<const PromptResponses> answers, int64_t together) {
  std::vector<Sequence> sequences;
  int64_t first = 0;
  for (const PromptResponses& each : answers) {
    const int64_t texts = std::ssize(each.lengths);
    const int64_t most = each.prompt_tokens > 1 ? together : 1;
    const int64_t parts = (texts + most - 1) / most;
    for (int64_t part = 0; part < parts; ++part)
      sequences.push_back(sequence_of(each, base::even_part(texts, parts, part), first));
    first += texts;
  }
  return sequences;
}

std::vector<Sequence> best_response_sequences(const plan::Planner& planner, int64_t step,
                                              std::span<const PromptResponses> answers) {
  int64_t most = 1;
  for (const PromptResponses& each : answers) most = std::max<int64_t>(most, std::ssize(each.lengths));
  std::vector<Sequence> best = response_sequences(answers, 1);
  std::optional<int64_t> best_ns;
  for (int64_t together = most;; together = (together + 1) / 2) {
    std::vector<Sequence> sequences = response_sequences(answers, together);
    const auto longest = std::ranges::max_element(sequences, {}, &Sequence::length_tokens);
    const bool held = longest->length_tokens <= planner.max_len_tokens();
    if (held || together == 1) {
      const auto planned = plan_step(planner, step, sequences);
      if (planned && (!best_ns || step_ns(planner, planned->plan) < *best_ns)) {
        best_ns = step_ns(planner, planned->plan);
        best = std::move(sequences);
      }
    }
    if (together == 1) return best;
  }
}

int64_t shared_tokens(std::span<const Sequence> sequences) {
  int64_t tokens = 0;
  for (const Sequence& sequence : sequences) {
    if (!sequence.branches.empty()) tokens += sequence.prefix_tokens() * (std::ssize(sequence.branches) - 1);
  }
  return tokens;
}

}  // namespace sluice::session
