#include "model/family_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/derive.h"
#include "model/families/family.h"
#include "model/families/head.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/parameter.h"
#include "model/roles.h"
#include "model/wrapped.h"

namespace sluice::model {
namespace {

using base::Json;
using base::text;

// The sizes of a small model under the names of all families; each family reads the keys that it knows.
Json small_config() {
  return Json::parse(R"({
    "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 64, "num_attention_heads": 4, "num_heads": 4,
    "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 64, "q_lora_rank": 8, "kv_lora_rank": 8,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_groups": 1, "state_size": 8,
    "shared_intermediate_size": 64, "intermediate_size_mlp": 64, "mamba_n_heads": 4, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16, "moe_num_experts": 4, "moe_k": 2,
    "moe_shared_expert_intermediate_size": 16, "hidden_size_per_layer_input": 0, "enable_moe_block": true,
    "top_k_experts": 2, "layers_block_type": ["mamba", "attention", "mlp", "moe"]})");
}

// Drops keys of other families, which this family refuses.
Outline small_outline(const Family& family) {
  constexpr const char* kRefused[] = {"q_lora_rank", "shared_intermediate_size", "num_experts",
                                      "moe_intermediate_size"};
  const std::string name(family.model_type);
  Json json = small_config();
  for (size_t dropped = 0;; ++dropped) {
    try {
      Reader config(json, name);
      Outline outline{.family = name};
      family.read(config, outline);
      return outline;
    } catch (const base::InputError&) {
      if (dropped == std::size(kRefused)) throw;
      json.erase(kRefused[dropped]);
    }
  }
}

void add_once(std::vector<std::string>& all, std::string name) {
  if (std::ranges::find(all, name) == all.end()) all.push_back(std::move(name));
}

FamilyRow row_of(const Family& family) {
  const AdaptedModules modules = adapted_modules(small_outline(family));
  return {.model_type = std::string(family.model_type),
          .title = std::string(family.title),
          .difference = std::string(family.difference),
          .lora = !modules.can.empty(),
          .generates = !is_encoder(family),
          .missing = modules.cannot.empty() ? "" : "adapters of " + base::join(modules.cannot, ", ")};
}

FamilyRow row_of(const Wrapper& wrapper) {
  const Family* const family = family_of(wrapper.family);
  FamilyRow row = row_of(*family);
  row.model_type = wrapper.model_type;
  row.title = row.title.substr(0, row.title.find(" (text)"));
  std::vector<std::string> texts;
  for (const Wrapper& other : wrappers()) {
    if (std::string(other.model_type) == wrapper.model_type) texts.push_back(text("`", other.text_type, "`"));
  }
  row.difference =
      text("the language model inside; the rest is carried as it is (", base::join(texts, ", "), ")");
  row.missing = text("images", row.missing.empty() ? "" : ", ", row.missing);
  return row;
}

}  // namespace

AdaptedModules adapted_modules(const Model& model) {
  const Outline& outline = model.outline();
  AdaptedModules modules;
  std::vector<BlockType> seen;
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    const BlockType type = outline.block_type(layer);
    if (std::ranges::find(seen, type) != seen.end()) continue;
    seen.push_back(type);
    for (const Part& part : layer_of(outline, type).parts) {
      for (const Weight& weight : part.weights) {
        if (!weight.is_product()) continue;
        const bool experts = weight.experts > 0, can = experts || takes_adapters(weight.role, weight.adapts);
        for (const std::string& tensor : weight.tensors) {
          add_once(can ? modules.can : modules.cannot, experts ? "experts"
                                                       : weight.role == roles::kRouter
                                                           ? "router"
                                                           : std::string(module_of(tensor)));
        }
      }
    }
  }
  return modules;
}

std::string abilities_text(const Model& model) {
  if (model.counted()) return "plans alone";
  const AdaptedModules modules = adapted_modules(model);
  const std::string without = modules.cannot.empty() ? "" : "not on " + base::join(modules.cannot, ", ");
  const std::string with = modules.can.empty() ? "" : "LoRA on " + base::join(modules.can, ", ");
  const std::string lora = with.empty() ? "no LoRA" : with + (without.empty() ? "" : "; " + without);
  return text("trains (", lora, ")", model.causal() ? ", generates" : "", ", plans");
}

std::vector<FamilyRow> family_rows() {
  std::vector<FamilyRow> rows;
  for (const Family& family : families()) rows.push_back(row_of(family));
  for (const Wrapper& wrapper : wrappers()) {
    if (rows.back().model_type != wrapper.model_type) rows.push_back(row_of(wrapper));
  }
  return rows;
}

Json family_rows_json() {
  Json all = Json::array();
  for (const FamilyRow& row : family_rows()) {
    all.push_back({{"model_type", row.model_type},
                   {"trains", true},
                   {"lora", row.lora},
                   {"generates", row.generates},
                   {"plans", true},
                   {"missing", row.missing}});
  }
  return all;
}

std::string family_rows_markdown() {
  std::string table = "| family | `model_type` | difference from LLaMA's layers |\n| --- | --- | --- |\n";
  for (const FamilyRow& row : family_rows())
    table += text("| ", row.title, " | `", row.model_type, "` | ", row.difference, " |\n");
  return table;
}

}  // namespace sluice::model
