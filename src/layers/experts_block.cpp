#include "layers/experts_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "layers/balance.h"
#include "layers/context.h"
#include "layers/gated.h"
#include "layers/parameters.h"
#include "layers/residual.h"
#include "layers/router.h"
#include "ops/linear.h"
#include "ops/simd.h"
#include "ops/visits.h"

namespace sluice::layers {
namespace {

// What the backward needs of a forward.
struct ExpertsSaved {
  at::Tensor x_SH;
  at::Tensor inverse_rms_S;
  at::Tensor score_SE;
  at::Tensor id_TK, weight_TK;  // the routes
  at::Tensor gate_up_VG;
  at::Tensor shared_gate_up_TG;
  at::Tensor share_T1;  // factor of what is shared; undefined without one
};

// What the weight gradients need of a backward; undefined of what is not trained.
struct ExpertsDeferred {
  at::Tensor normed_SH;
  at::Tensor dlogit_SE;
  at::Tensor dshare_S1;
  at::Tensor id_TK;
  at::Tensor dgate_up_VG, a_VF;  // a: with its weight
  at::Tensor shared_dgate_up_TG, shared_a_TF;
  at::Tensor dy_SH;
  at::Tensor dy_TH;  // dy gathered, while it is at hand; else undefined and gathered again
};

std::vector<SavedRows> rows_of(ExpertsSaved& saved) {
  return {{saved.x_SH},      {saved.inverse_rms_S}, {saved.score_SE},          {saved.id_TK},
          {saved.weight_TK}, {saved.gate_up_VG},    {saved.shared_gate_up_TG}, {saved.share_T1}};
}

std::vector<SavedRows> rows_of(ExpertsDeferred& deferred) {
  return {{deferred.normed_SH},   {deferred.dlogit_SE}, {deferred.dshare_S1},          {deferred.id_TK},
          {deferred.dgate_up_VG}, {deferred.a_VF},      {deferred.shared_dgate_up_TG}, {deferred.shared_a_TF},
          {deferred.dy_SH},       {deferred.dy_TH}};
}

// One gated MLP and the rows that visit it.
struct Expert {
  at::Tensor gate_up_GH, down_FH;
  at::Tensor gate_up_bias_G;  // undefined: none
  at::Tensor row_N;           // who comes; undefined: all rows, in their order
  base::Interval visits;      // of V
  int64_t index = 0;
};

at::Tensor rows_that_come(const at::Tensor& x_TH, const at::Tensor& row_N) {
  return row_N.defined() ? x_TH.index_select(0, row_N) : x_TH;
}

void add_where_they_came_from(const at::Tensor& to_TH, const at::Tensor& row_N, const at::Tensor& from_NH) {
  if (row_N.defined()) return ops::add_to_rows(to_TH, row_N, from_NH);
  at::Tensor target_TH = to_TH;
  target_TH.add_(from_NH);
}

void add_column_sums(const at::Tensor& to_X, const at::Tensor& from_NX) {
  at::Tensor target_X = to_X;
  target_X.add_(from_NX.sum(0, /*keepdim=*/false, to_X.scalar_type()));
}

at::Tensor of_visits(const at::Tensor& all_VX, const base::Interval& visits) {
  return all_VX.narrow(0, visits.begin, visits.size());
}

class ExpertsPart final : public Part {
 public:
  explicit ExpertsPart(const Site& site)
      : context_(site.context),
        experts_(site.context.shape.experts),
        weights_(experts_parameters(site.own_weights(), experts_.count)),
        gradients_(experts_parameters(site.own_gradients(), experts_.count)) {}

  at::Tensor forward(const MicroBatchLayout&, const at::Tensor& x_SH, StatePtr* saved) const override {
    ExpertsSaved half = first_half(x_SH, {}, {});
    at::Tensor y_SH = second_half(half);
    if (saved != nullptr) {
      auto state = std::make_unique<TensorState<ExpertsSaved>>();
      state->tensors = std::move(half);
      *saved = std::move(state);
    }
    return y_SH;
  }

  void drop_recomputable(State& state, Input input) const override {
    auto& saved = tensors_of<ExpertsSaved>(state);
    ExpertsSaved left;
    if (input == Input::kKept) left.x_SH = saved.x_SH;
    left.id_TK = saved.id_TK;
    left.weight_TK = saved.weight_TK;
    saved = std::move(left);
  }
  at::Tensor result(const State& state) const override {
    const auto& saved = tensors_of<ExpertsSaved>(state);
    return second_half(first_half(saved.x_SH, saved.id_TK, saved.weight_TK));
  }
  void restore(const MicroBatchLayout&, State& state, const at::Tensor& x_SH) const override {
    auto& saved = tensors_of<ExpertsSaved>(state);
    if (saved.gate_up_VG.defined()) return;
    saved = first_half(saved.x_SH.defined() ? saved.x_SH : x_SH, saved.id_TK, saved.weight_TK);
  }
  int64_t recomputed_bytes(const MicroBatchLayout& layout) const override {
    const at::Tensor& gate_up_EGH = weights_.gate_up_EGH;
    const int64_t element = gate_up_EGH.element_size(), statistic = std::max<int64_t>(4, element);
    const int64_t shared = weights_.shared_gate_up_GH.defined() ? weights_.shared_gate_up_GH.size(0) : 0;
    const int64_t shard = gate_up_EGH.size(2) * element + (1 + experts_.count) * statistic;
    return layout.rows / context_.parallel.tp * shard +
           layout.rows * (element * (experts_.per_token * gate_up_EGH.size(1) + shared) +
                          (experts_.shared_gate ? statistic : 0));
  }

  at::Tensor backward_input(const MicroBatchLayout&, StatePtr state, const at::Tensor& dy_SH,
                            StatePtr& deferred) const override;
  void drop_gathered(State& deferred) const override { tensors_of<ExpertsDeferred>(deferred).dy_TH.reset(); }
  void backward_weight(StatePtr deferred) const override;

 private:
  // What a forward of x_SH begins with and saves; by these routes, where they are defined.
  ExpertsSaved first_half(const at::Tensor& x_SH, at::Tensor id_TK, at::Tensor weight_TK) const;
  at::Tensor second_half(const ExpertsSaved& saved) const;
  // In the type that is computed with. [V, 1]
  at::Tensor weights_by_visit(const ExpertsSaved& saved, const ops::Visits& visits) const {
    return saved.weight_TK.reshape({-1, 1})
        .index_select(0, visits.slot_V)
        .to(weights_.down_EFH.scalar_type());
  }
  at::Tensor share_of(const ExpertsSaved& saved) const {
    return saved.share_T1.defined() ? saved.share_T1.to(weights_.down_EFH.scalar_type()) : saved.share_T1;
  }
  // Of one expert: dx of the rows that come, whose gate and up become their gradients. Sets that of their
  // weights, where they have some, and a_NF to what their weights' gradients need.
  at::Tensor backward_expert(const Expert& expert, const at::Tensor& dy_NH, const at::Tensor& gate_up_NG,
                             const at::Tensor& weight_N1, at::Tensor& dweight_N1, at::Tensor& a_NF) const;

  // Of this rank's scores; undefined where nothing balances them.
  at::Tensor balance_gradient(const MicroBatchLayout& layout, const ExpertsSaved& saved,
                              const base::Interval& shard) const {
    if (context_.balance_loss == 0) return {};
    const at::Tensor share_QE = shares_of_visits(context_.lanes, layout.sequences, saved.id_TK,
                                                 experts_.count, saved.score_SE.options());
    const at::Tensor row_S = layout.sequences.sequence_T.narrow(0, shard.begin, shard.size());
    return share_QE.index_select(0, row_S).mul_(context_.balance_loss);
  }

  // Those that anybody visits.
  template <typename Visit>
  void for_each(const ExpertsParameters& of, const ops::Visits& visits, Visit visit) const {
    for (int64_t e = 0; e < experts_.count; ++e) {
      const base::Interval own{visits.begins[static_cast<size_t>(e)],
                               visits.begins[static_cast<size_t>(e) + 1]};
      if (own.empty()) continue;
      const auto part = [e](const at::Tensor& all) { return all.defined() ? all[e] : all; };
      visit(Expert{part(of.gate_up_EGH), part(of.down_EFH), part(of.gate_up_bias_EG),
                   of_visits(visits.row_V, own), own, e});
    }
  }
  // Of this rank's rows, zero where an expert is not visited. [S, E]
  at::Tensor weights_of_all(const ExpertsSaved& saved) const {
    const base::Interval shard = context_.parallel.shard_rows(saved.id_TK.size(0));
    const at::Tensor id_SK = saved.id_TK.narrow(0, shard.begin, shard.size()).to(at::kLong);
    const at::Tensor weight_SK = saved.weight_TK.narrow(0, shard.begin, shard.size());
    return at::zeros({shard.size(), experts_.count}, weight_SK.options()).scatter_(1, id_SK, weight_SK);
  }
  // What experts' biases add, Σ weight · bias: adds their gradients, and to those of the weights.
  void down_bias_backward(const ExpertsSaved& saved, const at::Tensor& dsum_SH, const at::Tensor& id_SK,
                          const at::Tensor& dweight_SK) const {
    const at::Tensor dall_SE = ops::wide_times_transposed(dsum_SH, weights_.down_bias_EH);
    at::Tensor dweight = dweight_SK;
    dweight.add_(dall_SE.gather(1, id_SK.to(at::kLong)));
    if (!gradients_.down_bias_EH.defined()) return;
    ops::accumulate_weight_gradient(gradients_.down_bias_EH, weights_of_all(saved).to(dsum_SH.scalar_type()),
                                    dsum_SH);
  }
  Expert shared(const ExpertsParameters& of) const {
    return {of.shared_gate_up_GH, of.shared_down_FH, {}, {}, {}};
  }
  bool shares() const { return weights_.shared_down_FH.defined(); }

  const LayerContext& context_;
  const model::Experts& experts_;
  ExpertsParameters weights_, gradients_;
};

ExpertsSaved ExpertsPart::first_half(const at::Tensor& x_SH, at::Tensor id_TK, at::Tensor weight_TK) const {
  const TensorParallel& parallel = context_.parallel;
  PartInput input = enter(context_, x_SH, weights_.norm_H);
  const at::Tensor normed_SH = std::move(input.y_SH);
  ExpertsSaved saved{.x_SH = x_SH, .inverse_rms_S = std::move(input.inverse_rms_S)};
  saved.score_SE = router_scores(normed_SH, weights_.router_EH, weights_.router_bias_E);
  if (!id_TK.defined()) {
    const at::Tensor id_SK = ops::highest(saved.score_SE, experts_.per_token);
    weight_TK = parallel.all_gather_rows(route_weights(experts_, saved.score_SE, id_SK));
    id_TK = parallel.all_gather_rows(id_SK);
  }
  const at::Tensor normed_TH = parallel.all_gather_rows(normed_SH);
  const ops::Visits visits = ops::visits_of(id_TK, experts_.count);
  saved.gate_up_VG = at::empty({visits.row_V.size(0), weights_.gate_up_EGH.size(1)}, normed_TH.options());
  for_each(weights_, visits, [&](const Expert& expert) {
    at::Tensor gate_up_NG = of_visits(saved.gate_up_VG, expert.visits);
    ops::times_transposed_into(gate_up_NG, rows_that_come(normed_TH, expert.row_N), expert.gate_up_GH);
    if (expert.gate_up_bias_G.defined()) gate_up_NG.add_(expert.gate_up_bias_G);
  });
  if (shares()) saved.shared_gate_up_TG = ops::times_transposed(normed_TH, weights_.shared_gate_up_GH);
  if (weights_.shared_gate_1H.defined()) {
    saved.share_T1 =
        parallel.all_gather_rows(at::sigmoid(ops::wide_times_transposed(normed_SH, weights_.shared_gate_1H)));
  }
  saved.id_TK = std::move(id_TK);
  saved.weight_TK = std::move(weight_TK);
  return saved;
}

at::Tensor ExpertsPart::second_half(const ExpertsSaved& saved) const {
  const at::Tensor& gate_up_VG = saved.gate_up_VG;
  const ops::Visits visits = ops::visits_of(saved.id_TK, experts_.count);
  const at::Tensor weight_V1 = weights_by_visit(saved, visits);
  at::Tensor sum_TH = at::zeros({saved.id_TK.size(0), weights_.down_EFH.size(2)}, gate_up_VG.options());
  const auto add = [&](const Expert& expert, const at::Tensor& gate_up_NG, const at::Tensor& weight_N1) {
    at::Tensor a_NF = gated(context_, gate_up_NG);
    if (weight_N1.defined()) a_NF.mul_(weight_N1);
    add_where_they_came_from(sum_TH, expert.row_N, ops::times(a_NF, expert.down_FH));
  };
  for_each(weights_, visits, [&](const Expert& expert) {
    add(expert, of_visits(gate_up_VG, expert.visits), of_visits(weight_V1, expert.visits));
  });
  if (shares()) add(shared(weights_), saved.shared_gate_up_TG, share_of(saved));
  at::Tensor sum_SH = context_.parallel.reduce_scatter_rows(sum_TH);
  if (weights_.down_bias_EH.defined())
    sum_SH.add_(ops::times(weights_of_all(saved).to(sum_SH.scalar_type()), weights_.down_bias_EH));
  const double factor = context_.shape.residual_scale;
  if (factor != 1.0) sum_SH.mul_(factor);
  return sum_SH.add_(saved.x_SH);
}

at::Tensor ExpertsPart::backward_expert(const Expert& expert, const at::Tensor& dy_NH,
                                        const at::Tensor& gate_up_NG, const at::Tensor& weight_N1,
                                        at::Tensor& dweight_N1, at::Tensor& a_NF) const {
  at::Tensor da_NF = ops::times_transposed(dy_NH, expert.down_FH);
  if (!weight_N1.defined()) {
    a_NF = gated_backward(context_, da_NF, gate_up_NG);
  } else {
    a_NF = gated_backward(context_, da_NF * weight_N1, gate_up_NG);
    dweight_N1 = da_NF.mul_(a_NF).sum(1, /*keepdim=*/true, ops::accumulator_type(a_NF));
    a_NF.mul_(weight_N1);
  }
  da_NF.reset();
  return ops::times(gate_up_NG, expert.gate_up_GH);
}

at::Tensor ExpertsPart::backward_input(const MicroBatchLayout& layout, StatePtr state,
                                       const at::Tensor& dy_SH, StatePtr& deferred) const {
  const TensorParallel& parallel = context_.parallel;
  ExpertsSaved saved = std::move(tensors_of<ExpertsSaved>(*state));
  const double factor = context_.shape.residual_scale;
  const at::Tensor dsum_SH = factor == 1.0 ? dy_SH : dy_SH * factor;
  const at::Tensor dsum_TH = parallel.all_gather_rows(dsum_SH);
  const ops::Visits visits = ops::visits_of(saved.id_TK, experts_.count);
  const at::Tensor weight_V1 = weights_by_visit(saved, visits);
  const at::Tensor dgate_up_VG = std::move(saved.gate_up_VG);
  at::Tensor a_VF = at::empty({weight_V1.size(0), weights_.down_EFH.size(1)}, dgate_up_VG.options());
  at::Tensor dweight_V1 = at::empty(weight_V1.sizes(), saved.weight_TK.options()), dshare_T1, shared_a_TF;
  at::Tensor dnormed_TH = at::zeros_like(dsum_TH);
  for_each(weights_, visits, [&](const Expert& expert) {
    at::Tensor dweight_N1, a_NF;
    const at::Tensor dx_NH =
        backward_expert(expert, rows_that_come(dsum_TH, expert.row_N), of_visits(dgate_up_VG, expert.visits),
                        of_visits(weight_V1, expert.visits), dweight_N1, a_NF);
    ops::add_to_rows(dnormed_TH, expert.row_N, dx_NH);
    of_visits(dweight_V1, expert.visits).copy_(dweight_N1);
    if (gradients_.gate_up_bias_EG.defined())
      add_column_sums(gradients_.gate_up_bias_EG[expert.index], of_visits(dgate_up_VG, expert.visits));
    of_visits(a_VF, expert.visits).copy_(a_NF);
  });
  if (shares()) {
    dnormed_TH.add_(backward_expert(shared(weights_), dsum_TH, saved.shared_gate_up_TG, share_of(saved),
                                    dshare_T1, shared_a_TF));
  }
  const at::Tensor dweight_TK =
      at::empty_like(saved.weight_TK.view({-1, 1})).index_copy_(0, visits.slot_V, dweight_V1);
  const at::Tensor dweight_SK = parallel.reduce_scatter_rows(dweight_TK.view(saved.weight_TK.sizes()));
  const base::Interval shard = parallel.shard_rows(saved.id_TK.size(0));
  const at::Tensor id_SK = saved.id_TK.narrow(0, shard.begin, shard.size());
  if (weights_.down_bias_EH.defined()) down_bias_backward(saved, dsum_SH, id_SK, dweight_SK);
  const at::Tensor dlogit_SE =
      router_gradient(experts_, saved.score_SE, id_SK, dweight_SK, balance_gradient(layout, saved, shard));

  if (gradients_.router_bias_E.defined()) add_column_sums(gradients_.router_bias_E, dlogit_SE);
  at::Tensor dnormed_SH = parallel.reduce_scatter_rows(dnormed_TH);
  const at::ScalarType type = dnormed_SH.scalar_type();
  dnormed_SH.add_(ops::times(dlogit_SE.to(type), weights_.router_EH));
  at::Tensor dshare_S1;
  if (dshare_T1.defined()) {
    const at::Tensor share_S1 = saved.share_T1.narrow(0, shard.begin, shard.size());
    dshare_S1 = parallel.reduce_scatter_rows(dshare_T1) * share_S1 * (1 - share_S1);
    dnormed_SH.add_(ops::times(dshare_S1.to(type), weights_.shared_gate_1H));
  }
  PartInputGradient input = enter_backward(context_, dnormed_SH, saved.x_SH, weights_.norm_H,
                                           saved.inverse_rms_S, dy_SH, gradients_.norm_H);

  auto left = std::make_unique<TensorState<ExpertsDeferred>>();
  ExpertsDeferred& kept = left->tensors;
  kept.id_TK = std::move(saved.id_TK);
  kept.normed_SH = std::move(input.y_SH);
  if (gradients_.router_EH.defined()) kept.dlogit_SE = dlogit_SE.to(type);
  if (gradients_.shared_gate_1H.defined()) kept.dshare_S1 = dshare_S1.to(type);
  if (gradients_.gate_up_EGH.defined()) kept.dgate_up_VG = dgate_up_VG;
  if (gradients_.down_EFH.defined()) kept.a_VF = a_VF;
  if (gradients_.shared_gate_up_GH.defined()) kept.shared_dgate_up_TG = saved.shared_gate_up_TG;
  if (gradients_.shared_down_FH.defined()) kept.shared_a_TF = shared_a_TF;
  if (kept.a_VF.defined() || kept.shared_a_TF.defined()) {
    kept.dy_SH = dsum_SH;
    kept.dy_TH = dsum_TH;
  }
  deferred = std::move(left);
  return input.dx_SH;
}

void ExpertsPart::backward_weight(StatePtr state) const {
  ExpertsDeferred deferred = std::move(tensors_of<ExpertsDeferred>(*state));
  const TensorParallel& parallel = context_.parallel;
  const ops::Visits visits = ops::visits_of(deferred.id_TK, experts_.count);
  const auto accumulate = [&](const at::Tensor& gradient, const at::Tensor& a, const at::Tensor& b) {
    if (gradient.defined()) ops::accumulate_weight_gradient(gradient, a, b);
  };
  if (deferred.dy_SH.defined()) {
    at::Tensor dy_TH = std::move(deferred.dy_TH);
    if (!dy_TH.defined()) dy_TH = parallel.all_gather_rows(deferred.dy_SH);
    if (deferred.a_VF.defined()) {
      for_each(gradients_, visits, [&](const Expert& expert) {
        accumulate(expert.down_FH, of_visits(deferred.a_VF, expert.visits),
                   rows_that_come(dy_TH, expert.row_N));
      });
    }
    if (deferred.shared_a_TF.defined()) accumulate(gradients_.shared_down_FH, deferred.shared_a_TF, dy_TH);
    deferred.a_VF.reset();
    deferred.shared_a_TF.reset();
  }
  if (deferred.dlogit_SE.defined()) accumulate(gradients_.router_EH, deferred.dlogit_SE, deferred.normed_SH);
  if (deferred.dshare_S1.defined())
    accumulate(gradients_.shared_gate_1H, deferred.dshare_S1, deferred.normed_SH);
  if (!deferred.dgate_up_VG.defined() && !deferred.shared_dgate_up_TG.defined()) return;
  const at::Tensor normed_TH = parallel.all_gather_rows(deferred.normed_SH);
  if (deferred.dgate_up_VG.defined()) {
    for_each(gradients_, visits, [&](const Expert& expert) {
      accumulate(expert.gate_up_GH, of_visits(deferred.dgate_up_VG, expert.visits),
                 rows_that_come(normed_TH, expert.row_N));
    });
  }
  if (deferred.shared_dgate_up_TG.defined())
    accumulate(gradients_.shared_gate_up_GH, deferred.shared_dgate_up_TG, normed_TH);
}

}  // namespace

std::unique_ptr<const Part> make_experts(const Site& site) {
  return std::make_unique<const ExpertsPart>(site);
}

}  // namespace sluice::layers
