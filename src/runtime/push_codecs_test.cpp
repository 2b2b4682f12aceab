// Coded gradients: numbers that stay exact, bytes by formula, reproducible bits, and losses near those of
// uncoded gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "model/parameters.h"
#include "runtime/test_cluster.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {
namespace {

using strategy::Codec;
using strategy::LevelCodecs;

RunOptions on_four_ranks(const LevelCodecs& push) {
  RunOptions options;
  options.world_size = 4;
  options.gpus_per_node = 2;
  options.dtype = comm::DType::kFloat32;
  options.strategies = {"4x<1,1,1>", "<2,1,1> + <1,2,1>", "2x<1,1,2>"};
  options.codecs.push = push;
  return options;
}

// The largest relative difference of losses.
double apart(const RunRecord& a, const RunRecord& b) {
  double most = 0;
  EXPECT_EQ(a.losses.size(), b.losses.size());
  for (size_t step = 0; step < a.losses.size(); ++step)
    most = std::max(most, std::abs(a.losses[step] / b.losses[step] - 1));
  return most;
}

TEST(PushCodecs, LossesStayNearThoseOfWideGradients) {
  const RunRecord wide = run_in_process(on_four_ranks({}));
  const std::pair<LevelCodecs, double> coded[] = {{{Codec::kBFloat16, Codec::kBFloat16}, 3e-3},
                                                  {{Codec::kInt8, Codec::kInt8}, 1e-2},
                                                  {{Codec::kInt8, Codec::kInt4}, 5e-2},
                                                  {{Codec::kNone, Codec::kInt4}, 5e-2}};
  for (const auto& [push, most] : coded) {
    const RunRecord narrow = run_in_process(on_four_ranks(push));
    EXPECT_LE(apart(narrow, wide), most);
    EXPECT_NE(narrow.losses.back(), wide.losses.back());
    for (size_t step = 0; step < wide.pushed_bytes.size(); ++step)
      EXPECT_LT(narrow.pushed_bytes[step], 0.8 * static_cast<double>(wide.pushed_bytes[step]));
    const RunRecord again = run_in_process(on_four_ranks(push));
    EXPECT_EQ(again.losses, narrow.losses);
  }
}

// Each rank sends every other rank its parameters' gradients once; norms travel uncoded.
TEST(PushCodecs, BytesAreThoseOfTheFormula) {
  RunOptions options = on_four_ranks({Codec::kBFloat16, Codec::kBFloat16});
  options.gpus_per_node = 8;
  options.strategies = {"4x<1,1,1>"};
  options.steps = 1;
  const model::ParameterTable table = model::parameter_table(options.model);
  int64_t exact = 0;
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters)
      if (parameter.one_dimensional()) exact += parameter.size();
  }
  EXPECT_EQ(run_in_process(options).pushed_bytes.front(), 3 * (2 * table.size() + 4 * exact));
  options.codecs.push = {Codec::kInt8, Codec::kInt8};
  const auto pushed = static_cast<double>(run_in_process(options).pushed_bytes.front() - 3 * 4 * exact);
  const double least = 3.0 * static_cast<double>(table.size()) * 132 / 128;
  EXPECT_GE(pushed, least);
  // A part's last group is padded.
  const double parts = 4.0 * 3 * static_cast<double>(table.buckets.size());
  EXPECT_LE(pushed, least + parts * 132);
}

// Counts of visits are whole numbers that steer corrections: an error of one would change the step.
TEST(PushCodecs, CountsAndNormsTravelAsTheyAre) {
  RunOptions options = on_four_ranks({});
  options.model.experts = {.count = 4, .per_token = 2, .hidden = 9, .normalised = true};
  options.model.experts.sigmoid = options.model.experts.corrected = true;
  options.moe_router_bias_update_rate = 1e-3;
  options.steps = 1;
  const RunRecord wide = run_in_process(options);
  options.codecs.push = {Codec::kInt4, Codec::kInt4};
  const RunRecord narrow = run_in_process(options);
  int compared = 0;
  for (const auto& [name, values] : wide.parameters) {
    if (name.find("router_correction") == std::string::npos) continue;
    EXPECT_EQ(narrow.parameters.at(name), values) << name;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace sluice::runtime
