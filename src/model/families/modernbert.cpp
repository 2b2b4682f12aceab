#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/rope_keys.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kModernBertTensors[] = {{roles::kEmbedding, {"model.embeddings.tok_embeddings.weight"}},
                                              {roles::kEmbeddingNorm, {"model.embeddings.norm.weight"}},
                                              {roles::kEmbeddingNormBias, {"model.embeddings.norm.bias"}},
                                              {roles::kAttentionNorm, {"attn_norm.weight"}},
                                              {roles::kAttentionNormBias, {"attn_norm.bias"}},
                                              {roles::kQkv, {"attn.Wqkv.weight"}},
                                              {roles::kQkvBias, {"attn.Wqkv.bias"}},
                                              {roles::kAttentionOut, {"attn.Wo.weight"}},
                                              {roles::kAttentionOutBias, {"attn.Wo.bias"}},
                                              {roles::kMlpNorm, {"mlp_norm.weight"}},
                                              {roles::kMlpNormBias, {"mlp_norm.bias"}},
                                              {roles::kGateUp, {"mlp.Wi.weight"}},
                                              {roles::kGateUpBias, {"mlp.Wi.bias"}},
                                              {roles::kDown, {"mlp.Wo.weight"}},
                                              {roles::kDownBias, {"mlp.Wo.bias"}},
                                              {roles::kFinalNorm, {"model.final_norm.weight"}},
                                              {roles::kFinalNormBias, {"model.final_norm.bias"}},
                                              {roles::kScore, {"classifier.weight"}},
                                              {roles::kScoreBias, {"classifier.bias"}}};

// Files from before transformers 5 have a key of its own for the base of rotary positions.
base::Json with_global_theta(const Reader& config, Outline&) {
  constexpr const char* kTheta = "global_rope_theta";
  base::Json changed = config.json();
  if (changed.contains(kTheta) && !changed.at(kTheta).is_null()) changed["rope_theta"] = changed.at(kTheta);
  return changed;
}

void read_ends(Reader& config, Outline& outline) {
  config.only("classifier_activation", "gelu");
  const bool bias = config.has("classifier_bias");
  const std::string pooling = config.text_or("cls", "classifier_pooling");
  if (pooling != "cls" && pooling != "mean") config.refuse("classifier_pooling", pooling, "cls or mean");
  if (outline.head.numbers == 0) return;
  outline.head.bias = true;
  outline.head.neck = NeckStyle{.activation = Activation::kGelu, .bias = bias, .normed = true};
  if (outline.head.kind == HeadKind::kSequence)
    outline.head.pooling = pooling == "mean" ? Pooling::kMean : Pooling::kCls;
}

// The input of the first layer's attention is already normed by the embedding.
void leave_first_rows(Outline& outline) {
  spread_types(outline);
  Layer first = usual_layer(outline, outline.block_type(0));
  first.parts.front().before.reset();
  outline.block_types.front().own.value = std::make_shared<const Layer>(std::move(first));
}

}  // namespace

extern const Names kModernBertNames{kModernBertTensors};

// Dropouts are ignored: Sluice trains without them.
void read_modernbert(Reader& config, Outline& outline) {
  outline.causal = false;
  read_decoder(config,
               {.norm_eps = 1e-5,
                .rope_theta = 160000.0,
                .tied = true,
                .drops_out = true,
                .biases = true,
                .mlp_biases = true,
                .ropes_by_type = true,
                .norm_eps_key = "norm_eps",
                .own_rope = with_global_theta},
               outline);
  config.only("hidden_activation", "gelu");
  config.only("position_embedding_type", "absolute");
  config.pass({"embedding_dropout", "mlp_dropout", "classifier_dropout", "decoder_bias", "layer_norm_eps",
               "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index",
               "initializer_cutoff_factor", "global_rope_theta", "reference_compile",
               "repad_logits_with_grad"});
  outline.activation = Activation::kGelu;
  outline.norm = {.kind = NormKind::kLayer, .biases = config.has("norm_bias")};
  outline.embedding_norm = true;
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  outline.mlp_bias = config.has("mlp_bias");
  // The key's width covers both sides of a token.
  outline.window = config.count_or(128, "local_attention", kModelRanges.window) / 2 + 1;
  const int64_t every = config.count_or(3, "global_attn_every_n_layers", kModelRanges.layers);
  read_layer_types(config, outline, [&](int64_t layer) { return layer % every != 0; });
  const double theta = config.number_or(10000.0, "local_rope_theta", kModelRanges.rope_theta);
  const std::optional<Rope> window_rope = window_rope_from_hugging_face(config, theta);
  if (outline.window > 0) outline.window_rope = window_rope;
  read_ends(config, outline);
  leave_first_rows(outline);
}

}  // namespace sluice::model
