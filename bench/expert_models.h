// Published mixtures of experts, and their costs on clusters of GPUs, for planning benchmarks.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "cost/analytic.h"
#include "model/hugging_face.h"
#include "model/outline.h"
#include "strategy/cluster.h"

namespace sluice::bench {

// Values of the published config.json files, as far as they influence costs.
inline constexpr const char* kMixtral = R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000, "num_local_experts": 8,
  "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "hidden_act": "silu",
  "max_position_embeddings": 32768, "sliding_window": null, "tie_word_embeddings": false})";
inline constexpr const char* kQwen3 = R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
  "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
  "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
  "hidden_act": "silu", "max_position_embeddings": 40960, "decoder_sparse_step": 1, "mlp_only_layers": [],
  "tie_word_embeddings": false})";
inline constexpr const char* kGptOss = R"({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"],
  "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
  "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "num_local_experts": 128,
  "num_experts_per_tok": 4, "rms_norm_eps": 1e-5, "rope_theta": 150000, "hidden_act": "silu",
  "max_position_embeddings": 131072, "sliding_window": 128, "attention_bias": true, "swiglu_limit": 7.0,
  "tie_word_embeddings": false})";
inline constexpr const char* kDeepSeek =
    R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
  "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
  "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "n_routed_experts": 256,
  "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu", "max_position_embeddings": 163840,
  "tie_word_embeddings": false})";

// Analytic costs on `ranks` ranks of this kind of cluster, with gradients between lanes in BF16.
inline cost::CostModel::Options expert_costs(const char* config, const char* cluster_name, int ranks) {
  const strategy::Cluster cluster = strategy::cluster_preset(cluster_name, ranks / 8);
  const model::Outline outline =
      model::outline_to_plan_from_hugging_face(base::parse_json(config, "config"), "config");
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9,
                                    .element_bytes = 2,
                                    .host_bytes = cost::host_bytes_of(cluster)};
  const std::vector<int> degrees = {1, 2, 4, 8};
  cost::CostModel::Options options =
      cost::analytic_options(outline, cost::rates_of(cluster), memory, degrees, cluster.gpus_per_node);
  options.codecs.sums = {strategy::Codec::kBFloat16, strategy::Codec::kBFloat16};
  return options;
}

}  // namespace sluice::bench
