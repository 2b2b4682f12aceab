// One expert at work beside its formula, differentiated by autograd.
#include "layers/expert.h"

#include <map>
#include <mutex>

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

constexpr int64_t kExpertHidden = 4, kExpertInner = 3;

// Adapters of rank 2, and biases of gate and up.
struct ExpertTensors {
  at::Tensor gate_up = waves({2 * kExpertInner, kExpertHidden}, 1),
             down = waves({kExpertInner, kExpertHidden}, 2);
  at::Tensor up_left = waves({2 * kExpertInner, 2}, 3), up_right = waves({2, kExpertHidden}, 4);
  at::Tensor down_left = waves({kExpertInner, 2}, 5), down_right = waves({2, kExpertHidden}, 6);
  at::Tensor bias = waves({2 * kExpertInner}, 7);

  Expert expert() const {
    return {.gate_up = {.w_AB = gate_up, .adapters = {{up_left, up_right, 0, 0.5}}},
            .down = {.w_AB = down, .adapters = {{down_left, down_right, 0, 0.5}}},
            .gate_up_bias_G = bias,
            .row_N = {},
            .assignments = {}};
  }
};

// A token's output; its weight multiplies the output, or gate and up.
at::Tensor output_of(const ExpertTensors& of, const model::Gate& gate, const at::Tensor& x,
                     const at::Tensor& weight) {
  at::Tensor inner = x.mm((of.gate_up + 0.5 * of.up_left.mm(of.up_right)).t()) + of.bias;
  if (gate.weighs_input) inner = inner * weight;
  const at::Tensor g = inner.narrow(1, 0, kExpertInner);
  at::Tensor a = g * g.sigmoid() * inner.narrow(1, kExpertInner, kExpertInner);
  if (!gate.weighs_input) a = a * weight;
  return a.mm(of.down + 0.5 * of.down_left.mm(of.down_right));
}

TEST(Expert, OutputAndGradientsAreTheirFormula) {
  for (const bool weighs_input : {false, true}) {
    SCOPED_TRACE(weighs_input);
    const model::Gate gate{.weighs_input = weighs_input};
    const ExpertTensors tensors;
    const at::Tensor x = waves({5, kExpertHidden}, 8).requires_grad_(),
                     weight = (waves({5, 1}, 9).abs() + 0.1).requires_grad_(),
                     dy = waves({5, kExpertHidden}, 10);
    const at::Tensor y = output_of(tensors, gate, x, weight);
    const std::vector<at::Tensor> expected = gradients_of(y, dy, {x, weight});
    const at::NoGradGuard none;
    const Expert expert = tensors.expert();
    const at::Tensor gate_up = at::empty({5, 2 * kExpertInner}, at::kDouble);
    expert.gate_up_into(gate_up, x);
    expect_near(expert.result(gate, gate_up, weight), y, "forward");
    at::Tensor dweight, a;
    expect_near(expert.backward(gate, dy, gate_up, weight, dweight, a), expected[0], "dx");
    expect_near(dweight, expected[1], "the weights' gradient");
  }
}

// The shared expert, which every row visits with the weight 1.
TEST(Expert, WithoutWeightsEachRowCountsOnce) {
  const ExpertTensors tensors;
  const at::Tensor x = waves({5, kExpertHidden}, 8).requires_grad_(), dy = waves({5, kExpertHidden}, 10);
  const at::Tensor y = output_of(tensors, {}, x, at::ones({5, 1}, at::kDouble));
  const at::Tensor expected = gradients_of(y, dy, {x}).front();
  const at::NoGradGuard none;
  const Expert expert = tensors.expert();
  const at::Tensor gate_up = at::empty({5, 2 * kExpertInner}, at::kDouble);
  expert.gate_up_into(gate_up, x);
  expect_near(expert.result({}, gate_up, {}), y);
  at::Tensor dweight, a;
  expect_near(expert.backward({}, dy, gate_up, {}, dweight, a), expected);
  EXPECT_FALSE(dweight.defined());
}

TEST(Expert, RowsAreTakenAndAddedByTheirNumbers) {
  Expert expert{.row_N = at::tensor({3, 1}, at::kLong), .assignments = {2, 4}};
  const at::Tensor x = waves({4, 2}, 1);
  const at::Tensor own = expert.rows_of(x);
  expect_near(own, at::stack({x[3], x[1]}), "", 0);
  const at::Tensor sum = x.clone();
  expert.add_to_rows(sum, own);
  expect_near(sum, at::stack({x[0], 2 * x[1], x[2], 2 * x[3]}), "", 0);
  expect_near(expert.of_assignments(waves({6, 2}, 2)), waves({6, 2}, 2).narrow(0, 2, 2), "", 0);
  expert.row_N = at::Tensor();
  expect_near(expert.rows_of(x), x, "all rows", 0);
}

// Rows of several tuned models in one engine step take their own adapters.
TEST(Expert, RowsTakeTheirOwnAdaptersColumns) {
  const ExpertTensors tensors;
  Expert expert = tensors.expert();
  expert.row_N = at::tensor({2, 0}, at::kLong);
  const AdapterMask mask{.chosen_TK = at::tensor({1.0, 0.0, 0.0, 0.0, 0.0, 1.0}, at::kDouble).view({3, 2}),
                         .chosen_SK = {}};
  expert.adapter_rows = &mask;
  const at::Tensor x = waves({3, kExpertHidden}, 8), found = at::empty({2, 2 * kExpertInner}, at::kDouble);
  expert.gate_up_into(found, expert.rows_of(x));
  for (const auto& [at, row] : {std::pair{0, 2}, {1, 0}}) {
    const int64_t column = row == 2 ? 1 : 0;
    const at::Tensor adapted =
        tensors.gate_up +
        0.5 * tensors.up_left.narrow(1, column, 1).mm(tensors.up_right.narrow(0, column, 1));
    expect_near(found[at], adapted.mv(x[row]) + tensors.bias, "row " + std::to_string(row));
  }
}

TEST(Expert, ExpertsWithRowsAreVisitedEachWithItsOwn) {
  const at::Tensor id = at::tensor({0, 2, 2, 0, 3, 2}, at::kInt).view({3, 2});
  const ExpertWeights weights{.gate_up = {.w_EAB = waves({3, 2, 2}, 1), .left_EAK = {}, .right_EKB = {}},
                              .down = {.w_EAB = waves({3, 2, 2}, 2), .left_EAK = {}, .right_EKB = {}},
                              .gate_up_bias_EG = {}};
  EXPECT_FALSE(weights.adapters_wanted());
  const ops::ExpertAssignments visits = ops::expert_assignments_of(id, 4);
  for (const bool at_once : {false, true}) {
    std::mutex mutex;
    std::map<int64_t, std::vector<int64_t>> rows;
    const auto visit = [&](const Expert& expert) {
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < expert.row_N.size(0); ++i)
        rows[expert.index].push_back(expert.row_N[i].item<int64_t>());
      EXPECT_TRUE(expert.gate_up.w_AB.equal(weights.gate_up.w_EAB[expert.index]));
    };
    // The fourth expert is another rank's.
    at_once ? for_each_expert_at_once(weights, 3, visits, visit) : for_each_expert(weights, 3, visits, visit);
    EXPECT_EQ(rows, (std::map<int64_t, std::vector<int64_t>>{{0, {0, 1}}, {2, {0, 1, 2}}}));
  }
}

}  // namespace
}  // namespace sluice::layers
