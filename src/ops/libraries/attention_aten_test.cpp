#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include "ops/attention.h"
#include "ops/attention_count.h"
#include "ops/device.h"

namespace sluice::ops {
namespace {

struct Gradients {
  at::Tensor out, lse, dq, dk, dv;
};

using Forward = AttentionResult (*)(const AttentionInput&, const PackedSequences&);
using Backward = void (*)(const at::Tensor&, const AttentionInput&, const AttentionResult&,
                          const PackedSequences&, const AttentionGradient&);

Gradients run(const AttentionInput& input, const at::Tensor& dout, const PackedSequences& sequences,
              Forward forward, Backward backward) {
  const AttentionResult saved = forward(input, sequences);
  const AttentionGradient gradient{at::empty_like(input.q_TND), at::empty_like(input.k_TKD),
                                   at::empty_like(input.v_TKD)};
  backward(dout, input, saved, sequences, gradient);
  return {saved.out_TND, saved.lse_NT, gradient.dq_TND, gradient.dk_TKD, gradient.dv_TKD};
}

void expect_close(const Gradients& actual, const Gradients& expected, double tolerance) {
  const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a.cpu().to(at::kDouble), b.cpu().to(at::kDouble), tolerance, tolerance);
  };
  EXPECT_TRUE(close(actual.out, expected.out));
  EXPECT_TRUE(close(actual.lse, expected.lse));
  EXPECT_TRUE(close(actual.dq, expected.dq));
  EXPECT_TRUE(close(actual.dk, expected.dk));
  EXPECT_TRUE(close(actual.dv, expected.dv));
}

struct Case {
  AttentionInput input;
  at::Tensor dout;
  std::vector<int64_t> lengths{5, 1, 300, 17};  // one with several tiles of queries and of keys
};

// 4 query heads on 2 key heads of 8 dimensions.
Case random_case(const at::TensorOptions& options) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto random = [&](int64_t heads) {
    return at::randn({323, heads, 8}, generator, at::dtype(at::kDouble))
        .to(options.dtype())
        .to(options.device());
  };
  return {{random(4), random(2), random(2), 0.35}, random(4)};
}

// All that came before, a window inside a tile, and one over several; with and without a cap; the same of
// both sides.
template <typename Visit>
void for_each_form(AttentionInput input, Visit visit) {
  for (const bool causal : {true, false}) {
    for (const int64_t window : {0, 7, 270}) {
      for (const double cap : {0.0, 0.9}) {
        SCOPED_TRACE(causal);
        SCOPED_TRACE(window);
        SCOPED_TRACE(cap);
        input.causal = causal;
        input.window = window;
        input.cap = cap;
        visit(input);
      }
    }
  }
}

void expect_operators_as_fused(at::ScalarType dtype, double tolerance) {
  const Case c = random_case(at::dtype(dtype));
  const PackedSequences sequences = packed_sequences(c.lengths, at::kCPU);
  for_each_form(c.input, [&](const AttentionInput& input) {
    expect_close(run(input, c.dout, sequences, attention, attention_backward),
                 run(input, c.dout, sequences, aten::attention, aten::attention_backward), tolerance);
  });
}

TEST(AttentionOnCpu, InDoubleEqualsTheOperators) { expect_operators_as_fused(at::kDouble, 1e-10); }
TEST(AttentionOnCpu, InFloatEqualsTheOperators) { expect_operators_as_fused(at::kFloat, 1e-4); }
TEST(AttentionOnCpu, InBfloat16IsNearTheOperators) { expect_operators_as_fused(at::kBFloat16, 3e-2); }

// Written out: every query on every key that its mask leaves it.
TEST(AttentionOnCpu, OfBothSidesIsTheSoftmaxOfAllThatAreNear) {
  const Case c = random_case(at::dtype(at::kDouble));
  AttentionInput input = c.input;
  input.causal = false;
  for (const int64_t window : {0, 4}) {
    input.window = window;
    const at::Tensor out_TND = attention(input, packed_sequences({323}, at::kCPU)).out_TND;
    const at::Tensor place = at::arange(323);
    const at::Tensor apart = (place.unsqueeze(0) - place.unsqueeze(1)).abs();
    const at::Tensor hidden = window > 0 ? apart.ge(window) : apart.lt(0);
    for (int64_t head = 0; head < 4; ++head) {
      const at::Tensor scores = input.q_TND.select(1, head).mm(input.k_TKD.select(1, head / 2).t()) * 0.35;
      const at::Tensor shares = at::softmax(scores.masked_fill(hidden, -1e300), -1);
      EXPECT_TRUE(
          at::allclose(shares.mm(input.v_TKD.select(1, head / 2)), out_TND.select(1, head), 1e-12, 1e-12));
    }
  }
}

// Calls that fused kernels leave to ATen's operators are counted.
TEST(AttentionOnCpu, CallsOfTheOperatorsAreCounted) {
  const Case c = random_case(at::dtype(at::kFloat));
  const PackedSequences sequences = packed_sequences(c.lengths, at::kCPU);
  const int64_t before = unfused_attention_calls();
  run(c.input, c.dout, sequences, attention, attention_backward);
  EXPECT_EQ(unfused_attention_calls(), before);
  run(c.input, c.dout, sequences, aten::attention, aten::attention_backward);
  EXPECT_EQ(unfused_attention_calls(), before + 2);
}

using Attend = void (*)(const AttentionInput&, std::span<const AttentionBlock>, const AttentionResult&);
using AttendBackward = void (*)(const at::Tensor&, const AttentionInput&, const AttentionResult&,
                                std::span<const AttentionBlock>, const AttentionGradient&);

// One sequence of all rows, cut at 5 and 123: each part attends to itself, then to the parts before it, and
// to those behind it where attention is not causal.
Gradients run_in_blocks(const AttentionInput& input, const at::Tensor& dout, Attend attend,
                        AttendBackward backward) {
  const PackedSequences parts = packed_sequences({5, 118, 200}, dout.device());
  const std::vector<AttentionBlock> blocks{{{123, 323}, {5, 123}, 118}, {{5, 123}, {0, 5}, 5}};
  std::vector<AttentionBlock> last{{{123, 323}, {0, 5}, 123}};
  if (!input.causal) last.insert(last.end(), {{{0, 5}, {5, 123}, -5}, {{5, 123}, {123, 323}, -118}});
  const std::vector<AttentionBlock> far{{{0, 5}, {123, 323}, -123}};
  std::vector<std::vector<AttentionBlock>> passes{blocks, last};
  if (!input.causal) passes.push_back(far);
  AttentionResult seen = attention(input, parts);
  const at::ScalarType wide = seen.lse_NT.scalar_type();
  seen.out_TND = seen.out_TND.to(wide);
  for (const auto& each : passes) attend(input, each, seen);
  seen.out_TND = seen.out_TND.to(dout.scalar_type());
  AttentionGradient gradient{at::empty_like(input.q_TND), at::empty_like(input.k_TKD),
                             at::empty_like(input.v_TKD)};
  attention_backward(dout, input, seen, parts, gradient);
  for (at::Tensor* each : {&gradient.dq_TND, &gradient.dk_TKD, &gradient.dv_TKD}) *each = each->to(wide);
  for (const auto& each : passes) backward(dout, input, seen, each, gradient);
  return {seen.out_TND, seen.lse_NT, gradient.dq_TND, gradient.dk_TKD, gradient.dv_TKD};
}

void expect_blocks_as_whole(const at::TensorOptions& options, Attend attend, AttendBackward backward,
                            double tolerance) {
  const Case c = random_case(options);
  const PackedSequences whole = packed_sequences({323}, options.device());
  for_each_form(c.input, [&](const AttentionInput& input) {
    expect_close(run_in_blocks(input, c.dout, attend, backward),
                 run(input, c.dout, whole, attention, attention_backward), tolerance);
  });
}

TEST(AttentionInBlocks, OnCpuEqualsTheWhole) {
  expect_blocks_as_whole(at::dtype(at::kDouble), attend_blocks, attend_blocks_backward, 1e-12);
  expect_blocks_as_whole(at::dtype(at::kFloat), attend_blocks, attend_blocks_backward, 1e-4);
  expect_blocks_as_whole(at::dtype(at::kBFloat16), attend_blocks, attend_blocks_backward, 3e-2);
}

TEST(AttentionInBlocks, OfOperatorsEqualsTheWhole) {
  expect_blocks_as_whole(at::dtype(at::kDouble), aten::attend_blocks, aten::attend_blocks_backward, 1e-12);
  expect_blocks_as_whole(at::dtype(at::kFloat), aten::attend_blocks, aten::attend_blocks_backward, 1e-4);
}

TEST(AttentionInBlocks, OnGpuEqualsTheWhole) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  prepare_device(gpu);
  const auto options = [&](at::ScalarType dtype) { return at::dtype(dtype).device(gpu); };
  expect_blocks_as_whole(options(at::kDouble), attend_blocks, attend_blocks_backward, 1e-10);
  expect_blocks_as_whole(options(at::kBFloat16), attend_blocks, attend_blocks_backward, 3e-2);
}

TEST(AttentionOnCpu, DependsNeitherOnThreadsNorOnThePack) {
  const Case c = random_case(at::dtype(at::kFloat));
  const auto rows = [](const at::Tensor& x) { return x.narrow(0, 6, 300); };
  const AttentionInput alone{rows(c.input.q_TND), rows(c.input.k_TKD), rows(c.input.v_TKD), c.input.scale};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Gradients expected =
      run(alone, rows(c.dout), packed_sequences({300}, at::kCPU), attention, attention_backward);
  at::set_num_threads(2);
  const Gradients packed =
      run(c.input, c.dout, packed_sequences(c.lengths, at::kCPU), attention, attention_backward);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(rows(packed.out), expected.out));
  EXPECT_TRUE(at::equal(packed.lse.narrow(1, 6, 300), expected.lse));
  EXPECT_TRUE(at::equal(rows(packed.dq), expected.dq));
  EXPECT_TRUE(at::equal(rows(packed.dk), expected.dk));
  EXPECT_TRUE(at::equal(rows(packed.dv), expected.dv));
}

void expect_gpu_as_cpu(at::ScalarType dtype, double tolerance) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  prepare_device(gpu);
  const Case cpu = random_case(at::dtype(dtype));
  const Case on_gpu = random_case(at::dtype(dtype).device(gpu));
  expect_close(
      run(on_gpu.input, on_gpu.dout, packed_sequences(cpu.lengths, gpu), attention, attention_backward),
      run(cpu.input, cpu.dout, packed_sequences(cpu.lengths, at::kCPU), attention, attention_backward),
      tolerance);
}

TEST(AttentionOnGpu, InDoubleEqualsTheCpu) { expect_gpu_as_cpu(at::kDouble, 1e-10); }
TEST(AttentionOnGpu, InBfloat16IsNearTheCpu) { expect_gpu_as_cpu(at::kBFloat16, 3e-2); }

}  // namespace
}  // namespace sluice::ops
