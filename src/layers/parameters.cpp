#include "layers/parameters.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/attention_kind.h"
#include "model/end_kinds.h"
#include "model/experts_kind.h"
#include "model/latent_attention_kind.h"
#include "model/mlp_kind.h"
#include "model/recurrent_kind.h"

namespace sluice::layers {

using model::AttentionKind;
using model::EmbeddingKind;
using model::ExpertsKind;
using model::HeadKind;
using model::LatentAttentionKind;
using model::MlpKind;
using model::RecurrentKind;

OperationShards::OperationShards(const model::ParameterTable& table, int64_t position,
                                 const FlatShards& flats, Of of, const model::Cut& cut,
                                 const Narrowing& narrowing)
    : parameters_(table.program.kind_at(position).parameters()),
      adapter_factor_(table.shape.lora.rank > 0 ? table.shape.lora.factor() : 0),
      cut_(cut),
      narrowing_(narrowing) {
  if (!flats) return;
  for (const int index : table.program.at(position).buckets) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
    if (of == Of::kGradients && !bucket.trained) continue;
    const at::Tensor flat = flats(index);
    if (!flat.defined()) continue;
    const int64_t expected = model::shard_of(bucket, cut).size();
    SLUICE_ASSERT(flat.dim() == 1 && flat.numel() == expected,
                  base::text("bucket ", index, " on TP rank ", cut.t, " of ", cut.tp, " has ", expected,
                             " elements, its flat shard ", flat.numel()));
    const std::vector<model::LocalParameter> locals = model::local_parameters(bucket, cut);
    for (size_t i = 0; i < locals.size(); ++i) {
      const auto [offset, rows, columns] = locals[i];
      views_.push_back({&bucket.parameters[i], flat.narrow(0, offset, rows * columns).view({rows, columns})});
    }
  }
}

at::Tensor OperationShards::find(std::string_view role, model::Factor factor, int adapted) const {
  for (const auto& [parameter, tensor] : views_) {
    if (parameter->role == role && parameter->factor == factor && parameter->adapted == adapted)
      return tensor;
  }
  return {};
}

at::Tensor OperationShards::vector(std::string_view role) const {
  const at::Tensor column = tensor(role);
  return column.defined() ? column.view(-1) : column;
}

Matrix OperationShards::matrix(std::string_view role) const {
  Matrix matrix{.w_AB = tensor(role), .adapters = {}, .factor = adapter_factor_, .narrowing = narrowing_};
  const auto of = std::ranges::find(parameters_, role, &model::Parameter::role);
  for (const model::Parameter& left : parameters_) {
    if (left.role != role || left.factor != model::Factor::kLeft) continue;
    int64_t first_row = 0;
    const std::vector<base::Interval> rows = model::local_rows(*of, cut_);
    for (int group = 0; group < left.adapted; ++group) first_row += rows[static_cast<size_t>(group)].size();
    matrix.adapters.push_back({find(role, model::Factor::kLeft, left.adapted),
                               find(role, model::Factor::kRight, left.adapted), first_row});
  }
  return matrix;
}

base::Interval OperationShards::rows(std::string_view role) const {
  const auto found = std::ranges::find(views_, role, [](const View& view) { return view.parameter->role; });
  return found == views_.end() ? base::Interval{} : model::local_rows(*found->parameter, cut_).front();
}

AttentionParameters attention_parameters(const OperationShards& shards) {
  return {.attention_norm_H = shards.vector(AttentionKind::kNorm),
          .qkv_PH = shards.matrix(AttentionKind::kQkv),
          .qkv_bias_P = shards.vector(AttentionKind::kQkvBias),
          .q_norm_D = shards.vector(AttentionKind::kQNorm),
          .k_norm_D = shards.vector(AttentionKind::kKNorm),
          .sinks_N = shards.vector(AttentionKind::kSinks),
          .attention_out_QH = shards.matrix(AttentionKind::kOut),
          .attention_out_bias_H = shards.vector(AttentionKind::kOutBias),
          .norm_behind_H = shards.vector(AttentionKind::kNormBehind)};
}

LatentParameters latent_parameters(const OperationShards& shards) {
  return {.norm_H = shards.vector(LatentAttentionKind::kNorm),
          .q_narrow_QH = shards.tensor(LatentAttentionKind::kQNarrow),
          .q_norm_Q = shards.vector(LatentAttentionKind::kQNorm),
          .kv_narrow_KH = shards.tensor(LatentAttentionKind::kKvNarrow),
          .kv_norm_K = shards.vector(LatentAttentionKind::kKvNorm),
          .q_PQ = shards.tensor(LatentAttentionKind::kQ),
          .kv_PK = shards.tensor(LatentAttentionKind::kKv),
          .out_VH = shards.matrix(LatentAttentionKind::kOut)};
}

MlpParameters mlp_parameters(const OperationShards& shards) {
  return {.mlp_norm_H = shards.vector(MlpKind::kNorm),
          .gate_up_GH = shards.matrix(MlpKind::kGateUp),
          .down_FH = shards.matrix(MlpKind::kDown),
          .norm_behind_H = shards.vector(MlpKind::kNormBehind)};
}

ExpertsParameters experts_parameters(const OperationShards& shards, int64_t experts, int64_t own) {
  const auto by_expert = [&](std::string_view role) {
    const at::Tensor all = shards.tensor(role);
    return all.defined() ? all.view({own, all.size(0) / own, all.size(1)}) : all;
  };
  const auto bias_by_expert = [&](std::string_view role, int64_t of) {
    const at::Tensor all = shards.vector(role);
    return all.defined() ? all.view({of, -1}) : all;
  };
  return {.norm_H = shards.vector(ExpertsKind::kNorm),
          .router_EH = shards.tensor(ExpertsKind::kRouter),
          .gate_up_EGH = by_expert(ExpertsKind::kGateUp),
          .down_EFH = by_expert(ExpertsKind::kDown),
          .router_correction_E = shards.vector(ExpertsKind::kCorrection),
          .router_loads_E = shards.vector(ExpertsKind::kLoads),
          .router_bias_E = shards.vector(ExpertsKind::kRouterBias),
          .gate_up_bias_EG = bias_by_expert(ExpertsKind::kGateUpBias, own),
          .down_bias_EH = bias_by_expert(ExpertsKind::kDownBias, experts),
          .shared_gate_up_GH = shards.tensor(ExpertsKind::kSharedGateUp),
          .shared_down_FH = shards.tensor(ExpertsKind::kSharedDown),
          .shared_gate_1H = shards.tensor(ExpertsKind::kSharedGate)};
}

RecurrentParameters recurrent_parameters(const OperationShards& shards) {
  return {.norm_H = shards.vector(RecurrentKind::kNorm),
          .qkv_CH = shards.matrix(RecurrentKind::kQkv),
          .decay_narrow_LH = shards.tensor(RecurrentKind::kDecayNarrow),
          .rates_RH = shards.matrix(RecurrentKind::kRates),
          .gate_VH = shards.matrix(RecurrentKind::kGate),
          .convolution_CW = shards.tensor(RecurrentKind::kConvolution),
          .convolution_bias_C = shards.vector(RecurrentKind::kConvolutionBias),
          .decay_N = shards.vector(RecurrentKind::kDecay),
          .step_bias_N = shards.vector(RecurrentKind::kStepBias),
          .skip_N = shards.vector(RecurrentKind::kSkip),
          .head_norm_D = shards.vector(RecurrentKind::kHeadNorm),
          .out_VH = shards.matrix(RecurrentKind::kOut)};
}

EmbeddingParameters embedding_parameters(const OperationShards& shards) {
  return {shards.tensor(EmbeddingKind::kTable), shards.rows(EmbeddingKind::kTable)};
}

// With tied embeddings the output matrix is the embedding's table.
HeadParameters head_parameters(const OperationShards& shards) {
  const at::Tensor own_VH = shards.tensor(HeadKind::kOutput);
  const std::string_view output = own_VH.defined() ? HeadKind::kOutput : EmbeddingKind::kTable;
  return {shards.vector(HeadKind::kNorm), shards.tensor(output), shards.rows(output)};
}

}  // namespace sluice::layers
