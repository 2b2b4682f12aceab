// Routers beside their rules written out and differentiated by autograd.
#include "layers/router.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

using Ids = std::vector<std::vector<int>>;

at::Tensor ids_of_rows(const Ids& rows) {
  std::vector<int> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return at::tensor(flat, at::kInt).view({std::ssize(rows), -1});
}

Ids chosen(const model::Experts& experts, const std::vector<std::vector<double>>& scores,
           const std::vector<double>& corrections = {}) {
  std::vector<double> flat;
  for (const auto& row : scores) flat.insert(flat.end(), row.begin(), row.end());
  const at::Tensor score = at::tensor(flat, at::kDouble).view({std::ssize(scores), experts.count});
  const at::Tensor correction = corrections.empty() ? at::Tensor() : at::tensor(corrections, at::kFloat);
  const at::Tensor ids = chosen_experts(experts, score, correction);
  Ids rows;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    rows.emplace_back();
    for (int64_t k = 0; k < ids.size(1); ++k) rows.back().push_back(ids[row][k].item<int>());
  }
  return rows;
}

TEST(Router, TheHighestScoresAreChosenTiesFromTheLeft) {
  const model::Experts experts{.count = 4, .per_token = 2};
  EXPECT_EQ(chosen(experts, {{1, 4, 3, 2}, {2, 2, 2, 2}, {-1, -3, -2, -1}}), (Ids{{1, 2}, {0, 1}, {0, 3}}));
}

TEST(Router, CorrectionsChangeTheChoiceAlone) {
  const model::Experts experts{.count = 4, .per_token = 2, .sigmoid = true, .corrected = true};
  EXPECT_EQ(chosen(experts, {{0.1, 0.9, 0.8, 0.2}}, {0.75, 0, 0, 0}), (Ids{{1, 0}}));
  const at::Tensor score = at::tensor({0.1, 0.9, 0.8, 0.2}, at::kDouble).view({1, 4});
  expect_near(route_weights(experts, 0, score, ids_of_rows({{1, 0}})),
              at::tensor({0.9, 0.1}, at::kDouble).view({1, 2}));
}

// A group counts by its two best experts, so one very good expert does not win for its group.
TEST(Router, GroupsAreChosenByTheirTwoBestExperts) {
  const model::Experts experts{.count = 6, .per_token = 2, .groups = 3, .groups_chosen = 1};
  EXPECT_EQ(chosen(experts, {{0.9, 0.0, 0.5, 0.45, 0.1, 0.2}}), (Ids{{2, 3}}));
  const model::Experts two{.count = 6, .per_token = 3, .groups = 3, .groups_chosen = 2};
  EXPECT_EQ(chosen(two, {{0.9, 0.0, 0.5, 0.45, 0.1, 0.2}}), (Ids{{0, 2, 3}}));
  // Groups that are left out stay so, even where the others' scores are negative.
  EXPECT_EQ(chosen(experts, {{-0.1, -5, -1, -1, -3, -3}}), (Ids{{2, 3}}));
}

TEST(Router, WeightsAndGradientsAreTheirFormulas) {
  for (const bool sigmoid : {false, true}) {
    for (const bool normalised : {false, true}) {
      for (const double factor : {1.0, 2.5}) {
        for (const bool balances : {false, true}) {
          SCOPED_TRACE(testing::Message() << sigmoid << normalised << factor << balances);
          const model::Experts experts{
              .count = 5, .per_token = 2, .normalised = normalised, .sigmoid = sigmoid, .factor = factor};
          constexpr double kFloor = 0.01;
          const at::Tensor logit = waves({6, 5}, 1).requires_grad_();
          const at::Tensor id = ids_of_rows({{0, 1}, {1, 4}, {3, 2}, {4, 0}, {2, 0}, {1, 2}});
          const at::Tensor score = sigmoid ? logit.sigmoid() : logit.softmax(1);
          at::Tensor weight = score.gather(1, id.to(at::kLong));
          if (normalised) weight = weight / (weight.sum(1, true) + kFloor);
          weight = weight * factor;
          const at::Tensor dweight = waves({6, 2}, 2), dscore = waves({6, 5}, 3);
          // Sigmoid scores count as shares of their sum in the balancing loss.
          const at::Tensor share = sigmoid ? score / score.sum(1, true) : score;
          at::Tensor sum = (weight * dweight).sum();
          if (balances) sum = sum + (share * dscore).sum();
          const at::Tensor expected = gradients_of(sum, at::ones({}, at::kDouble), {logit}).front();
          const at::NoGradGuard none;
          expect_near(route_weights(experts, kFloor, score, id), weight, "weights");
          expect_near(router_gradient(experts, kFloor, score, id, dweight, balances ? dscore : at::Tensor()),
                      expected, "gradient");
        }
      }
    }
  }
}

TEST(Router, ScoresAreOfLogitsAndBiases) {
  const at::Tensor x = waves({3, 4}, 1), router = waves({5, 4}, 2), bias = waves({5}, 3);
  const at::Tensor logit = x.mm(router.t());
  expect_near(router_scores({.count = 5}, x, router, {}), logit.softmax(1));
  expect_near(router_scores({.count = 5, .sigmoid = true}, x, router, bias), (logit + bias).sigmoid());
  // Rows in 16 bits have scores in float, whose ties are rare.
  EXPECT_EQ(router_scores({.count = 5}, x.to(at::kBFloat16), router.to(at::kBFloat16), {}).scalar_type(),
            at::kFloat);
}

// Each choice is weighed by a softmax over the experts near the highest logit that were not chosen before.
TEST(Router, SparseMixersWeightsAndGradientsAreTheirFormulas) {
  constexpr double kJitter = 0.2;
  const at::Tensor logit = waves({6, 5}, 1).requires_grad_();
  const at::Tensor id = std::get<1>(at::topk(logit, 2)).to(at::kInt).contiguous();
  std::vector<at::Tensor> weights;
  at::Tensor left = logit;
  for (int64_t k = 0; k < 2; ++k) {
    const at::Tensor index = id.narrow(1, k, 1).to(at::kLong), highest = logit.gather(1, index).detach();
    const at::Tensor far =
        (highest - logit.detach()) / at::maximum(logit.detach().abs(), highest) > 2 * kJitter;
    weights.push_back(left.masked_fill(far, -INFINITY).softmax(1).gather(1, index));
    left = left.scatter(1, index, -INFINITY);
  }
  const at::Tensor weight = at::cat(weights, 1), dweight = waves({6, 2}, 2), dscore = waves({6, 5}, 3);
  const at::Tensor sum = (weight * dweight).sum() + (logit.softmax(1) * dscore).sum();
  const at::Tensor expected = gradients_of(sum, at::ones({}, at::kDouble), {logit}).front();
  const at::NoGradGuard none;
  expect_near(sparse_mixer_weights(kJitter, logit, id), weight, "weights");
  expect_near(sparse_mixer_gradient(kJitter, logit, id, dweight, dscore), expected, "gradient");
}

TEST(Router, NumbersOfExpertsGoToRowsAndBack) {
  const at::Tensor id = ids_of_rows({{0, 2}, {2, 1}}), numbers = at::tensor({10.0, 20.0, 30.0}, at::kDouble);
  expect_near(of_chosen(numbers, id, numbers),
              at::tensor({10.0, 30.0, 30.0, 20.0}, at::kDouble).view({2, 2}));
  const at::Tensor sums = at::ones({3}, at::kDouble);
  add_of_chosen(sums, at::tensor({1.0, 2.0, 4.0, 8.0}, at::kDouble).view({2, 2}), id);
  expect_near(sums, at::tensor({2.0, 9.0, 7.0}, at::kDouble));
  add_of_chosen({}, numbers, id);  // frozen: nothing to add to
}

TEST(Router, ItsOwnNormIsDividedByTheWidthsRoot) {
  const at::Tensor x = waves({3, 4}, 1).requires_grad_(), scale = waves({4}, 2).requires_grad_(),
                   dy = waves({3, 4}, 3);
  const at::Tensor y = x / (x.square().mean(1, true) + 1e-3).sqrt() * scale / 2;
  const std::vector<at::Tensor> expected = gradients_of(y, dy, {x, scale});
  const at::NoGradGuard none;
  const at::Tensor dscale = at::ones({4}, at::kDouble);
  const RouterNorm norm(1e-3, scale, dscale);
  EXPECT_TRUE(norm.any());
  EXPECT_FALSE(RouterNorm(0, {}, {}).any());
  expect_near(norm.forward(x), y);
  expect_near(norm.backward(dy, x), expected[0], "dx");
  expect_near(dscale, expected[1] + 1, "added to the scale's gradient");
  expect_near(RouterNorm(1e-3, scale, {}).backward(dy, x), expected[0], "frozen scale");
}

}  // namespace
}  // namespace sluice::layers
