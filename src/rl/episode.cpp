#include "rl/episode.h"

#include <algorithm>
#include <utility>

#include "base/json_fields.h"
#include "base/renamed_json.h"

namespace sluice::rl {

using base::Json;

std::optional<Prompt> prompt_of(std::span<const int32_t> tokens, std::span<const uint8_t> mask) {
  const auto last = std::find(mask.rbegin(), mask.rend(), uint8_t{1});
  const auto before = std::find(last, mask.rend(), uint8_t{0});
  const auto begin = mask.rend() - before;
  const auto end = mask.rend() - last;
  if (begin == 0 || begin == end) return std::nullopt;
  return Prompt{{tokens.begin(), tokens.begin() + begin}, {tokens.begin() + begin, tokens.begin() + end}};
}

std::optional<Prompt> prompt_of(const corpus::Blend& blend, int64_t document) {
  std::vector<int32_t> tokens(static_cast<size_t>(blend.length(document)));
  std::vector<uint8_t> mask(tokens.size());
  blend.read(document, 0, std::ssize(tokens), tokens.data());
  blend.read_mask(document, 0, std::ssize(tokens), mask.data());
  return prompt_of(tokens, mask);
}

namespace {

Json to_json(const Episode& episode) {
  Json json = {{"tokens", episode.tokens},     {"prompt_tokens", episode.prompt_tokens},
               {"reward", episode.reward},     {"advantage", episode.advantage},
               {"weight", episode.weight},     {"sampled", episode.rollout_log_probs},
               {"old", episode.old_log_probs}, {"reference", episode.ref_log_probs}};
  const auto add = [&](const char* key, const std::vector<double>& of_tokens) {
    if (!of_tokens.empty()) json[key] = of_tokens;
  };
  add("advantages", episode.advantages);
  add("values", episode.values);
  add("returns", episode.returns);
  return json;
}

Episode episode_from_json(const Json& json, const std::string& name) {
  // Only runs with a critic have these.
  const auto of_tokens = [&](const char* key) {
    return base::get_or<std::vector<double>>(json, key, {}, name);
  };
  return {.tokens = base::require<std::vector<int32_t>>(json, "tokens", name),
          .prompt_tokens = base::require<int64_t>(json, "prompt_tokens", name),
          .reward = base::require<double>(json, "reward", name),
          .advantage = base::require<double>(json, "advantage", name),
          .weight = base::require<double>(json, "weight", name),
          .rollout_log_probs = base::require<std::vector<double>>(json, "sampled", name),
          .old_log_probs = base::require<std::vector<double>>(json, "old", name),
          .ref_log_probs = base::require<std::vector<double>>(json, "reference", name),
          .advantages = of_tokens("advantages"),
          .values = of_tokens("values"),
          .returns = of_tokens("returns")};
}

}  // namespace

Json to_json(const Rollout& rollout) {
  Json batches = Json::array();
  for (const MiniBatch& batch : rollout.batches) {
    Json& episodes = batches.emplace_back(Json::array());
    for (const Episode& episode : batch) episodes.push_back(to_json(episode));
  }
  return {{"batches", std::move(batches)}, {"response_lengths", rollout.response_lengths}};
}

Rollout rollout_from_json(const Json& state, const std::string& name) {
  Json json = state;
  base::take_new_names(json, "sluice.checkpoint/3");
  Rollout rollout{
      .batches = {},
      .response_lengths = base::require<std::vector<std::vector<int64_t>>>(json, "response_lengths", name)};
  for (const Json& episodes : base::require<Json>(json, "batches", name)) {
    MiniBatch& batch = rollout.batches.emplace_back();
    for (const Json& episode : episodes) batch.push_back(episode_from_json(episode, name));
  }
  return rollout;
}

}  // namespace sluice::rl
