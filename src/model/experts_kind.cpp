#include "model/experts_kind.h"

#include <algorithm>

#include "base/text.h"
#include "model/wave_rows.h"

namespace sluice::model {
namespace {

Parameter whole(std::string_view role, std::string_view tensor, int64_t rows, int64_t columns,
                Start start = Start::kNormal) {
  Parameter parameter = matrix(role, {std::string(tensor)}, columns, {{rows, 0}}, start);
  parameter.replicated = true;
  return parameter;
}

// One behind the other, each of `groups`, with a tensor for each of them.
Parameter of_experts(int64_t experts, std::string_view role, const std::vector<std::string>& tensors,
                     int64_t columns, const std::vector<RowGroup>& groups, Start start = Start::kNormal) {
  std::vector<RowGroup> all;
  for (int64_t expert = 0; expert < experts; ++expert) all.insert(all.end(), groups.begin(), groups.end());
  Parameter parameter = matrix(role, of_each_expert(experts, tensors), columns, std::move(all), start);
  parameter.experts = experts;
  return parameter;
}

}  // namespace

std::vector<std::string> of_each_expert(int64_t experts, const std::vector<std::string>& tensors) {
  std::vector<std::string> all;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (const std::string& tensor : tensors) {
      std::string& name = all.emplace_back(tensor);
      name.replace(name.find(kOfExpert), kOfExpert.size(), std::to_string(expert));
    }
  }
  return all;
}

std::vector<Parameter> ExpertsKind::parameters() const {
  const int64_t count = experts_.count;
  const RowGroup own{experts_.hidden, experts_.hidden};
  Parameter down =
      of_experts(count, kDown, {"mlp.experts.{}.down_proj.weight"}, hidden_, {own}, Start::kResidual);
  down.transposed = true;
  std::vector<Parameter> parameters = {
      norm(kNorm, "post_attention_layernorm.weight", hidden_, norm_offset_),
      whole(kRouter, "mlp.gate.weight", count, hidden_),
      of_experts(count, kGateUp, {"mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight"},
                 hidden_, {own, own}),
      std::move(down)};
  if (experts_.biases) {
    parameters.push_back(whole(kRouterBias, "mlp.gate.bias", count, 1, Start::kZero));
    parameters.push_back(of_experts(count, kGateUpBias,
                                    {"mlp.experts.{}.gate_proj.bias", "mlp.experts.{}.up_proj.bias"}, 1,
                                    {own, own}, Start::kZero));
    parameters.push_back(whole(kDownBias, "mlp.experts.down_proj_bias", count * hidden_, 1, Start::kZero));
  }
  if (experts_.corrected) {
    parameters.push_back(whole(kCorrection, "mlp.gate.e_score_correction_bias", count, 1, Start::kZero));
    parameters.back().learns = Learns::kAsCorrection;
  }
  if (experts_.shared_hidden > 0) {
    const RowGroup shared{experts_.shared_hidden, experts_.shared_hidden};
    parameters.push_back(matrix(kSharedGateUp,
                                {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"},
                                hidden_, {shared, shared}));
    parameters.push_back(
        matrix(kSharedDown, {"mlp.shared_expert.down_proj.weight"}, hidden_, {shared}, Start::kResidual));
    parameters.back().transposed = true;
  }
  if (experts_.shared_gate) {
    parameters.push_back(whole(kSharedGate, "mlp.shared_expert_gate.weight", 1, hidden_));
  }
  if (experts_.remembers_loads) {
    parameters.push_back(whole(kLoads, "mlp.gate.loads", count, 1, Start::kZero));
    parameters.back().learns = Learns::kAsLoads;
  }
  for (Parameter& parameter : parameters) parameter.adapts = false;
  return parameters;
}

int64_t ExpertsKind::unvisited() const {
  const int64_t biases = experts_.biases ? 2 * experts_.hidden + hidden_ : 0;
  return (experts_.count - experts_.per_token) * (3 * hidden_ * experts_.hidden + biases);
}

std::string ExpertsKind::tp_fault(int tp) const {
  return tp > experts_.hidden ? base::text("tp ", tp, " is above an expert's hidden ", experts_.hidden) : "";
}

int64_t least_ffn(const Shape& shape, int expert_lanes) {
  const Experts& experts = shape.experts;
  if (experts.count == 0) return shape.ffn_hidden;
  const int64_t at_hand = expert_lanes > 1 ? 0 : experts.per_token * experts.hidden;
  const int64_t visited = at_hand + experts.shared_hidden;
  return std::min(shape.ffn_hidden, visited * 3 / 4);
}

// Beside what an MLP of the visited width reads and writes: scores of all experts, and each token's row on
// its way to its experts and back.
TokenWork ExpertsKind::work() const {
  // Biases of what experts give are a product with every row's weights of all experts.
  const int64_t scored = experts_.count * (experts_.biases ? 2 : 1) + (experts_.shared_gate ? 1 : 0);
  const int64_t router = hidden_ * scored;
  return {
      .products = router + 3 * hidden_ * visited_hidden(),
      .recomputed = router + 2 * hidden_ * visited_hidden(),
      .visited = 3 * hidden_ * experts_.per_token * experts_.hidden,
      .elements = 5 * hidden_ + 3 * visited_hidden() + 2 * experts_.count + 4 * experts_.per_token * hidden_,
      .collectives = 2};
}

// Where rows travel a lane keeps of visits as much as its own rows' would take, whoever's they are, or
// nothing; what it has at work of them is the same whatever it has of rows (wave_bytes).
PartBytes ExpertsKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  const bool travels = cut.expert_lanes > 1;
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t visits = experts_.per_token;
  const auto of_rank = [tp](int64_t width) { return (width + tp - 1) / tp; };
  const int64_t shared = of_rank(experts_.shared_hidden);
  const int64_t all = shared + visits * of_rank(experts_.hidden);
  const int64_t ffn = travels ? shared : all, kept = travels && !cut.keeps_visits ? shared : all;
  const int64_t widest = travels ? shared : std::max(of_rank(experts_.hidden), shared);
  const int64_t shard = of_rank(hidden_), gathered = tp > 1 ? hidden_ : 0;
  const int64_t normed = travels ? hidden_ : 0;  // at hand while its rows travel
  // Of the shared experts' factor; of experts' numbers and weights; and of both in the order of experts.
  const int64_t factor = experts_.shared_gate ? statistic_bytes : 0;
  const int64_t routes = visits * (4 + statistic_bytes);
  const int64_t order = travels ? 0 : visits * (16 + 2 * statistic_bytes);
  const int64_t scores = experts_.count * statistic_bytes;
  // Rows' weights of all experts; scores as they are corrected and those of chosen groups.
  const int64_t biased = (experts_.biases ? 2 * scores : 0) + (experts_.corrected ? scores : 0) +
                         (experts_.groups > 1 ? 2 * scores : 0);
  PartBytes bytes;
  // Its input, the norm's scale and the scores; gate and up by visit, and the routes.
  bytes.saved = {hidden_ * element_bytes + statistic_bytes + scores,
                 2 * kept * element_bytes + routes + factor};
  bytes.border = {0, routes};  // never made again
  bytes.recomputed = {bytes.saved.shared, bytes.saved.own - routes + normed * element_bytes};
  // The normed input and output gradient, the scores' gradient; dgate-up and SwiGLU's output by visit.
  bytes.until_weight = {2 * hidden_ * element_bytes + scores + factor, 3 * ffn * element_bytes + 4 * visits};
  // An expert that all tokens visit: its rows, beside the normed input; SwiGLU's output and its product,
  // beside the sum.
  bytes.forward = order + 2 * scores + biased +
                  element_bytes * (normed + std::max(shard + gathered + hidden_, 2 * hidden_ + widest));
  // SwiGLU's output by visit, the gathered gradient and: the input's with an expert's gradients, rows and
  // product; what goes through the norm; an expert's rows for its weights.
  const int64_t expert = hidden_ + std::max(3 * widest, widest + hidden_);
  bytes.backward =
      order + 4 * scores + biased +
      element_bytes * (normed + ffn + gathered +
                       std::max({hidden_ + expert, hidden_ + 2 * shard, 2 * shard + 2 * hidden_}));
  bytes.ring_backward = bytes.backward;
  bytes.released = 2 * kept * element_bytes;
  return bytes;
}

// The most at once, in a backward. Rows as they set out, come and are at work, and as their gradients are
// made, leave and come home: of what a wave brings two rows there and one back. And all of them in one
// expert: its rows, twice, its gate and up, their gradients and SwiGLU's, and what it gives. Beside them
// numbers of visits.
int64_t wave_bytes(const Shape& shape, const Cut& cut, int64_t element_bytes) {
  if (cut.expert_lanes == 1 || shape.experts.count == 0) return 0;
  const Experts& experts = shape.experts;
  const int64_t width = (experts.hidden + cut.tp - 1) / cut.tp;
  const int64_t there = 3 * 2 * shape.hidden, back = 3 * shape.hidden;
  const int64_t expert = 3 * shape.hidden + 6 * width;
  constexpr int64_t kVisitBytes = 64;  // numbers, places and weights, in several orders
  return wave_rows(cut.expert_lanes).most *
         ((there + back + expert) * element_bytes + experts.per_token * kVisitBytes);
}

}  // namespace sluice::model
