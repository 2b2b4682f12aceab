#include "session/rollout_schemes.h"

#include <algorithm>
#include <iterator>

#include "cost/parameter_counts.h"

namespace sluice::session {

std::optional<inference::GenerationLayout> RolloutSchemes::best_for(
    const cost::CostModel& cost, std::span<const inference::RequestLengths> load) const {
  // Pipelines have similar loads: a few suffice to compare schemes.
  constexpr int kLookedAt = 4;
  const std::vector<inference::GenerationLayout> layouts =
      inference::generation_layouts(cost, schemes, load, kv_cache_budget, world_size, kLookedAt);
  if (layouts.empty()) return std::nullopt;
  return inference::simulate_generation(cost, layouts.front().scheme, load, kv_cache_budget, world_size);
}

std::vector<strategy::Scheme> RolloutSchemes::schemes_of(int ranks) const {
  std::vector<strategy::Scheme> fitting;
  std::ranges::copy_if(schemes, std::back_inserter(fitting),
                       [&](const strategy::Scheme& scheme) { return ranks % scheme.ranks() == 0; });
  return fitting;
}

RolloutSchemes rollout_schemes_of(const config::RunConfig& config, const cost::CostModel& cost,
                                  int world_size) {
  const cost::MemoryModel& memory = cost.options().memory;
  const cost::ParameterCount count = cost::all_parameters(cost.program(), memory);
  const auto share = [&](int64_t elements) { return (elements + world_size - 1) / world_size; };
  const double cache_bytes = config.rl.kv_cache_gib * 0x1p30;
  const int64_t room = memory.device_bytes - memory.owner_bytes(share(count.all), share(count.trained)) -
                       static_cast<int64_t>(cache_bytes);
  return {.schemes = inference::generation_schemes(cost, world_size, room),
          .kv_cache_budget = {.cache_bytes = cache_bytes, .max_num_seqs = config.rl.max_num_seqs},
          .world_size = world_size};
}

int64_t expected_response(const config::RlConfig& rl, int64_t number) {
  return rl.max_completion_length * (number % kExpectedLengths + 1) / kExpectedLengths;
}

std::vector<inference::RequestLengths> expected_load(
    const config::RunConfig& config, std::span<const int64_t> prompts,
    const std::vector<std::vector<int64_t>>& earlier_lengths) {
  const config::RlConfig& rl = config.rl;
  const int64_t samples = rl.rolls_out() ? rl.num_generations : 1;
  std::vector<inference::RequestLengths> load;
  for (const int64_t prompt : prompts) {
    const auto index = static_cast<int64_t>(load.size());
    inference::RequestLengths& request = load.emplace_back();
    request.prompt = prompt;
    request.max_tokens = std::min(rl.max_completion_length, config.data.context_length - prompt);
    for (int64_t sample = 0; sample < samples; ++sample) {
      int64_t tokens = expected_response(rl, sample * std::ssize(prompts) + index);
      if (!earlier_lengths.empty()) {
        const std::vector<int64_t>& group = earlier_lengths[load.size() % earlier_lengths.size()];
        if (!group.empty()) tokens = group[static_cast<size_t>(sample) % group.size()];
      }
      request.output_lens.push_back(std::clamp<int64_t>(tokens, 1, request.max_tokens));
    }
  }
  return load;
}

}  // namespace sluice::session
