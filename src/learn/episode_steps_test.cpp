// Tokens and figures of episodes as rows of a step, and a model's log-probabilities of responses.
#include "learn/episode_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/policy_loss.h"
#include "learn/rollout_generator.h"
#include "learn/test_small_run.h"

namespace sluice::learn {
namespace {

using layers::PolicyRow;
using testing::ElementsAre;
using testing::IsEmpty;

// Two episodes with one prompt of two tokens.
rl::MiniBatch two_responses() {
  rl::MiniBatch batch(2);
  batch[0] = {.tokens = {10, 11, 20, 21}, .prompt_tokens = 2, .advantage = 0.5, .weight = 2};
  batch[0].rollout_log_probs = {-1, -2};
  batch[1] = {.tokens = {10, 11, 30}, .prompt_tokens = 2, .advantage = -1};
  batch[1].old_log_probs = {-3};
  batch[1].ref_log_probs = {-4};
  batch[1].advantages = {7};
  return batch;
}

// A sequence's piece as rows.
runtime::LanePartTokens rows_of(const rl::MiniBatch& batch, const strategy::Sequence& sequence, int64_t begin,
                                int64_t end) {
  runtime::LanePartTokens rows;
  const EpisodeTokens tokens(batch);
  const strategy::Piece piece{.sequence = 0, .begin = begin, .end = end};
  tokens.add_tokens(sequence, piece, rows);
  tokens.add_targets(sequence, piece, rows);
  return rows;
}

// A row's figures, with −9 in place of those that are not known.
std::vector<double> known(std::vector<double> figures) {
  for (double& figure : figures) figure = std::isnan(figure) ? -9 : figure;
  return figures;
}

TEST(EpisodeTokens, OnlyRowsInFrontOfResponseTokensHaveTargets) {
  const rl::MiniBatch batch = two_responses();
  const runtime::LanePartTokens rows = rows_of(batch, {.document = 0, .length_tokens = 4}, 0, 4);
  EXPECT_THAT(rows.tokens, ElementsAre(10, 11, 20, 21));
  EXPECT_THAT(rows.targets, ElementsAre(-1, 20, 21, -1))
      << "the prompt's last row has the first response token";
  EXPECT_THAT(known(rows.given), ElementsAre(0.5, 2, -9, -9, -1, 0.5, 2, -9, -9, -2));
}

TEST(EpisodeTokens, TokensMayHaveAdvantagesOfTheirOwn) {
  const rl::MiniBatch batch = two_responses();
  const runtime::LanePartTokens rows = rows_of(batch, {.document = 1, .length_tokens = 3}, 0, 3);
  EXPECT_THAT(rows.targets, ElementsAre(-1, 30, -1));
  EXPECT_THAT(known(rows.given), ElementsAre(7, 1, -3, -4, -9));
}

// However lanes cut a sequence, its rows are the same.
TEST(EpisodeTokens, PiecesOfASequenceAreItsRows) {
  const rl::MiniBatch batch = two_responses();
  const strategy::Sequence alone{.document = 0, .length_tokens = 4};
  // The prompt's last token begins each branch.
  const strategy::Sequence branches{.document = 0, .length_tokens = 6, .branches = {3, 2}};
  for (const strategy::Sequence& sequence : {alone, branches}) {
    const runtime::LanePartTokens whole = rows_of(batch, sequence, 0, sequence.length_tokens);
    for (int64_t cut = 1; cut < sequence.length_tokens; ++cut) {
      runtime::LanePartTokens both = rows_of(batch, sequence, 0, cut);
      const runtime::LanePartTokens rest = rows_of(batch, sequence, cut, sequence.length_tokens);
      both.tokens.insert(both.tokens.end(), rest.tokens.begin(), rest.tokens.end());
      both.targets.insert(both.targets.end(), rest.targets.begin(), rest.targets.end());
      both.given.insert(both.given.end(), rest.given.begin(), rest.given.end());
      EXPECT_EQ(both.tokens, whole.tokens) << cut;
      EXPECT_EQ(both.targets, whole.targets) << cut;
      EXPECT_EQ(known(both.given), known(whole.given)) << cut;
    }
  }
}

TEST(EpisodeTokens, BranchesShareTheirPromptAndHaveRowsOfTheirOwn) {
  const rl::MiniBatch batch = two_responses();
  const strategy::Sequence branches{.document = 0, .length_tokens = 6, .branches = {3, 2}};
  const runtime::LanePartTokens rows = rows_of(batch, branches, 0, 6);
  EXPECT_THAT(rows.tokens, ElementsAre(10, 11, 20, 21, 11, 30));
  EXPECT_THAT(rows.targets, ElementsAre(-1, 20, 21, -1, 30, -1));
  EXPECT_EQ(rows.given.size(), 3U * PolicyRow::kFigures);
}

// The engine's evaluation agrees with the decoder that sampled the responses, token by token.
TEST_F(SmallRuns, LogProbabilitiesAreTheSamplersOwn) {
  write("corpus", {{"q1=", "7"}, {"q2=", "8"}, {"q3=", "9"}});
  for (const char* share : {"false", "true"}) {
    OpenRun run(config(
        {"rl.algorithm=grpo", "rl.max_completion_length=6", base::text("rl.share_prompts=", share)}, share));
    RolloutGenerator generator(*run);
    const std::vector<std::vector<int32_t>> prompts = {ids("q1="), ids("a b c d e f g q12=")};
    const std::vector<uint64_t> numbers = {3, 4};
    const auto responses =
        generator.generate(prompts, numbers, 2, 6, RolloutGenerator::SamplingMode::kSampled);
    rl::MiniBatch episodes;
    std::vector<std::vector<double>> sampled;
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (const Response& response : responses[i]) {
        rl::Episode& episode = episodes.emplace_back();
        episode.tokens = prompts[i];
        episode.prompt_tokens = std::ssize(prompts[i]);
        episode.tokens.insert(episode.tokens.end(), response.tokens.begin(), response.tokens.end());
        sampled.push_back(response.log_probabilities);
      }
    }
    report::ActRecord act;
    const auto found = log_probabilities(*run, episodes, 0, act);
    ASSERT_EQ(found.size(), 4U);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_THAT(found[i], testing::Pointwise(testing::DoubleNear(1e-11), sampled[i])) << share << " " << i;
    const run::PreparedStep step = prepare_episodes(*run, episodes, 0, graph::Purpose::kTrain);
    EXPECT_EQ(step.known.shared_prompt_tokens.value_or(0) > 0, std::string(share) == "true");
  }
}

}  // namespace
}  // namespace sluice::learn
