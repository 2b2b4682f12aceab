#include "checkpoint/folder_record.h"

#include <algorithm>

#include "base/json.h"

namespace sluice::checkpoint {
namespace {

using base::Json;

constexpr const char* kFolderSchema = "sluice.folder/1";

// Routers add these biases to scores to choose experts. BF16's rounding steps near them are as large as the
// differences between experts; transformers, too, computes with them in FP32.
bool stays_wide(const std::string& tensor) { return tensor.ends_with("e_score_correction_bias"); }

}  // namespace

TensorType FolderRecord::exported(const std::string& tensor, TensorType type) const {
  const auto own = types.find(tensor);
  const bool wide = own != types.end() && own->second == TensorType::kFloat32;
  return wide || stays_wide(tensor) ? TensorType::kFloat32 : type;
}

Companion to_companion(const FolderRecord& record) {
  Json types = Json::object();
  for (const auto& [tensor, type] : record.types) types[config_name(type)].push_back(tensor);
  const Json json = {{"schema", kFolderSchema},
                     {"origin", record.origin},
                     {"type", config_name(record.type)},
                     {"types", types},
                     {"trunk", record.names.trunk},
                     {"head", record.names.head},
                     {"stacked_experts", record.names.stacked_experts},
                     {"transposed_experts", record.names.transposed_experts},
                     {"mtp_differs", record.names.mtp_differs},
                     {"tied_head", record.tied_head},
                     {"quantised", record.quantised}};
  return {.name = std::string(kFolderRecord), .bytes = base::json_text(json, 2) + "\n"};
}

FolderRecord folder_record(const std::vector<Companion>& companions) {
  FolderRecord record;
  const auto found = std::ranges::find(companions, kFolderRecord, &Companion::name);
  if (found == companions.end()) return record;
  const std::string& name = found->name;
  const Json json = base::parse_json(found->bytes, name);
  base::require_schema(json, kFolderSchema, name);
  record.origin = base::require<std::string>(json, "origin", name);
  record.type = type_from_config_name(base::require<std::string>(json, "type", name), name + ": type");
  const auto types = base::require<Json>(json, "types", name);
  for (const auto& [type, tensors] : types.items()) {
    for (const Json& tensor : tensors)
      record.types[tensor.get<std::string>()] = type_from_config_name(type, name + ": types");
  }
  record.names = {.trunk = base::require<std::string>(json, "trunk", name),
                  .head = base::require<std::string>(json, "head", name),
                  .stacked_experts = base::require<bool>(json, "stacked_experts", name),
                  .transposed_experts = json.value("transposed_experts", false),
                  .mtp_differs = json.value("mtp_differs", false)};
  record.tied_head = base::require<bool>(json, "tied_head", name);
  record.quantised = base::require<bool>(json, "quantised", name);
  return record;
}

}  // namespace sluice::checkpoint
