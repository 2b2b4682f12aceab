// Roles of a layer's weights, and so of parameters. Matrices are stored [out, in] and used as x·wᵀ. Matrices
// marked [in, out] are used as a·w, and the product is added to the residual rows.
#pragma once

#include <string_view>

namespace sluice::model::roles {

inline constexpr std::string_view kEmbedding = "embedding";
inline constexpr std::string_view kPositions = "positions";     // [positions, hidden]
inline constexpr std::string_view kTokenKinds = "token_kinds";  // [kinds, hidden], likewise
inline constexpr std::string_view kEmbeddingNorm = "embedding_norm";
inline constexpr std::string_view kEmbeddingNormBias = "embedding_norm_bias";
inline constexpr std::string_view kLayerEmbedding = "layer_embedding";    // [vocabulary, layers · width]
inline constexpr std::string_view kLayerProjection = "layer_projection";  // [layers · width, hidden]
inline constexpr std::string_view kLayerProjectionNorm = "layer_projection_norm";
inline constexpr std::string_view kFinalNorm = "final_norm";
inline constexpr std::string_view kFinalNormBias = "final_norm_bias";
inline constexpr std::string_view kHead = "head";    // absent if embeddings are tied
inline constexpr std::string_view kScore = "score";  // [numbers, hidden], instead of a vocabulary's
inline constexpr std::string_view kScoreBias = "score_bias";
inline constexpr std::string_view kNeck = "neck";  // [hidden, hidden], in front of the score
inline constexpr std::string_view kNeckBias = "neck_bias";
inline constexpr std::string_view kNeckNorm = "neck_norm";
inline constexpr std::string_view kNeckNormBias = "neck_norm_bias";

// An MTP layer's, beside its layer's own.
inline constexpr std::string_view kMtpTokenNorm = "mtp_token_norm";
inline constexpr std::string_view kMtpTokenNormBias = "mtp_token_norm_bias";
inline constexpr std::string_view kMtpRowNorm = "mtp_row_norm";
inline constexpr std::string_view kMtpRowNormBias = "mtp_row_norm_bias";
inline constexpr std::string_view kMtpProjection = "mtp_projection";  // [hidden, 2 · hidden]
inline constexpr std::string_view kMtpNorm = "mtp_norm";
inline constexpr std::string_view kMtpNormBias = "mtp_norm_bias";

// Attention.
inline constexpr std::string_view kAttentionNorm = "attention_norm";
inline constexpr std::string_view kAttentionNormBias = "attention_norm_bias";
inline constexpr std::string_view kQkv = "qkv";  // rows q, k, v; gated heads: each query with its gate
inline constexpr std::string_view kQkvBias = "qkv_bias";
inline constexpr std::string_view kQNorm = "q_norm";  // as wide as one head, or as all heads
inline constexpr std::string_view kKNorm = "k_norm";
inline constexpr std::string_view kSinks = "sinks";                 // one score for each query head
inline constexpr std::string_view kAttentionOut = "attention_out";  // [in, out]
inline constexpr std::string_view kAttentionOutBias = "attention_out_bias";
inline constexpr std::string_view kAttentionNormBehind = "attention_norm_behind";
inline constexpr std::string_view kAttentionNormBehindBias = "attention_norm_behind_bias";

// Latent attention uses attention's norm and output. Narrow matrices are whole on every TP rank.
inline constexpr std::string_view kQNarrow = "q_narrow";
inline constexpr std::string_view kQ = "q";                 // for each head rows unrotated, rotated
inline constexpr std::string_view kKvNarrow = "kv_narrow";  // the keys' rotated part comes last
inline constexpr std::string_view kKvNorm = "kv_norm";
inline constexpr std::string_view kKv = "kv";  // for each head rows of unrotated keys, values
inline constexpr std::string_view kNarrowBias = "narrow_bias";

// Recurrences.
inline constexpr std::string_view kRecurrentNorm = "recurrent_norm";
inline constexpr std::string_view kRecurrentNormBias = "recurrent_norm_bias";
// Row order: q, k, v; or by key head q, k, v, gate. Mamba-2: gate, v, k, q, step. Short convolutions: the
// factor on the input, the factor on the output, the input.
inline constexpr std::string_view kRecurrentQkv = "recurrent_qkv";
inline constexpr std::string_view kRecurrentQkvBias = "recurrent_qkv_bias";  // short convolutions'
// Rows: rates, decays, one for each value head, or both by key head. GLA: decays of key channels.
inline constexpr std::string_view kRates = "recurrent_rates";
inline constexpr std::string_view kDecayNarrow = "recurrent_decay_narrow";  // KDA: rows for decays, for gates
inline constexpr std::string_view kRate = "recurrent_rate";                 // KDA's; its kRates are decays
inline constexpr std::string_view kRecurrentGate = "recurrent_gate";
inline constexpr std::string_view kConvolution = "recurrent_convolution";  // a row for each row of q, k, v
inline constexpr std::string_view kConvolutionBias = "recurrent_convolution_bias";
inline constexpr std::string_view kDecay = "recurrent_decay";         // logarithms, one for each value head
inline constexpr std::string_view kStepBias = "recurrent_step_bias";  // added to each decay before softplus
inline constexpr std::string_view kSkip = "recurrent_skip";           // how much of a value skips the state
inline constexpr std::string_view kHeadNorm = "recurrent_head_norm";  // a value head's width, or all heads'
inline constexpr std::string_view kRecurrentOut = "recurrent_out";    // [in, out]
inline constexpr std::string_view kRecurrentOutBias = "recurrent_out_bias";

// MLPs.
inline constexpr std::string_view kMlpNorm = "mlp_norm";
inline constexpr std::string_view kMlpNormBias = "mlp_norm_bias";
inline constexpr std::string_view kGateUp = "gate_up";  // rows gate, up; only up without a gate
inline constexpr std::string_view kGateUpBias = "gate_up_bias";
inline constexpr std::string_view kDown = "down";  // [in, out]
inline constexpr std::string_view kDownBias = "down_bias";
inline constexpr std::string_view kActivationAlphas = "activation_alphas";  // xIELU's
inline constexpr std::string_view kMlpNormBehind = "mlp_norm_behind";
inline constexpr std::string_view kMlpNormBehindBias = "mlp_norm_behind_bias";

// Experts use the MLP's norm. The router's weights are whole on every TP rank.
inline constexpr std::string_view kRouter = "router";                  // [experts, hidden]
inline constexpr std::string_view kExpertsGateUp = "experts_gate_up";  // for each expert rows gate, up
inline constexpr std::string_view kExpertsDown = "experts_down";       // for each expert [in, out]
inline constexpr std::string_view kRouterBias = "router_bias";
inline constexpr std::string_view kExpertsGateUpBias = "experts_gate_up_bias";
inline constexpr std::string_view kExpertsDownBias = "experts_down_bias";  // whole on every TP rank
inline constexpr std::string_view kCorrection = "router_correction";       // Experts::corrected
inline constexpr std::string_view kLoads = "router_loads";                 // Experts::remembers_loads
inline constexpr std::string_view kSharedGateUp = "shared_gate_up";
inline constexpr std::string_view kSharedDown = "shared_down";
inline constexpr std::string_view kSharedGate = "shared_gate";      // [1, hidden], whole on every TP rank
inline constexpr std::string_view kRouterScale = "router_scale";    // RoutedExperts::router_norm_eps
inline constexpr std::string_view kExpertScales = "expert_scales";  // RoutedExperts::expert_scales
// Norms of experts beside an MLP, and the norm of the sum of both.
inline constexpr std::string_view kExpertsNorm = "experts_norm";
inline constexpr std::string_view kExpertsNormBehind = "experts_norm_behind";
inline constexpr std::string_view kJointNorm = "joint_norm";

// Embeddings by layer.
inline constexpr std::string_view kLayerInputGate = "layer_input_gate";  // [width, hidden]
inline constexpr std::string_view kLayerInputOut = "layer_input_out";    // [in, out]
inline constexpr std::string_view kLayerInputNormBehind = "layer_input_norm_behind";

inline constexpr std::string_view kLayerScalar = "layer_scalar";

}  // namespace sluice::model::roles
