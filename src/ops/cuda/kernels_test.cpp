// The GPU kernels' own sources, run on the host thread by thread, against ATen's operators in FP64. Cases:
// widths that 16-byte accesses divide or not, rows that fill blocks or not, every number of vectors per
// thread.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <span>
#include <tuple>

#define SLUICE_CUDA_ON_HOST
#include "ops/attention.h"
#include "ops/attention_merge.h"
#include "ops/chunk_rows.h"
#include "ops/cross_entropy.h"
#include "ops/cuda/attention_kernels.cu"
#include "ops/cuda/chunk_rows_kernels.cu"
#include "ops/cuda/cross_entropy_kernels.cu"
#include "ops/cuda/embedding_kernels.cu"
#include "ops/cuda/float8_kernels.cu"
#include "ops/cuda/norm_kernels.cu"
#include "ops/cuda/recurrence_kernels.cu"
#include "ops/cuda/rotary_kernels.cu"
#include "ops/cuda/swiglu_kernels.cu"
#include "ops/cuda/tensor_products.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/gated_activation.h"
#include "ops/norm.h"
#include "ops/rotary.h"
#include "ops/state_pass.h"

namespace sluice::ops {
namespace {

class Kernels : public testing::TestWithParam<at::ScalarType> {
 protected:
  Kernels() { at::manual_seed(5); }
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, at::kDouble).to(GetParam()); }
  at::Tensor empty(at::IntArrayRef shape) const { return at::full(shape, 777.0, GetParam()); }
  kernels::Element element() const {
    return GetParam() == at::kBFloat16 ? kernels::Element::kBFloat16 : kernels::Element::kFloat32;
  }
  // One rounding of the result, and of a sum in float: units in the last place of the largest element.
  void expect_close(const at::Tensor& actual, const at::Tensor& expected) const {
    const double tolerance = actual.scalar_type() == at::kBFloat16 ? 1.0 / 256 : 1e-5;
    const double error = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
    EXPECT_LE(error, tolerance * expected.to(at::kDouble).abs().max().item<double>());
  }
};

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

TEST_P(Kernels, Swiglu) {
  for (const int64_t width : {1, 7, 8, 40, 264}) {
    const at::Tensor gate_up = random({9, 2 * width}) * 4, da = random({9, width}), a = empty({9, width});
    ASSERT_EQ(kernels::launch_swiglu(element(), gate_up.data_ptr(), a.data_ptr(), 9, width, {}), 0);
    expect_close(a, aten::gated_activation({}, wide(gate_up)));
    const at::Tensor changed = gate_up.clone(), again = empty({9, width}), expected = wide(gate_up);
    kernels::launch_swiglu_backward(element(), da.data_ptr(), changed.data_ptr(), again.data_ptr(), 9, width,
                                    {});
    aten::gated_activation_backward({}, wide(da), expected);
    EXPECT_TRUE(at::equal(again, a));
    expect_close(changed, expected);
  }
}

// Rows and columns that fill a tile, part of one, and several; rows that lie apart; numbers that are not
// finite; widths that 8 divides or not.
TEST_P(Kernels, Float8CodesEqualTheOperators) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{1, 1},    {3, 7},    {40, 24},
                                                    {270, 40}, {256, 32}, {530, 33}};
  for (const auto& [rows, width] : kSizes) {
    const at::Tensor x = random({rows, width + 8}).narrow(1, 0, width);
    if (rows > 100) {
      x[17][5] = std::numeric_limits<double>::infinity();
      x[18][6] = std::numeric_limits<double>::quiet_NaN();
      x[19].zero_();
      x[20].mul_(1e-36);
    }
    for (const bool by_column : {false, true}) {
      const Float8Rows expected = by_column ? float8_columns(x) : float8_rows(x);
      const at::Tensor code = at::full_like(expected.code_RP, 7.0),
                       factor = at::full_like(expected.factor_R1, 7.0);
      const kernels::Float8Coding coding{.x = x.data_ptr(),
                                         .rows = rows,
                                         .width = width,
                                         .row_stride = x.stride(0),
                                         .codes = static_cast<uint8_t*>(code.data_ptr()),
                                         .code_stride = code.size(1),
                                         .factors = factor.data_ptr<float>()};
      const auto launch = by_column ? kernels::launch_float8_columns : kernels::launch_float8_rows;
      ASSERT_EQ(launch(element(), coding, {}), 0);
      EXPECT_TRUE(at::equal(code.to(at::kFloat), expected.code_RP.to(at::kFloat))) << rows << "x" << width;
      EXPECT_TRUE(at::allclose(factor, expected.factor_R1, 0, 0, /*equal_nan=*/true));
    }
  }
}

struct Norm {
  at::Tensor x, weight, dy, residual, y, dx, y_again, inverse_rms, sums;
};

// Rows and their widths: in accesses of 16 bytes and of one element, side by side in a block and over a whole
// one.
constexpr std::pair<int64_t, int64_t> kNorms[] = {{1, 3},    {3, 33},   {17, 24},  {2, 2047},  {2, 2048},
                                                  {2, 4096}, {1, 8192}, {1, 5000}, {40, 64},   {33, 128},
                                                  {7, 192},  {5, 256},  {3, 576},  {19, 1024}, {1, 6400}};

TEST_P(Kernels, RmsNorm) {
  for (const auto& [rows, width] : kNorms) {
    const int64_t blocks = (rows + kernels::kNormBlockRows - 1) / kernels::kNormBlockRows;
    const Norm t{.x = random({rows, width}),
                 .weight = random({width}),
                 .dy = random({rows, width}),
                 .residual = random({rows, width}),
                 .y = empty({rows, width}),
                 .dx = empty({rows, width}),
                 .y_again = empty({rows, width}),
                 .inverse_rms = at::empty({rows}, at::kFloat),
                 .sums = at::full({blocks, width}, 777.0, at::kFloat)};
    const float offset = rows == 2 ? 1 : 0;
    const kernels::NormForward forward{t.x.data_ptr(), t.weight.data_ptr(),
                                       t.y.data_ptr(), t.inverse_rms.data_ptr<float>(),
                                       rows,           width,
                                       1e-5F,          offset};
    ASSERT_TRUE(kernels::fits(element(), forward));
    ASSERT_EQ(kernels::launch_rms_norm(element(), forward, {}), 0);
    const RmsNorm expected = aten::rms_norm(wide(t.x), wide(t.weight), 1e-5, offset);
    expect_close(t.y, expected.y_TH);
    expect_close(t.inverse_rms, expected.inverse_rms_T);
    for (const bool bypass : {false, true}) {
      const at::Tensor dweight = at::zeros({width}, at::kDouble);
      const RmsNormGradient gradient =
          aten::rms_norm_backward(wide(t.dy), wide(t.x), wide(t.weight), expected.inverse_rms_T,
                                  bypass ? wide(t.residual) : at::Tensor(), dweight, offset);
      const kernels::NormBackward backward{t.dy.data_ptr(),
                                           t.x.data_ptr(),
                                           t.weight.data_ptr(),
                                           t.inverse_rms.data_ptr<float>(),
                                           bypass ? t.residual.data_ptr() : nullptr,
                                           t.dx.data_ptr(),
                                           t.y_again.data_ptr(),
                                           t.sums.data_ptr<float>(),
                                           rows,
                                           width,
                                           offset};
      ASSERT_TRUE(kernels::fits(element(), backward));
      ASSERT_EQ(kernels::launch_rms_norm_backward(element(), backward, {}), 0);
      expect_close(t.dx, gradient.dx_TH);
      expect_close(t.y_again, gradient.y_TH);
      expect_close(t.sums.sum(0), dweight);
    }
  }
}

TEST_P(Kernels, RmsNormRefusesRowsThatThreadsCannotKeep) {
  const int64_t widest = 2048 * (GetParam() == at::kBFloat16 ? 8 : 4);
  alignas(16) static std::byte memory[16];
  const auto fits = [&](int64_t width, int64_t offset) {
    return kernels::fits(
        element(), kernels::NormForward{.x = memory + offset, .weight = memory, .y = memory, .width = width});
  };
  EXPECT_TRUE(fits(widest, 0));
  EXPECT_FALSE(fits(widest + 8, 0));
  EXPECT_FALSE(fits(widest, 4));  // narrow accesses
  EXPECT_FALSE(fits(2049, 0));
}

TEST_P(Kernels, RotaryOfHeadsInWiderRows) {
  for (const int64_t pairs : {1, 3, 8, 32}) {
    const int64_t rows = 5, heads = 3, row_width = 5 * 2 * pairs;
    std::vector<double> frequencies;
    for (int64_t i = 0; i < pairs; ++i)
      frequencies.push_back(std::pow(10'000.0, -static_cast<double>(i) / 32));
    const RotaryTable table = rotary_table(frequencies, 1.25, 100, at::dtype(at::kFloat));
    const RotaryTable wide_table = rotary_table(frequencies, 1.25, 100, at::dtype(at::kDouble));
    const at::Tensor position = at::tensor({0, 99, 3, 3, 50}, at::kLong), x = random({rows, row_width});
    for (const Rotation rotation : {Rotation::kForward, Rotation::kBackward}) {
      const at::Tensor actual = x.clone(), expected = wide(x);
      const kernels::Rotary rotary{actual.data_ptr(),
                                   rows,
                                   heads,
                                   pairs,
                                   row_width,
                                   table.cos_PD.data_ptr<float>(),
                                   table.sin_PD.data_ptr<float>(),
                                   position.data_ptr<int64_t>(),
                                   rotation == Rotation::kForward ? 1.0F : -1.0F};
      ASSERT_EQ(kernels::launch_rotary(element(), rotary, {}), 0);
      aten::rotate(expected.narrow(1, 0, heads * 2 * pairs).view({rows, heads, 2 * pairs}), wide_table,
                   position, rotation);
      expect_close(actual, expected);
    }
  }
}

// Parts of larger matrices of log-sum-exps; queries that have seen nothing yet.
TEST_P(Kernels, AttentionMerge) {
  for (const auto& [rows, heads, dimensions] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 8}, {5, 3, 64}, {7, 4, 80}, {3, 2, 256}, {4, 3, 6}}) {
    const at::Tensor out = at::randn({rows, heads, dimensions}, at::kFloat), more = random(out.sizes());
    const at::Tensor all_lse = at::randn({heads, rows + 2}, at::kFloat) * 4;
    const at::Tensor lse = all_lse.narrow(1, 1, rows), more_lse = at::randn({heads, rows}, at::kFloat) * 4;
    out[0].fill_(0);
    lse.select(1, 0).fill_(-INFINITY);
    if (rows > 1) {  // a query that sees nothing here either
      lse.select(1, 1).fill_(-INFINITY);
      more_lse.select(1, 1).fill_(-INFINITY);
    }
    const AttentionResult expected{wide(out), wide(lse)};
    aten::merge(expected, {wide(more), wide(more_lse)});
    ASSERT_EQ(kernels::launch_attention_merge(element(),
                                              {.out = out.data_ptr<float>(),
                                               .lse = lse.data_ptr<float>(),
                                               .lse_stride = lse.stride(0),
                                               .more_out = more.data_ptr(),
                                               .more_lse = more_lse.data_ptr<float>(),
                                               .more_lse_stride = more_lse.stride(0),
                                               .rows = rows,
                                               .heads = heads,
                                               .dimensions = dimensions},
                                              {}),
              0);
    if (rows > 1) {
      EXPECT_EQ(out[1].abs().max().item<float>(), 0);
      EXPECT_TRUE(lse.select(1, 1).isinf().all().item<bool>());
      lse.select(1, 1).fill_(0);
      expected.lse_NT.select(1, 1).fill_(0);
    }
    expect_close(out, expected.out_TND);
    expect_close(lse, expected.lse_NT);
  }
}

kernels::Element element_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? kernels::Element::kBFloat16 : kernels::Element::kFloat32;
}

// Logits in float and, where the gradient is bfloat16, in bfloat16 too: the gradient then takes their place.
TEST_P(Kernels, CrossEntropyOfAShard) {
  for (const at::ScalarType type : std::set{at::kFloat, GetParam()}) {
    for (const int64_t columns : {1, 29, 1024, 5000}) {
      const int64_t rows = 4, begin = 10;
      const at::Tensor logits = (at::randn({rows, columns}, at::kFloat) * 5).to(type);
      logits[0].fill_(-1e30);  // and all but one as low: nothing to lose but the one
      logits[0][columns - 1] = 3.0;
      const at::Tensor target =
          at::tensor({begin + columns - 1, int64_t{0}, begin, begin + columns}, at::kLong);
      const at::Tensor statistics = at::empty({rows, 3}, at::kFloat);
      kernels::launch_row_statistics(element_of(logits), logits.data_ptr(), target.data_ptr<int64_t>(), begin,
                                     statistics.data_ptr<float>(), rows, columns, {});
      const at::Tensor twin = wide(logits), expected = aten::row_statistics(twin, target, begin);
      expect_close(statistics.narrow(1, 0, 2), expected.narrow(1, 0, 2));
      EXPECT_TRUE(at::equal(statistics.select(1, 2), expected.select(1, 2).to(at::kFloat)));

      // As if another shard had greater logits.
      at::Tensor whole = expected.clone();
      whole.select(1, 0).add_(1.0);
      const at::Tensor whole_float = whole.to(at::kFloat);
      const at::Tensor gradient = type == GetParam() ? logits : empty({rows, columns});
      kernels::launch_cross_entropy_gradient({.logits_element = element_of(logits),
                                              .gradient_element = element(),
                                              .logits = logits.data_ptr(),
                                              .whole = whole_float.data_ptr<float>(),
                                              .targets = target.data_ptr<int64_t>(),
                                              .begin = begin,
                                              .gradient = gradient.data_ptr(),
                                              .rows = rows,
                                              .columns = columns},
                                             {});
      expect_close(gradient, aten::cross_entropy_gradient(twin, expected, whole, target, begin, at::kDouble));
    }
  }
}

// Ids of other shards, ids that occur once and more often than rows are read ahead; ids at the ends.
TEST_P(Kernels, Embedding) {
  const at::Tensor ids = at::tensor({4, 5, 16, 17, 4, -1, 8, 8, 8, 5, 8, 8, 16, 8, 8, 8, 8, 8}, at::kLong);
  const int64_t tokens = ids.size(0), rows = 12, begin = 5;
  for (const int64_t width : {1, 7, 8, 264, 2056}) {
    const at::Tensor table = random({rows, width}), x = empty({tokens, width}), dx = random({tokens, width});
    ASSERT_EQ(kernels::launch_embedding_lookup(element(),
                                               {.table = table.data_ptr(),
                                                .ids = ids.data_ptr<int64_t>(),
                                                .begin = begin,
                                                .x = x.data_ptr(),
                                                .rows = rows,
                                                .tokens = tokens,
                                                .width = width},
                                               {}),
              0);
    EXPECT_TRUE(at::equal(wide(x), aten::embedding_lookup(wide(table), ids, begin)));

    const auto [sorted, token] = at::sort(ids, /*stable=*/true, 0, /*descending=*/false);
    const at::Tensor dtable = at::ones({rows, width}, at::kFloat), expected = wide(dtable);
    ASSERT_EQ(kernels::launch_embedding_gradient(element(),
                                                 {.dx = dx.data_ptr(),
                                                  .sorted_ids = sorted.data_ptr<int64_t>(),
                                                  .token_of = token.data_ptr<int64_t>(),
                                                  .begin = begin,
                                                  .dtable = dtable.data_ptr<float>(),
                                                  .rows = rows,
                                                  .tokens = tokens,
                                                  .width = width},
                                                 {}),
              0);
    aten::embedding_lookup_backward(wide(dx), ids, begin, expected);
    expect_close(dtable, expected);
  }
}

// Single precision alone, as everywhere in a recurrence.
at::Tensor floats(at::IntArrayRef shape) { return at::randn(shape, at::kFloat); }
void expect_near(const at::Tensor& actual, const at::Tensor& expected) {
  const double most = expected.abs().max().item<double>();
  EXPECT_LE((wide(actual) - expected).abs().max().item<double>(), 1e-5 * most);
}

// c = a·b and d -= c ÷ 2, by one warp.
template <typename Order>
void multiply_tile(const float* a, int a_stride, const float* b, int depth, float* c, float* d) {
  using namespace kernels;
  TileSum sum;
  clear(sum);
  add_product<Order>(a, a_stride, b, kTile, depth, sum);
  store(c, kTile, sum);
  add_to(d, kTile, -0.5F, sum);
}

// Terms that cancel and terms that do not. One TF32 product alone misses the bound many times over.
TEST(TensorProducts, AreAlmostAsPreciseAsFp32) {
  at::manual_seed(5);
  for (const int64_t depth : {8, 64, 256}) {
    for (const bool cancels : {true, false}) {
      const auto factors = [&](at::IntArrayRef shape) {
        return cancels ? at::randn(shape, at::kFloat) : at::rand(shape, at::kFloat);
      };
      const at::Tensor a = factors({16, depth}), a_by_column = a.t().contiguous(), b = factors({depth, 16});
      const at::Tensor expected = wide(a).mm(wide(b)), scale = wide(a).abs().mm(wide(b).abs());
      const auto error = [&](const at::Tensor& c) {
        return ((wide(c) - expected) / scale).abs().max().item<double>();
      };
      const auto tf32 = [](const at::Tensor& x) {
        const at::Tensor rounded = x.clone();
        for (float& value : std::span(rounded.data_ptr<float>(), static_cast<size_t>(x.numel())))
          value = nvcuda::wmma::__float_to_tf32(value);
        return wide(rounded);
      };
      constexpr double kBound = 5e-7;
      EXPECT_GT(error(tf32(a).mm(tf32(b))), (depth == 8 ? 100 : 20) * kBound);
      for (const bool by_row : {true, false}) {
        const at::Tensor c = at::full({16, 16}, 777.0, at::kFloat), d = at::ones({16, 16}, at::kFloat);
        kernels::launch(by_row ? &multiply_tile<kernels::ByRow> : &multiply_tile<kernels::ByColumn>,
                        kernels::Grid{1, 32}, kernels::HostStream{},
                        static_cast<const float*>((by_row ? a : a_by_column).data_ptr<float>()),
                        static_cast<int>(by_row ? depth : 16), static_cast<const float*>(b.data_ptr<float>()),
                        static_cast<int>(depth), c.data_ptr<float>(), d.data_ptr<float>());
        EXPECT_LE(error(c), kBound) << depth << (cancels ? " cancel" : "");
        EXPECT_TRUE(d.equal(1 - c / 2));
      }
    }
  }
}

void pass_by_kernel(const StatePass& pass) {
  const auto address = [](const at::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; };
  ASSERT_EQ(kernels::launch_pass_states({.state = address(pass.state_SKX),
                                         .rows = address(pass.rows_BCX),
                                         .read = address(pass.read_BCK),
                                         .read_factor = static_cast<float>(pass.read_factor),
                                         .end = address(pass.end_BW1),
                                         .ends = pass.end_BW1.size(1),
                                         .added = address(pass.added_BKX),
                                         .left = address(pass.left_BCK),
                                         .left_factor = static_cast<float>(pass.left_factor),
                                         .came = address(pass.came_BKX),
                                         .level_begins = pass.chunks.level_begins_L1.data_ptr<int64_t>(),
                                         .levels = std::ssize(pass.chunks.levels),
                                         .tasks = pass.state_SKX.size(0),
                                         .heads = pass.heads,
                                         .chunk = pass.rows_BCX.size(1),
                                         .keys = pass.state_SKX.size(1),
                                         .columns = pass.state_SKX.size(2),
                                         .back = pass.back},
                                        {}),
            0);
}

// Pieces of several chunks and of few, with each optional tensor present or absent, and with `came` in the
// memory of `added`.
TEST(RecurrenceKernels, StatesPassFromChunkToChunk) {
  at::manual_seed(5);
  const int64_t heads = 2;
  for (const auto& [chunk, keys, columns, by_channel] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, bool>>{{16, 5, 3, true},
                                                                {64, 40, 17, false},
                                                                {3, 70, 16, true},
                                                                {64, 32, 35, true},
                                                                {64, 256, 16, true},
                                                                {33, 130, 18, false}}) {
    const RecurrenceChunks chunks =
        recurrence_chunks({chunk * 2 + 1, 1, chunk * 3, chunk}, chunk * 6 + 4, at::kCPU, chunk);
    const int64_t pieces = chunks.pieces(), batch = chunks.row_M.size(0) / chunk * heads;
    for (const auto& [reads, leaves, adds, tells, back] :
         std::vector<std::tuple<bool, bool, bool, bool, bool>>{{true, true, false, true, false},
                                                               {false, true, false, false, false},
                                                               {true, true, true, true, true},
                                                               {true, false, true, true, true},
                                                               {false, false, true, false, true}}) {
      const auto all = [&](bool there, int64_t rows, int64_t width) {
        return there ? floats({batch, rows, width}) * 0.3 : at::Tensor();
      };
      StatePass pass{.chunks = chunks,
                     .heads = heads,
                     .back = back,
                     .state_SKX = floats({pieces * heads, keys, columns}),
                     .rows_BCX = floats({batch, chunk, columns}),
                     .read_BCK = all(reads, chunk, keys),
                     .read_factor = back ? 1.0 : -1.0,
                     .end_BW1 = at::rand({batch, by_channel ? keys : 1, 1}, at::kFloat),
                     .added_BKX = all(adds, keys, columns),
                     .left_BCK = all(leaves, chunk, keys),
                     .left_factor = back ? -1.0 : 1.0,
                     .came_BKX = {}};
      if (tells) pass.came_BKX = adds ? pass.added_BKX : at::zeros({batch, keys, columns}, at::kFloat);
      const auto wide_of = [](const at::Tensor& x) { return x.defined() ? wide(x).clone() : x; };
      StatePass expected = pass;
      for (at::Tensor StatePass::*each : {&StatePass::state_SKX, &StatePass::rows_BCX, &StatePass::read_BCK,
                                          &StatePass::end_BW1, &StatePass::added_BKX, &StatePass::left_BCK})
        expected.*each = wide_of(pass.*each);
      if (tells) expected.came_BKX = adds ? expected.added_BKX : wide_of(pass.came_BKX);
      StatePass on_cpu = pass;
      on_cpu.state_SKX = pass.state_SKX.clone();
      on_cpu.rows_BCX = pass.rows_BCX.clone();
      if (tells) on_cpu.came_BKX = pass.came_BKX.clone();
      if (tells && adds) on_cpu.added_BKX = on_cpu.came_BKX;
      pass_by_kernel(pass);
      pass_states(on_cpu);
      aten::pass_states(expected);
      for (const StatePass* actual : {&pass, &on_cpu}) {
        expect_near(actual->state_SKX, expected.state_SKX);
        expect_near(actual->rows_BCX, expected.rows_BCX);
        if (tells) expect_near(actual->came_BKX, expected.came_BKX);
      }
    }
  }
}

// One piece of many chunks, of one head, whose rows read and change the state.
struct LongPass {
  RecurrenceChunks chunks;
  StatePass pass;
  LongPass(int64_t count, int64_t chunk, int64_t keys, int64_t columns)
      : chunks(recurrence_chunks({count * chunk}, count * chunk, at::kCPU, chunk)),
        pass{.chunks = chunks,
             .heads = 1,
             .state_SKX = floats({1, keys, columns}),
             .rows_BCX = floats({count, chunk, columns}),
             .read_BCK = floats({count, chunk, keys}) * 0.01,
             .read_factor = -1,
             .end_BW1 = 1 - 0.01 * at::rand({count, 1, 1}, at::kFloat),
             .added_BKX = {},
             .left_BCK = floats({count, chunk, keys}),
             .came_BKX = {}} {}
};

// A sum in TF32 would be off by some 1e-4.
TEST(RecurrenceKernels, ErrorsStaySmallOverManyChunks) {
  at::manual_seed(5);
  const LongPass all(400, 16, 16, 16);
  StatePass expected = all.pass;
  for (at::Tensor StatePass::*each : {&StatePass::state_SKX, &StatePass::rows_BCX, &StatePass::read_BCK,
                                      &StatePass::end_BW1, &StatePass::left_BCK})
    expected.*each = wide(all.pass.*each).clone();
  pass_by_kernel(all.pass);
  aten::pass_states(expected);
  const auto error = [](const at::Tensor& actual, const at::Tensor& of) {
    return ((wide(actual) - of).abs().max() / of.abs().max()).item<double>();
  };
  EXPECT_LE(error(all.pass.state_SKX, expected.state_SKX), 2e-6);
  EXPECT_LE(error(all.pass.rows_BCX, expected.rows_BCX), 2e-6);
}

// A block begins with whatever the one before it has left in shared memory.
TEST(RecurrenceKernels, PassesAreTheSameOnEveryRun) {
  at::manual_seed(5);
  const LongPass first(2, 20, 41, 17);
  StatePass again = first.pass;
  again.state_SKX = again.state_SKX.clone();
  again.rows_BCX = again.rows_BCX.clone();
  pass_by_kernel(first.pass);
  const LongPass other(1, 64, 256, 16);
  other.pass.state_SKX.fill_(NAN);
  other.pass.read_BCK.fill_(NAN);
  other.pass.left_BCK.fill_(NAN);
  pass_by_kernel(other.pass);
  EXPECT_TRUE(other.pass.state_SKX.isnan().all().item<bool>());
  pass_by_kernel(again);
  EXPECT_TRUE(again.state_SKX.equal(first.pass.state_SKX));
  EXPECT_TRUE(again.rows_BCX.equal(first.pass.rows_BCX));
}

// Rows of a view, behind the pieces and of shared heads; widths that threads of a warp divide or not.
TEST_P(Kernels, RowsMoveIntoChunksAndBack) {
  const RecurrenceChunks chunks = recurrence_chunks({5, 1, 17, 8}, 34, at::kCPU, 8);
  const int64_t places = chunks.row_M.size(0);
  for (const int64_t width : {1, 5, 32, 70}) {
    for (const int64_t shared : {1, 3}) {
      const int64_t own = 2, heads = own * shared;
      const at::Tensor x_THW = random({34, own + 1, width}).narrow(1, 1, own);
      const at::Tensor moved = at::full({places / 8 * heads, 8, width}, 777.0, at::kFloat);
      kernels::ChunkRows all{.index = chunks.row_M.data_ptr<int64_t>(),
                             .rows = 34,
                             .places = places,
                             .chunk = 8,
                             .heads = heads,
                             .shared = shared,
                             .width = width,
                             .row_stride = x_THW.stride(0),
                             .head_stride = x_THW.stride(1)};
      ASSERT_EQ(kernels::launch_rows_in_chunks(element(), all, x_THW.data_ptr(), moved.data_ptr<float>(), {}),
                0);
      EXPECT_TRUE(moved.equal(aten::rows_in_chunks(x_THW, chunks, heads)));
      const at::Tensor x_BCW = at::randn(moved.sizes(), at::kFloat);
      const at::Tensor back = at::full({34, own, width}, 777.0, at::kFloat);
      all.index = chunks.place_T.data_ptr<int64_t>();
      ASSERT_EQ(kernels::launch_rows_of_chunks(all, x_BCW.data_ptr<float>(), back.data_ptr<float>(), {}), 0);
      EXPECT_TRUE(back.allclose(aten::rows_of_chunks(x_BCW, chunks, heads, shared), 1e-6, 1e-6));
    }
  }
}

// Decays that all but forget, and that hardly do.
TEST(RecurrenceKernels, ProductsOfRowsThatDecayByChannel) {
  at::manual_seed(5);
  for (const auto& [batch, rows, keys] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{2, 1, 3}, {1, 17, 40}, {2, 64, 33}, {1, 64, 64}}) {
    const at::Tensor a = floats({batch, rows, keys}), b = floats({batch, rows, keys});
    const at::Tensor sum = (-8 * floats({batch, rows, keys}).square()).cumsum(1);
    const at::Tensor dproducts = floats({batch, rows, rows}).tril();
    const at::Tensor late = wide(sum).unsqueeze(2), early = wide(sum).unsqueeze(1);
    const at::Tensor behind = at::ones({rows, rows}, at::kBool).triu(1).unsqueeze(2);
    const at::Tensor decay = (late - early).masked_fill(behind, -INFINITY).exp();
    const at::Tensor products = at::full({batch, rows, rows}, 777.0, at::kFloat);
    kernels::DecayedProducts all{.a = a.data_ptr<float>(),
                                 .b = b.data_ptr<float>(),
                                 .sum = sum.data_ptr<float>(),
                                 .products = products.data_ptr<float>(),
                                 .batch = batch,
                                 .rows = rows,
                                 .keys = keys};
    ASSERT_EQ(kernels::launch_decayed_products(all, {}), 0);
    expect_near(products, at::einsum("bik,bjk,bijk->bij", {wide(a), wide(b), decay}));
    const at::Tensor da = at::ones_like(a), db = at::ones_like(b);
    all.products = dproducts.data_ptr<float>();
    all.da = da.data_ptr<float>();
    all.db = db.data_ptr<float>();
    ASSERT_EQ(kernels::launch_decayed_products_backward(all, {}), 0);
    expect_near(da - 1, at::einsum("bij,bjk,bijk->bik", {wide(dproducts), wide(b), decay}));
    expect_near(db - 1, at::einsum("bij,bik,bijk->bjk", {wide(dproducts), wide(a), decay}));
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, Kernels, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

void wait_in_half_of_the_threads(int /*unused*/) {
  using namespace kernels;
  if (threadIdx.x < 128) __syncthreads();
}

TEST(CudaOnHost, ThreadsThatWaitForOthersThatNeverComeAreFound) {
  EXPECT_THROW(kernels::launch(&wait_in_half_of_the_threads, 1, kernels::HostStream{}, 0), std::logic_error);
}

}  // namespace
}  // namespace sluice::ops
