// Every backward against torch's autograd of an obvious forward, in double to 1e-12 and in float loosely.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/gated_activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace sluice::ops {
namespace {

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor wide = expected.to(at::kDouble);
  const double largest = wide.numel() == 0 ? 0.0 : wide.abs().max().item<double>();
  const double error = wide.numel() == 0 ? 0.0 : (actual.to(at::kDouble) - wide).abs().max().item<double>();
  return largest == 0.0 ? error : error / largest;
}

std::vector<at::Tensor> autograd(const at::Tensor& result, const std::vector<at::Tensor>& inputs,
                                 const at::Tensor& upstream) {
  return torch::autograd::grad({result}, inputs, {upstream});
}

class Gradient : public testing::TestWithParam<at::ScalarType> {
 protected:
  Gradient() { at::manual_seed(7); }
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, at::dtype(GetParam())); }
  static at::Tensor leaf(const at::Tensor& value) { return value.detach().clone().requires_grad_(true); }
  double tolerance() const { return GetParam() == at::kDouble ? 1e-12 : 2e-5; }
  void expect_close(const at::Tensor& actual, const at::Tensor& expected, const char* what) const {
    EXPECT_LT(relative_error(actual, expected), tolerance()) << what;
  }
};

TEST_P(Gradient, RmsNorm) {
  for (const int64_t rows : {0, 1, 63, 64, 200}) {
    const at::Tensor x = leaf(random({rows, 48})), weight = leaf(random({48}));
    const at::Tensor y = x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
    const at::Tensor dy = random({rows, 48}), bypass = random({rows, 48});
    const auto expected = autograd(y, {x, weight}, dy);
    const at::Tensor x_value = x.detach(), weight_value = weight.detach();
    const RmsNorm forward = rms_norm(x_value, weight_value, 1e-5);
    expect_close(forward.y_TH, y.detach(), "y");
    const at::Tensor before = random({48});
    at::Tensor dweight = before.clone();
    const auto plain = rms_norm_backward(dy, x_value, weight_value, forward.inverse_rms_T, {}, dweight);
    expect_close(plain.dx_TH, expected[0], "dx");
    expect_close(dweight, before + expected[1], "dweight");
    expect_close(plain.y_TH, y.detach(), "y again");
    const auto added = rms_norm_backward(dy, x_value, weight_value, forward.inverse_rms_T, bypass, dweight);
    expect_close(added.dx_TH, expected[0] + bypass, "dx with bypass");
  }
}

TEST_P(Gradient, Rotary) {
  const std::vector<double> frequencies = {1.0, 0.3, 0.01, 0.0007};
  const RotaryTable table = rotary_table(frequencies, 1.2, 64, at::dtype(GetParam()));
  const at::Tensor positions = at::tensor({0, 1, 2, 0, 63}, at::kLong);
  const at::Tensor x = leaf(random({5, 3, 8}));
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(1) * at::tensor(frequencies, at::kDouble);
  const at::Tensor c = (at::cat({angle, angle}, 1).cos() * 1.2).to(GetParam()).unsqueeze(1);
  const at::Tensor s = (at::cat({angle, angle}, 1).sin() * 1.2).to(GetParam()).unsqueeze(1);
  const at::Tensor rotated_half = at::cat({-x.narrow(2, 4, 4), x.narrow(2, 0, 4)}, 2);
  const at::Tensor y = x * c + rotated_half * s;
  const at::Tensor dy = random({5, 3, 8});
  const at::Tensor expected = autograd(y, {x}, dy)[0];

  // A view whose rows are wider than its heads, as q and k lie in the fused qkv matrix.
  const at::Tensor row = at::zeros({5, 40}, at::dtype(GetParam()));
  const at::Tensor view = row.narrow(1, 0, 24).view({5, 3, 8});
  view.copy_(x.detach());
  rotate(view, table, positions, Rotation::kForward);
  expect_close(view, y.detach(), "forward");
  view.copy_(dy);
  rotate(view, table, positions, Rotation::kBackward);
  expect_close(view, expected, "backward");
  EXPECT_EQ(row.narrow(1, 24, 16).abs().max().item<double>(), 0.0);
}

// With torch's operators.
at::Tensor gated(const GatedActivation& activation, const at::Tensor& gate, const at::Tensor& up) {
  switch (activation.rule) {
    case GatedRule::kSwiglu: return at::silu(gate) * up;
    case GatedRule::kGeglu: return at::gelu(gate, "tanh") * up;
    case GatedRule::kClampedSwiglu: break;
  }
  const at::Tensor g = gate.clamp_max(activation.limit), u = up.clamp(-activation.limit, activation.limit);
  return (u + 1) * g * at::sigmoid(activation.slope * g);
}

TEST_P(Gradient, GatedActivations) {
  for (const GatedRule rule : {GatedRule::kSwiglu, GatedRule::kGeglu, GatedRule::kClampedSwiglu}) {
    const GatedActivation activation{.rule = rule, .slope = 1.3, .limit = 2.5};
    const at::Tensor gate_up = leaf(random({37, 2 * 21}) * 4);
    const at::Tensor a = gated(activation, gate_up.narrow(1, 0, 21), gate_up.narrow(1, 21, 21));
    const at::Tensor da = random({37, 21});
    const at::Tensor expected = autograd(a, {gate_up}, da)[0];
    at::Tensor buffer = gate_up.detach().clone();
    expect_close(gated_activation(activation, buffer), a.detach(), "a");
    const at::Tensor again = gated_activation_backward(activation, da, buffer);
    expect_close(again, a.detach(), "a again");
    expect_close(buffer, expected, "dgate_up");
  }
}

TEST_P(Gradient, LinearInBothStorages) {
  const at::Tensor x = leaf(random({19, 12})), out_in = leaf(random({9, 12})), in_out = leaf(random({12, 9}));
  const at::Tensor dy = random({19, 9}), base = random({19, 9});
  const auto expected_out_in = autograd(at::matmul(x, out_in.t()), {x, out_in}, dy);
  const auto expected_in_out = autograd(at::matmul(x, in_out), {x, in_out}, dy);
  const at::Tensor xv = x.detach(), a = out_in.detach(), b = in_out.detach();
  expect_close(times_transposed(xv, a), at::matmul(xv, a.t()), "x·wᵀ");
  expect_close(wide_times_transposed(xv, a), at::matmul(xv, a.t()), "wide x·wᵀ");
  expect_close(add_times(base, xv, b), base + at::matmul(xv, b), "base + x·w");
  expect_close(times(dy, a), expected_out_in[0], "dx of [out, in]");
  expect_close(times_transposed(dy, b), expected_in_out[0], "dx of [in, out]");
  at::Tensor da = at::ones_like(a), db = at::ones_like(b);
  accumulate_weight_gradient(da, dy, xv);
  accumulate_weight_gradient(db, xv, dy);
  expect_close(da, 1 + expected_out_in[1], "dw of [out, in]");
  expect_close(db, 1 + expected_in_out[1], "dw of [in, out]");
}

TEST_P(Gradient, EmbeddingShard) {
  const at::Tensor weight = leaf(random({10, 6}));  // rows 20 … 29 of the vocabulary
  const at::Tensor ids = at::tensor({25, 3, 20, 25, -1, 29, 30}, at::kLong);
  const at::Tensor here = at::tensor({0, 2, 3, 5}, at::kLong);
  const at::Tensor x = at::zeros({7, 6}, at::dtype(GetParam()))
                           .index_copy(0, here, weight.index_select(0, ids.index_select(0, here) - 20));
  const at::Tensor dx = random({7, 6});
  const at::Tensor expected = autograd(x, {weight}, dx)[0];
  expect_close(embedding_lookup(weight.detach(), ids, 20), x.detach(), "x");
  at::Tensor dweight = at::ones({10, 6}, at::dtype(GetParam()));
  embedding_lookup_backward(dx, ids, 20, dweight);
  expect_close(dweight, 1 + expected, "dweight");
}

TEST_P(Gradient, CrossEntropyOverShards) {
  const at::Tensor logits = leaf(random({11, 30}) * 5);
  const at::Tensor targets = at::randint(0, 30, {11}, at::kLong);
  const at::Tensor losses = at::nll_loss_nd(at::log_softmax(logits, 1), targets, {}, at::Reduction::None);
  const at::Tensor expected = autograd(losses.sum(), {logits}, at::ones({}, at::dtype(GetParam())))[0];
  const std::vector<int64_t> begins = {0, 13, 14, 30};
  std::vector<at::Tensor> shards, statistics;
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    shards.push_back(logits.detach().narrow(1, begins[s], begins[s + 1] - begins[s]).clone());
    statistics.push_back(row_statistics(shards[s], targets, begins[s]));
  }
  const at::Tensor whole = combine(at::stack(statistics));
  expect_close(token_losses(whole), losses.detach(), "losses");
  for (size_t s = 0; s < shards.size(); ++s) {
    shards[s] = cross_entropy_gradient(shards[s], statistics[s], whole, targets, begins[s], GetParam());
  }
  expect_close(at::cat(shards, 1), expected, "dlogits");
}

// One sequence by the definition: every score, a mask, a softmax.
at::Tensor plain_attention(const at::Tensor& q_TND, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                           double scale) {
  const int64_t length = q_TND.size(0), group = q_TND.size(1) / k_TKD.size(1);
  const at::Tensor k_NTD = k_TKD.repeat_interleave(group, 1).transpose(0, 1);
  const at::Tensor v_NTD = v_TKD.repeat_interleave(group, 1).transpose(0, 1);
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores = (at::matmul(q_TND.transpose(0, 1), k_NTD.transpose(1, 2)) * scale)
                                .masked_fill(future, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), v_NTD).transpose(0, 1);
}

TEST_P(Gradient, AttentionOfPackedSequences) {
  struct Case {
    int64_t heads, kv_heads, dimension;
    std::vector<int64_t> lengths;
    int64_t inert;
  };
  const std::vector<Case> cases = {
      {4, 4, 16, {5, 1, 33}, 0}, {4, 2, 8, {70, 3}, 2}, {6, 1, 32, {513}, 1}, {1, 1, 6, {17}, 0}};
  for (const Case& c : cases) {
    const PackedSequences sequences = packed_sequences(c.lengths, at::kCPU);
    const int64_t rows = sequences.begins.back() + c.inert, d = c.dimension;
    const int64_t q_width = c.heads * d, kv_width = c.kv_heads * d;
    const at::Tensor qkv = leaf(random({rows, q_width + 2 * kv_width}));
    const auto input_of = [&](const at::Tensor& x) {
      return AttentionInput{x.narrow(1, 0, q_width).view({rows, c.heads, d}),
                            x.narrow(1, q_width, kv_width).view({rows, c.kv_heads, d}),
                            x.narrow(1, q_width + kv_width, kv_width).view({rows, c.kv_heads, d}), 0.3};
    };
    const AttentionInput twin = input_of(qkv);
    std::vector<at::Tensor> outs;
    for (size_t i = 0; i < c.lengths.size(); ++i) {
      const int64_t b = sequences.begins[i], n = c.lengths[i];
      outs.push_back(plain_attention(twin.q_TND.narrow(0, b, n), twin.k_TKD.narrow(0, b, n),
                                     twin.v_TKD.narrow(0, b, n), 0.3));
    }
    outs.push_back(at::zeros({c.inert, c.heads, d}, at::dtype(GetParam())));
    const at::Tensor out = at::cat(outs), dout = random({rows, c.heads, d});
    const at::Tensor expected = autograd(out, {qkv}, dout)[0];

    at::Tensor buffer = qkv.detach().clone();
    const AttentionInput input = input_of(buffer);
    const AttentionResult result = attention(input, sequences);
    expect_close(result.out_TND, out.detach(), "out");
    attention_backward(dout, input, result, sequences, {input.q_TND, input.k_TKD, input.v_TKD});
    expect_close(buffer, expected, "dqkv");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Gradient, testing::Values(at::kDouble, at::kFloat),
                         [](const auto& info) { return info.param == at::kDouble ? "Double" : "Float"; });

}  // namespace
}  // namespace sluice::ops
