// A frozen base in few bits trains adapters as its expanded numbers do, to the bit, under any strategy.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "layers/expanded_base.h"
#include "model/coded_weight.h"
#include "model/outline.h"
#include "model/test_tuning.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

using base::WeightFormat;

// All linear layers have adapters; the rows of some matrices are whole blocks, those of others are not.
model::Outline shape_of(WeightFormat format, int64_t word_bytes, int64_t hidden) {
  model::Outline outline = model::outline_of_odd_sizes();
  if (hidden > 0) {
    outline.hidden = hidden;
    outline.heads = 4;
    outline.kv_heads = 2;
    outline.head_dim = hidden / outline.heads;
    outline.ffn_hidden = 2 * hidden;
  }
  model::adapt(outline, {.rank = 2, .alpha = 4, .targets = {"all-linear"}});
  model::quantize_base(outline, {format, word_bytes});
  return outline;
}

// The base's numbers, by name, as one rank expands them from initialize()'s draws.
std::map<std::string, std::vector<float>> expanded_base(const model::Outline& outline, comm::DType dtype) {
  const model::ParameterTable table = model::parameter_table(outline);
  ParameterStore store(table, {.precision = {dtype}});
  initialize(store, 7);
  std::map<std::string, std::vector<float>> values;
  for (const model::Bucket& bucket : table.buckets) {
    const at::Tensor master = store.owner(bucket.index).master;
    const at::Tensor numbers = (bucket.coded ? layers::expanded(bucket, {}, master) : master).to(at::kFloat);
    const model::Bucket plain = model::plain_bucket(bucket);
    for (const model::Parameter& parameter : plain.parameters) {
      const float* first = numbers.const_data_ptr<float>() + parameter.offset;
      values[parameter.name].assign(first, first + parameter.size());
    }
  }
  return values;
}

void expect_as_expanded(const model::Outline& outline, int world_size, const std::string& strategy) {
  RunOptions options;
  options.model = outline;
  options.world_size = world_size;
  options.strategies = {strategy};
  options.initial = expanded_base(options.model, options.dtype);
  RunOptions beforehand = options;
  beforehand.model = model::with_plain_base(options.model).outline();
  // Coding expanded numbers again gives the same codes.
  const RunRecord coded = run_in_process(options), expanded = run_in_process(beforehand);
  EXPECT_EQ(coded.losses, expanded.losses) << strategy;
  EXPECT_EQ(coded.gradient_norms, expanded.gradient_norms) << strategy;
  for (const auto& [name, values] : coded.parameters) EXPECT_EQ(values, expanded.parameters.at(name)) << name;
  const auto moved = [](const RunRecord& run) { return run.pulled_bytes.front() + run.fsdp_bytes.front(); };
  EXPECT_LT(moved(coded), moved(expanded)) << strategy;
  for (size_t step = 0; step < coded.peak_bytes.size(); ++step) {
    for (size_t rank = 0; rank < coded.peak_bytes[step].size(); ++rank)
      EXPECT_LE(coded.peak_bytes[step][rank], coded.predicted_peak_bytes[step][rank]) << strategy;
  }
}

void expect_as_expanded(WeightFormat format, int64_t hidden, int world_size, const std::string& strategy) {
  expect_as_expanded(shape_of(format, 8, hidden), world_size, strategy);
}

// Experts are coded too, each on its own; lanes gather or divide them.
TEST(QuantizedBase, TrainsAsItsExpandedNumbersWithExperts) {
  model::Outline outline = model::outline_of_odd_sizes();
  outline.experts = {.count = 4, .per_token = 2, .hidden = 14, .normalised = true};
  model::adapt(outline, {.rank = 2, .alpha = 4, .targets = {"all-linear"}});
  model::quantize_base(outline, {WeightFormat::kNf4, 8});
  int64_t of_experts = 0;
  const model::ParameterTable table = model::parameter_table(outline);
  for (const model::Bucket& bucket : table.buckets) of_experts += bucket.coded && bucket.of_experts ? 1 : 0;
  EXPECT_EQ(of_experts, outline.layers);
  expect_as_expanded(outline, 4, "<1,1,4,4,2>");
  expect_as_expanded(outline, 4, "<2,1,2,2>");
}

TEST(QuantizedBase, TrainsAsItsExpandedNumbersOnOneRank) {
  RunOptions options;
  options.model = shape_of(WeightFormat::kNf4, 8, 0);
  options.initial = expanded_base(options.model, options.dtype);
  RunOptions beforehand = options;
  beforehand.model = model::with_plain_base(options.model).outline();
  const RunRecord coded = run_in_process(options), expanded = run_in_process(beforehand);
  EXPECT_EQ(coded.losses, expanded.losses);
  EXPECT_LT(coded.losses.back(), coded.losses.front());
}

TEST(QuantizedBase, TrainsAsItsExpandedNumbersUnderTensorParallelismAndStages) {
  expect_as_expanded(WeightFormat::kNf4, 0, 4, "<2,2,1>");
  expect_as_expanded(WeightFormat::kMxfp4, 128, 2, "<2,1,1>");
}

TEST(QuantizedBase, TrainsAsItsExpandedNumbersOnLanesThatShare) {
  expect_as_expanded(WeightFormat::kNf4, 0, 4, "<1,1,4,4>");
  expect_as_expanded(WeightFormat::kNf4, 0, 4, "<2,1,2,2>");
}

TEST(QuantizedBase, AtenExpandsAsTheCpu) {
  for (const auto& [format, hidden] : {std::pair{WeightFormat::kNf4, 0},
                                       {WeightFormat::kNf4, 128},
                                       {WeightFormat::kInt8, 128},
                                       {WeightFormat::kMxfp4, 128}}) {
    for (const comm::DType dtype : {comm::DType::kBFloat16, comm::DType::kFloat32, comm::DType::kFloat64}) {
      const model::ParameterTable table =
          model::parameter_table(shape_of(format, comm::size_of(dtype), hidden));
      ParameterStore store(table, {.precision = {dtype}});
      initialize(store, 7);
      for (const model::Bucket& bucket : table.buckets) {
        if (!bucket.coded) continue;
        const at::Tensor& words = store.owner(bucket.index).master;
        EXPECT_TRUE(
            at::equal(layers::expanded(bucket, {}, words), layers::aten::expanded(bucket, {}, words, 7)))
            << base::name_of(format) << " bucket " << bucket.index;
      }
    }
  }
}

TEST(QuantizedBase, WordsOfBfloat16ComeBackFromNumbersAsWideAsMasters) {
  const model::ParameterTable table = model::parameter_table(shape_of(WeightFormat::kNf4, 2, 0));
  ParameterStore store(table, {.precision = {comm::DType::kBFloat16}});
  initialize(store, 7);
  for (const model::Bucket& bucket : table.buckets) {
    if (!bucket.coded) continue;
    const OwnerSlice& slice = store.owner(bucket.index);
    const at::Tensor bits = slice.master.view(at::kShort).clone(), wide = wide_master(slice);
    EXPECT_EQ(wide.scalar_type(), at::kFloat);
    slice.master.zero_();
    set_master(slice, 0, wide);
    EXPECT_TRUE(at::equal(slice.master.view(at::kShort), bits));
  }
}

}  // namespace
}  // namespace sluice::runtime
