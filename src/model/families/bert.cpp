#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kBertTensors[] = {
    {roles::kEmbedding, {"bert.embeddings.word_embeddings.weight"}},
    {roles::kPositions, {"bert.embeddings.position_embeddings.weight"}},
    {roles::kTokenKinds, {"bert.embeddings.token_type_embeddings.weight"}},
    {roles::kEmbeddingNorm, {"bert.embeddings.LayerNorm.weight"}},
    {roles::kEmbeddingNormBias, {"bert.embeddings.LayerNorm.bias"}},
    {roles::kQkv,
     {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"}},
    {roles::kQkvBias, {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}},
    {roles::kAttentionOut, {"attention.output.dense.weight"}},
    {roles::kAttentionOutBias, {"attention.output.dense.bias"}},
    {roles::kAttentionNormBehind, {"attention.output.LayerNorm.weight"}},
    {roles::kAttentionNormBehindBias, {"attention.output.LayerNorm.bias"}},
    {roles::kGateUp, {"intermediate.dense.weight"}},
    {roles::kGateUpBias, {"intermediate.dense.bias"}},
    {roles::kDown, {"output.dense.weight"}},
    {roles::kDownBias, {"output.dense.bias"}},
    {roles::kMlpNormBehind, {"output.LayerNorm.weight"}},
    {roles::kMlpNormBehindBias, {"output.LayerNorm.bias"}},
    {roles::kNeck, {"bert.pooler.dense.weight"}},
    {roles::kNeckBias, {"bert.pooler.dense.bias"}},
    {roles::kScore, {"classifier.weight"}},
    {roles::kScoreBias, {"classifier.bias"}}};

}  // namespace

extern const Names kBertNames{kBertTensors};

// Dropouts are ignored: Sluice trains without them.
void read_bert(Reader& config, Outline& outline) {
  outline.causal = false;
  read_decoder(config,
               {.norm_eps = 1e-12, .tied = true, .activation = "gelu", .norm_eps_key = "layer_norm_eps"},
               outline);
  config.only("position_embedding_type", "absolute");
  config.only("type_vocab_size", 2);
  config.pass({"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"});
  outline.positions = config.count_or(512, "max_position_embeddings", kModelRanges.max_positions);
  outline.block_types.assign(static_cast<size_t>(outline.layers), BlockType{.rotates = false});
  outline.activation = Activation::kGelu;
  outline.mlp_gate = false;
  outline.norm = {.kind = NormKind::kLayer, .biases = true};
  outline.norm_place = NormPlace::kOfSum;
  outline.embedding_norm = outline.qkv_bias = outline.out_bias = outline.mlp_bias = true;
  if (outline.head.numbers == 0) return;
  outline.head.bias = true;
  if (outline.head.kind != HeadKind::kSequence) return;
  outline.head.pooling = Pooling::kCls;
  outline.head.neck = NeckStyle{.activation = Activation::kTanh, .bias = true};
}

}  // namespace sluice::model
