// Which documents cannot be learnt from as rl.algorithm does, before the first rollout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/blend.h"

namespace sluice::rl {

// A line for each kind, with the numbers: documents without a prompt and an answer; prompts that leave no
// room for a response, or less than rl.max_completion_length; pairs of which one answer is longer than the
// context. Reads at most kLookedAt documents, spread evenly, with their masks. `rejected`: of runs that
// prefer.
inline constexpr int64_t kLookedAt = 100'000;
std::vector<std::string> prompt_notes(const config::RunConfig& config, const corpus::Blend& training,
                                      const std::optional<corpus::Blend>& rejected);

}  // namespace sluice::rl
