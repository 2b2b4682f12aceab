#include "session/saying.h"

#include <algorithm>
#include <iterator>

#include "cost/parameter_counts.h"

namespace sluice::session {

std::optional<inference::SayingLayout> Saying::best_for(const cost::CostModel& cost,
                                                        std::span<const inference::Lengths> load) const {
  // Pipelines have much the same to say: a few tell schemes apart.
  constexpr int kLookedAt = 4;
  const std::vector<inference::SayingLayout> layouts =
      inference::saying_layouts(cost, schemes, load, room, world_size, kLookedAt);
  if (layouts.empty()) return std::nullopt;
  return inference::say(cost, layouts.front().scheme, load, room, world_size);
}

std::vector<strategy::Scheme> Saying::schemes_of(int ranks) const {
  std::vector<strategy::Scheme> fitting;
  std::ranges::copy_if(schemes, std::back_inserter(fitting),
                       [&](const strategy::Scheme& scheme) { return ranks % scheme.ranks() == 0; });
  return fitting;
}

Saying saying_of(const config::RunConfig& config, const cost::CostModel& cost, int world_size) {
  const cost::MemoryModel& memory = cost.options().memory;
  const cost::ParameterCount count = cost::all_parameters(cost.program(), memory);
  const auto share = [&](int64_t elements) { return (elements + world_size - 1) / world_size; };
  const double cache_bytes = config.rl.cache_gib * 0x1p30;
  const int64_t room = memory.device_bytes - memory.owner_bytes(share(count.all), share(count.trained)) -
                       static_cast<int64_t>(cache_bytes);
  return {.schemes = inference::saying_schemes(cost, world_size, room),
          .room = {.cache_bytes = cache_bytes, .most_texts = config.rl.most_texts},
          .world_size = world_size};
}

int64_t expected_response(const config::RlConfig& rl, int64_t number) {
  return rl.max_response * (number % kExpectedLengths + 1) / kExpectedLengths;
}

std::vector<inference::Lengths> expected_load(const config::RunConfig& config,
                                              std::span<const int64_t> prompts,
                                              const std::vector<std::vector<int64_t>>& said_before) {
  const config::RlConfig& rl = config.rl;
  std::vector<inference::Lengths> load;
  for (const int64_t prompt : prompts) {
    const auto index = static_cast<int64_t>(load.size());
    inference::Lengths& request = load.emplace_back();
    request.prompt = prompt;
    request.most_tokens = std::min(rl.max_response, config.data.context_length - prompt);
    for (int64_t sample = 0; sample < rl.group; ++sample) {
      int64_t said = expected_response(rl, sample * std::ssize(prompts) + index);
      if (!said_before.empty()) {
        const std::vector<int64_t>& group = said_before[load.size() % said_before.size()];
        if (!group.empty()) said = group[static_cast<size_t>(sample) % group.size()];
      }
      request.said.push_back(std::clamp<int64_t>(said, 1, request.most_tokens));
    }
  }
  return load;
}

}  // namespace sluice::session
