// Whole runs with coded transfers. Parameters as differences change no loss between strategies. Coded
// gradients in lanes' sums, and coded gathers of shared parameters, stay near it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "link/wire.h"
#include "model/outline.h"
#include "runtime/differences.h"
#include "runtime/test_equivalence.h"
#include "strategy/wire_codec.h"

namespace sluice::runtime {
namespace {

using strategy::Codec;
using strategy::PullCodec;

RunOptions pulled(PullCodec codec, int ranks, std::vector<std::string> strategies) {
  RunOptions options;
  options.model = coded_outline();
  options.codecs.pull = codec;
  options.world_size = ranks;
  options.strategies = std::move(strategies);
  return options;
}

TEST(PullCodecs, EveryStrategyComputesWithTheSameNumbers) {
  for (const PullCodec codec :
       {PullCodec::kBFloat16, PullCodec::kInt8Difference, PullCodec::kInt4Difference}) {
    const RunRecord one = run_in_process(pulled(codec, 1, {"<1,1,1>"}));
    const RunRecord whole = run_in_process(pulled(PullCodec::kNone, 1, {"<1,1,1>"}));
    EXPECT_NE(one.losses.back(), whole.losses.back());
    EXPECT_NEAR(one.losses.back(), whole.losses.back(), 0.02 * whole.losses.back());
    for (const char* strategy :
         {"4x<1,1,1>", "2x<2,1,1>", "<2,2,1>", "2x<1,1,2>", "<1,1,4,2>", "3x<1,1,1>"}) {
      RunOptions options = pulled(codec, 4, {strategy});
      expect_equal(run_in_process(options), one, 1e-11, 1e-11);
      options.gpus_per_node = 2;
      expect_equal(run_in_process(options), one, 1e-11, 1e-11);
    }
    // Holders under another strategy have no copies to which differences could be added.
    expect_equal(run_in_process(pulled(codec, 4, {"4x<1,1,1>", "4x<1,1,1>", "<2,1,1> + <1,2,1>"})), one,
                 1e-11, 1e-11);
  }
}

TEST(PullCodecs, DifferencesTakeTheirBits) {
  const model::ParameterTable table = model::parameter_table(coded_outline());
  int64_t coded = 0;
  for (const model::Bucket& bucket : table.buckets) {
    if (bucket.size < strategy::kLeastDifferences) continue;
    for (const model::Parameter& parameter : bucket.parameters)
      coded += parameter.keeps_its_bits() ? 0 : parameter.size();
  }
  const int64_t exact = table.size() - coded;
  ASSERT_GT(coded, exact);
  for (const auto& [codec, bits] :
       {std::pair{PullCodec::kInt8Difference, 8}, {PullCodec::kInt4Difference, 4}}) {
    const RunRecord record = run_in_process(pulled(codec, 4, {"4x<1,1,1>"}));
    // In FP64, each rank receives the parameters that the other three own.
    EXPECT_EQ(record.pulled_bytes[0], 3 * 8 * table.size());
    const auto least = static_cast<double>(3 * (coded * bits / 8 + exact * 8));
    const double factors = 3.0 * 4 / 128 * static_cast<double>(coded);
    EXPECT_GE(static_cast<double>(record.pulled_bytes[2]), least + factors);
    EXPECT_LE(static_cast<double>(record.pulled_bytes[2]), 1.02 * (least + factors));
    // The evaluation after the first step brought the parameters, so they are not sent again.
    EXPECT_EQ(record.pulled_bytes[1], 0);
  }
}

TEST(PullCodecs, DelaysChangeNothing) {
  RunOptions options = pulled(PullCodec::kInt4Difference, 4, {"<2,1,1> + 2x<1,1,1>"});
  options.gpus_per_node = 2;
  expect_delays_change_nothing(options);
}

// Why differences, by an example like SDP4Bit's (‖w‖² in three values), with levels chosen here: the gradient
// of ‖w‖² ÷ 2 is w. Taken at w in values of fixed size, its error stays as large as those values, and w stays
// away from 0. Taken at a copy that follows w by differences in three values, rounded to nearest, w reaches
// 0: the values shrink as w does. Rounding matters: stochastic differences in three values, scaled by their
// largest, grow without end. Hence parameters' codes are rounded to nearest.
TEST(PullCodecs, DifferencesToTheNearestConvergeWhereFixedLevelsDoNot) {
  at::manual_seed(5);
  const auto in_three_values = [](const at::Tensor& x) {
    return x.sign() * (at::rand_like(x) < x.abs()).to(at::kDouble);
  };
  at::Tensor direct = at::rand({4096}, at::kDouble), master = direct.clone(), copy = direct.clone();
  const double before = direct.norm().item<double>();
  constexpr double kRate = 0.1;
  for (int step = 0; step < 400; ++step) {
    direct = direct - kRate * in_three_values(direct);
    master = master - kRate * copy;
    const at::Tensor difference = master - copy, most = difference.abs().max();
    copy = copy + most * (difference / (most + 1e-300)).round();
  }
  EXPECT_GT(direct.norm().item<double>(), 0.02 * before);
  EXPECT_LT(master.norm().item<double>(), 1e-6 * before);
}

// Owners and holders use the same operations, whichever part of a bucket a holder has.
TEST(Differences, HoldersOfAnyShardHaveTheOwnersBits) {
  at::manual_seed(7);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const PullCodec codec : {PullCodec::kInt8Difference, PullCodec::kInt4Difference}) {
      const at::Tensor master = at::randn({1000}, type == at::kDouble ? at::kDouble : at::kFloat);
      at::Tensor copy = (master + at::randn({1000}) * 1e-2).to(type);
      const at::Tensor before = copy.clone();
      const CodedNumbers made = follow(codec, master, copy, {{0, 500}, {510, 1000}});
      EXPECT_TRUE(at::equal(copy.narrow(0, 500, 10), before.narrow(0, 500, 10)));
      const double most = codec == PullCodec::kInt8Difference ? 127 : 7;
      EXPECT_LE((copy.to(at::kDouble) - master).narrow(0, 0, 500).abs().max().item<double>(),
                0.05 / most + (type == at::kBFloat16 ? 0.02 : 1e-6));
      const at::Tensor bytes = packed(codec, made.codes);
      EXPECT_EQ(bytes.numel(), packed_bytes(codec, 1000));
      at::Tensor codes = at::empty_like(made.codes);
      unpack(codec, bytes, codes);
      EXPECT_TRUE(at::equal(codes, made.codes));
      for (const base::IntervalSet& shard :
           {base::IntervalSet{{0, 1000}}, {{128, 256}, {512, 1000}}, {{5, 130}, {133, 134}, {700, 999}}}) {
        std::vector<at::Tensor> own_codes, own_copies, own_factors, expected;
        for (const base::Interval& some : shard.intervals()) {
          own_codes.push_back(made.codes.narrow(0, some.begin, some.size()));
          own_copies.push_back(before.narrow(0, some.begin, some.size()));
          expected.push_back(copy.narrow(0, some.begin, some.size()));
        }
        const base::IntervalSet groups = link::coding_groups(shard);
        for (const base::Interval& some : groups.intervals())
          own_factors.push_back(made.factors.narrow(0, some.begin, some.size()));
        const at::Tensor own = at::cat(own_copies);
        add_differences({at::cat(own_codes), at::cat(own_factors)}, shard, own);
        EXPECT_TRUE(at::equal(own, at::cat(expected)));
      }
    }
  }
}

// More numbers than are processed at once.
TEST(Differences, LongOnesAreAsShortOnes) {
  at::manual_seed(8);
  constexpr int64_t kNumbers = (int64_t{1} << 22) + 300;
  const at::Tensor master = at::randn({kNumbers}), copy = at::zeros({kNumbers});
  const CodedNumbers made = follow(PullCodec::kInt8Difference, master, copy, {{0, kNumbers}});
  const auto last = [](const at::Tensor& x) { return x.narrow(0, x.numel() - 300, 300); };
  const at::Tensor short_copy = at::zeros({300});
  follow(PullCodec::kInt8Difference, last(master), short_copy, {{0, 300}});
  EXPECT_TRUE(at::equal(last(copy), short_copy));
  for (const int64_t begin : {0, 5}) {
    const int64_t numbers = kNumbers - begin;
    const at::Tensor own = at::zeros({numbers});
    add_differences({made.codes.narrow(0, begin, numbers), made.factors}, {{begin, kNumbers}}, own);
    EXPECT_TRUE(at::equal(own, copy.narrow(0, begin, numbers)));
  }
}

RunOptions shared_on(const strategy::WireCodecs& codecs, int gpus_per_node) {
  RunOptions options;
  options.world_size = 4;
  options.gpus_per_node = gpus_per_node;
  options.dtype = comm::DType::kFloat32;
  options.strategies = {"<1,1,4,4>", "<1,2,2,2>", "<1,1,4,2>"};
  options.codecs = codecs;
  return options;
}

TEST(ShareCodecs, LossesStayNearAndBytesAreThoseOfTheFormula) {
  const RunRecord wide = run_in_process(shared_on({}, 8));
  strategy::WireCodecs sums, gathers;
  sums.sums = {Codec::kInt8, Codec::kInt4};
  gathers.gather = Codec::kInt8;
  for (const auto& [codecs, most] : {std::pair{sums, 5e-2}, {gathers, 5e-2}}) {
    for (const int gpus_per_node : {8, 2, 1}) {
      const RunOptions options = shared_on(codecs, gpus_per_node);
      const RunRecord narrow = run_in_process(options);
      EXPECT_EQ(narrow.fsdp_bytes, narrow.expected_fsdp_bytes);
      for (size_t step = 0; step < wide.losses.size(); ++step) {
        EXPECT_NEAR(narrow.losses[step], wide.losses[step], most * wide.losses[step]);
        EXPECT_LT(narrow.fsdp_bytes[step], wide.fsdp_bytes[step]);
      }
      EXPECT_EQ(run_in_process(options).losses, narrow.losses);
    }
  }
}

TEST(ShareCodecs, DelaysChangeNothing) {
  strategy::WireCodecs codecs;
  codecs.sums = {Codec::kInt8, Codec::kInt4};
  codecs.gather = Codec::kInt8;
  expect_delays_change_nothing(shared_on(codecs, 2));
}

}  // namespace
}  // namespace sluice::runtime
