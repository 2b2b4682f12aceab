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
base::Json llama_config(const Shape& shape) {
  return {{"architectures", base::Json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"hidden_size", shape.hidden},
          {"intermediate_size", shape.ffn_hidden},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"vocab_size", shape.vocab},
          {"rms_norm_eps", shape.norm_eps},
          {"tie_word_embeddings", shape.tie_embeddings},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"rope_theta", shape.rope.theta},
          {"rope_scaling", rope_to_hugging_face(shape.rope)}};
}

}  // namespace

base::Json config_json(const Shape& shape) {
  base::Json config = shape.config.json ? *shape.config.json : llama_config(shape);
  const auto read = shape.counted ? counted_from_hugging_face : shape_from_hugging_face;
  SLUICE_ASSERT(read(config, "config.json") == untuned(shape),
                base::text("the shape is no longer that of its config.json, ", base::excerpt(config)));
  if (!config.contains("architectures") && !shape.counted)
    config["architectures"] = base::Json::array({std::string(family_of(shape).architecture)});
  return config;
}

}  // namespace sluice::model
