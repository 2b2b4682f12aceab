#include "checkpoint/companions.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {
namespace {

using base::Json;

constexpr std::string_view kConfig = "config.json";
constexpr int64_t kUsualPositions = 2048;
constexpr const char* kPositions = "max_position_embeddings";
constexpr std::array<std::string_view, 12> kNames = {"added_tokens.json",
                                                     "chat_template.jinja",
                                                     "chat_template.json",
                                                     kConfig,
                                                     "generation_config.json",
                                                     "merges.txt",
                                                     "special_tokens_map.json",
                                                     "tokenizer.json",
                                                     "tokenizer.model",
                                                     "tokenizer_config.json",
                                                     "vocab.json",
                                                     "vocab.txt"};

// The companions' config.json if it is of this shape, else null.
Json config_of(const std::vector<Companion>& companions, const model::Shape& shape) {
  const auto found = std::ranges::find(companions, kConfig, &Companion::name);
  if (found == companions.end()) return nullptr;
  const Json config = base::parse_python_json(found->bytes, found->name);
  return model::shape_from_hugging_face(config, found->name) == shape ? config : Json();
}

}  // namespace

bool is_companion(std::string_view name) { return std::ranges::find(kNames, name) != kNames.end(); }

std::vector<Companion> read_companions(const std::filesystem::path& folder) {
  std::vector<Companion> companions;
  for (const std::string_view name : kNames) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    companions.push_back({std::string(name), base::read_file(path)});
  }
  return companions;
}

Json exported_config(const std::vector<Companion>& companions, const model::Shape& shape,
                     const ExportedConfig& options) {
  Json config = config_of(companions, shape);
  if (config.is_null()) {
    const int64_t positions = options.least_positions > 0 ? options.least_positions : kUsualPositions;
    config = model::shape_to_hugging_face(shape, options.dtype, positions);
  } else {
    // transformers calls the type `dtype` since version 4.56.
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = options.dtype;
    const auto positions = base::get_or<int64_t>(config, kPositions, 0, std::string(kConfig));
    config[kPositions] = std::max(positions, options.least_positions);
  }
  if (options.positions > 0) config[kPositions] = options.positions;
  return config;
}

}  // namespace sluice::checkpoint
