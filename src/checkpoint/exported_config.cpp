#include "checkpoint/exported_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folder_record.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/wrapped.h"

namespace sluice::checkpoint {
namespace {

using base::Json;
using base::text;

constexpr std::string_view kConfig = "config.json";
constexpr int64_t kUsualPositions = 2048;
constexpr const char* kPositions = "max_position_embeddings";

// The companions' config.json if it describes this shape, else null.
Json config_of(const std::vector<Companion>& companions, const model::Model& model) {
  const auto found = std::ranges::find(companions, kConfig, &Companion::name);
  if (found == companions.end()) return nullptr;
  const Json config = base::parse_python_json(found->bytes, found->name);
  return model::model_from_hugging_face(config, found->name) == model ? config : Json();
}

// Sets the weights' type under every key that has one; transformers calls it `dtype` since version 4.56.
void set_type(Json& config, const std::string& dtype, const FolderRecord& record) {
  Json& part = model::language_part(config);
  bool is_known = false;
  for (Json* const each : {&config, &part}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!each->contains(key)) continue;
      (*each)[key] = dtype;
      is_known = true;
    }
  }
  const bool as_found = !record.origin.empty() && dtype == config_name(record.type);
  if (!is_known && !as_found) config["torch_dtype"] = dtype;
}

// Exports are not quantised, even if the folder was.
void drop_quantisation(Json& config, const FolderRecord& record) {
  if (!record.origin.empty() && !record.quantised) return;
  config.erase("quantization_config");
  model::language_part(config).erase("quantization_config");
}

// The file's max_position_embeddings; 0: it has none.
int64_t positions_of(Json& config) {
  const Json& part = model::language_part(config);
  const bool says = part.contains(kPositions) && part.at(kPositions).is_number();
  return says ? base::require<int64_t>(part, kPositions, std::string(kConfig)) : 0;
}

void set_positions(Json& config, const model::Model& model, const ExportedConfig& options) {
  const int64_t theirs = positions_of(config);
  const int64_t least = options.least_positions;
  const int64_t positions = options.positions > 0 ? options.positions : std::max(theirs, least);
  if (positions == theirs || model::set_positions(config, model, positions)) return;
  if (options.positions == 0) {
    base::log_warning(text(kConfig, ": ", kPositions, " stays ", theirs, " although ", least,
                           " were trained with: the model's rotary positions hang on it"));
    return;
  }
  throw base::InputError(text("with --max-positions ", positions,
                              " the model would compute its rotary positions otherwise than it was trained: "
                              "leave the option out, or give ",
                              theirs));
}

}  // namespace

Json exported_config(const std::vector<Companion>& companions, const model::Model& model,
                     const ExportedConfig& options) {
  Json config = config_of(companions, model);
  const bool theirs = !config.is_null();
  ExportedConfig asked = options;
  if (!theirs) {
    config = model::config_json(model);
    if (positions_of(config) == 0 && asked.least_positions == 0) asked.least_positions = kUsualPositions;
  }
  const FolderRecord record = theirs ? folder_record(companions) : FolderRecord();
  set_type(config, options.dtype, record);
  drop_quantisation(config, record);
  set_positions(config, model, asked);
  return config;
}

}  // namespace sluice::checkpoint
