// The link's GPU kernels, run on the host thread by thread: jobs that 16-byte accesses divide and jobs that
// they don't.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#define SLUICE_CUDA_ON_HOST
#include "runtime/link_kernels.cu"

namespace sluice::runtime {
namespace {

TEST(LinkKernels, CopiesOfEveryAlignment) {
  alignas(16) uint16_t from[6000], to[6000];
  std::iota(std::begin(from), std::end(from), uint16_t{1});
  for (const auto& [source, target, elements] : std::vector<std::array<int64_t, 3>>{
           {0, 8, 4096}, {8, 0, 8}, {4, 8, 5000}, {2, 2, 4096}, {1, 3, 4001}, {0, 1, 1}}) {
    std::fill(std::begin(to), std::end(to), uint16_t{0});
    const CopyJob job{from + source, to + target, elements * 2};
    ASSERT_EQ(launch_copies(&job, 1, {}), 0);
    for (int64_t i = 0; i < 6000; ++i) {
      const bool inside = i >= target && i < target + elements;
      ASSERT_EQ(to[i], inside ? from[source + i - target] : 0) << i;
    }
  }
}

template <typename Element>
void expect_sums() {
  alignas(16) static Element memory[3][4096];
  for (const auto& [offset, target, elements] : std::vector<std::array<int64_t, 3>>{
           {0, 0, 4096}, {4, 8, 2000}, {1, 0, 999}, {0, 1, 1028}, {4, 4, 1}}) {
    std::vector<Element> expected;
    for (auto& source : memory) std::iota(std::begin(source), std::end(source), Element(0.25));
    for (int64_t i = 0; i < elements; ++i) {
      expected.push_back(memory[0][offset + i] + memory[1][offset + i] + memory[2][offset + i]);
    }
    // The sum takes the place of the first source where both lie alike.
    std::vector<Element> elsewhere(4096);
    Element* to = (offset == target ? memory[0] : elsewhere.data()) + target;
    const Element* const sources[] = {nullptr, memory[0], memory[1], memory[2]};
    const SumJob job{to, elements, offset, 1, 3};
    ASSERT_EQ(launch_sums(&job, 1, sources, {}), 0);
    for (int64_t i = 0; i < elements; ++i) ASSERT_EQ(to[i], expected[static_cast<size_t>(i)]) << i;
  }
}

TEST(LinkKernels, SumsOfFloats) { expect_sums<float>(); }
TEST(LinkKernels, SumsOfDoubles) { expect_sums<double>(); }

}  // namespace
}  // namespace sluice::runtime
