// Documents that rl.algorithm cannot learn from, counted before the first rollout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/blend.h"

namespace sluice::rl {

// A line with numbers for each kind: documents without a prompt and an answer; prompts that leave no room for
// a response, or less than rl.max_completion_length; pairs with an answer longer than the context. Reads at
// most kLookedAt documents, spread evenly, with their masks. `rejected`: worse answers, in runs that learn
// from preferences.
inline constexpr int64_t kLookedAt = 100'000;
std::vector<std::string> prompt_notes(const config::RunConfig& config, const corpus::Blend& training,
                                      const std::optional<corpus::Blend>& rejected);

}  // namespace sluice::rl
