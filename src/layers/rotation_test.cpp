// Rotary positions beside rotations of complex numbers.
#include "layers/rotation.h"

#include "layers/test_gradients.h"
#include "ops/rotary.h"

namespace sluice::layers {
namespace {

constexpr int64_t kTurned = 4, kHeadWidth = 6;  // the last two dimensions of a head stay
const std::vector<double> kFrequencies{1.0, 0.25};

ops::RotaryTable table() {
  return ops::rotary_table(kFrequencies, /*attention_scale=*/1, 50, at::dtype(at::kDouble));
}

at::Tensor turned(const at::Tensor& x, model::Turning turning, const std::vector<int64_t>& positions,
                  ops::Rotation rotation = ops::Rotation::kForward) {
  const at::Tensor y = x.clone();
  turn_heads(y, turning, table(), at::tensor(positions, at::kLong), rotation);
  return y;
}

// A head's pairs (2i, 2i + 1) or (i, i + 2) turn by position · frequency.
TEST(Rotation, PairsTurnByTheirPosition) {
  const at::Tensor x = waves({3, 2, kHeadWidth}, 1);
  const std::vector<int64_t> positions{0, 3, 17};
  for (const auto turning :
       {model::Turning::kHalves, model::Turning::kHalvesBackwards, model::Turning::kNeighbours}) {
    const at::Tensor y = turned(x, turning, positions);
    const bool neighbours = turning == model::Turning::kNeighbours;
    const double sign = turning == model::Turning::kHalvesBackwards ? -1 : 1;
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t pair = 0; pair < 2; ++pair) {
        const double angle = sign * static_cast<double>(positions[static_cast<size_t>(row)]) *
                             kFrequencies[static_cast<size_t>(pair)];
        const at::Tensor a = x[row].select(1, neighbours ? 2 * pair : pair),
                         b = x[row].select(1, neighbours ? 2 * pair + 1 : pair + 2);
        expect_near(y[row].select(1, pair), a * std::cos(angle) - b * std::sin(angle), "firsts");
        expect_near(y[row].select(1, pair + 2), a * std::sin(angle) + b * std::cos(angle), "seconds");
      }
    }
    expect_near(y.narrow(2, kTurned, 2), x.narrow(2, kTurned, 2), "dimensions that do not turn", 0);
  }
}

TEST(Rotation, ScoresDependOnDistanceAlone) {
  const at::Tensor q = waves({1, 1, kHeadWidth}, 1), k = waves({1, 1, kHeadWidth}, 2);
  for (const auto turning :
       {model::Turning::kHalves, model::Turning::kHalvesBackwards, model::Turning::kNeighbours}) {
    const auto score = [&](int64_t query, int64_t key) {
      return (turned(q, turning, {query}) * turned(k, turning, {key})).sum().item<double>();
    };
    EXPECT_NEAR(score(9, 4), score(45, 40), 1e-12);
    EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-3);
  }
}

// The backward is the transpose: turning gradients back gives those of the rows as they were.
TEST(Rotation, GradientsTurnBack) {
  const std::vector<int64_t> positions{2, 40};
  for (const auto turning :
       {model::Turning::kHalves, model::Turning::kHalvesBackwards, model::Turning::kNeighbours}) {
    const at::Tensor x = waves({2, 3, kHeadWidth}, 1), dy = waves({2, 3, kHeadWidth}, 2);
    const double forward = (turned(x, turning, positions) * dy).sum().item<double>();
    const double backward =
        (x * turned(dy, turning, positions, ops::Rotation::kBackward)).sum().item<double>();
    EXPECT_NEAR(forward, backward, 1e-11);
  }
}

TEST(Rotation, ReorderingIsUndone) {
  const at::Tensor x = at::arange(6, at::kDouble);
  EXPECT_TRUE(halves_of(x).equal(at::tensor({0.0, 2.0, 4.0, 1.0, 3.0, 5.0}, at::kDouble)));
  EXPECT_TRUE(neighbours_of(halves_of(x)).equal(x));
}

TEST(Rotation, QueriesGrowWithTheLogarithmOfTheirPosition) {
  const at::Tensor q = at::ones({4, 3}, at::kDouble);
  grow_queries(q, {.beta = 0.1, .positions = 8, .first = 1}, at::tensor({0, 6, 7, 31}, at::kLong));
  for (const auto& [row, steps] : {std::pair{0, 0.0}, {1, 0.0}, {2, 1.0}, {3, 4.0}})
    EXPECT_NEAR(q[row][0].item<double>(), 1 + 0.1 * std::log1p(steps), 1e-12) << row;
  grow_queries(q, {}, {});  // without growth nothing is read
}

}  // namespace
}  // namespace sluice::layers
