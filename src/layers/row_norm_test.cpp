// Norms of rows beside the same written out and differentiated by autograd.
#include "layers/row_norm.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

constexpr int64_t kNormRows = 5, kNormWidth = 6;

model::Norm norm_of(model::NormKind kind, double offset = 0) {
  return {.kind = kind, .eps = 1e-3, .offset = offset, .weights = {}};
}

at::Tensor written_out(const model::Norm& norm, const at::Tensor& x, const NormVectors& vectors) {
  if (norm.kind == model::NormKind::kNone) return x * 1;
  const at::Tensor c = norm.kind == model::NormKind::kLayer ? x - x.mean(1, true) : x;
  at::Tensor y = c / (c.square().mean(1, true) + norm.eps).sqrt();
  if (vectors.weight_H.defined()) y = y * (vectors.weight_H + norm.offset);
  return vectors.bias_H.defined() ? y + vectors.bias_H : y;
}

TEST(RowNorm, EachKindIsItsFormulaAndSoIsItsGradient) {
  for (const auto kind : {model::NormKind::kRms, model::NormKind::kLayer, model::NormKind::kNone}) {
    for (const double offset : {0.0, 1.0}) {
      for (const int vectors : {0, 1, 2}) {
        if (kind == model::NormKind::kNone && (vectors > 0 || offset > 0)) continue;
        if (vectors == 0 && offset > 0) continue;
        if (kind == model::NormKind::kRms && vectors == 2) continue;
        SCOPED_TRACE(testing::Message()
                     << static_cast<int>(kind) << ", offset " << offset << ", " << vectors);
        const model::Norm norm = norm_of(kind, offset);
        const at::Tensor x = waves({kNormRows, kNormWidth}, 1).requires_grad_(),
                         dy = waves({kNormRows, kNormWidth}, 2), residual = waves({kNormRows, kNormWidth}, 3);
        NormVectors own;
        std::vector<at::Tensor> inputs{x};
        if (vectors > 0) inputs.push_back(own.weight_H = waves({kNormWidth}, 4).requires_grad_());
        if (vectors > 1) inputs.push_back(own.bias_H = waves({kNormWidth}, 5).requires_grad_());
        const at::Tensor y = written_out(norm, x, own);
        const std::vector<at::Tensor> expected = gradients_of(y, dy, inputs);

        const at::NoGradGuard none;
        const ops::RmsNorm found = norm_rows(norm, x, own);
        expect_near(found.y_TH, y, "forward");
        NormVectors gradients;
        if (vectors > 0) gradients.weight_H = at::ones({kNormWidth}, at::kDouble);
        if (vectors > 1) gradients.bias_H = at::ones({kNormWidth}, at::kDouble);
        const ops::RmsNormGradient back =
            norm_rows_backward(norm, dy, x, own, found.inverse_rms_T, residual, gradients);
        expect_near(back.dx_TH, expected[0] + residual, "dx, with the residual's");
        expect_near(back.y_TH, y, "recomputed");
        if (vectors > 0) expect_near(gradients.weight_H, expected[1] + 1, "added to the weights' gradient");
        if (vectors > 1) expect_near(gradients.bias_H, expected[2] + 1, "added to the biases' gradient");
      }
    }
  }
}

TEST(RowNorm, FrozenVectorsHaveNoGradient) {
  const model::Norm norm = norm_of(model::NormKind::kLayer);
  const at::Tensor x = waves({kNormRows, kNormWidth}, 1), dy = waves({kNormRows, kNormWidth}, 2);
  const NormVectors own{waves({kNormWidth}, 4), waves({kNormWidth}, 5)};
  const at::Tensor inverse = norm_rows(norm, x, own).inverse_rms_T;
  NormVectors trained{at::zeros({kNormWidth}, at::kDouble), at::zeros({kNormWidth}, at::kDouble)};
  const at::Tensor with = norm_rows_backward(norm, dy, x, own, inverse, {}, trained).dx_TH;
  expect_near(norm_rows_backward(norm, dy, x, own, inverse, {}, {}).dx_TH, with);
}

// A difference of 0.1 around a mean of 1000 has no digit left in bfloat16.
TEST(RowNorm, LayerNormOfNarrowRowsIsComputedWide) {
  const model::Norm norm = norm_of(model::NormKind::kLayer);
  const at::Tensor x = (waves({kNormRows, kNormWidth}, 1) + 16).to(at::kBFloat16);
  const at::Tensor y = norm_rows(norm, x, {}).y_TH;
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_near(y, written_out(norm, x.to(at::kDouble), {}), "", 2e-2);
  EXPECT_LT(y.to(at::kDouble).mean(1).abs().max().item<double>(), 1e-2);
}

}  // namespace
}  // namespace sluice::layers
