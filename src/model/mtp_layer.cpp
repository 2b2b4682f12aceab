// MTP layers: their weights under the families' names, their figures, and models that train them.
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/derive.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/outline.h"
#include "model/roles.h"
#include "model/tuning.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::text;

// The names of the tensors around the layer, and the beginning of the layer's own.
struct MtpNames {
  std::string token_norm, row_norm, projection, norm, layer;
};

MtpNames names_of(const Outline& outline) {
  const Family& family = family_of(outline);
  if (family.mtp == MtpPlace::kModule) {
    return {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.fc.weight",
            "mtp.norm.weight", "mtp.layers.0."};
  }
  const std::string path = text(family.trunk, ".", family.blocks, ".", outline.layers, ".");
  return {path + "enorm.weight", path + "hnorm.weight", path + "eh_proj.weight",
          path + "shared_head.norm.weight", path};
}

// The last layer that attends: hybrids' MTP layers have no recurrence.
BlockType type_of(const Outline& outline) {
  BlockType type = outline.block_type(outline.layers - 1);
  for (int64_t layer = outline.layers; layer-- > 0;) {
    if (outline.block_type(layer).recurrent) continue;
    type = outline.block_type(layer);
    break;
  }
  type.frozen = 0;
  return type;
}

// The number of MTP layers that a config.json names. Qwen 3 Next's has no key for its one layer.
int64_t layers_named(const Outline& outline) {
  const base::Json* const config = outline.config.json.get();
  if (config == nullptr) return 1;
  int64_t named = -1;
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"}) {
    if (config->contains(key) && !config->at(key).is_null())
      named = std::max(named, base::require<int64_t>(*config, key, "config.json"));
  }
  if (named >= 0) return named;
  return family_of(outline).mtp == MtpPlace::kModule ? 1 : 0;
}

[[noreturn]] void refuse(const std::string& reason) {
  throw InputError(text("train.mtp is \"train\", but ", reason, ": leave it at \"keep\""));
}

}  // namespace

MtpLayer mtp_layer(const Outline& outline) {
  const MtpNames names = names_of(outline);
  const auto made = [&](const NormRoles& role, const std::string& tensor) {
    return norm(role, tensor, outline.hidden, outline.norm, outline.norm_eps, outline.norm_offset);
  };
  MtpLayer mtp{.token_norm = made({roles::kMtpTokenNorm, roles::kMtpTokenNormBias}, names.token_norm),
               .row_norm = made({roles::kMtpRowNorm, roles::kMtpRowNormBias}, names.row_norm),
               .projection = matrix(roles::kMtpProjection, {names.projection}, 2 * outline.hidden,
                                    {{outline.hidden, 0}}, Use::kIn),
               .layer = layer_of(outline, type_of(outline)),
               .norm = made({roles::kMtpNorm, roles::kMtpNormBias}, names.norm)};
  const auto own = [&](Weight& weight) {
    for (std::string& tensor : weight.tensors) tensor = names.layer + tensor;
    weight.adapters.clear();
  };
  for (Part& part : mtp.layer.parts) {
    for (std::vector<Weight>* const weights : own_weights(part)) std::ranges::for_each(*weights, own);
  }
  for (Weight* const weight : joint_weights(mtp.layer)) own(*weight);
  for (Weight* const weight : weights_of_mtp(mtp)) weight->adapts = false;
  return mtp;
}

// Beside the layer: the projection, and the head's matrix once more.
TokenWork work_of(const MtpLayer& mtp, const Weight& output) {
  TokenWork work = work_of(mtp.layer, parameters_of(mtp.layer));
  for (const Weight* const weight : {&mtp.projection, &output}) {
    const int64_t products = weight->rows() * weight->columns;
    work.products += products;
    if (weight->trained) work.trained += products;
  }
  work.elements += 16 * mtp.layer.hidden + 4 * output.rows();
  work.collectives += 4;
  return work;
}

// Beside the layer's bytes, rows of the embedding, the model, both normed (twice as wide), the gradients of
// the head's input and of the layer's result, and one for what a norm or a product makes.
TokenBytes bytes_of(const MtpLayer& mtp, const Cut& cut, int64_t element_bytes) {
  constexpr int64_t kRows = 7;
  TokenBytes bytes = bytes_of(mtp.layer, parameters_of(mtp.layer), cut, element_bytes);
  bytes.saved += kRows * ((element_bytes * mtp.layer.hidden + cut.tp - 1) / cut.tp);
  return bytes;
}

Model with_mtp(const Model& model) {
  Outline outline = model.outline();
  if (outline.counted || family_of(outline).mtp == MtpPlace::kNone) {
    refuse(text("Sluice trains no layers of ", outline.family, " that predict further tokens (MTP), only ",
                "those of deepseek_v3, glm4_moe, glm4_moe_lite, qwen3_next and qwen3_5"));
  }
  const int64_t named = layers_named(outline);
  if (named == 0)
    refuse("config.json names no layers that predict further tokens (num_nextn_predict_layers)");
  if (named > 1) refuse(text("config.json names ", named, " MTP layers, of which Sluice trains one at most"));
  const base::Json* const config = outline.config.json.get();
  if (config != nullptr && base::get_or<bool>(*config, "mtp_use_dedicated_embeddings", false, "config.json"))
    refuse("config.json gives its MTP layer an embedding of its own (mtp_use_dedicated_embeddings)");
  outline.mtp = true;
  return outline;
}

}  // namespace sluice::model
