#include "generate/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"

namespace sluice::generate {
namespace {

const std::vector<double> kLogits = {1.0, 3.0, 2.0, 3.0, -1.0};

double log_probability(int64_t token) {
  double sum = 0;
  for (const double logit : kLogits) sum += std::exp(logit);
  return kLogits[static_cast<size_t>(token)] - std::log(sum);
}

// Tokens that come up in many draws, and how often.
std::vector<int> draws(const Sampling& sampling, int count) {
  std::vector<int> times(kLogits.size());
  for (int position = 0; position < count; ++position)
    ++times[static_cast<size_t>(sample_token(kLogits, sampling, 5, position).token)];
  return times;
}

TEST(Choose, WithoutTemperatureTheLowestOfTheLikeliest) {
  const SampledToken choice = sample_token(kLogits, {}, 0, 0);
  EXPECT_EQ(choice.token, 1);
  EXPECT_NEAR(choice.log_probability, log_probability(1), 1e-15);
}

TEST(Choose, DrawsAsTheSoftmaxSays) {
  constexpr int kDraws = 100'000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const std::vector<int> times = draws({.temperature = temperature, .seed = 3}, kDraws);
    double sum = 0;
    for (const double logit : kLogits) sum += std::exp(logit / temperature);
    for (size_t token = 0; token < kLogits.size(); ++token) {
      const double expected = std::exp(kLogits[token] / temperature) / sum;
      const double spread = std::sqrt(expected * (1 - expected) / kDraws);
      EXPECT_NEAR(times[token] / static_cast<double>(kDraws), expected, 5 * spread) << token;
    }
  }
}

TEST(Choose, OnlyWhatMayComeComes) {
  const auto coming = [](const Sampling& sampling) {
    std::set<size_t> tokens;
    const std::vector<int> times = draws(sampling, 5000);
    for (size_t token = 0; token < times.size(); ++token) {
      if (times[token] > 0) tokens.insert(token);
    }
    return tokens;
  };
  using Tokens = std::set<size_t>;
  EXPECT_EQ(coming({.temperature = 2}), (Tokens{0, 1, 2, 3, 4}));
  EXPECT_EQ(coming({.temperature = 2, .top_k = 1}), Tokens{1});
  EXPECT_EQ(coming({.temperature = 2, .top_k = 3}), (Tokens{1, 2, 3}));
  EXPECT_EQ(coming({.temperature = 1, .top_p = 0.01}), Tokens{1});
  EXPECT_EQ(coming({.temperature = 1, .top_p = 0.5}), (Tokens{1, 3}));
  EXPECT_EQ(coming({.temperature = 1, .min_p = 0.3}), (Tokens{1, 2, 3}));
  EXPECT_EQ(coming({.temperature = 1, .top_k = 3, .top_p = 0.5, .min_p = 0.3}), (Tokens{1, 3}));
}

TEST(Choose, IsAFunctionOfSeedStreamAndPosition) {
  const Sampling sampling{.temperature = 3, .seed = 8};
  std::set<int64_t> by_position, by_stream;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(sample_token(kLogits, sampling, 2, i).token, sample_token(kLogits, sampling, 2, i).token);
    by_position.insert(sample_token(kLogits, sampling, 2, i).token);
    by_stream.insert(sample_token(kLogits, sampling, static_cast<uint64_t>(i), 7).token);
  }
  EXPECT_GT(by_position.size(), 1U);
  EXPECT_GT(by_stream.size(), 1U);
}

TEST(Choose, RowsWithoutATokenNeverCome) {
  const std::vector<double> logits = {1, 9, 2, 3, 9, 8};
  const std::vector<base::Interval> never = {{1, 2}, {4, 6}};
  EXPECT_EQ(sample_token(logits, {}, 0, 0, {.never = never}).token, 3);
  std::set<int64_t> came;
  for (int i = 0; i < 200; ++i)
    came.insert(sample_token(logits, {.temperature = 5, .seed = 1}, 0, i, {.never = never}).token);
  EXPECT_EQ(came, (std::set<int64_t>{0, 2, 3}));
  came.clear();
  for (int i = 0; i < 200; ++i)
    came.insert(
        sample_token(logits, {.temperature = 5, .top_k = 2, .seed = 1}, 0, i, {.never = never}).token);
  EXPECT_EQ(came, (std::set<int64_t>{2, 3}));
  // Log-probabilities are those of all rows, as training has them.
  EXPECT_EQ(sample_token(logits, {}, 0, 0, {.never = never}).log_probability,
            sample_token(logits, {}, 0, 0).log_probability - 6);
}

TEST(Choose, AlternativesAreTheLikeliest) {
  const std::vector<double> logits = {1, 9, 2, 3, 9, 8};
  const std::vector<base::Interval> never = {{1, 2}};
  const SampledToken choice =
      sample_token(logits, {.temperature = 9, .seed = 1}, 0, 0, {.never = never, .alternatives = 3});
  ASSERT_EQ(choice.alternatives.size(), 3u);
  EXPECT_EQ(choice.alternatives[0].token, 4);
  EXPECT_EQ(choice.alternatives[1].token, 5);
  EXPECT_EQ(choice.alternatives[2].token, 3);
  EXPECT_DOUBLE_EQ(choice.alternatives[1].log_probability, choice.alternatives[0].log_probability - 1);
}

TEST(Sampling, NamesWhatIsOutsideItsRange) {
  using testing::HasSubstr;
  using testing::ThrowsMessage;
  EXPECT_THAT([] { validate({.temperature = -1}); },
              ThrowsMessage<base::InputError>(HasSubstr("temperature")));
  EXPECT_THAT([] { validate({.top_p = 0}); }, ThrowsMessage<base::InputError>(HasSubstr("top_p")));
  EXPECT_THAT([] { validate({.min_p = 2}); }, ThrowsMessage<base::InputError>(HasSubstr("min_p")));
  EXPECT_THAT([] { validate({.top_k = -2}); }, ThrowsMessage<base::InputError>(HasSubstr("top_k")));
}

TEST(Sampling, BiasAndPenaltiesChangeTheChoiceAndNotWhatIsTold) {
  const std::vector<double> logits = {1.0, 2.0, 3.0, -1.0};
  const std::vector<int64_t> tokens = {3, 2, 2, 1};  // two of a prompt, then two generated ones
  const auto chosen = [&](Sampling sampling) {
    return sample_token(logits, sampling, 0, 0, {.tokens = tokens, .prompt_tokens = 2});
  };
  EXPECT_EQ(chosen({}).token, 2);
  EXPECT_EQ(chosen({.logit_bias = {{0, 5.0}}}).token, 0);
  EXPECT_EQ(chosen({.logit_bias = {{2, -100.0}}}).token, 1);
  EXPECT_EQ(chosen({.presence_penalty = 1.5}).token, 2);  // 1 was generated, too
  EXPECT_EQ(chosen({.presence_penalty = 2.0, .frequency_penalty = 0.5}).token, 0);
  EXPECT_EQ(chosen({.repetition_penalty = 4.0}).token, 0);  // the penalty covers the prompt, too
  const double all = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + std::exp(-1.0));
  EXPECT_NEAR(chosen({.logit_bias = {{0, 5.0}}}).log_probability, 1.0 - all, 1e-12);
}

TEST(Sampling, PenaltiesHaveTheirRanges) {
  validate({.repetition_penalty = 1.2, .presence_penalty = -2, .frequency_penalty = 2});
  EXPECT_THROW(validate({.repetition_penalty = 0}), base::InputError);
  EXPECT_THROW(validate({.presence_penalty = 2.5}), base::InputError);
  EXPECT_THROW(validate({.frequency_penalty = -3}), base::InputError);
}

}  // namespace
}  // namespace sluice::generate
