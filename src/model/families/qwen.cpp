#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

void read_windows(Reader& config, Outline& outline) {
  const int64_t first = config.count_or(28, "max_window_layers", {0, kModelRanges.layers.most});
  read_optional_window(config, 4096, outline, [&](int64_t layer) { return layer >= first; });
}

// Text has one position for each token, so sections of several positions have no effect.
base::Json without_sections(const Reader& config, Outline&) {
  return with_own_rope(config, [](base::Json& rope) {
    for (const char* key : {"mrope_section", "mrope_interleaved"}) rope.erase(key);
    for (const char* key : {"rope_type", "type"}) {
      if (rope.contains(key) && rope.at(key) == "mrope") rope[key] = "default";
    }
  });
}

// Windows of models with experts are not computed: they must be off, and their other keys are ignored.
void read_qwen_experts(Reader& config, Outline& outline) {
  config.off("use_sliding_window");
  config.pass({"sliding_window", "max_window_layers", "layer_types"});
  read_experts(config, width(config, "moe_intermediate_size"), outline);
  read_expert_layers(config, outline);
  drop_usual_types(outline);
}

}  // namespace

void read_qwen2(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32}, outline);
  read_windows(config, outline);
  outline.qkv_bias = true;
}

void read_qwen3(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32, .head_dim = 128}, outline);
  read_windows(config, outline);
  outline.qk_norm = QkNorm::kEachHead;
}

void read_qwen3_vl_text(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32, .head_dim = 128, .rope_theta = 5e6, .own_rope = without_sections},
               outline);
  outline.qk_norm = QkNorm::kEachHead;
}

void read_qwen2_moe(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 16}, outline);
  config.only("qkv_bias", true);
  read_qwen_experts(config, outline);
  outline.qkv_bias = true;
  outline.experts.shared_hidden = width(config, "shared_expert_intermediate_size");
  outline.experts.shared_gate = true;
}

void read_qwen3_moe(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 4}, outline);
  read_qwen_experts(config, outline);
  outline.qk_norm = QkNorm::kEachHead;
}

// Qwen 3 MoE's layers. Some have windows, with rotary positions of their own.
void read_mellum(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 4, .head_dim = 128, .rope_theta = 5e5, .ropes_by_type = true}, outline);
  outline.qk_norm = QkNorm::kEachHead;
  read_experts(config, width(config, "moe_intermediate_size"), outline);
  outline.experts.normalised = !config.lacks("norm_topk_prob");
  config.pass({"num_nextn_predict_layers", "num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"});
  read_mlp_types(config, outline);
  read_window(config, 1024, outline);
  read_layer_types(config, outline, [](int64_t) { return false; });
  read_ropes_by_type(config, 1e4, outline);
}

}  // namespace sluice::model
