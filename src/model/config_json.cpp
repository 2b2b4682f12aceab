#include "model/config_json.h"

#include "base/error.h"
#include "base/json.h"
#include "model/counted.h"
#include "model/families/family.h"
#include "model/families/rope_keys.h"
#include "model/hugging_face.h"
#include "model/tuning.h"

namespace sluice::model {
namespace {

// LLaMA's keys, with the old ones for rotary positions: transformers reads those before and since version 5.
base::Json llama_config(const Outline& outline) {
  return {{"architectures", base::Json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"hidden_size", outline.hidden},
          {"intermediate_size", outline.ffn_hidden},
          {"num_hidden_layers", outline.layers},
          {"num_attention_heads", outline.heads},
          {"num_key_value_heads", outline.kv_heads},
          {"head_dim", outline.head_dim},
          {"vocab_size", outline.vocab},
          {"rms_norm_eps", outline.norm_eps},
          {"tie_word_embeddings", outline.tie_embeddings},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"rope_theta", outline.rope.theta},
          {"rope_scaling", rope_to_hugging_face(outline.rope)}};
}

}  // namespace

base::Json config_json(const Model& model) {
  const Outline& outline = model.outline();
  base::Json config = outline.config.json ? *outline.config.json : llama_config(outline);
  const auto read = outline.counted ? counted_from_hugging_face : outline_from_hugging_face;
  SLUICE_ASSERT(read(config, "config.json") == untuned(model).outline(),
                base::text("the model is no longer that of its config.json, ", base::excerpt(config)));
  if (!config.contains("architectures") && !outline.counted)
    config["architectures"] = base::Json::array({std::string(family_of(outline).architecture)});
  return config;
}

}  // namespace sluice::model
