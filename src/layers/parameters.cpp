#include "layers/parameters.h"

#include "base/error.h"
#include "base/text.h"
#include "model/attention_kind.h"
#include "model/end_kinds.h"
#include "model/mlp_kind.h"

namespace sluice::layers {
namespace {

using model::AttentionKind;
using model::EmbeddingKind;
using model::HeadKind;
using model::MlpKind;

// Views of one bucket's flat shard on one TP rank.
class ShardView {
 public:
  ShardView(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t)
      : bucket_(bucket), flat_(flat), tp_(tp), t_(t) {
    const int64_t expected = model::tp_shard(bucket, tp, t).size();
    SLUICE_ASSERT(flat.dim() == 1 && flat.numel() == expected,
                  base::text("bucket ", bucket.index, " on TP rank ", t, " of ", tp, " has ", expected,
                             " elements, its flat shard ", flat.numel()));
  }

  at::Tensor matrix(std::string_view role) const {
    const model::LocalParameter local = model::local_parameter(bucket_, role, tp_, t_);
    return flat_.narrow(0, local.offset, local.rows * local.columns).view({local.rows, local.columns});
  }
  // Undefined where the bucket has none.
  at::Tensor vector(std::string_view role) const {
    return model::find_parameter(bucket_, role) != nullptr ? matrix(role).view(-1) : at::Tensor();
  }

  // The rows of a parameter that is cut as one group.
  base::Interval rows(std::string_view role) const {
    return model::tp_rows(*model::find_parameter(bucket_, role), tp_, t_).front();
  }

 private:
  const model::Bucket& bucket_;
  const at::Tensor& flat_;
  int tp_;
  int t_;
};

}  // namespace

AttentionParameters attention_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t) {
  const ShardView view(bucket, flat, tp, t);
  return {.attention_norm_H = view.vector(AttentionKind::kNorm),
          .qkv_PH = view.matrix(AttentionKind::kQkv),
          .qkv_bias_P = view.vector(AttentionKind::kQkvBias),
          .q_norm_D = view.vector(AttentionKind::kQNorm),
          .k_norm_D = view.vector(AttentionKind::kKNorm),
          .sinks_N = view.vector(AttentionKind::kSinks),
          .attention_out_QH = view.matrix(AttentionKind::kOut),
          .attention_out_bias_H = view.vector(AttentionKind::kOutBias),
          .norm_behind_H = view.vector(AttentionKind::kNormBehind)};
}

MlpParameters mlp_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t) {
  const ShardView view(bucket, flat, tp, t);
  return {.mlp_norm_H = view.vector(MlpKind::kNorm),
          .gate_up_GH = view.matrix(MlpKind::kGateUp),
          .down_FH = view.matrix(MlpKind::kDown),
          .norm_behind_H = view.vector(MlpKind::kNormBehind)};
}

EmbeddingParameters embedding_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t) {
  const ShardView view(bucket, flat, tp, t);
  return {view.matrix(EmbeddingKind::kTable), view.rows(EmbeddingKind::kTable)};
}

HeadParameters head_parameters(const model::ParameterTable& table, const at::Tensor& head_flat,
                               const at::Tensor& embedding_flat, int tp, int t) {
  const ShardView view(table.head(), head_flat, tp, t);
  const at::Tensor norm_H = view.vector(HeadKind::kNorm);
  if (!table.shape.tie_embeddings)
    return {norm_H, view.matrix(HeadKind::kOutput), view.rows(HeadKind::kOutput)};
  const EmbeddingParameters embedding = embedding_parameters(table.embedding(), embedding_flat, tp, t);
  return {norm_H, embedding.table_VH, embedding.vocabulary};
}

}  // namespace sluice::layers
