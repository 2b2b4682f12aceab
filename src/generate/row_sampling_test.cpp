// Rows drawn by operators beside sample_token(), row by row.
#include "generate/row_sampling.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/round.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::generate {
namespace {

constexpr int64_t kVocabulary = 601;
const std::vector<base::Interval> kNoTokens = {{0, 2}, {300, 310}, {590, 900}};
const std::vector<int64_t> kTokens = {5, 77, 77, 400, 77, 5, -1, 100'000};  // the first three are the prompt

// Half of the logits are ties.
at::Tensor logits_of(int64_t rows, int64_t vocabulary) {
  at::Tensor logits_PV = at::randn({rows, vocabulary}, at::kDouble) * 3;
  logits_PV.narrow(1, 0, vocabulary / 2).round_();
  return logits_PV;
}

void expect_equal(const at::Tensor& logits_PV, const std::vector<RowDraw>& draws, double tolerance = 1e-12) {
  const std::vector<SampledToken> actual = sample_on_device(logits_PV, draws);
  const std::vector<SampledToken> expected = sample_rows(logits_PV, draws);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t row = 0; row < actual.size(); ++row) {
    EXPECT_EQ(actual[row].token, expected[row].token) << row;
    EXPECT_NEAR(actual[row].log_probability, expected[row].log_probability, tolerance) << row;
    ASSERT_EQ(actual[row].alternatives.size(), expected[row].alternatives.size()) << row;
    for (size_t i = 0; i < actual[row].alternatives.size(); ++i) {
      EXPECT_EQ(actual[row].alternatives[i].token, expected[row].alternatives[i].token) << row << " " << i;
      EXPECT_NEAR(actual[row].alternatives[i].log_probability, expected[row].alternatives[i].log_probability,
                  tolerance);
    }
  }
}

// Each kind alone, and all of them as the rows of one step.
TEST(RowSampling, DrawsWhatTheHostDraws) {
  const std::vector<Sampling> kinds = {
      {},
      {.temperature = 0.7, .seed = 1},
      {.temperature = 1.3, .top_k = 7, .seed = 2},
      {.temperature = 1, .top_k = 1, .seed = 3},
      {.temperature = 1, .top_k = 100'000, .seed = 3},
      {.temperature = 2, .top_p = 0.8, .seed = 4},
      {.temperature = 0.01, .top_p = 1e-9, .seed = 4},
      {.temperature = 1.5, .min_p = 0.1, .seed = 5},
      {.temperature = 1, .min_p = 1, .seed = 6},
      {.temperature = 0.9, .top_k = 40, .top_p = 0.95, .min_p = 0.02, .seed = 7},
      {.temperature = 1, .seed = 8, .logit_bias = {{5, 4.0}, {3, -100.0}, {5, 1.0}, {301, 50.0}}},
      {.repetition_penalty = 1.7, .presence_penalty = 0.5, .frequency_penalty = 1.25},
      {.temperature = 1, .top_p = 0.9, .seed = 9, .repetition_penalty = 0.6, .frequency_penalty = -0.5}};
  for (const std::vector<base::Interval>& never : {std::vector<base::Interval>{}, kNoTokens}) {
    std::vector<RowDraw> all;
    for (const Sampling& kind : kinds) {
      std::vector<RowDraw> draws;
      for (int64_t position = 0; position < 40; ++position) {
        draws.push_back(
            {&kind,
             static_cast<uint64_t>(position % 3),
             position,
             {.never = never, .alternatives = position % 4, .tokens = kTokens, .prompt_tokens = 3}});
        if (position < 5) all.push_back(draws.back());
      }
      expect_equal(logits_of(std::ssize(draws), kVocabulary), draws);
    }
    expect_equal(logits_of(std::ssize(all), kVocabulary), all);
  }
}

TEST(RowSampling, NarrowLogitsAreWidened) {
  const Sampling sampling{.temperature = 1, .top_p = 0.9, .seed = 3};
  std::vector<RowDraw> draws;
  for (int64_t position = 0; position < 9; ++position) draws.push_back({&sampling, 1, position, {}});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    expect_equal(logits_of(9, kVocabulary).to(type), draws);
}

// A large vocabulary is drawn some rows at a time.
TEST(RowSampling, RowsThatDoNotFitAtOnce) {
  constexpr int64_t kLarge = 1 << 20;
  const Sampling sampling{.temperature = 1, .top_k = 50, .seed = 3};
  std::vector<RowDraw> draws;
  for (int64_t position = 0; position < 5; ++position)
    draws.push_back({&sampling, 1, position, {.alternatives = 2}});
  expect_equal(logits_of(5, kLarge), draws, /*tolerance=*/1e-10);  // the host adds a million terms one by one
}

}  // namespace
}  // namespace sluice::generate
