// Steps on better and worse answers: which are drawn, and that a step's gradient is the loss's.
#include "learn/preferences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "learn/episode_steps.h"
#include "learn/test_small_run.h"
#include "rl/preference.h"

namespace sluice::learn {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class PreferenceSteps : public SmallRuns {
 protected:
  PreferenceSteps() {
    write("corpus", {{"q1=", "7"}, {"q2=", "14 a"}, {"q3=", "21"}, {"q4=", "28 b c"}});
    write("worse", {{"q1=", "8"}, {"q2=", "a"}, {"q3=", "b b"}, {"q4=", "c"}});
  }
  // Each answer is a sequence of its own, so that they can be counted.
  std::vector<std::string> settings(const std::string& algorithm,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"rl.algorithm=" + algorithm, "rl.prompts_per_step=2",
                                    "rl.share_prompts=false",
                                    base::text("rl.rejected=['", path("worse"), "']")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // A step's better and worse answers, from its plan and tokens: the rows with a target.
  static int64_t targets(const run::PreparedStep& step) {
    int64_t count = 0;
    for (const runtime::LanePartTokens& rows : step.tokens)
      count += std::ranges::count_if(rows.targets, [](int64_t target) { return target >= 0; });
    return count;
  }

  // The loss of a whole batch as a function of the parameters, by forward passes alone.
  static double dpo_loss(run::RunContext& run, const rl::MiniBatch& batch,
                         const std::vector<double>& reference, double beta) {
    std::vector<double> gain;
    report::ActRecord act;
    const auto found = log_probabilities(run, batch, 0, act);
    for (size_t i = 0; i < found.size(); ++i)
      gain.push_back(std::accumulate(found[i].begin(), found[i].end(), 0.0) - reference[i]);
    double loss = 0;
    for (size_t i = 0; i < gain.size(); i += 2) loss += std::log1p(std::exp(-beta * (gain[i] - gain[i + 1])));
    return loss / static_cast<double>(gain.size() / 2);
  }
};

TEST_F(PreferenceSteps, TheFirstStepPrefersNothingYet) {
  OpenRun run(config(settings("dpo")));
  Preferences source(*run);
  const auto step = source.next();
  ASSERT_NE(step, nullptr);
  EXPECT_NEAR(*step->known.loss, std::log(2.0), 1e-12) << "the model is its own reference";
  EXPECT_NEAR(*step->known.reward_margin, 0, 1e-12);
  EXPECT_EQ(step->plan.sequences.size(), 4U);
  EXPECT_EQ(step->sampler_after.step, 1);
}

TEST_F(PreferenceSteps, StepsLowerTheLossAndEndWithTheRun) {
  OpenRun run(config(settings("dpo", {"train.steps=6"})));
  Preferences source(*run);
  std::vector<double> losses;
  runtime::AdamW adam{.lr = 1e-2};
  while (const auto step = source.next()) {
    losses.push_back(*step->known.loss);
    run->engine().train(step->graph, step->tokens, adam);
    ++adam.update;
  }
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_LT(losses.back(), losses.front() - 0.01);
}

// The gradient of Σ −advantage · weight · log p is that of the loss, by differences of the loss itself.
TEST_F(PreferenceSteps, AStepsGradientIsTheLosssOwn) {
  OpenRun run(config(settings("dpo", {"rl.prompts_per_step=4", "data.tokens_per_step=200"})));
  runtime::ParameterStore& store = run->engine().store();
  // Away from the reference, where all pairs have a loss of their own.
  for (const model::Bucket& bucket : store.table().buckets) store.owner(bucket.index).master.mul_(1.5);
  store.refresh_compute_copies();
  Preferences source(*run);
  const auto step = source.next();
  EXPECT_GT(std::abs(*step->known.reward_margin), 1e-6);
  run->engine().train(step->graph, step->tokens, {.lr = 0, .weight_decay = 0, .clip = 0});

  rl::MiniBatch batch;
  for (const auto& [name, place] : {std::pair{"corpus", 0}, {"worse", 1}}) {
    const corpus::IndexedCorpus corpus(directory_ / name);
    for (int64_t document = 0; document < 4; ++document) {
      batch.resize(8);
      rl::Episode& episode = batch[static_cast<size_t>(2 * document + place)];
      episode.tokens = corpus.read(document);
      episode.prompt_tokens = std::ssize(ids(base::text("q", document + 1, "=")));
    }
  }
  std::vector<double> reference;
  {
    const run::Reference::InPlace parameters(run->reference());
    report::ActRecord act;
    for (const std::vector<double>& each : log_probabilities(*run, batch, 0, act))
      reference.push_back(std::accumulate(each.begin(), each.end(), 0.0));
  }
  EXPECT_NEAR(dpo_loss(*run, batch, reference, 0.1), *step->known.loss, 1e-11);
  for (const model::Bucket& bucket : store.table().buckets) {
    const at::Tensor master = store.owner(bucket.index).master;
    const int64_t element = store.owner(bucket.index).gradient.abs().argmax().item<int64_t>();
    const at::Tensor at = master.select(0, element);
    const double kept = at.item<double>(), h = 1e-5;
    const auto loss_at = [&](double value) {
      at.fill_(value);
      store.refresh_compute_copies();
      return dpo_loss(*run, batch, reference, 0.1);
    };
    const double slope = (loss_at(kept + h) - loss_at(kept - h)) / (2 * h);
    loss_at(kept);
    const double gradient = store.owner(bucket.index).gradient.select(0, element).item<double>();
    EXPECT_NEAR(gradient, slope, 1e-7 * std::max(1.0, std::abs(slope))) << bucket.index;
  }
}

TEST_F(PreferenceSteps, KtoComparesEachAnswerWithItsOwnReference) {
  OpenRun run(config(settings("kto", {"rl.desirable_weight=2"})));
  Preferences source(*run);
  const auto step = source.next();
  // At the reference every gain is 0, so each loss is half its weight.
  EXPECT_NEAR(*step->known.loss, (2 * 0.5 + 1 * 0.5) / 2, 1e-12);
  EXPECT_EQ(step->plan.sequences.size(), 4U);
}

TEST_F(PreferenceSteps, DocumentsWithoutAPromptAreLeftOutAndIfAllAreTheRunEnds) {
  write("corpus", {{"q1=", "7"}, {"", "14"}});
  write("worse", {{"q1=", "8"}, {"q2=", "a"}});
  {
    OpenRun run(config(settings("dpo")));
    Preferences source(*run);
    EXPECT_EQ(targets(*source.next()), 8) << "twice a pair of answers of one token and the end";
  }
  write("corpus", {{"", "7"}, {"", "14"}});
  OpenRun run(config(settings("dpo"), "none"));
  Preferences source(*run);
  EXPECT_THAT([&] { source.next(); },
              ThrowsMessage<base::InputError>(HasSubstr("pairs of answers only 0 fit into 32 tokens")));
}

}  // namespace
}  // namespace sluice::learn
