// Named views into flat shards. One struct serves an operation's 16-bit weights and its gradient
// accumulators, which have the same layout (model/parameters.h) but exist for trained buckets only.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "layers/product.h"
#include "model/parameters.h"

namespace sluice::layers {

// This rank's flat shard of a bucket: one-dimensional, model::local_elements(bucket, cut) elements, expanded
// if the bucket is coded. Undefined if the rank has none.
using FlatShards = std::function<at::Tensor(int bucket)>;

// An operation's weights on a rank, or their gradients, as views of the shards' storage. Tensors that do not
// exist and gradients of frozen parameters are undefined.
class OperationShards {
 public:
  enum class Of : uint8_t { kWeights, kGradients };
  // With an empty `flats` all tensors are undefined.
  OperationShards(const model::ParameterTable& table, int64_t position, const FlatShards& flats, Of of,
                  const model::Cut& cut, const LowPrecision& narrowing = {},
                  const TensorParallel& parallel = {});

  at::Tensor tensor(std::string_view role) const { return find(role, model::Factor::kNone, 0); }
  at::Tensor vector(std::string_view role) const;
  Matrix matrix(std::string_view role) const;
  // The rows of a parameter that is cut as one group; for gradients only if it is trained.
  base::Interval rows(std::string_view role) const;
  const model::Kind& kind() const { return kind_; }

 private:
  struct View {
    const model::Parameter* parameter;
    at::Tensor tensor;
  };
  at::Tensor find(std::string_view role, model::Factor factor, int adapted) const;

  const model::Kind& kind_;
  const model::Lora& lora_;
  model::Cut cut_;
  LowPrecision narrowing_;
  TensorParallel parallel_;
  bool are_weights_;
  std::vector<View> views_;
};

// Parameters of the model's ends on TP rank t. Norms are whole on every rank; as accumulators they hold the
// sum over this rank's rows only. `kind`: from the table's program.
struct EmbeddingParameters {
  const model::Embedding* kind = nullptr;
  at::Tensor table_VH;
  base::Interval vocabulary;  // the rows of the whole table that this rank holds
  at::Tensor norm_H, norm_bias_H;
  at::Tensor position_PH, kind_KH;  // added to all rows (the first kind's row); undefined: none
  // Per-layer embeddings, whose table is cut as table_VH; undefined: none.
  at::Tensor layer_table_VC, layer_projection_CH, layer_norm_P;
};

struct HeadParameters {
  const model::Head* kind = nullptr;
  at::Tensor final_norm_H, final_norm_bias_H;
  at::Tensor output_VH;  // the embedding's table if tied; for heads of numbers [numbers, H], or undefined
  at::Tensor bias_K;     // output bias; undefined: none
  at::Tensor neck_HH, neck_bias_H, neck_norm_H, neck_norm_bias_H;
  base::Interval vocabulary;
};

EmbeddingParameters embedding_parameters(const OperationShards& shards);
HeadParameters head_parameters(const OperationShards& shards);

}  // namespace sluice::layers
