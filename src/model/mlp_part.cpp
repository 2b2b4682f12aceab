#include <algorithm>
#include <utility>

#include "base/text.h"
#include "model/derive.h"
#include "model/make_parts.h"
#include "model/roles.h"

namespace sluice::model {

Part mlp_part(const Mlp& own, int64_t hidden, const Biases& biases) {
  const RowGroup ffn{own.width, own.width};
  const std::vector<RowGroup> groups(own.gate.gated ? 2 : 1, ffn);
  const auto names = [&](const std::string& what) {
    return own.gate.gated ? std::vector{"mlp.gate_proj." + what, "mlp.up_proj." + what}
                          : std::vector{"mlp.up_proj." + what};
  };
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  w.push_back(matrix(roles::kGateUp, names("weight"), hidden, groups, Use::kIn));
  if (biases.in) w.push_back(vector(roles::kGateUpBias, names("bias"), groups, Start::kZero));
  if (own.gate.activation == Activation::kXielu) {
    w.push_back(vector(roles::kActivationAlphas, {"mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n"},
                       {{1, 0}, {1, 0}}, Start::kZero));
  }
  w.push_back(out(roles::kDown, "mlp.down_proj.weight", hidden, ffn));
  if (biases.out) w.push_back(vector(roles::kDownBias, {"mlp.down_proj.bias"}, {{hidden, 0}}, Start::kZero));
  return part;
}

// Recomputation leaves out the second matrix, which only later layers need.
MixerFigures figures_of(const Mlp& own, const Part&, const AtWork& at) {
  const int64_t ffn = at.out;
  MixerFigures f{.elements = (own.gate.gated ? 3 : 2) * own.width, .makes_out_again = false};
  // SwiGLU's output beside the product that is summed over the ranks.
  f.forward = at.element * (ffn + at.gathered);
  // The largest of: SwiGLU's output with its gradient; with the input gradient's product; with that, the
  // normed input and the norm's gradient. The gathered gradient is added; gate and up become their gradients.
  // Without a fused kernel the activation's result, its gradient and their temporaries are added.
  const bool fused = own.gate.activation != Activation::kGelu && own.gate.activation != Activation::kTanh;
  f.backward = at.element * (at.gathered + std::max((fused ? 2 : 5) * ffn, at.behind(ffn)));
  if (own.gate.activation == Activation::kXielu) {  // its steps are separate tensors
    f.forward += 5 * ffn * at.statistic;
    f.backward += 6 * ffn * at.statistic;
  }
  f.ring_backward = f.backward;
  f.released = at.results * at.element;
  return f;
}

std::string tp_fault_of(const Mlp& own, int tp) {
  return tp > own.width ? base::text("tp ", tp, " is above ffn_hidden ", own.width) : "";
}

namespace {

Weight counts(const Experts& own, std::string_view role, const char* tensor, Learns learns) {
  Weight weight = vector(role, {tensor}, {{own.count, 0}}, Start::kZero);
  weight.learns = learns;
  return weight;
}
Weight loads(const Experts& own) { return counts(own, roles::kLoads, "mlp.gate.loads", Learns::kAsLoads); }

}  // namespace

void add_loads(RoutedExperts& own, Part& part) {
  own.experts.remembers_loads = true;
  part.weights.push_back(loads(own.experts));
  part.weights.back().adapts = false;
}

Part experts_part(const RoutedExperts& routed, int64_t hidden) {
  const Experts& own = routed.experts;
  const RowGroup each{own.hidden, own.hidden}, shared{own.shared_hidden, own.shared_hidden};
  Part part{.mixer = routed};
  std::vector<Weight>& w = part.weights;
  const auto groups = [&](const RowGroup& width) {
    return std::vector<RowGroup>(routed.gate.gated ? 2 : 1, width);
  };
  const auto names = [&](const std::string& module, const char* what) {
    std::vector<std::string> all;
    if (routed.gate.gated) all.push_back(module + ".gate_proj." + what);
    all.push_back(module + ".up_proj." + what);
    return all;
  };
  const auto of_experts = [&](Weight weight) {
    weight.experts = own.count;
    weight.visits = own.per_token;
    w.push_back(std::move(weight));
  };
  // Scores are wide, for the shard's rows.
  const auto scores = [&](std::string_view role, const char* tensor, int64_t rows) {
    w.push_back(matrix(role, {tensor}, hidden, {{rows, 0}}, Use::kIn));
    w.back().place = Place::kShard;
    w.back().wide = true;
  };
  scores(roles::kRouter, "mlp.gate.weight", own.count);
  of_experts(
      matrix(roles::kExpertsGateUp, names("mlp.experts.{}", "weight"), hidden, groups(each), Use::kIn));
  of_experts(out(roles::kExpertsDown, "mlp.experts.{}.down_proj.weight", hidden, each));
  if (own.biases) {
    w.push_back(vector(roles::kRouterBias, {"mlp.gate.bias"}, {{own.count, 0}}, Start::kZero));
    of_experts(
        vector(roles::kExpertsGateUpBias, names("mlp.experts.{}", "bias"), groups(each), Start::kZero));
    w.push_back(vector(roles::kExpertsDownBias, {"mlp.experts.down_proj_bias"}, {{own.count * hidden, 0}},
                       Start::kZero));
  }
  if (own.corrected)
    w.push_back(counts(own, roles::kCorrection, "mlp.gate.e_score_correction_bias", Learns::kAsRouterBias));
  if (own.shared_hidden > 0) {
    w.push_back(
        matrix(roles::kSharedGateUp, names("mlp.shared_expert", "weight"), hidden, groups(shared), Use::kIn));
    w.push_back(out(roles::kSharedDown, "mlp.shared_expert.down_proj.weight", hidden, shared));
  }
  if (own.shared_gate) {
    scores(roles::kSharedGate, "mlp.shared_expert_gate.weight", 1);
    w.back().kept = false;  // its sigmoid is kept, for all rows
  }
  if (routed.router_norm_eps > 0)
    w.push_back(vector(roles::kRouterScale, {"router.scale"}, {{hidden, 0}}, Start::kOne));
  if (routed.expert_scales)
    w.push_back(vector(roles::kExpertScales, {"router.per_expert_scale"}, {{own.count, 0}}, Start::kOne));
  if (own.remembers_loads) w.push_back(loads(own));
  forbid_adapters(part);
  return part;
}

// Work: an MLP of the visited width, scores of all experts, and each token's row on its way to its experts
// and back. If rows travel, a lane saves for visits as much as its own rows would take, whichever rows
// arrive, or nothing. Its working memory for visits is independent of its rows (dispatch_chunk_bytes), so it
// is not counted here.
MixerFigures figures_of(const RoutedExperts& routed, const Part& part, const AtWork& at) {
  const Experts& own = routed.experts;
  const int64_t visits = own.per_token, shared = at.of_rank(own.shared_hidden), hidden = at.hidden;
  const int64_t all = shared + visits * at.of_rank(own.hidden), e = at.element;
  const int64_t ffn = at.travels ? shared : all, kept = at.travels && !at.keeps_visits ? shared : all;
  const int64_t widest = at.travels ? shared : std::max(at.of_rank(own.hidden), shared);
  const int64_t normed = at.travels ? hidden : 0;                           // in memory while its rows travel
  const int64_t routes = visits * (4 + at.statistic);                       // numbers and weights of experts
  const int64_t order = at.travels ? 0 : visits * (16 + 2 * at.statistic);  // both, in the order of experts
  const int64_t scores = own.count * at.statistic;
  // Every row's weights for all experts; corrected scores and scores of chosen groups; the result of a
  // router's own norm.
  const int64_t biased = (own.biases ? 2 * scores : 0) + (own.corrected ? scores : 0) +
                         (own.groups > 1 ? 2 * scores : 0) + (routed.expert_scales ? 2 * scores : 0) +
                         (routed.sparse_jitter > 0 ? 6 * scores : 0) +
                         (routed.router_norm_eps > 0 ? 4 * at.shard * e : 0);
  MixerFigures f{.makes_out_again = false};
  // Experts' output biases are a product with every row's weights for all experts.
  f.products = own.biases ? hidden * own.count : 0;
  f.elements = 3 * (visits * own.hidden + own.shared_hidden) + 2 * own.count + 4 * visits * hidden;
  f.saved.own = routes + (own.shared_gate ? at.statistic : 0);
  f.border.own = routes;  // never recomputed
  f.until_weight.own = 4 * visits;
  if (routed.router_norm_eps > 0) f.until_weight.shared = hidden * e;
  f.recomputed = normed * e;
  // The shared expert's rows, beside the normed input; or SwiGLU's output and its product, beside the
  // sum.
  f.forward = order + 2 * scores + biased +
              e * (normed + std::max(at.shard + at.gathered + hidden, 2 * hidden + widest));
  // SwiGLU's outputs by visit, the gathered gradient, and the largest of: the input's gradient with an
  // expert's gradients, rows and product; the norm's backward; an expert's rows for weight gradients.
  const int64_t expert = hidden + std::max(3 * widest, widest + hidden);
  f.backward = order + 4 * scores + biased +
               e * (normed + ffn + at.gathered +
                    std::max({hidden + expert, hidden + 2 * at.shard, 2 * at.shard + 2 * hidden}));
  // Rows that experts' adapters need for their gradients.
  const bool adapted = std::ranges::any_of(
      part.weights, [](const Weight& weight) { return weight.experts > 0 && !weight.adapters.empty(); });
  if (adapted && !at.travels) f.backward += hidden * e;
  if (routed.gate.weighs_input) {  // gate and up with routing weights; dispatch bounds dispatched rows
    f.forward += 2 * widest * e;
    f.backward += 4 * widest * e;
  }
  f.ring_backward = f.backward;
  f.released = 2 * kept * e;
  return f;
}

std::string tp_fault_of(const RoutedExperts& routed, int tp) {
  const int64_t width = routed.experts.hidden;
  return tp > width ? base::text("tp ", tp, " is above an expert's hidden ", width) : "";
}

}  // namespace sluice::model
