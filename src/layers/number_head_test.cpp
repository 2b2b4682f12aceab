// Heads of numbers beside the same written out and differentiated by autograd.
#include "layers/number_head.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "layers/number_loss.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/test_outline.h"

namespace sluice::layers {
namespace {

using model::Pooling;

const std::vector<int64_t> kHeadLengths = {5, 1, 9};

model::Outline classifier(Pooling pooling, std::optional<model::NeckStyle> neck) {
  model::Outline outline = model::outline_of_2_heads();
  outline.norm = {.kind = model::NormKind::kLayer, .biases = true};
  outline.head = {.kind = model::HeadKind::kSequence,
                  .numbers = 3,
                  .bias = true,
                  .pooling = pooling,
                  .neck = std::move(neck)};
  return outline;
}

// Vectors and matrices of a head, random, each a leaf for autograd.
HeadParameters random_head(const model::Head& head, int64_t hidden) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(4);
  const auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::dtype(at::kDouble)).requires_grad_(true);
  };
  HeadParameters all{.kind = &head, .final_norm_H = random({hidden}), .final_norm_bias_H = random({hidden})};
  all.output_VH = random({3, hidden});
  all.bias_K = random({3});
  if (!head.neck) return all;
  all.neck_HH = random({hidden, hidden});
  all.neck_bias_H = random({hidden});
  if (!head.neck->norm) return all;
  all.neck_norm_H = random({hidden});
  all.neck_norm_bias_H = random({hidden});
  return all;
}

std::vector<at::Tensor> tensors_of(const HeadParameters& of) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& each : {of.final_norm_H, of.final_norm_bias_H, of.output_VH, of.bias_K, of.neck_HH,
                                 of.neck_bias_H, of.neck_norm_H, of.neck_norm_bias_H}) {
    if (each.defined()) all.push_back(each);
  }
  return all;
}

HeadParameters mapped(const HeadParameters& of, const std::function<at::Tensor(const at::Tensor&)>& map) {
  HeadParameters all = of;
  for (at::Tensor* const each : {&all.final_norm_H, &all.final_norm_bias_H, &all.output_VH, &all.bias_K,
                                 &all.neck_HH, &all.neck_bias_H, &all.neck_norm_H, &all.neck_norm_bias_H}) {
    if (each->defined()) *each = map(*each);
  }
  return all;
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

// [sequences, 3]
at::Tensor numbers_written_out(const model::Outline& outline, const HeadParameters& w,
                               const at::Tensor& x_TH) {
  const at::Tensor y_TH = layer_norm(x_TH, w.final_norm_H, w.final_norm_bias_H, outline.norm_eps);
  std::vector<at::Tensor> rows;
  int64_t begin = 0;
  for (const int64_t length : kHeadLengths) {
    const at::Tensor own = y_TH.narrow(0, begin, length);
    rows.push_back(outline.head.pooling == Pooling::kMean  ? own.mean(0)
                   : outline.head.pooling == Pooling::kCls ? own[0]
                                                           : own[length - 1]);
    begin += length;
  }
  at::Tensor pooled = at::stack(rows);
  if (outline.head.neck) {
    pooled = at::matmul(pooled, w.neck_HH.t()) + w.neck_bias_H;
    pooled = outline.head.neck->activation == model::Activation::kTanh ? at::tanh(pooled) : at::gelu(pooled);
    if (outline.head.neck->normed)
      pooled = layer_norm(pooled, w.neck_norm_H, w.neck_norm_bias_H, outline.norm_eps);
  }
  return at::matmul(pooled, w.output_VH.t()) + w.bias_K;
}

void expect_as_written_out(const model::Outline& outline) {
  const model::Head head = model::head_of(outline);
  const HeadParameters weights = random_head(head, outline.hidden);
  const at::Tensor x_TH = at::randn({15, outline.hidden}, at::dtype(at::kDouble)).requires_grad_(true);
  const std::vector<int64_t> classes = {2, 0, 1};
  std::vector<at::Tensor> inputs = tensors_of(weights);
  inputs.push_back(x_TH);
  const at::Tensor written = numbers_written_out(outline, weights, x_TH);
  const at::Tensor loss =
      at::cross_entropy_loss(written, at::tensor(classes, at::kLong), {}, at::Reduction::Sum);
  loss.backward();

  LayerContext context = layer_context(outline, {}, 16, at::dtype(at::kDouble));
  context.number_loss = class_cross_entropy();
  std::vector<PieceSpan> pieces;
  std::vector<int64_t> target_of_row;
  for (size_t i = 0; i < kHeadLengths.size(); ++i) {
    pieces.push_back({.length = kHeadLengths[i]});
    const size_t first = target_of_row.size();
    target_of_row.resize(first + static_cast<size_t>(kHeadLengths[i]), -1);
    target_of_row[outline.head.pooling == Pooling::kCls ? first : target_of_row.size() - 1] = classes[i];
  }
  const RowLayout layout = row_layout(pieces, 1, at::kCPU);
  const Targets targets = layers::targets(target_of_row, {}, at::kCPU);
  const auto detached = [](const at::Tensor& of) { return of.detach(); };
  const HeadParameters plain = mapped(weights, detached);
  const HeadParameters gradients = mapped(plain, [](const at::Tensor& of) { return at::zeros_like(of); });
  const HeadResult result =
      number_head_forward_backward(context, plain, x_TH.detach(), targets, layout.sequences, gradients);
  EXPECT_NEAR(result.sums[0].item<double>(), loss.item<double>(), 1e-12);
  EXPECT_TRUE(at::allclose(result.dx_SH, x_TH.grad(), 1e-10, 1e-12));
  const std::vector<at::Tensor> found = tensors_of(gradients), expected = tensors_of(weights);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(at::allclose(found[i], expected[i].grad(), 1e-10, 1e-12)) << i;
  EXPECT_TRUE(at::allclose(head_numbers(context, plain, x_TH.detach(), targets, layout.sequences),
                           written.detach(), 1e-10, 1e-12));
}

TEST(NumberHead, PoolsTheLastTheFirstOrTheMeanOfAllTokens) {
  for (const Pooling pooling : {Pooling::kLast, Pooling::kCls, Pooling::kMean})
    expect_as_written_out(classifier(pooling, std::nullopt));
}

TEST(NumberHead, RowsPassThroughWhatStandsInFrontOfTheMatrix) {
  for (const Pooling pooling : {Pooling::kCls, Pooling::kMean}) {
    expect_as_written_out(classifier(pooling, model::NeckStyle{model::Activation::kGelu, true, true}));
    expect_as_written_out(classifier(pooling, model::NeckStyle{model::Activation::kTanh, true, false}));
  }
}

}  // namespace
}  // namespace sluice::layers
