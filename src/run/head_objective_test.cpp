#include "run/head_objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "run/head_scores.h"

namespace sluice::run {
namespace {

using Texts = std::vector<TextNumbers>;

// Derivatives by central differences.
void expect_gradients(const Texts& texts, const std::function<HeadOutcome(const Texts&)>& outcome) {
  constexpr double kStep = 1e-5;
  const HeadOutcome found = outcome(texts);
  ASSERT_EQ(found.gradients.size(), texts.size());
  for (size_t text = 0; text < texts.size(); ++text) {
    for (size_t i = 0; i < texts[text].size(); ++i) {
      Texts above = texts, below = texts;
      above[text][i] += kStep;
      below[text][i] -= kStep;
      const double slope = (outcome(above).loss - outcome(below).loss) / (2 * kStep);
      EXPECT_NEAR(found.gradients[text][i], slope, 1e-8 * std::max(1.0, std::abs(slope)))
          << text << ", " << i;
    }
  }
}

TEST(BradleyTerry, IsTheFormulaAndItsGradient) {
  const Texts rewards{{0.5}, {-1.0}, {2.0}, {2.5}};
  const HeadOutcome found = bradley_terry(rewards, {}, 0.0);
  const auto loss = [](double lead) { return std::log1p(std::exp(-lead)); };
  EXPECT_NEAR(found.loss, (loss(1.5) + loss(-0.5)) / 2, 1e-14);
  EXPECT_EQ(found.accuracy, 0.5);
  EXPECT_NEAR(*found.margin, 0.5, 1e-14);
  for (const double center : {0.0, 0.01}) {
    expect_gradients(rewards, [&](const Texts& texts) { return bradley_terry(texts, {0.25, 0.0}, center); });
  }
}

TEST(BradleyTerry, FarPairsGiveNoInfinity) {
  EXPECT_NEAR(bradley_terry({{-1e4}, {1e4}}, {}, 0).loss, 2e4, 1e-9);
  EXPECT_EQ(bradley_terry({{1e4}, {-1e4}}, {}, 0).gradients[0][0], 0);
}

Texts made_up(size_t texts, size_t width) {
  Texts made(texts, TextNumbers(width));
  for (size_t i = 0; i < texts * width; ++i)
    made[i / width][i % width] = std::sin(0.9 * static_cast<double>(i * i));
  return made;
}

TEST(InfoNce, GradientsAreSlopes) {
  for (const int64_t of_group : {2, 3, 4}) {
    expect_gradients(made_up(static_cast<size_t>(3 * of_group), 5),
                     [&](const Texts& texts) { return info_nce(texts, of_group, 0.2); });
  }
}

TEST(InfoNce, LooksAtDirectionsAlone) {
  const Texts texts = made_up(8, 4);
  Texts longer = texts;
  for (double& each : longer[3]) each *= 7;
  EXPECT_NEAR(info_nce(texts, 2, 0.05).loss, info_nce(longer, 2, 0.05).loss, 1e-12);
}

TEST(InfoNce, OfSeveralWidthsIsTheSumOverBeginnings) {
  const Texts texts = made_up(12, 6);
  const auto begin = [&](size_t width) {
    Texts all = texts;
    for (TextNumbers& text : all) text.resize(width);
    return info_nce(all, 3, 0.1).loss;
  };
  EXPECT_NEAR(matryoshka_info_nce(texts, 3, 0.1, {2, 4, 6}).loss, begin(2) + begin(4) + begin(6), 1e-12);
  EXPECT_EQ(matryoshka_info_nce(texts, 3, 0.1, {}).loss, begin(6));
  expect_gradients(texts, [](const Texts& own) { return matryoshka_info_nce(own, 3, 0.1, {2, 4}); });
}

TEST(InfoNce, TextsAtTheirPartnersAreFound) {
  Texts texts;
  for (size_t i = 0; i < 20; ++i) {
    TextNumbers direction(20, 0.0);
    direction[i] = 1;
    texts.push_back(direction);
    texts.push_back(direction);
  }
  const HeadOutcome found = info_nce(texts, 2, 0.05);
  EXPECT_NEAR(found.loss, std::log(1 + 19 * std::exp(-20.0)), 1e-12);
}

TEST(ClassScores, AreAccuracyAndMacroF1) {
  ClassScores scores({.form = corpus::LabelForm::kClass, .names = {"a", "b", "c"}});
  EXPECT_FALSE(scores.accuracy());
  scores.add({.target = 0}, {2, 1, 0});
  scores.add({.target = 1}, {2, 1, 0});
  scores.add({.target = 1}, {0, 1, 0});
  EXPECT_NEAR(*scores.accuracy(), 2.0 / 3, 1e-15);
  EXPECT_NEAR(*scores.f1(), (2.0 / 3 + 2.0 / 3) / 2, 1e-15);  // c neither occurs nor is chosen
}

TEST(ClassScores, OfSeveralClassesCountMarks) {
  ClassScores scores({.form = corpus::LabelForm::kClasses, .names = {"a", "b"}});
  scores.add({.figures = {1, 0}}, {1, -1});
  scores.add({.figures = {1, 1}}, {1, -1});
  EXPECT_EQ(scores.accuracy(), 0.5);
  EXPECT_NEAR(*scores.f1(), 2 * 2.0 / (2 + 3), 1e-15);
}

TEST(ClassScores, FiguresAreNeitherRightNorWrong) {
  ClassScores scores({.form = corpus::LabelForm::kFigures, .names = {"LABEL_0"}});
  scores.add({.figures = {1}}, {1});
  EXPECT_FALSE(scores.accuracy());
  EXPECT_FALSE(scores.f1());
}

}  // namespace
}  // namespace sluice::run
