#include "layers/parameters.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/layer.h"
#include "model/lora_targets.h"
#include "model/roles.h"

namespace sluice::layers {

OperationShards::OperationShards(const model::ParameterTable& table, int64_t position,
                                 const FlatShards& flats, Of of, const model::Cut& cut,
                                 const LowPrecision& narrowing, const TensorParallel& parallel)
    : kind_(table.program.kind_at(position)),
      lora_(table.model.lora()),
      cut_(cut),
      narrowing_(narrowing),
      parallel_(parallel),
      are_weights_(of == Of::kWeights) {
  if (!flats) return;
  for (const int index : table.program.at(position).buckets) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
    if (of == Of::kGradients && !bucket.trained) continue;
    const at::Tensor flat = flats(index);
    if (!flat.defined()) continue;
    const int64_t expected = model::local_elements(bucket, cut);
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
  Matrix matrix{.w_AB = tensor(role), .adapters = {}, .low_precision = narrowing_};
  const std::vector<model::Parameter>& parameters = kind_.parameters();
  const auto of = std::ranges::find(parameters, role, &model::Parameter::role);
  matrix.outputs_last = of != parameters.end() && of->outputs_last;
  for (const model::Parameter& left : parameters) {
    if (left.role != role || left.factor != model::Factor::kLeft) continue;
    int64_t first_row = 0;
    const std::vector<base::Interval> rows = model::local_rows(*of, cut_);
    for (int group = 0; group < left.adapted; ++group) first_row += rows[static_cast<size_t>(group)].size();
    matrix.adapters.push_back({find(role, model::Factor::kLeft, left.adapted),
                               find(role, model::Factor::kRight, left.adapted), first_row,
                               model::adapter_factor(lora_, left)});
    const at::Tensor magnitude = find(role, model::Factor::kMagnitude, left.adapted);
    if (magnitude.defined()) matrix.adapters.back().magnitude_N = magnitude.view(-1);
  }
  if (are_weights_) decompose(matrix, parallel_);
  if (are_weights_ && narrowing_.format == base::GemmFormat::kFloat8)
    matrix.codes = std::make_shared<ops::Float8Weight>();
  return matrix;
}

base::Interval OperationShards::rows(std::string_view role) const {
  const auto found = std::ranges::find(views_, role, [](const View& view) { return view.parameter->role; });
  return found == views_.end() ? base::Interval{} : model::local_rows(*found->parameter, cut_).front();
}

EmbeddingParameters embedding_parameters(const OperationShards& shards) {
  return {shards.kind().embedding(),
          shards.tensor(model::roles::kEmbedding),
          shards.rows(model::roles::kEmbedding),
          shards.vector(model::roles::kEmbeddingNorm),
          shards.vector(model::roles::kEmbeddingNormBias),
          shards.tensor(model::roles::kPositions),
          shards.tensor(model::roles::kTokenKinds),
          shards.tensor(model::roles::kLayerEmbedding),
          shards.tensor(model::roles::kLayerProjection),
          shards.vector(model::roles::kLayerProjectionNorm)};
}

HeadParameters head_parameters(const OperationShards& shards) {
  const model::Head* const head = shards.kind().head();
  return {head,
          shards.vector(model::roles::kFinalNorm),
          shards.vector(model::roles::kFinalNormBias),
          shards.tensor(head->output.role),
          shards.vector(model::roles::kScoreBias),
          shards.tensor(model::roles::kNeck),
          shards.vector(model::roles::kNeckBias),
          shards.vector(model::roles::kNeckNorm),
          shards.vector(model::roles::kNeckNormBias),
          shards.rows(head->output.role)};
}

}  // namespace sluice::layers
