#include "runtime/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/device.h"

namespace sluice::runtime {
namespace {

constexpr model::Shape kShape{
    .layers = 2, .hidden = 24, .heads = 4, .kv_heads = 2, .head_dim = 6, .ffn_hidden = 40, .vocab = 50};

// The second of three ranks: its slices begin and end within parameters.
ParameterStore store_on(const model::ParameterTable& table, const at::Device& device, comm::DType compute) {
  return ParameterStore(table, {.rank = 1, .world_size = 3, .precision = {compute}, .device = device});
}

// Three updates with gradients that depend on the bucket alone.
void train(ParameterStore& store) {
  initialize(store, 5);
  for (int64_t update_number = 1; update_number <= 3; ++update_number) {
    for (const model::Bucket& bucket : store.table().buckets) {
      const at::Tensor& gradient = store.owner(bucket.index).gradient;
      gradient.copy_(at::arange(gradient.numel(), at::kDouble).sin());
    }
    update(store, {.lr = 0.1, .update = update_number}, /*targets=*/3,
           std::sqrt(squared_gradient_norm(store)));
  }
}

void expect_equal_stores(ParameterStore& actual, ParameterStore& expected) {
  for (const model::Bucket& bucket : expected.table().buckets) {
    const OwnerSlice &a = actual.owner(bucket.index), &e = expected.owner(bucket.index);
    const auto close = [](const at::Tensor& x, const at::Tensor& y, double tolerance) {
      return at::allclose(x.cpu().to(at::kDouble), y.to(at::kDouble), tolerance, tolerance);
    };
    EXPECT_TRUE(close(a.master, e.master, 1e-5)) << bucket.index;
    EXPECT_TRUE(close(a.exp_avg, e.exp_avg, 1e-5)) << bucket.index;
    EXPECT_TRUE(close(a.exp_avg_sq, e.exp_avg_sq, 1e-5)) << bucket.index;
    EXPECT_TRUE(close(actual.compute_copy(bucket.index), expected.compute_copy(bucket.index), 1.0 / 256));
  }
}

TEST(DeviceOptimizer, UpdatesAsTheCpuDoes) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  ops::prepare_device(gpu);
  const model::ParameterTable table = model::parameter_table(kShape);
  for (const comm::DType compute : {comm::DType::kFloat32, comm::DType::kBFloat16, comm::DType::kFloat64}) {
    ParameterStore on_gpu = store_on(table, gpu, compute), on_cpu = store_on(table, at::kCPU, compute);
    train(on_gpu);
    train(on_cpu);
    expect_equal_stores(on_gpu, on_cpu);
  }
}

}  // namespace
}  // namespace sluice::runtime
