// Rollouts of one rank: responses of a model whose tokens are known, their rewards, and the steps made of
// them.
#include "learn/rollouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/json.h"
#include "layers/policy_loss.h"
#include "learn/test_small_run.h"

namespace sluice::learn {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;
using Mode = RolloutGenerator::SamplingMode;

class RolloutSteps : public SmallRuns {
 protected:
  RolloutSteps() { write("corpus", {{"q1=", "7"}, {"q2=", "7"}, {"q3=", "7"}, {"q4=", "7"}}); }

  std::vector<std::string> settings(const std::string& algorithm,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"rl.algorithm=" + algorithm, "rl.prompts_per_step=2",
                                    "rl.num_generations=4", "rl.max_completion_length=6"};
    all.insert(all.end(), more.begin(), more.end());
    return wide(all);
  }
  // Behind every prompt comes one of these letters, then the end.
  static void answer(run::RunContext& run, const std::vector<std::string>& letters) {
    std::map<int32_t, std::vector<int32_t>> next;
    for (const std::string& letter : letters) {
      next[id("=")].push_back(id(letter));
      next[id(letter)] = {end()};
    }
    say(run, next);
  }
  static std::vector<rl::Prompt> prompts(int count = 2) {
    std::vector<rl::Prompt> made;
    for (int i = 1; i <= count; ++i) made.push_back({ids(base::text("q", i, "=")), ids("7")});
    return made;
  }

  // The figures of a step's rows with a target, in its order.
  static std::vector<layers::PolicyRow> figures(const run::PreparedStep& step) {
    std::vector<layers::PolicyRow> rows;
    for (const runtime::LanePartTokens& part : step.tokens) {
      for (size_t at = 0; at < part.given.size(); at += layers::PolicyRow::kFigures)
        rows.push_back(
            {part.given[at], part.given[at + 1], part.given[at + 2], part.given[at + 3], part.given[at + 4]});
    }
    return rows;
  }
};

TEST_F(RolloutSteps, ResponsesAreDrawnByTheirNumbersAndRewardedByTheirText) {
  OpenRun run(config(settings("grpo")));
  RolloutGenerator generator(*run);
  answer(*run, {"7", "8"});
  const std::vector<uint64_t> numbers = {1, 2}, others = {5, 6};
  const auto first = generator.generate_and_score(prompts(), numbers, 8, Mode::kSampled);
  std::set<int32_t> letters;
  for (const std::vector<Response>& responses : first) {
    ASSERT_EQ(responses.size(), 8U);
    for (const Response& response : responses) {
      ASSERT_EQ(response.tokens.size(), 2U);
      letters.insert(response.tokens.front());
      EXPECT_EQ(response.tokens.back(), end()) << "the end token belongs to the response";
      EXPECT_TRUE(response.finish_reason);
      EXPECT_EQ(response.reward, response.tokens.front() == id("7") ? 1 : 0);
      EXPECT_NEAR(response.log_probabilities.front(), -std::log(2.0), 1e-9);
      EXPECT_NEAR(response.log_probabilities.back(), 0, 1e-9);
    }
  }
  EXPECT_THAT(letters, ElementsAre(id("7"), id("8")));
  EXPECT_EQ(generator.times().tokens, 32);
  const auto tokens_of = [](const std::vector<std::vector<Response>>& all) {
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& responses : all) {
      for (const Response& response : responses) tokens.push_back(response.tokens);
    }
    return tokens;
  };
  EXPECT_EQ(tokens_of(generator.generate_and_score(prompts(), numbers, 8, Mode::kSampled)), tokens_of(first));
  EXPECT_NE(tokens_of(generator.generate_and_score(prompts(), others, 8, Mode::kSampled)), tokens_of(first));
  EXPECT_THAT(generator.previous_response_lengths(), ElementsAre(Each(2), Each(2)));
}

TEST_F(RolloutSteps, GreedyResponsesAreAllAlikeAndLengthsAreBounded) {
  OpenRun run(config(settings("grpo")));
  RolloutGenerator generator(*run);
  answer(*run, {"7", "8"});
  generator.generate_and_score(prompts(), std::vector<uint64_t>{1, 2}, 2, Mode::kSampled);
  for (const auto& responses :
       generator.generate_and_score(prompts(1), std::vector<uint64_t>{1}, 4, Mode::kGreedy)) {
    for (const Response& response : responses) EXPECT_EQ(response.tokens, responses.front().tokens);
  }
  EXPECT_EQ(generator.previous_response_lengths().size(), 2U) << "an evaluation's lengths predict no rollout";
  // A model that never ends: six tokens, or what the context has left.
  say(*run, {{id("="), {id("a")}}, {id("a"), {id("a")}}});
  const std::vector<std::vector<int32_t>> long_prompts = {prompts(1).front().tokens,
                                                          std::vector<int32_t>(30, id("="))};
  const auto endless = generator.generate(long_prompts, std::vector<uint64_t>{1, 2}, 1, 6, Mode::kGreedy);
  EXPECT_EQ(endless[0].front().tokens.size(), 6U);
  EXPECT_FALSE(endless[0].front().finish_reason);
  EXPECT_EQ(endless[1].front().tokens.size(), 2U);
}

TEST_F(RolloutSteps, TextsAreWithoutTheirEnds) {
  OpenRun run(config(settings("grpo")));
  const RolloutGenerator generator(*run);
  std::vector<int32_t> tokens = ids("a \u00e9");
  tokens.insert(tokens.end(), {end(), end()});
  EXPECT_EQ(generator.text_of(tokens), "a \u00e9");
  EXPECT_EQ(generator.text_of(std::vector<int32_t>{end()}), "");
  EXPECT_EQ(generator.text_of(ids(" b"), ids("a")), " b");
}

TEST_F(RolloutSteps, AGroupsAdvantagesCompareItsOwnResponses) {
  OpenRun run(config(settings("grpo", {"rl.updates_per_rollout=2"})));
  RolloutGenerator generator(*run);
  answer(*run, {"7", "8"});
  Rollouts rollouts(*run, generator, nullptr);
  std::vector<std::unique_ptr<run::PreparedStep>> steps;
  while (auto step = rollouts.next()) steps.push_back(std::move(step));
  ASSERT_EQ(steps.size(), 4U);
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool begins = i % 2 == 0;  // a rollout has two updates
    EXPECT_EQ(steps[i]->known.reward.has_value(), begins) << i;
    EXPECT_EQ(steps[i]->sampler_after.step, static_cast<int64_t>(i) + 1);
    const rl::Rollout left = rl::rollout_from_json(steps[i]->rollout_after, "the test");
    EXPECT_EQ(left.batches.size(), begins ? 1U : 0U);
    const std::vector<layers::PolicyRow> rows = figures(*steps[i]);
    ASSERT_EQ(rows.size(), 8U) << "one group of four responses of two tokens";
    double sum = 0;
    for (const layers::PolicyRow& row : rows) {
      sum += row.advantage;
      EXPECT_EQ(row.weight, rows.front().weight);
      EXPECT_FALSE(std::isnan(row.sampled));
      EXPECT_TRUE(std::isnan(row.reference));
      EXPECT_EQ(std::isnan(row.old), begins) << "the first update is the rollout's own policy";
      if (!begins) {
        EXPECT_NEAR(row.old, row.sampled, 1e-9);
      }
    }
    EXPECT_NEAR(sum, 0, 1e-12);
  }
  EXPECT_EQ(*steps[0]->known.response_tokens, 16);
  EXPECT_EQ(*steps[0]->known.response_mean, 2);
  EXPECT_EQ(*steps[0]->known.response_p99, 2);
  EXPECT_NEAR(*steps[0]->known.entropy, std::log(2.0) / 2, 1e-9) << "a half of the tokens is certain";
  EXPECT_EQ(*steps[0]->known.accuracy, *steps[0]->known.reward);
  ASSERT_THAT(steps[0]->known.completions, Not(IsEmpty()));
  EXPECT_THAT(steps[0]->known.completions.front().prompt, testing::StartsWith("q"));
  EXPECT_THAT(steps[0]->known.completions.front().completion, testing::AnyOf("7", "8"));
}

TEST_F(RolloutSteps, ResponsesThatAreAllAlikeTeachNothingAndTheLogSaysSo) {
  OpenRun run(config(settings("grpo")));
  RolloutGenerator generator(*run);
  answer(*run, {"7"});
  log_to_file();
  Rollouts rollouts(*run, generator, nullptr);
  const auto step = rollouts.next();
  EXPECT_EQ(*step->known.reward, 1);
  for (const layers::PolicyRow& row : figures(*step)) EXPECT_EQ(row.advantage, 0);
  EXPECT_THAT(logged(), HasSubstr("all responses to each prompt have the same reward, 1 in the mean"));
}

TEST_F(RolloutSteps, DynamicSamplingDrawsAgainAndEndsTheRunIfNothingIsLeft) {
  OpenRun run(config(settings("dapo", {"rl.max_resamples=3"})));
  RolloutGenerator generator(*run);
  answer(*run, {"7", "8"});
  Rollouts rollouts(*run, generator, nullptr);
  const auto step = rollouts.next();
  EXPECT_EQ(*step->known.groups_kept, 2);
  for (const layers::PolicyRow& row : figures(*step))
    EXPECT_NE(row.advantage, 0) << "only groups that differ are kept";
  answer(*run, {"8"});
  log_to_file();
  EXPECT_EQ(rollouts.next(), nullptr);
  EXPECT_THAT(logged(), HasSubstr("nothing is left to learn: in 3 draws of 2 prompts"));
}

TEST_F(RolloutSteps, ARewardThatFailsStopsTheRunOrCountsAsConfigured) {
  base::write_file_atomically(directory_ / "own.py",
                              "def score(prompt, response, reference):\n"
                              "    if response == '8': raise ValueError('no eights')\n"
                              "    return 2.0\n");
  for (const char* const way : {"stop", "zero", "drop"}) {
    SCOPED_TRACE(way);
    OpenRun run(config(settings("grpo", {base::text("rl.reward=['python:", path("own.py"), ":score']"),
                                         "rl.python=/usr/bin/python3", base::text("rl.on_bad_reward=", way)}),
                       way));
    RolloutGenerator generator(*run);
    answer(*run, {"7", "8"});
    Rollouts rollouts(*run, generator, nullptr);
    if (std::string(way) == "stop") {
      EXPECT_THAT([&] { rollouts.next(); }, ThrowsMessage<base::RunError>(HasSubstr("no eights")));
      continue;
    }
    log_to_file();
    const auto step = rollouts.next();
    EXPECT_GT(*step->known.bad_rewards, 0);
    EXPECT_THAT(logged(), HasSubstr("of 8 responses failed"));
    const bool drops = std::string(way) == "drop";
    EXPECT_EQ(*step->known.reward == 2, drops) << "a failed reward counts as 0, or not at all";
    const auto rows = static_cast<int64_t>(figures(*step).size());
    EXPECT_EQ(rows, 16 - (drops ? 2 * *step->known.bad_rewards : 0));
  }
}

TEST_F(RolloutSteps, MissingOrUnfittingThingsAreNamedWithTheKeyThatHelps) {
  const auto generate = [&](const std::vector<std::string>& more, const std::string& name) {
    return [this, more, name] {
      OpenRun run(config(settings("grpo", more), name));
      RolloutGenerator generator(*run);
      Rollouts(*run, generator, nullptr).next();
    };
  };
  EXPECT_THAT(generate({"rl.kv_cache_gib=1e-6"}, "cache"),
              ThrowsMessage<base::InputError>(HasSubstr("rl.kv_cache_gib is 1e-06, room for")));
  write("corpus", {{"", "7"}});  // answers to nothing
  EXPECT_THAT(generate({}, "prompts"),
              ThrowsMessage<base::InputError>(
                  HasSubstr("only 0 have a prompt that leaves room for a response in 32 tokens")));
  std::filesystem::remove(directory_ / "tokenizer.model");
  EXPECT_THAT(generate({}, "tokenizer"),
              ThrowsMessage<base::InputError>(HasSubstr("build the corpus with sluice corpus build")));
}

TEST_F(RolloutSteps, TimesOfSeveralDrawsAddUp) {
  report::StepRecord record;
  tell_rollout({.pull_ns = 5, .generation_ns = 7, .tokens = 3, .predicted_ns = 10}, "1x<1,1,1>", record);
  tell_rollout({.pull_ns = 1, .generation_ns = 2, .tokens = 4, .predicted_ns = std::nullopt}, "1x<1,1,1>",
               record);
  EXPECT_EQ(record.rollout_ns, 15);
  EXPECT_EQ(record.rollout_predicted_ns, 10);
  EXPECT_EQ(record.response_tokens, 7);
}

}  // namespace
}  // namespace sluice::learn
