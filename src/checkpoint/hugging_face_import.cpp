#include "base/error.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "model/sentence_modules.h"
#include "model/wrapped.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Json;
using base::text;

Json read_config(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / "config.json", ignored)) {
    throw InputError(text(folder.string(), " has no config.json: name a Hugging Face model folder"));
  }
  return model::folder_config(folder);
}

TensorHints hints_of(const Json& whole, const std::string& name) {
  const Json config = model::language_config(whole, name);
  TensorHints hints;
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"}) {
    hints.further_layers = std::max(hints.further_layers, base::get_or<int64_t>(config, key, 0, name));
  }
  const Json* quantised = base::find(whole, "quantization_config");
  if (quantised == nullptr) quantised = base::find(config, "quantization_config");
  if (quantised == nullptr || !quantised->is_object()) return hints;
  const auto block = base::get_or<std::vector<int64_t>>(*quantised, "weight_block_size", {}, name);
  if (block.size() == 2) hints.scale_block = {block[0], block[1]};
  return hints;
}

}  // namespace

bool has_hugging_face_weights(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / text(kWeightsStem, ".safetensors"), ignored) ||
         fs::exists(folder / text(kWeightsStem, ".safetensors.index.json"), ignored);
}

HuggingFaceModel::HuggingFaceModel(const fs::path& folder)
    : config_(read_config(folder)),
      weights_(
          folder, kWeightsStem,
          model::parameter_table(model::model_from_hugging_face(config_, (folder / "config.json").string())),
          hints_of(config_, (folder / "config.json").string())) {}

// Exports name tensors with the prefix of classes with heads, even if the folder's names have no prefix.
FolderRecord HuggingFaceModel::record() const {
  FileNames names = weights_.names();
  if (names.trunk.empty()) names.trunk = FileNames{}.trunk;
  return {.origin = fs::absolute(folder()).lexically_normal().string(),
          .type = weights_.type(),
          .types = weights_.other_types(),
          .names = std::move(names),
          .tied_head = weights_.tied_head(),
          .quantised = weights_.quantised()};
}

}  // namespace sluice::checkpoint
