// Shared by this module's tests: formulas written out and differentiated by torch's autograd, in FP64, and
// ranks as threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/test_fake.h"
#include "layers/tensor_parallel.h"

namespace sluice::layers {

// Different numbers for different seeds, the same in each run, between −2 and 2.
inline at::Tensor waves(at::IntArrayRef sizes, double seed) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kDouble).mul(0.73 + 0.11 * seed).add(seed).sin().mul(2).view(sizes);
}

// The gradients of inputs for a result whose own gradient is `dy`.
inline std::vector<at::Tensor> gradients_of(const at::Tensor& y, const at::Tensor& dy,
                                            const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({y}, inputs, {dy});
}

inline void expect_near(const at::Tensor& found, const at::Tensor& expected, const std::string& what = "",
                        double tolerance = 1e-12) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const double apart =
      (found.detach().to(at::kDouble) - expected.detach().to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(apart, tolerance) << what << "\n" << found << "\nbeside\n" << expected;
}

// Runs action(rank, members) on threads, with a communicator of all ranks.
inline void on_ranks(int ranks, const std::function<void(int rank, comm::Communicator& members)>& action) {
  comm::FakeWorld world(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = world.transport(rank);
      std::vector<int> all;
      for (int each = 0; each < ranks; ++each) all.push_back(each);
      const auto members = transport->communicator("all", all);
      action(rank, *members);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sluice::layers
