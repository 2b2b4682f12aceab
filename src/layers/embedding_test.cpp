// The embedding on TP ranks, each with a part of the vocabulary, beside the whole table.
#include "layers/embedding.h"

#include <mutex>

#include "layers/layer_embedding.h"
#include "layers/test_gradients.h"
#include "model/test_outline.h"

namespace sluice::layers {
namespace {

constexpr int64_t kEmbeddedTokens = 6, kTableRows = 8, kTableWidth = 3;

LayerContext context_of_ends(const TensorParallel& parallel) {
  return {.model = model::outline_of_12_heads(1), .parallel = parallel};
}

// Ids of all rows; the last one is inert.
at::Tensor embedded_ids() { return at::tensor({7, 0, 3, 3, 4, -1}, at::kLong); }
at::Tensor positions_of_rows() { return at::tensor({0, 1, 2, 0, 1, 0}, at::kLong); }

// A rank's rows of the table, with factors and learned positions.
EmbeddingParameters parameters_of_rank(const model::Embedding& kind, const at::Tensor& table, int tp, int t,
                                       const at::Tensor& position, const at::Tensor& kinds) {
  const int64_t own = kTableRows / tp;
  EmbeddingParameters parameters{
      .kind = &kind, .table_VH = table.narrow(0, own * t, own), .vocabulary = {own * t, own * (t + 1)}};
  parameters.position_PH = position;
  parameters.kind_KH = kinds;
  return parameters;
}

TEST(Embedding, RowsAndGradientsAreTheWholeTables) {
  const model::Embedding kind{.scale = 1.5};
  const at::Tensor table = waves({kTableRows, kTableWidth}, 1), position = waves({4, kTableWidth}, 2),
                   kinds = waves({2, kTableWidth}, 3), dx = waves({kEmbeddedTokens, kTableWidth}, 4);
  at::Tensor expected = position.index_select(0, positions_of_rows()) + kinds[0];
  at::Tensor dtable = at::zeros_like(table);
  for (int64_t row = 0; row < kEmbeddedTokens; ++row) {
    const auto id = embedded_ids()[row].item<int64_t>();
    if (id < 0) continue;  // an inert row has no token
    expected[row] += 1.5 * table[id];
    dtable[id] += 1.5 * dx[row];
  }
  const at::Tensor dposition = at::zeros_like(position).index_add(0, positions_of_rows(), dx);
  for (const int tp : {1, 2}) {
    SCOPED_TRACE(tp);
    std::vector<at::Tensor> x(static_cast<size_t>(tp)), dtables(x.size());
    at::Tensor dpositions = at::zeros_like(position), dkinds = at::zeros_like(kinds);
    std::mutex mutex;
    on_ranks(tp, [&](int t, comm::Communicator& members) {
      const auto at = static_cast<size_t>(t);
      const LayerContext context = context_of_ends({&members, tp, t});
      const EmbeddingParameters weights = parameters_of_rank(kind, table, tp, t, position, kinds);
      x[at] = embedding_forward(context, weights, embedded_ids(), positions_of_rows());
      const EmbeddingParameters gradients = parameters_of_rank(
          kind, at::zeros_like(table), tp, t, at::zeros_like(position), at::zeros_like(kinds));
      const int64_t rows = kEmbeddedTokens / tp;
      embedding_backward(context, embedded_ids(), positions_of_rows(), dx.narrow(0, rows * t, rows),
                         gradients);
      dtables[at] = gradients.table_VH;
      const std::lock_guard lock(mutex);
      dpositions.add_(gradients.position_PH);  // parts, by the ranks' rows
      dkinds.add_(gradients.kind_KH);
    });
    expect_near(at::cat(x), expected, "rows");
    expect_near(at::cat(dtables), dtable, "the table's gradient");
    expect_near(dpositions, dposition, "positions");
    expect_near(dkinds[0], dx.sum(0), "the kind of all tokens");
    expect_near(dkinds[1], at::zeros({kTableWidth}, at::kDouble), "kinds that no row has", 0);
  }
}

TEST(Embedding, AFrozenTableHasNoGradient) {
  const model::Embedding kind;
  EmbeddingParameters frozen{.kind = &kind};
  embedding_backward(context_of_ends({}), embedded_ids(), positions_of_rows(),
                     waves({kEmbeddedTokens, kTableWidth}, 4), frozen);
}

// Two layers' embeddings: a table's rows and the projected, normed rows of the embedding.
TEST(LayerEmbedding, RowsAndGradientsAreTheirFormula) {
  constexpr int64_t kOwnWidth = 2, kColumns = 2 * kOwnWidth;
  model::Embedding kind;
  kind.by_layer = model::LayerEmbedding{.layers = 2,
                                        .width = kOwnWidth,
                                        .table = {},
                                        .projection = {},
                                        .norm = {.kind = model::NormKind::kRms, .eps = 1e-3, .weights = {}},
                                        .table_scale = 2,
                                        .projection_scale = 0.5,
                                        .scale = 0.7};
  const at::Tensor table = waves({kTableRows, kColumns}, 1).requires_grad_(),
                   projection = waves({kColumns, kTableWidth}, 2).requires_grad_(),
                   norm = waves({kOwnWidth}, 3).requires_grad_(),
                   x = waves({5, kTableWidth}, 4).requires_grad_(), dy = waves({5, kColumns}, 5);
  const at::Tensor id = at::tensor({7, 0, 3, 3, 4}, at::kLong);
  const at::Tensor projected = (0.5 * x.mm(projection.t())).view({-1, kOwnWidth});
  const at::Tensor normed =
      (projected / (projected.square().mean(1, true) + 1e-3).sqrt() * norm).view({5, kColumns});
  const at::Tensor y = 0.7 * (2 * table.index_select(0, id) + normed);
  const std::vector<at::Tensor> expected = gradients_of(y, dy, {x, table, projection, norm});
  const at::NoGradGuard none;
  EmbeddingParameters weights{.kind = &kind, .vocabulary = {0, kTableRows}}, gradients = weights;
  weights.layer_table_VC = table;
  weights.layer_projection_CH = projection;
  weights.layer_norm_P = norm;
  gradients.layer_table_VC = at::zeros_like(table);
  gradients.layer_projection_CH = at::zeros_like(projection);
  gradients.layer_norm_P = at::zeros_like(norm);
  LayerEmbeddingState state;
  const LayerContext context = context_of_ends({});
  expect_near(layer_embedding_forward(context, weights, id, x, &state), y, "forward");
  at::Tensor dx = at::ones({5, kTableWidth}, at::kDouble);
  layer_embedding_backward(context, id, state, dy, gradients, dx);
  expect_near(dx, expected[0] + 1, "added to the rows' gradient");
  expect_near(gradients.layer_table_VC, expected[1], "table");
  expect_near(gradients.layer_projection_CH, expected[2], "projection");
  expect_near(gradients.layer_norm_P, expected[3], "norm");
}

}  // namespace
}  // namespace sluice::layers
