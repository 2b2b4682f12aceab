#include "layers/parameters.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {
namespace {

using model::Role;

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

  at::Tensor matrix(Role role) const {
    const model::LocalParameter local = model::local_parameter(bucket_, role, tp_, t_);
    return flat_.narrow(0, local.offset, local.rows * local.columns).view({local.rows, local.columns});
  }
  at::Tensor vector(Role role) const { return matrix(role).view(-1); }

  // The rows of a parameter that is cut as one group.
  base::Interval rows(Role role) const {
    for (const model::Parameter& parameter : bucket_.parameters) {
      if (parameter.role == role) return model::tp_rows(parameter, tp_, t_).front();
    }
    return {};
  }

 private:
  const model::Bucket& bucket_;
  const at::Tensor& flat_;
  int tp_;
  int t_;
};

}  // namespace

LayerParameters layer_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t) {
  const ShardView view(bucket, flat, tp, t);
  return {view.vector(Role::kAttentionNorm), view.matrix(Role::kQkv),    view.matrix(Role::kAttentionOut),
          view.vector(Role::kMlpNorm),       view.matrix(Role::kGateUp), view.matrix(Role::kDown)};
}

EmbeddingParameters embedding_parameters(const model::Bucket& bucket, const at::Tensor& flat, int tp, int t) {
  const ShardView view(bucket, flat, tp, t);
  return {view.matrix(Role::kEmbedding), view.rows(Role::kEmbedding)};
}

HeadParameters head_parameters(const model::ParameterTable& table, const at::Tensor& head_flat,
                               const at::Tensor& embedding_flat, int tp, int t) {
  const ShardView view(table.head(), head_flat, tp, t);
  const at::Tensor norm_H = view.vector(Role::kFinalNorm);
  if (!table.shape.tie_embeddings) return {norm_H, view.matrix(Role::kHead), view.rows(Role::kHead)};
  const EmbeddingParameters embedding = embedding_parameters(table.embedding(), embedding_flat, tp, t);
  return {norm_H, embedding.table_VH, embedding.vocabulary};
}

}  // namespace sluice::layers
