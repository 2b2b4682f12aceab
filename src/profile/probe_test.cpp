#include "profile/probe.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "comm/test_fake.h"
#include "cost/fit.h"
#include "cost/memory_cost.h"
#include "model/test_outline.h"
#include "profile/link_probe.h"
#include "profile/timing.h"

namespace sluice::profile {
namespace {

ProbeOptions quick(std::vector<int> tp_degrees) {
  ProbeOptions options;
  options.model = model::sliced_outline();
  options.tp_degrees = std::move(tp_degrees);
  options.context_length = 256;
  options.device_bytes = int64_t{1} << 30;
  options.budget_ns = 1;
  return options;
}

std::vector<cost::Calibration> probe_in_process(const ProbeOptions& options, int world_size) {
  comm::FakeWorld world(world_size);
  std::vector<cost::Calibration> found(static_cast<size_t>(world_size));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(world_size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      at::set_num_threads(1);
      try {
        const auto transport = world.transport(rank);
        found[static_cast<size_t>(rank)] = probe(options, *transport).calibration;
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return found;
}

// Times as measured on a machine with these coefficients.
StageTimes made_up(const std::vector<int64_t>& lengths) {
  const auto time = [&](double a, double b, double c) {
    return cost::Fit{.a_ns = a, .b_ns = b, .c_ns = c}.of(lengths);
  };
  KindTimes embedding, block, head;
  embedding.forward_ns = time(0, 40, 5'000);
  embedding.backward_input_ns = embedding.backward_ns = time(0, 60, 3'000);
  block.forward_ns = time(2, 5'000, 40'000);
  block.backward_input_ns = time(5, 7'000, 60'000);
  block.backward_weight_ns = time(0, 4'000, 30'000);
  block.backward_ns = block.backward_input_ns + time(0, 3'000, 20'000);
  head.forward_ns = time(0, 20'000, 90'000);
  return {embedding, block, head};
}

StageTimes scaled(StageTimes times, double by) {
  for (KindTimes& kind : times) {
    for (double* value :
         {&kind.forward_ns, &kind.backward_ns, &kind.backward_input_ns, &kind.backward_weight_ns}) {
      *value *= by;
    }
  }
  return times;
}

void expect_near(const cost::Quadratic& found, double a, double b, double c) {
  const double one = static_cast<double>(int64_t{1} << cost::Quadratic::kFractionBits);
  EXPECT_NEAR(static_cast<double>(found.a) / one, a, 1e-6 * (1 + a));
  EXPECT_NEAR(static_cast<double>(found.b) / one, b, 1e-3 * (1 + b));
  EXPECT_NEAR(static_cast<double>(found.c_ns), c, 1e-3 * (1 + c));
}

TEST(FitTimes, RecoversTheCoefficientsOfEachKind) {
  const auto lengths = probe_lengths(2048);
  std::vector<std::vector<StageTimes>> times;
  for (const auto& each : lengths) times.emplace_back(3, made_up(each));
  const FittedTimes fitted = fit_times(lengths, times, model::Program(model::test_outline()));
  expect_near(fitted.kinds[1].forward, 2, 5'000, 40'000);
  expect_near(fitted.kinds[1].backward_input, 5, 7'000, 60'000);
  expect_near(fitted.kinds[1].backward_weight, 0, 3'000, 20'000);
  expect_near(fitted.kinds[0].forward, 0, 40, 5'000);
  expect_near(fitted.kinds[0].backward_input, 0, 60, 3'000);
  expect_near(fitted.kinds[2].forward, 0, 20'000, 90'000);
}

TEST(FitTimes, ADisturbedRepetitionChangesNothing) {
  const auto lengths = probe_lengths(2048);
  std::vector<std::vector<StageTimes>> times;
  for (size_t i = 0; i < lengths.size(); ++i) {
    times.emplace_back(5, made_up(lengths[i]));
    times.back()[i] = scaled(made_up(lengths[i]), 7);
  }
  expect_near(fit_times(lengths, times, model::Program(model::test_outline())).kinds[1].forward, 2, 5'000,
              40'000);
}

TEST(FitTimes, AMachineThatIsUsuallySlowerIsPredictedSlower) {
  const auto lengths = probe_lengths(2048);
  std::vector<std::vector<StageTimes>> times;
  for (const auto& each : lengths) {
    times.emplace_back(5, scaled(made_up(each), 2));
    times.back()[1] = made_up(each);
  }
  expect_near(fit_times(lengths, times, model::Program(model::test_outline())).kinds[1].forward, 4, 10'000,
              80'000);
}

// In each repetition another kind waits for as long as all kinds take.
TEST(FitTimes, RanksThatTakeTurnsArePredictedSlower) {
  const auto lengths = probe_lengths(2048);
  std::vector<std::vector<StageTimes>> times;
  for (const auto& each : lengths) {
    times.emplace_back(6, made_up(each));
    double all_ns = -times.back()[0][1].backward_weight_ns / 4;  // saved by the fused form
    for (const KindTimes& kind : times.back()[0])
      all_ns += kind.forward_ns + kind.backward_input_ns + kind.backward_weight_ns;
    for (size_t r = 0; r < 6; ++r) times.back()[r][r % 3].forward_ns += all_ns;
  }
  const FittedTimes fitted = fit_times(lengths, times, model::Program(model::test_outline()));
  EXPECT_NEAR(fitted.kinds[1].forward.of_sequences({{2048}}) / (2 * 2048.0 * 2048 + 5'000 * 2048 + 40'000), 2,
              0.1);
}

TEST(FitTimes, TimesThatLookConstantStillGrow) {
  const auto lengths = probe_lengths(2048);
  const std::vector<std::vector<StageTimes>> times(lengths.size(), {made_up({100})});
  const FittedTimes fitted = fit_times(lengths, times, model::Program(model::test_outline()));
  for (const cost::Quadratic& found : {fitted.kinds[1].forward, fitted.kinds[1].backward_input,
                                       fitted.kinds[1].backward_weight, fitted.kinds[2].forward}) {
    EXPECT_GT(found.of_sequences(std::vector<int64_t>{4096}), found.of_sequences(std::vector<int64_t>{64}));
  }
}

TEST(ProbeLengths, TellSquaresFromSums) {
  for (const int64_t context : {2, 100, 2048, 1'000'000}) {
    for (const auto& lengths : probe_lengths(context)) {
      for (const int64_t length : lengths) EXPECT_GE(length, 2);
    }
  }
  const auto lengths = probe_lengths(2048);
  EXPECT_EQ(cost::Work::of(lengths[1]).tokens * 2, cost::Work::of(lengths[0]).tokens);
  EXPECT_LT(cost::Work::of(lengths[1]).squares * 8, cost::Work::of(lengths[0]).squares);
}

TEST(ProfileLengths, SixSingleLengthsAndPacks) {
  const auto lengths = profile_lengths(4096);
  EXPECT_EQ(std::ranges::count(lengths, size_t{1}, &std::vector<int64_t>::size), 6);
  EXPECT_EQ(lengths.front(), std::vector<int64_t>{4096});
  for (const auto& each : profile_lengths(1)) EXPECT_GE(std::ranges::min(each), 2);
}

TEST(Probe, TimesTheLengthsThatAreAskedFor) {
  ProbeOptions options = quick({1});
  options.lengths = {{300}, {20, 30}, {40}};
  comm::FakeWorld world(1);
  const ProbeResult result = probe(options, *world.transport(0));
  ASSERT_EQ(result.fits_by_tp.at(1).size(), 6u);
  for (const KindFit& kind : result.fits_by_tp.at(1)) {
    ASSERT_EQ(kind.samples.size(), 3u);
    EXPECT_EQ(kind.samples[1].lengths, (std::vector<int64_t>{20, 30}));
  }
}

TEST(Probe, EveryRankGetsTheSameModel) {
  const auto found = probe_in_process(quick({1, 2}), 2);
  EXPECT_EQ(cost::to_json(found[0], {}, 2), cost::to_json(found[1], {}, 2));
}

TEST(Probe, TimesArePositiveAndGrowWithTheLength) {
  const cost::CostModel model(probe_in_process(quick({1, 2}), 2)[0].options);
  for (const int tp : {1, 2}) {
    const strategy::Scheme scheme{tp, 1, 1};
    const auto part = model.stage_run(scheme, 0);
    for (const auto kind : {cost::CellKind::kForward, cost::CellKind::kBackward}) {
      const int64_t brief = model.cell_ns(scheme, kind, part, std::vector<int64_t>{64});
      const int64_t lasting = model.cell_ns(scheme, kind, part, std::vector<int64_t>{4096});
      EXPECT_GT(brief, 0);
      EXPECT_GT(lasting, brief);
    }
    EXPECT_GT(cost::MemoryCost(model, scheme).max_len_tokens(2), 0);
  }
  EXPECT_GT(model.exchange_ns(1 << 20, /*level=*/0), 0);
  EXPECT_GT(model.update_ns(1000), 0);
}

TEST(Probe, MeasuresBothLevelsWhenRanksSpanNodes) {
  ProbeOptions options = quick({1});
  options.topology = 2;
  const cost::CostModel::Options found = probe_in_process(options, 4)[3].options;
  EXPECT_GT(found.inter.bytes_per_s, 1);
  EXPECT_GT(found.intra.bytes_per_s, 1);
  EXPECT_NE(found.inter, found.intra);
}

// Four ranks on a node and one beside them. Almost nothing is pulled and pushed between the nodes, and a word
// between all ranks can take longer than that.
TEST(Probe, LinksOfUnevenNodesArePossibleOnes) {
  ProbeOptions options = quick({1});
  options.topology = 4;
  const cost::CostModel::Options found = probe_in_process(options, 5)[0].options;
  for (const cost::LinkTimes& link : {found.inter, found.intra}) {
    EXPECT_GT(link.bytes_per_s, 1);
    EXPECT_LT(link.bytes_per_s, 1'000'000'000'000);
  }
}

TEST(LinkFit, BytesMoveInWhatTheExchangesTakeBeyondTheirLatency) {
  const LinkSamples samples{.word_ns = {1000, 1000},
                            .exchange_ns = {14'000, 14'000},
                            .exchanges = 4,
                            .bytes = 20'000,
                            .bulk_ns = {100'000},
                            .bulk_bytes = 1'000'000};
  EXPECT_EQ(fit_link(samples), (cost::LinkTimes{1000, 2'000'000'000}));
}

TEST(LinkFit, WordSlowerThanTheExchangesMakesNoFasterLinkThanAPlainExchangeShows) {
  const LinkSamples samples{.word_ns = {5'000'000},
                            .exchange_ns = {900'000},
                            .exchanges = 8,
                            .bytes = 1'975'296,
                            .bulk_ns = {8'000'000},
                            .bulk_bytes = 4'000'000};
  EXPECT_EQ(fit_link(samples), (cost::LinkTimes{5'000'000, 1'000'000'000}));
}

TEST(LinkFit, WithoutBytesThereIsNoLinkToMeasure) {
  EXPECT_GT(fit_link({.word_ns = {1000}, .exchange_ns = {10}}).bytes_per_s, 1'000'000'000);
}

TEST(Probe, RanksLeftOverByTensorParallelismTakePart) {
  const auto found = probe_in_process(quick({2}), 3);
  EXPECT_EQ(cost::to_json(found[0], {}, 3), cost::to_json(found[2], {}, 3));
}

TEST(Probe, OneRankAlone) {
  const cost::CostModel::Options found = probe_in_process(quick({1}), 1)[0].options;
  EXPECT_TRUE(found.kinds_by_tp.contains(1));
}

TEST(Probe, ATensorParallelDegreeBeyondTheRanksIsRefused) {
  EXPECT_THROW(probe_in_process(quick({2}), 1), base::InputError);
}

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(LowerQuartile, IgnoresTheSlowThreeQuarters) {
  EXPECT_EQ(lower_quartile({9, 1, 8, 2, 7}), 2);
  EXPECT_EQ(lower_quartile({5}), 5);
}

}  // namespace
}  // namespace sluice::profile
