// AdamW's GPU kernel, run on the host thread by thread, against the formulas in double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <new>
#include <vector>

#define SLUICE_CUDA_ON_HOST
#include "runtime/optimizer_kernels.cu"

namespace sluice::runtime {
namespace {

// As a GPU's allocator does.
template <typename T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <typename Other>
  explicit AlignedAllocator(const AlignedAllocator<Other>& /*other*/) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kAlignment)); }
  void deallocate(T* memory, size_t /*count*/) { ::operator delete(memory, kAlignment); }
  bool operator==(const AlignedAllocator& /*other*/) const { return true; }
  static constexpr std::align_val_t kAlignment{64};
};
template <typename T>
using Aligned = std::vector<T, AlignedAllocator<T>>;

// Arrays of which a run is a part; all hold different numbers.
struct Arrays {
  explicit Arrays(size_t elements)
      : master(elements), gradient(elements), exp_avg(elements), exp_avg_sq(elements), copy(elements, 777) {
    for (size_t i = 0; i < elements; ++i) {
      const auto x = static_cast<float>(i);
      master[i] = std::sin(x);
      gradient[i] = 8 * std::cos(3 * x);
      exp_avg[i] = std::sin(5 * x) / 8;
      exp_avg_sq[i] = std::abs(std::cos(7 * x)) / 8;
    }
  }
  Aligned<float> master, gradient, exp_avg, exp_avg_sq;
  Aligned<uint16_t> copy;
};

constexpr AdamWStep kStep{
    .gradient_scale = 0.125F, .beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .inverse_root = 2.0F};

void expect_updated(const Arrays& before, const Arrays& after, size_t i, double kept, bool copied) {
  const double g = before.gradient[i] * 0.125;
  const double m = 0.9 * before.exp_avg[i] + 0.1 * g, v = 0.95 * before.exp_avg_sq[i] + 0.05 * g * g;
  const double p = kept * before.master[i] - 0.03 * m / (std::sqrt(v) * 2.0 + 1e-8);
  ASSERT_NEAR(after.exp_avg[i], m, 1e-6) << i;
  ASSERT_NEAR(after.exp_avg_sq[i], v, 1e-6) << i;
  ASSERT_NEAR(after.master[i], p, 1e-6) << i;
  const auto widened = std::bit_cast<float>(static_cast<uint32_t>(after.copy[i]) << 16);
  if (copied) {
    ASSERT_NEAR(widened, after.master[i], std::abs(after.master[i]) / 256) << i;
  } else {
    ASSERT_EQ(after.copy[i], 777) << i;
  }
}

void expect_untouched(const Arrays& before, const Arrays& after, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    ASSERT_EQ(after.master[i], before.master[i]) << i;
    ASSERT_EQ(after.exp_avg[i], before.exp_avg[i]) << i;
    ASSERT_EQ(after.exp_avg_sq[i], before.exp_avg_sq[i]) << i;
    ASSERT_EQ(after.copy[i], before.copy[i]) << i;
  }
}

struct Part {
  size_t begin = 0;
  size_t elements = 0;
};

void expect_update_of(const std::vector<Part>& parts, bool with_copy, size_t copy_offset = 0) {
  const size_t elements = parts.back().begin + parts.back().elements;
  const Arrays before(elements + 9);
  Arrays after(elements + 9);
  Aligned<uint16_t> apart(elements + 18);  // for copies with another alignment
  std::vector<AdamWRun> runs;
  for (const Part& part : parts) {
    uint16_t* copy = copy_offset == 0 ? after.copy.data() : apart.data() + copy_offset;
    runs.push_back({.master = after.master.data() + part.begin,
                    .gradient = after.gradient.data() + part.begin,
                    .exp_avg = after.exp_avg.data() + part.begin,
                    .exp_avg_sq = after.exp_avg_sq.data() + part.begin,
                    .copy = with_copy ? copy + part.begin : nullptr,
                    .elements = static_cast<int64_t>(part.elements),
                    .kept = 1.0F - 0.001F * static_cast<float>(runs.size()),
                    .step_size = 0.03F});
  }
  ASSERT_EQ(launch_adamw(runs, kStep, {}), 0);
  if (copy_offset != 0) std::copy_n(apart.data() + copy_offset, elements + 9, after.copy.data());
  size_t reached = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    const size_t begin = parts[r].begin, end = begin + parts[r].elements;
    if (copy_offset == 0) expect_untouched(before, after, reached, begin);
    for (size_t i = begin; i < end; ++i) expect_updated(before, after, i, runs[r].kept, with_copy);
    reached = end;
  }
  if (copy_offset == 0) expect_untouched(before, after, reached, elements + 9);
}

TEST(OptimizerKernels, RunsThatBeginAndEndAnywhere) {
  for (const size_t begin : {0, 1, 5, 8}) {
    for (const size_t elements : {1, 2, 7, 8, 9, 16, 8191, 8192, 8193}) {
      expect_update_of({{begin, elements}}, /*with_copy=*/true);
    }
  }
}

TEST(OptimizerKernels, SeveralRunsInOneLaunch) {
  expect_update_of({{3, 20}, {23, 9000}, {9040, 1}, {9041, 8191}}, /*with_copy=*/true);
  expect_update_of({{3, 20}, {23, 9000}}, /*with_copy=*/false);
}

TEST(OptimizerKernels, MoreRunsThanALaunchTakes) {
  std::vector<Part> parts;
  for (size_t run = 0; run < 2 * kMostRuns + 3; ++run) parts.push_back({run * 11, 10});
  expect_update_of(parts, /*with_copy=*/true);
}

TEST(OptimizerKernels, CopiesThatLieUnlikeTheirMasters) {
  expect_update_of({{3, 20}, {23, 9000}}, /*with_copy=*/true, /*copy_offset=*/1);
}

TEST(OptimizerKernels, OneThatLiesUnlikeLeavesTheOthersTheirWideAccesses) {
  Arrays arrays(64);
  const auto run = [&](size_t begin, size_t copy_begin) {
    return AdamWRun{.master = arrays.master.data() + begin,
                    .gradient = arrays.gradient.data() + begin,
                    .exp_avg = arrays.exp_avg.data() + begin,
                    .exp_avg_sq = arrays.exp_avg_sq.data() + begin,
                    .copy = arrays.copy.data() + copy_begin,
                    .elements = 8,
                    .kept = 1,
                    .step_size = 0.03F};
  };
  const Arrays before = arrays;
  const std::vector<AdamWRun> runs{run(0, 0), run(16, 17), run(32, 32)};
  const RunsByLie parts = by_lie(runs);
  ASSERT_EQ(parts.alike.size(), 2U);
  ASSERT_EQ(parts.unlike.size(), 1U);
  EXPECT_EQ(parts.unlike[0].master, runs[1].master);
  ASSERT_EQ(launch_adamw(runs, kStep, {}), 0);
  for (const size_t begin : {0, 32}) {
    for (size_t i = begin; i < begin + 8; ++i) expect_updated(before, arrays, i, 1, /*copied=*/true);
  }
  for (size_t i = 16; i < 24; ++i) EXPECT_NE(arrays.master[i], before.master[i]);
}

TEST(OptimizerKernels, NothingToDo) { EXPECT_EQ(launch_adamw({}, kStep, {}), 0); }

}  // namespace
}  // namespace sluice::runtime
