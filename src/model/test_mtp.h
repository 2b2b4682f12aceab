// A small model with an MTP layer, for tests. Header-only.
#pragma once

#include "base/json.h"

namespace sluice::model {

// The config.json of a DeepSeek-V3 whose layer 2, with experts, predicts further tokens.
inline base::Json deepseek_config() {
  return {{"model_type", "deepseek_v3"},
          {"hidden_size", 12},
          {"intermediate_size", 20},
          {"moe_intermediate_size", 8},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 2},
          {"n_shared_experts", 1},
          {"n_routed_experts", 4},
          {"num_experts_per_tok", 2},
          {"n_group", 1},
          {"topk_group", 1},
          {"first_k_dense_replace", 1},
          {"kv_lora_rank", 4},
          {"q_lora_rank", 6},
          {"qk_nope_head_dim", 4},
          {"qk_rope_head_dim", 2},
          {"v_head_dim", 4},
          {"vocab_size", 33},
          {"num_nextn_predict_layers", 1}};
}

}  // namespace sluice::model
