#include "model/experts_kind.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::model {

std::vector<Parameter> ExpertsKind::parameters() const {
  const auto whole = [](std::string_view role, std::string_view tensor, int64_t rows, int64_t columns) {
    Parameter parameter = matrix(role, {std::string(tensor)}, columns, {{rows, 0}});
    parameter.replicated = true;
    return parameter;
  };
  const int64_t wide = experts_.count * experts_.hidden;
  // Rows of one place in all experts are neighbours: a cut of them cuts each expert alike.
  const RowGroup all{wide, experts_.hidden};
  std::vector<Parameter> parameters = {
      norm("mlp_norm", "post_attention_layernorm.weight", hidden_),
      whole("router", "mlp.gate.weight", experts_.count, hidden_),
      matrix("experts_gate_up", {"mlp.experts.gate_up_proj"}, hidden_, {{2 * wide, experts_.hidden}}),
      matrix("experts_down", {"mlp.experts.down_proj"}, hidden_, {all}, Start::kResidual)};
  if (experts_.biases) {
    parameters.push_back(whole("router_bias", "mlp.gate.bias", experts_.count, 1));
    parameters.push_back(
        matrix("experts_gate_up_bias", {"mlp.experts.gate_up_proj_bias"}, 1, {{2 * wide, experts_.hidden}}));
    parameters.push_back(
        whole("experts_down_bias", "mlp.experts.down_proj_bias", experts_.count * hidden_, 1));
  }
  if (experts_.shared_hidden > 0) {
    const RowGroup shared{experts_.shared_hidden, experts_.shared_hidden};
    parameters.push_back(matrix("shared_gate_up", {"mlp.shared_experts.gate_up"}, hidden_, {shared, shared}));
    parameters.push_back(
        matrix("shared_down", {"mlp.shared_experts.down"}, hidden_, {shared}, Start::kResidual));
  }
  if (experts_.shared_gate) {
    parameters.push_back(whole("shared_gate", "mlp.shared_expert_gate.weight", 1, hidden_));
  }
  return parameters;
}

int64_t ExpertsKind::unvisited() const {
  const int64_t biases = experts_.biases ? 2 * experts_.hidden + hidden_ : 0;
  return (experts_.count - experts_.per_token) * (3 * hidden_ * experts_.hidden + biases);
}

std::string ExpertsKind::tp_fault(int tp) const {
  return tp > experts_.hidden ? base::text("tp ", tp, " is above an expert's hidden ", experts_.hidden) : "";
}

// Beside what an MLP of the visited width reads and writes: scores of all experts, and each token's row on
// its way to its experts and back.
TokenWork ExpertsKind::work() const {
  const int64_t router = hidden_ * (experts_.count + (experts_.shared_gate ? 1 : 0));
  return {
      .products = router + 3 * hidden_ * visited_hidden(),
      .recomputed = router + 2 * hidden_ * visited_hidden(),
      .elements = 5 * hidden_ + 3 * visited_hidden() + 2 * experts_.count + 4 * experts_.per_token * hidden_,
      .collectives = 2};
}

PartBytes ExpertsKind::bytes(int tp, int64_t element_bytes) const {
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t ffn = (visited_hidden() + tp - 1) / tp;
  // Of each visit: its number and its weight.
  const int64_t visits = experts_.per_token * (4 + statistic_bytes);
  const RowBytes input{hidden_ * element_bytes + statistic_bytes, 2 * ffn * element_bytes + visits};
  const int64_t sorted = experts_.per_token * hidden_;  // rows in the order of experts
  PartBytes bytes;
  bytes.saved = input;
  bytes.recomputed = input;
  // The normed input and output gradient; gradients of gate and up, SwiGLU's output.
  bytes.until_weight = {2 * hidden_ * element_bytes, 3 * ffn * element_bytes + visits};
  bytes.forward = element_bytes * (ffn + sorted + hidden_);
  bytes.backward = element_bytes * (2 * hidden_ + 2 * sorted + 2 * ffn);
  bytes.ring_backward = bytes.backward;
  bytes.released = 2 * ffn * element_bytes;
  return bytes;
}

}  // namespace sluice::model
