// Every operation on GPU 0 against FP64 on the CPU, at widths that kernels access by 16 bytes and at odd
// widths.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "ops/attention.h"
#include "ops/attention_merge.h"
#include "ops/cross_entropy.h"
#include "ops/device.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/gated_activation.h"
#include "ops/grouped_product.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/recurrence.h"
#include "ops/rotary.h"

namespace sluice::ops {
namespace {

const at::Device kGpu(at::kCUDA, 0);

// A tensor in FP64 on the CPU, and the same values on the GPU.
struct Pair {
  at::Tensor cpu;
  at::Tensor gpu;
};

class DeviceOps : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    prepare_device(kGpu);
    at::manual_seed(17);
  }
  // Rounded to the type on both.
  Pair random(at::IntArrayRef shape) const {
    const at::Tensor rounded = at::randn(shape, at::kDouble).to(GetParam());
    return {rounded.to(at::kDouble), rounded.to(kGpu)};
  }
  static Pair whole_numbers(const std::vector<int64_t>& values) {
    const at::Tensor cpu = at::tensor(values, at::kLong);
    return {cpu, cpu.to(kGpu)};
  }
  at::Tensor sums(at::IntArrayRef shape) const {
    return at::zeros(shape, at::dtype(GetParam() == at::kDouble ? at::kDouble : at::kFloat).device(kGpu));
  }
  void expect_close(const at::Tensor& actual, const at::Tensor& expected, const char* what) const {
    const double tolerance = GetParam() == at::kDouble ? 1e-12 : GetParam() == at::kFloat ? 1e-5 : 1.0 / 64;
    const at::Tensor wide = actual.cpu().to(at::kDouble);
    EXPECT_LE((wide - expected).abs().max().item<double>(), tolerance * expected.abs().max().item<double>())
        << what;
  }
};

TEST_P(DeviceOps, RmsNorm) {
  for (const auto& [rows, width] :
       std::vector<std::pair<int64_t, int64_t>>{{70, 33}, {33, 4096}, {3, 16'384}, {2, 5001}}) {
    const Pair x = random({rows, width}), weight = random({width}), dy = random({rows, width}),
               bypass = random({rows, width});
    const RmsNorm a = rms_norm(x.gpu, weight.gpu, 1e-5), e = aten::rms_norm(x.cpu, weight.cpu, 1e-5);
    expect_close(a.y_TH, e.y_TH, "y");
    const at::Tensor dweight = sums({width}), expected = at::zeros({width}, at::kDouble);
    const RmsNormGradient da =
        rms_norm_backward(dy.gpu, x.gpu, weight.gpu, a.inverse_rms_T, bypass.gpu, dweight);
    const RmsNormGradient de =
        aten::rms_norm_backward(dy.cpu, x.cpu, weight.cpu, e.inverse_rms_T, bypass.cpu, expected);
    expect_close(da.dx_TH, de.dx_TH, "dx");
    expect_close(da.y_TH, de.y_TH, "y again");
    expect_close(dweight, expected, "dweight");
  }
}

// Widths that libtorch's grouped products take, and odd ones, which are multiplied group by group.
TEST_P(DeviceOps, GroupedProducts) {
  const at::Tensor end = at::tensor({30, 30, 64, 90}, at::kInt), end_on_gpu = end.to(kGpu);
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{64, 96}, {33, 17}}) {
    const Pair x = random({90, in}), w = random({4, out, in}), dy = random({90, out});
    const auto forward = [](const at::Tensor& rows, const at::Tensor& matrices, const at::Tensor& ends) {
      return grouped_product(rows, matrices.transpose(1, 2), ends);
    };
    expect_close(forward(x.gpu, w.gpu, end_on_gpu), forward(x.cpu, w.cpu, end), "y");
    const at::Tensor dw = sums({4, in, out}), expected = at::zeros({4, in, out}, at::kDouble);
    add_grouped_gradient(dw, x.gpu, dy.gpu, end_on_gpu);
    add_grouped_gradient(expected, x.cpu, dy.cpu, end);
    expect_close(dw, expected, "dw");
  }
}

// Shapes that libtorch's products of 8-bit floats take, and a right operand of 17 rows; on GPUs without such
// units the same codes are multiplied as bfloat16.
TEST_P(DeviceOps, Float8Products) {
  for (const auto& [tokens, in, out] :
       std::vector<std::array<int64_t, 3>>{{200, 256, 96}, {37, 64, 48}, {50, 33, 17}}) {
    const Pair x = random({tokens, in}), w = random({out, in}), dy = random({tokens, out});
    const auto close = [](const at::Tensor& gpu, const at::Tensor& cpu) {
      return at::allclose(gpu.cpu().to(at::kDouble), cpu, /*rtol=*/0, cpu.abs().max().item<double>() / 100);
    };
    const Float8Rows rows = float8_rows(x.gpu), rows_on_cpu = float8_rows(x.cpu.to(at::kFloat));
    EXPECT_TRUE(at::allclose(rows.code_RP.cpu().to(at::kFloat), rows_on_cpu.code_RP.to(at::kFloat), 0.13, 0.01));
    const auto forward = [](const at::Tensor& a, const at::Tensor& b) {
      return float8_product(float8_rows(a), float8_rows(b), a.scalar_type());
    };
    EXPECT_TRUE(close(forward(x.gpu, w.gpu), forward(x.cpu, w.cpu))) << in;
    const at::Tensor dw = sums({out, in}), expected = at::zeros({out, in}, at::kDouble);
    add_float8_product(dw, float8_columns(dy.gpu), float8_columns(x.gpu));
    add_float8_product(expected, float8_columns(dy.cpu), float8_columns(x.cpu));
    EXPECT_TRUE(close(dw, expected)) << in;
  }
}

TEST_P(DeviceOps, GroupedRows) {
  const at::Tensor id = at::randint(0, 6, {40, 3}, at::kInt);
  const GroupedRows cpu = grouped_rows_of(id, 6), gpu = grouped_rows_of(id.to(kGpu), 6);
  EXPECT_TRUE(at::equal(gpu.end_G.cpu(), cpu.end_G));
  EXPECT_TRUE(at::equal(gpu.slot_V.cpu(), cpu.slot_V));
  EXPECT_TRUE(at::equal(gpu.place_TK.cpu(), cpu.place_TK));
  const Pair y = random({120, 19});
  expect_close(sums_by_row(y.gpu, gpu.place_TK), sums_by_row(y.cpu, cpu.place_TK), "sums");
  EXPECT_TRUE(at::equal(counts_of(id.to(kGpu), 6).cpu(), counts_of(id, 6)));
}

TEST_P(DeviceOps, Swiglu) {
  for (const int64_t width : {19, 14'336}) {
    const Pair gate_up = random({50, 2 * width}), da = random({50, width});
    expect_close(gated_activation({}, gate_up.gpu), aten::gated_activation({}, gate_up.cpu), "a");
    gated_activation_backward({}, da.gpu, gate_up.gpu);
    aten::gated_activation_backward({}, da.cpu, gate_up.cpu);
    expect_close(gate_up.gpu, gate_up.cpu, "dgate and dup");
  }
}

TEST_P(DeviceOps, Rotary) {
  for (const int64_t pairs : {3, 64}) {
    const std::vector<double> frequencies(static_cast<size_t>(pairs), 0.37);
    const Pair rows = random({40, 5 * 2 * pairs}), position = whole_numbers(std::vector<int64_t>(40, 29));
    const auto rotated = [&](const at::Tensor& all, const at::Tensor& at_position) {
      rotate(all.narrow(1, 0, 4 * 2 * pairs).view({40, 4, 2 * pairs}),
             rotary_table(frequencies, 1.0, 30, all.options()), at_position, Rotation::kForward);
      return all;
    };
    expect_close(rotated(rows.gpu, position.gpu), rotated(rows.cpu, position.cpu), "rotated");
  }
}

TEST_P(DeviceOps, CrossEntropy) {
  for (const int64_t columns : {29, 32'000}) {
    const Pair logits = random({17, columns});
    std::vector<int64_t> values;
    for (int64_t row = 0; row < 17; ++row) values.push_back(row * columns / 12);
    const Pair target = whole_numbers(values);
    const at::Tensor wide = GetParam() == at::kDouble ? logits.gpu : logits.gpu.to(at::kFloat);
    const at::Tensor a = row_statistics(wide, target.gpu, 3),
                     e = aten::row_statistics(logits.cpu, target.cpu, 3);
    expect_close(a.narrow(1, 0, 2), e.narrow(1, 0, 2), "statistics");
    expect_close(cross_entropy_gradient(wide, a, a, target.gpu, 3, GetParam()),
                 aten::cross_entropy_gradient(logits.cpu, e, e, target.cpu, 3, at::kDouble), "dlogits");
    if (GetParam() != at::kBFloat16) continue;
    const at::Tensor narrow = row_statistics(logits.gpu, target.gpu, 3);
    expect_close(narrow.select(1, 1), a.select(1, 1).cpu().to(at::kDouble), "statistics of narrow logits");
    const at::Tensor gradient =
        cross_entropy_gradient(logits.gpu, narrow, narrow, target.gpu, 3, at::kBFloat16);
    EXPECT_TRUE(gradient.is_alias_of(logits.gpu));
  }
}

TEST_P(DeviceOps, Embedding) {
  const Pair table = random({12, 40}), dx = random({9, 40}),
             ids = whole_numbers({4, 5, 16, 17, 4, -1, 8, 8, 8});
  expect_close(embedding_lookup(table.gpu, ids.gpu, 5), aten::embedding_lookup(table.cpu, ids.cpu, 5), "x");
  const at::Tensor dtable = sums({12, 40}), expected = at::zeros({12, 40}, at::kDouble);
  embedding_lookup_backward(dx.gpu, ids.gpu, 5, dtable);
  aten::embedding_lookup_backward(dx.cpu, ids.cpu, 5, expected);
  expect_close(dtable, expected, "dtable");
}

TEST_P(DeviceOps, Products) {
  for (const auto& [rows, from, to] : std::vector<std::array<int64_t, 3>>{{50, 13, 7}, {256, 512, 1024}}) {
    const Pair x = random({rows, from}), w = random({from, to}), y = random({rows, to});
    expect_close(times(x.gpu, w.gpu), times(x.cpu, w.cpu), "x·w");
    expect_close(times_transposed(y.gpu, w.gpu), times_transposed(y.cpu, w.cpu), "y·wᵀ");
    expect_close(wide_times_transposed(y.gpu, w.gpu), times_transposed(y.cpu, w.cpu), "y·wᵀ, wide");
    expect_close(add_times(y.gpu, x.gpu, w.gpu), add_times(y.cpu, x.cpu, w.cpu), "y + x·w");
    const at::Tensor sum = sums({from, to}), expected = at::zeros({from, to}, at::kDouble);
    for (int turn = 0; turn < 2; ++turn) {
      accumulate_weight_gradient(sum, x.gpu, y.gpu);
      accumulate_weight_gradient(expected, x.cpu, y.cpu);
    }
    expect_close(sum, expected, "Σ xᵀ·y");
  }
}

// Query heads share key heads; rows behind the last sequence belong to none. Causal and to both sides,
// without a window and with one.
TEST_P(DeviceOps, AttentionOfPackedSequences) {
  for (const int64_t dimensions : {6, 64, 128, 256}) {
    for (const auto& [causal, window] :
         std::vector<std::pair<bool, int64_t>>{{true, 0}, {true, 50}, {false, 0}, {false, 50}}) {
      const std::vector<int64_t> lengths{1, 130, 7, 300};
      const Pair qkv = random({440, 8, dimensions}), dout = random({440, 4, dimensions});
      const auto split = [causal = causal, window = window](const at::Tensor& all) {
        return AttentionInput{.q_TND = all.narrow(1, 0, 4),
                              .k_TKD = all.narrow(1, 4, 2),
                              .v_TKD = all.narrow(1, 6, 2),
                              .scale = 0.3,
                              .window = window,
                              .causal = causal};
      };
      const PackedSequences on_gpu = packed_sequences(lengths, kGpu),
                            on_cpu = packed_sequences(lengths, at::kCPU);
      const AttentionResult a = attention(split(qkv.gpu), on_gpu),
                            e = aten::attention(split(qkv.cpu), on_cpu);
      expect_close(a.out_TND, e.out_TND, "out");
      expect_close(a.lse_NT.narrow(1, 0, 438), e.lse_NT.narrow(1, 0, 438), "log-sum-exp");
      const at::Tensor da = at::full_like(qkv.gpu, 7), de = at::zeros_like(qkv.cpu);
      const AttentionInput ga = split(da), ge = split(de);
      attention_backward(dout.gpu, split(qkv.gpu), a, on_gpu, {ga.q_TND, ga.k_TKD, ga.v_TKD});
      aten::attention_backward(dout.cpu, split(qkv.cpu), e, on_cpu, {ge.q_TND, ge.k_TKD, ge.v_TKD});
      expect_close(da, de, "dq, dk and dv");
    }
  }
}

// Latent attention's: columns of values and of the results' gradient are zero from 128 on.
TEST_P(DeviceOps, AttentionOfNarrowValues) {
  const Pair qkv = random({440, 9, 192}), dout = random({440, 3, 192});
  for (const at::Tensor& padded : {qkv.gpu.narrow(1, 6, 3), qkv.cpu.narrow(1, 6, 3), dout.gpu, dout.cpu})
    padded.narrow(2, 128, 64).zero_();
  const auto split = [](const at::Tensor& all) {
    return AttentionInput{.q_TND = all.narrow(1, 0, 3),
                          .k_TKD = all.narrow(1, 3, 3),
                          .v_TKD = all.narrow(1, 6, 3),
                          .scale = 0.1,
                          .value_dimensions = 128};
  };
  const PackedSequences on_gpu = packed_sequences({1, 130, 7, 302}, kGpu),
                        on_cpu = packed_sequences({1, 130, 7, 302}, at::kCPU);
  const AttentionResult a = attention(split(qkv.gpu), on_gpu), e = aten::attention(split(qkv.cpu), on_cpu);
  expect_close(a.out_TND, e.out_TND, "out");
  const at::Tensor da = at::full_like(qkv.gpu, 7), de = at::zeros_like(qkv.cpu);
  const AttentionInput ga = split(da), ge = split(de);
  attention_backward(dout.gpu, split(qkv.gpu), a, on_gpu, {ga.q_TND, ga.k_TKD, ga.v_TKD});
  aten::attention_backward(dout.cpu, split(qkv.cpu), e, on_cpu, {ge.q_TND, ge.k_TKD, ge.v_TKD});
  expect_close(da, de, "dq, dk and dv");
}

// Blocks of a ring's step: some share queries, some keys; a row has no key at all.
TEST_P(DeviceOps, AttentionOfBlocks) {
  const std::vector<AttentionBlock> blocks{
      {{0, 130}, {7, 302}}, {{200, 440}, {0, 7}}, {{100, 130}, {302, 330}}};
  const Pair q = random({440, 4, 64}), kv = random({330, 4, 64}), dout = random({440, 4, 64});
  const auto input = [&](at::Tensor Pair::*on) {
    return AttentionInput{q.*on, (kv.*on).narrow(1, 0, 2), (kv.*on).narrow(1, 2, 2), 0.3};
  };
  const AttentionResult a = nothing_seen(q.gpu), e = nothing_seen(q.cpu);
  attend_blocks(input(&Pair::gpu), blocks, a);
  aten::attend_blocks(input(&Pair::cpu), blocks, e);
  expect_close(a.out_TND, e.out_TND, "out");
  const auto seen = [](const at::Tensor& lse_NT) {
    return at::cat({lse_NT.narrow(1, 0, 130), lse_NT.narrow(1, 200, 240)}, 1);
  };
  expect_close(seen(a.lse_NT), seen(e.lse_NT), "log-sum-exp");
  const auto zeros = [](const at::Tensor& x, const at::Tensor& lse) {
    return at::zeros(x.sizes(), lse.options());
  };
  const AttentionGradient ga{zeros(q.gpu, a.lse_NT), zeros(kv.gpu, a.lse_NT).narrow(1, 0, 2),
                             zeros(kv.gpu, a.lse_NT).narrow(1, 2, 2)};
  const AttentionGradient ge{zeros(q.cpu, e.lse_NT), zeros(kv.cpu, e.lse_NT).narrow(1, 0, 2),
                             zeros(kv.cpu, e.lse_NT).narrow(1, 2, 2)};
  const at::Tensor rng = at::zeros({2}, at::dtype(at::kUInt64).device(kGpu));
  attend_blocks_backward(dout.gpu, input(&Pair::gpu), {a.out_TND.to(GetParam()), a.lse_NT, rng}, blocks, ga);
  aten::attend_blocks_backward(dout.cpu, input(&Pair::cpu), {e.out_TND, e.lse_NT, {}}, blocks, ge);
  expect_close(ga.dq_TND, ge.dq_TND, "dq");
  expect_close(ga.dk_TKD, ge.dk_TKD, "dk");
  expect_close(ga.dv_TKD, ge.dv_TKD, "dv");
}

// Sequences of one query and of several, in pages that lie anywhere; a row behind the queries belongs to no sequence.
TEST_P(DeviceOps, AttentionOfPages) {
  const Pair q = random({56, 4, 64}), cache = random({512, 4, 64});
  for (const int64_t window : {0, 50}) {
    const auto input = [&](at::Tensor Pair::*on) {
      return AttentionInput{q.*on, (cache.*on).narrow(1, 0, 2), (cache.*on).narrow(1, 2, 2), 0.3, window};
    };
    const auto paged = [](const at::Device& device) {
      return paged_sequences({{{0, 1}, 1, {9}},
                              {{1, 2}, 97, {3, 0, 7, 2}},
                              {{2, 42}, 130, {15, 4, 5, 1, 11}},
                              {{42, 55}, 13, {6}}},
                             32, device);
    };
    const AttentionResult e = aten::attend_pages(input(&Pair::cpu), paged(at::kCPU));
    const std::optional<AttentionResult> a = attend_pages(input(&Pair::gpu), paged(kGpu));
    if (!a) {
      EXPECT_NE(GetParam(), at::kBFloat16) << attention_report();
      continue;
    }
    expect_close(a->out_TND, e.out_TND, "out");
    expect_close(a->lse_NT.narrow(1, 0, 55), e.lse_NT.narrow(1, 0, 55), "log-sum-exp");
  }
}

// Flash attention would also be right, but slower: on these GPUs its use is a fault.
TEST_P(DeviceOps, CudnnAttendsOnHopperAndBlackwell) {
  if (GetParam() != at::kBFloat16) return;
  const at::Tensor qkv = random({64, 3, 64}).gpu;
  attention({qkv.narrow(1, 0, 1), qkv.narrow(1, 1, 1), qkv.narrow(1, 2, 1), 0.125},
            packed_sequences({64}, kGpu));
  const std::string report = attention_report();
  if (report.find("need Hopper or Blackwell") != std::string::npos) GTEST_SKIP() << report;
  EXPECT_EQ(report.rfind("cuDNN ", 0), 0) << report;
}

// By head and by channel, with the delta rule and without; of sequences of many chunks and of one.
TEST_P(DeviceOps, Recurrence) {
  const std::vector<int64_t> lengths = {1, 130, 64, 17};
  const int64_t rows = 212, heads = 4, keys = 40, values = 33;
  for (const bool by_channel : {false, true}) {
    for (const bool delta : {false, true}) {
      const Pair q = random({rows, 2, keys}), k = random({rows, 2, keys}), v = random({rows, heads, values});
      const Pair decay = by_channel ? random({rows, heads, keys}) : random({rows, heads});
      const Pair rate = random({rows, heads}), dout = random({rows, heads, values});
      const auto input = [&](at::Tensor Pair::*on) {
        return RecurrenceInput{q.*on, k.*on / 16, v.*on, -(decay.*on).square() / 8, at::sigmoid(rate.*on),
                               delta};
      };
      const RecurrenceChunks chunks = recurrence_chunks(lengths, rows, at::kCPU),
                             on_gpu = recurrence_chunks(lengths, rows, kGpu);
      const Recurrence expected(input(&Pair::cpu), chunks), actual(input(&Pair::gpu), on_gpu);
      expect_close(actual.forward({}), expected.forward({}), "outputs");
      const RecurrenceGradient e = expected.backward(dout.cpu, {}, {}), a = actual.backward(dout.gpu, {}, {});
      expect_close(a.dq_TGK, e.dq_TGK, "dq");
      expect_close(a.dk_TGK, e.dk_TGK, "dk");
      expect_close(a.dv_THD, e.dv_THD, "dv");
      expect_close(a.dlog_decay, e.dlog_decay, "dlog_decay");
      expect_close(a.drate_TH, e.drate_TH, "drate");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DeviceOps, testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace sluice::ops
