#include "runtime/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "model/test_outline.h"
#include "ops/device.h"

namespace sluice::runtime {
namespace {

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
    EXPECT_TRUE(close(a.exp_avg.read(), e.exp_avg.read(), 1e-5)) << bucket.index;
    EXPECT_TRUE(close(a.exp_avg_sq.read(), e.exp_avg_sq.read(), 1e-5)) << bucket.index;
    EXPECT_TRUE(close(actual.compute_copy(bucket.index), expected.compute_copy(bucket.index), 1.0 / 256));
  }
}

// Gradients that depend on the place alone, one update.
void update_once(ParameterStore& store, const AdamW& options) {
  for (const model::Bucket& bucket : store.table().buckets) {
    const at::Tensor& gradient = store.owner(bucket.index).gradient;
    gradient.copy_(at::arange(gradient.numel(), at::kDouble).sin() + 0.01);
  }
  update(store, options, /*targets=*/1, 0.5);
}

TEST(Optimizer, WaitsForEachSlicesReadersBeforeItChangesThatSlice) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline());
  ParameterStore store = store_on(table, at::kCPU, comm::DType::kFloat32);
  initialize(store, 5);
  std::vector<at::Tensor> before;
  for (const model::Bucket& bucket : table.buckets)
    before.push_back(store.owner(bucket.index).master.clone());
  std::vector<int> waited;
  store.set_before_update([&](int bucket) {
    waited.push_back(bucket);
    EXPECT_TRUE(at::equal(store.owner(bucket).master, before[static_cast<size_t>(bucket)])) << bucket;
  });
  update_once(store, {.lr = 0.1});
  std::vector<int> in_order(table.buckets.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_EQ(waited, in_order);
  EXPECT_FALSE(at::equal(store.owner(0).master, before[0]));
}

TEST(Optimizer, EachGroupHasItsOwnRates) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline());
  const auto stepped = [&](const AdamW& options, const std::vector<std::vector<std::string>>& groups) {
    ParameterStore store = store_on(table, at::kCPU, comm::DType::kFloat64);
    initialize(store, 5);
    store.set_parameter_groups(model::parameter_group_runs(table, groups));
    update_once(store, options);
    std::vector<at::Tensor> masters;
    for (const model::Bucket& bucket : table.buckets) masters.push_back(store.owner(bucket.index).master);
    return masters;
  };
  const AdamW usual{.lr = 0.1, .clip = 0};
  AdamW grouped = usual;
  grouped.groups = {{.lr = 0.02, .weight_decay = 0.3}, {.lr = 0.0, .weight_decay = std::nullopt}};
  const auto masters = stepped(grouped, {{"*.k_proj.weight", "model.layers.0.*norm*"}, {"*.q_proj.weight"}});
  const auto as_usual = stepped(usual, {});
  const auto slow = stepped({.lr = 0.02, .weight_decay = 0.3, .clip = 0}, {});
  const auto still = stepped({.lr = 0.0, .clip = 0}, {});
  const auto expect_rows = [&](const model::Bucket& bucket, std::string_view role, base::Interval rows,
                               const std::vector<at::Tensor>& expected) {
    const model::Parameter& of = *model::find_parameter(bucket, role);
    const base::Interval owned = link::OwnerLayout{3}.owned(bucket, 1);
    const base::Interval run =
        base::intersect({of.offset + rows.begin * of.columns, of.offset + rows.end * of.columns}, owned);
    if (run.empty()) return;
    const auto part = [&](const std::vector<at::Tensor>& all) {
      return all[static_cast<size_t>(bucket.index)].narrow(0, run.begin - owned.begin, run.size());
    };
    EXPECT_TRUE(at::equal(part(masters), part(expected))) << bucket.index << " " << role;
  };
  for (int64_t layer = 0; layer < 2; ++layer) {
    const model::Bucket& bucket = table.layer(layer);
    expect_rows(bucket, "qkv", {0, 24}, still);
    expect_rows(bucket, "qkv", {24, 36}, slow);
    expect_rows(bucket, "qkv", {36, 48}, as_usual);
    expect_rows(bucket, "gate_up", {0, 80}, as_usual);
  }
  EXPECT_TRUE(at::equal(masters.front(), as_usual.front()));
}

// A fixed step against the sign of counts, or the counts themselves. Neither is a gradient, and groups do not
// change either.
TEST(Optimizer, CountedParametersFollowTheirCounts) {
  model::Outline outline = model::sliced_outline();
  outline.experts = {.count = 5, .per_token = 2, .hidden = 8, .corrected = true, .remembers_loads = true};
  const model::ParameterTable table = model::parameter_table(outline);
  ParameterStore store(table, {.precision = {comm::DType::kBFloat16}});
  store.set_parameter_groups(model::parameter_group_runs(table, {{"*.mlp.gate.*"}}));
  initialize(store, 5);
  const auto part = [&](int bucket, const model::Parameter& of, const at::Tensor& flat) {
    return flat.narrow(0, of.offset - store.owner(bucket).owned.begin, of.size());
  };
  double squares = 0;
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      const at::Tensor gradient = part(bucket.index, parameter, store.owner(bucket.index).gradient);
      gradient.copy_(at::arange(parameter.size()) - 2);
      if (parameter.learns == model::Learns::kByGradient) squares += gradient.square().sum().item<double>();
    }
  }
  EXPECT_NEAR(squared_gradient_norm(store), squares, 1e-6 * squares);
  update(store, {.moe_router_bias_update_rate = 0.25, .groups = {{.lr = 7}}}, /*targets=*/100,
         /*gradient_norm=*/1e3);
  for (const model::Bucket& bucket : table.buckets) {
    for (const auto& [role, expected] :
         {std::pair("router_correction", std::vector{0.25, 0.25, 0.0, -0.25, -0.25}),
          {"router_loads", {-2.0, -1.0, 0.0, 1.0, 2.0}}}) {
      const model::Parameter* of = model::find_parameter(bucket, role);
      if (of == nullptr) continue;
      for (const at::Tensor& flat : {store.owner(bucket.index).master, store.compute_copy(bucket.index)})
        EXPECT_TRUE(at::equal(part(bucket.index, *of, flat).to(at::kDouble), at::tensor(expected))) << role;
    }
  }
}

// A group that says it decays vectors too.
TEST(Optimizer, DecayOfAGroupIsOfItsVectorsToo) {
  const AdamW options{.weight_decay = 0.1, .groups = {{.lr = 1, .weight_decay = 0.3}, {.lr = 1}}};
  EXPECT_EQ(options.rates_of({.group = 0, .one_dimensional = true}).weight_decay, 0.3);
  EXPECT_EQ(options.rates_of({.group = 1, .one_dimensional = true}).weight_decay, 0.0);
  EXPECT_EQ(options.rates_of({.group = 1}).weight_decay, 0.1);
  EXPECT_EQ(options.rates_of({.one_dimensional = true}).weight_decay, 0.0);
}

TEST(DeviceOptimizer, UpdatesAsTheCpuDoes) {
  if (ops::gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const at::Device gpu(at::kCUDA, 0);
  ops::prepare_device(gpu);
  const model::ParameterTable table = model::parameter_table(model::sliced_outline());
  for (const comm::DType compute : {comm::DType::kFloat32, comm::DType::kBFloat16, comm::DType::kFloat64}) {
    ParameterStore on_gpu = store_on(table, gpu, compute), on_cpu = store_on(table, at::kCPU, compute);
    train(on_gpu);
    train(on_cpu);
    expect_equal_stores(on_gpu, on_cpu);
  }
}

}  // namespace
}  // namespace sluice::runtime
