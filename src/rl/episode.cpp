#include "rl/episode.h"

#include <algorithm>

#include "base/json_fields.h"

namespace sluice::rl {

using base::Json;

std::optional<Question> question_of(std::span<const int32_t> tokens, std::span<const uint8_t> mask) {
  const auto last = std::find(mask.rbegin(), mask.rend(), uint8_t{1});
  const auto before = std::find(last, mask.rend(), uint8_t{0});
  const auto begin = mask.rend() - before;
  const auto end = mask.rend() - last;
  if (begin == 0 || begin == end) return std::nullopt;
  return Question{{tokens.begin(), tokens.begin() + begin}, {tokens.begin() + begin, tokens.begin() + end}};
}

std::optional<Question> question_of(const corpus::Blend& blend, int64_t document) {
  std::vector<int32_t> tokens(static_cast<size_t>(blend.length(document)));
  std::vector<uint8_t> mask(tokens.size());
  blend.read(document, 0, std::ssize(tokens), tokens.data());
  blend.read_mask(document, 0, std::ssize(tokens), mask.data());
  return question_of(tokens, mask);
}

Json to_json(std::span<const MiniBatch> batches) {
  Json json = Json::array();
  for (const MiniBatch& batch : batches) {
    Json& episodes = json.emplace_back(Json::array());
    for (const Episode& episode : batch) {
      episodes.push_back({{"tokens", episode.tokens},
                          {"prompt_tokens", episode.prompt_tokens},
                          {"reward", episode.reward},
                          {"advantage", episode.advantage},
                          {"weight", episode.weight},
                          {"sampled", episode.sampled},
                          {"old", episode.old},
                          {"reference", episode.reference}});
    }
  }
  return json;
}

std::vector<MiniBatch> mini_batches_from_json(const Json& json, const std::string& name) {
  std::vector<MiniBatch> batches;
  for (const Json& episodes : json) {
    MiniBatch& batch = batches.emplace_back();
    for (const Json& episode : episodes) {
      batch.push_back({base::require<std::vector<int32_t>>(episode, "tokens", name),
                       base::require<int64_t>(episode, "prompt_tokens", name),
                       base::require<double>(episode, "reward", name),
                       base::require<double>(episode, "advantage", name),
                       base::require<double>(episode, "weight", name),
                       base::require<std::vector<double>>(episode, "sampled", name),
                       base::require<std::vector<double>>(episode, "old", name),
                       base::require<std::vector<double>>(episode, "reference", name)});
    }
  }
  return batches;
}

}  // namespace sluice::rl
