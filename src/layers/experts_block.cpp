#include "layers/experts_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "layers/balance.h"
#include "layers/context.h"
#include "layers/expert.h"
#include "layers/frame.h"
#include "layers/grouped_experts.h"
#include "layers/product.h"
#include "layers/router.h"
#include "layers/token_dispatcher.h"
#include "model/expert_slots.h"
#include "model/roles.h"
#include "ops/expert_assignments.h"
#include "ops/linear.h"
#include "ops/simd.h"

namespace sluice::layers {

namespace roles = model::roles;

namespace {

struct ExpertsWeights : ExpertWeights {
  at::Tensor router_EH;            // all experts
  at::Tensor router_correction_E;  // this and the next: all experts; undefined: none
  at::Tensor router_loads_E;
  at::Tensor router_bias_E;  // undefined: none
  at::Tensor down_bias_EH;   // all experts, whole on every rank
  Matrix shared_down;        // this and the next: undefined without a shared expert
  at::Tensor shared_gate_1H;
  at::Tensor router_scale_H, expert_scale_E;  // undefined: none
};
// `own`: the number of the model's experts that this rank computes.
ExpertsWeights experts_weights(const OperationShards& shards, int64_t experts, int64_t own) {
  const auto bias_by_expert = [&](std::string_view role, int64_t of) {
    const at::Tensor all = shards.vector(role);
    return all.defined() ? all.view({of, -1}) : all;
  };
  return {{expert_matrices(shards, roles::kExpertsGateUp, own),
           expert_matrices(shards, roles::kExpertsDown, own), bias_by_expert(roles::kExpertsGateUpBias, own)},
          shards.tensor(roles::kRouter),
          shards.vector(roles::kCorrection),
          shards.vector(roles::kLoads),
          shards.vector(roles::kRouterBias),
          bias_by_expert(roles::kExpertsDownBias, experts),
          exact_matrix(shards, roles::kSharedDown),
          shards.tensor(roles::kSharedGate),
          shards.vector(roles::kRouterScale),
          shards.vector(roles::kExpertScales)};
}

struct ExpertsState final : MixerState {
  at::Tensor score_SE;
  at::Tensor id_TK, weight_TK;  // the token-to-expert assignments
  at::Tensor gate_up_VG;        // if rows travel: as many rows as KeptVisits has room for
  at::Tensor shared_gate_up_TG;
  at::Tensor share_T1;             // factor of the shared expert; undefined without one
  at::Tensor normed_TH;            // if rows travel, while at hand
  TokenDispatcher::Counts counts;  // if rows travel
  AssignedRows assigned;           // during a forward of grouped experts
  int64_t normed_bytes = 0;

  std::vector<SavedRows> rows() override {
    return {{score_SE}, {id_TK}, {weight_TK}, {gate_up_VG}, {shared_gate_up_TG}, {share_T1}};
  }
  std::vector<at::Tensor*> made_again() override {
    return {&score_SE, &gate_up_VG, &shared_gate_up_TG, &share_T1};
  }
  int64_t made_beside_bytes() const override { return normed_bytes; }
};

// Operands of the weight gradients, by assignment.
struct VisitsGradient {
  at::Tensor dgate_up_VG, a_VF;  // a: times the assignment's weight
};

// Keeps gate and up of dispatched rows for backward, for as many assignments as the lane's own rows have.
// Kept are the first experts of the first dispatch chunks that fit; of grouped experts the first assignments.
// A backward recomputes the rest, so that routers decide on time alone, not on memory.
class KeptVisits {
 public:
  explicit KeptVisits(at::Tensor room_VG) : room_VG_(std::move(room_VG)) {}
  // As many of the next `visits` assignments as there is room for, possibly none.
  at::Tensor up_to(int64_t visits) {
    return room_VG_.defined() ? next(std::min(visits, room_VG_.size(0) - used_)) : at::Tensor();
  }
  // The next `visits` assignments, in the same order forward and backward. Undefined: not kept.
  at::Tensor next(int64_t visits) {
    if (!room_VG_.defined() || used_ + visits > room_VG_.size(0)) return {};
    used_ += visits;
    return room_VG_.narrow(0, used_ - visits, visits);
  }

 private:
  at::Tensor room_VG_;  // undefined: none
  int64_t used_ = 0;
};

class ExpertsMixer final : public Mixer {
 public:
  enum In : uint8_t { kRouter, kSharedGateUp, kSharedGate };
  enum Inner : uint8_t { kGateUp, kDown, kSharedDown, kNormedRouter };

  ExpertsMixer(const Site& site, const model::RoutedExperts& own)
      : context_(site.context),
        experts_(own.experts),
        floor_(own.floor),
        sparse_jitter_(own.sparse_jitter),
        gate_(own.gate),
        layer_(site.layer()),
        seats_(seats_of(context_.experts, layer_, experts_.count)),
        own_(std::ssize(seats_) / context_.experts.lanes),
        weights_(experts_weights(site.own_weights(), experts_.count, own_)),
        gradients_(experts_weights(site.own_gradients(), experts_.count, own_)),
        router_norm_(own.router_norm_eps, weights_.router_scale_H, gradients_.router_scale_H) {
    if (context_.corrections != nullptr && weights_.router_correction_E.defined())
      weights_.router_correction_E = context_.correction_of(layer_);
  }

  Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* saved) const override {
    auto state = std::make_unique<ExpertsState>();
    first_half(rows, *state);
    if (travels() && saved != nullptr && layout.dispatched.keeps)
      state->gate_up_VG = visits_of(state->id_TK.numel(), state->normed_TH);
    Mixed mixed =
        with_shared(*state, travels() ? sums_of_travel(layout.dispatched, *state) : sums_of_visits(*state));
    state->normed_TH.reset();
    state->assigned = {};
    if (saved != nullptr) *saved = std::move(state);
    return mixed;
  }
  // Not called if rows travel: experts are a block's last part.
  Mixed again(const RowLayout&, PartRows& rows, MixerState& saved) const override {
    SLUICE_ASSERT(!travels(), "a part behind experts that rows travel to");
    ExpertsState made;
    made.id_TK = static_cast<ExpertsState&>(saved).id_TK;
    made.weight_TK = static_cast<ExpertsState&>(saved).weight_TK;
    first_half(rows, made);
    return with_shared(made, sums_of_visits(made));
  }
  void restore(const RowLayout&, PartRows& rows, MixerState& saved) const override {
    first_half(rows, static_cast<ExpertsState&>(saved));
    static_cast<ExpertsState&>(saved).assigned = {};
  }
  at::Tensor backward(const RowLayout& layout, MixerStatePtr saved, Arriving from, PartRows& rows,
                      PartGradient& to) const override;

  void help(const DispatchedRows& rows, Direction direction) const override {
    const at::Tensor none_TH = at::empty({0, weights_.down.w_EAB.size(2)}, weights_.down.w_EAB.options());
    const Routes no_routes{
        at::empty({0, experts_.per_token}, none_TH.options().dtype(at::kInt)),
        at::empty({0, experts_.per_token}, none_TH.options().dtype(ops::accumulator_type(none_TH)))};
    if (direction == Direction::kForward) {
      travel(rows, no_routes, none_TH, none_TH, {});
    } else {
      travel_backward(rows, no_routes, nullptr, none_TH, none_TH, none_TH, no_routes.weight_TK, {});
    }
  }

 private:
  bool travels() const { return context_.experts.lanes > 1; }
  bool grouped() const { return context_.groups_experts && can_be_grouped(weights_); }
  static std::vector<int> seats_of(const ExpertLanes& lanes, int64_t layer, int64_t experts) {
    const std::span<const int> placed = lanes.expert_slots_of(layer);
    return placed.empty() ? model::even_expert_slots(experts)
                          : std::vector<int>(placed.begin(), placed.end());
  }
  // The first half of a forward, with the tensors that it saves. Keeps the state's assignments if defined.
  void first_half(PartRows& rows, ExpertsState& saved) const;
  // The sum of the chosen experts' results, and then the whole result.
  at::Tensor sums_of_visits(const ExpertsState& saved) const;
  at::Tensor sums_of_travel(const DispatchedRows& rows, ExpertsState& saved) const;
  Mixed with_shared(const ExpertsState& saved, at::Tensor sum_TH) const;

  // Adds the results of all lanes' experts for these rows. `kept_VG`: KeptVisits' room. Returns what the host
  // learned for the backward.
  TokenDispatcher::Counts travel(const DispatchedRows& rows, const Routes& routes,
                                 const at::Tensor& normed_TH, const at::Tensor& sum_TH,
                                 const at::Tensor& kept_VG) const;
  // Adds the gradients of rows and of their weights, and those of this lane's experts' parameters.
  void travel_backward(const DispatchedRows& rows, const Routes& routes, const TokenDispatcher::Counts& known,
                       const at::Tensor& normed_TH, const at::Tensor& dsum_TH, const at::Tensor& dnormed_TH,
                       const at::Tensor& dweight_TK, const at::Tensor& kept_VG) const;
  // Results of grouped experts for received rows, and their gradients of these rows and of the weights.
  at::Tensor sums_of_received(const at::Tensor& x_NH, const TokenDispatcher::ReceivedRows& coming,
                              KeptVisits& kept) const;
  std::vector<at::Tensor> gradients_of_received(const at::Tensor& x_NH, const at::Tensor& dsum_NH,
                                                const TokenDispatcher::ReceivedRows& coming,
                                                KeptVisits& kept) const;
  TokenDispatcher travel_of(const DispatchedRows& rows, const Routes& routes,
                            const TokenDispatcher::Counts& known) const {
    SLUICE_ASSERT(context_.lanes != nullptr, "rows travel and lanes have no channel");
    return {*context_.lanes,
            rows,
            context_.experts,
            experts_.count,
            seats_,
            routes,
            model::dispatch_chunk_rows(context_.experts.lanes),
            known};
  }
  // Adds the gradients of rows and of their weights, for assignments to experts at hand. Also adds those of
  // the experts' adapters while rows are there.
  VisitsGradient visits_backward(ExpertsState& saved, const at::Tensor& normed_TH, const at::Tensor& dsum_TH,
                                 const at::Tensor& dnormed_TH, const at::Tensor& dweight_TK) const;
  // The rows' gradient, by either way. Sets their weights' and leaves products for the weight gradients.
  at::Tensor gradient_of_visits(ExpertsState& saved, const at::Tensor& dsum_TH, PartRows& rows,
                                PartGradient& to, at::Tensor& dweight_TK) const;
  // Room for gate and up of so many assignments.
  at::Tensor visits_of(int64_t visits, const at::Tensor& like) const {
    return at::empty({visits, weights_.gate_up.w_EAB.size(1)}, like.options());
  }
  // The assignments' weights in the type of products. [V, 1]
  at::Tensor weights_by_visit(const at::Tensor& weight_TK, const at::Tensor& slot_V) const {
    return weight_TK.reshape({-1, 1}).index_select(0, slot_V).to(weights_.down.w_EAB.scalar_type());
  }
  at::Tensor share_of(const ExpertsState& saved) const {
    return saved.share_T1.defined() ? saved.share_T1.to(weights_.down.w_EAB.scalar_type()) : saved.share_T1;
  }
  // The balancing loss's gradient of this rank's scores; undefined without that loss.
  at::Tensor balance_gradient(const RowLayout& layout, const ExpertsState& saved,
                              const base::Interval& shard) const {
    if (context_.moe_aux_loss_coeff == 0) return {};
    if (weights_.router_loads_E.defined()) {
      at::Tensor dscore_SE = at::zeros_like(saved.score_SE);
      const at::Tensor share_E = shares_of_loads(weights_.router_loads_E.to(dscore_SE.scalar_type()));
      tokens_of(layout, shard, dscore_SE).copy_(share_E.mul_(context_.moe_aux_loss_coeff));
      return dscore_SE;
    }
    const at::Tensor share_QE = shares_of_assignments(context_.lanes, layout.sequences, saved.id_TK,
                                                      experts_.count, saved.score_SE.options());
    const at::Tensor row_S = layout.sequences.sequence_T.narrow(0, shard.begin, shard.size());
    return share_QE.index_select(0, row_S).mul_(context_.moe_aux_loss_coeff);
  }
  // The rows of this rank's shard that stand for tokens.
  static at::Tensor tokens_of(const RowLayout& layout, const base::Interval& shard,
                              const at::Tensor& all_SX) {
    return all_SX.narrow(0, 0, std::clamp<int64_t>(layout.tokens - shard.begin, 0, shard.size()));
  }
  // Counts this rank's assignments in place of gradients (model::Learns).
  void count_visits(const RowLayout& layout, const base::Interval& shard, const at::Tensor& id_SK) const {
    const at::Tensor &beyond_E = gradients_.router_correction_E, &loads_E = gradients_.router_loads_E;
    if (!beyond_E.defined() && !loads_E.defined()) return;
    const at::Tensor visited = tokens_of(layout, shard, id_SK);
    const at::Tensor visits_E = ops::counts_of(visited, experts_.count);
    if (loads_E.defined()) at::Tensor(loads_E).add_(visits_E);
    if (beyond_E.defined()) at::Tensor(beyond_E).add_(visits_E * experts_.count - visited.numel());
  }

  // Weights of this rank's rows for all experts, zero for experts that a row has not chosen. [S, E]
  at::Tensor weights_of_all(const ExpertsState& saved) const {
    const base::Interval shard = context_.parallel.shard_rows(saved.id_TK.size(0));
    const at::Tensor id_SK = saved.id_TK.narrow(0, shard.begin, shard.size()).to(at::kLong);
    const at::Tensor weight_SK = saved.weight_TK.narrow(0, shard.begin, shard.size());
    return at::zeros({shard.size(), experts_.count}, weight_SK.options()).scatter_(1, id_SK, weight_SK);
  }
  // Experts' biases add Σ weight · bias. Adds the gradients of biases, and to the gradients of weights.
  void down_bias_backward(const ExpertsState& saved, const at::Tensor& dsum_SH, const at::Tensor& id_SK,
                          const at::Tensor& dweight_SK) const {
    const at::Tensor dall_SE = ops::wide_times_transposed(dsum_SH, weights_.down_bias_EH);
    at::Tensor dweight = dweight_SK;
    dweight.add_(dall_SE.gather(1, id_SK.to(at::kLong)));
    if (!gradients_.down_bias_EH.defined()) return;
    ops::accumulate_weight_gradient(gradients_.down_bias_EH, weights_of_all(saved).to(dsum_SH.scalar_type()),
                                    dsum_SH);
  }
  // Takes the gradient of weights times expert_scale_E to that of the weights, and adds the scale's.
  at::Tensor scales_backward(const ExpertsState& saved, const at::Tensor& id_SK,
                             const at::Tensor& dweight_SK) const {
    const at::Tensor weight_SK = route_weights(experts_, floor_, saved.score_SE, id_SK);
    add_of_chosen(gradients_.expert_scale_E, dweight_SK * weight_SK, id_SK);
    return dweight_SK * of_chosen(weights_.expert_scale_E, id_SK, dweight_SK);
  }
  void router_backward(const at::Tensor& dlogit_SE, const at::Tensor& x_SH, PartGradient& to) const {
    if (!router_norm_.any()) return to.add(kRouter, dlogit_SE);
    to.add_input(router_norm_.backward(ops::times(dlogit_SE, weights_.router_EH), x_SH));
    if (!gradients_.router_EH.defined()) return;
    const int scored = to.pending().keep(router_norm_.forward(x_SH));
    to.inner_product(kNormedRouter, to.pending().keep(dlogit_SE), {scored});
  }
  Expert shared() const {
    return {{}, weights_.shared_down, {}, {}, {}, 0, weights_.shared_down.low_precision.rows};
  }
  bool shares() const { return weights_.shared_down.defined(); }

  const LayerContext& context_;
  const model::Experts& experts_;
  double floor_;
  double sparse_jitter_;  // 0: scores are as in `experts_`
  const model::Gate& gate_;
  int64_t layer_;
  std::vector<int> seats_;  // all lanes' expert slots: their experts
  int64_t own_;             // number of this lane's experts
  ExpertsWeights weights_, gradients_;
  RouterNorm router_norm_;
};

void ExpertsMixer::first_half(PartRows& rows, ExpertsState& saved) const {
  const TensorParallel& parallel = context_.parallel;
  const at::Tensor scored_SH = router_norm_.any() ? router_norm_.forward(rows.input_SH()) : rows.shard_SH();
  saved.score_SE = sparse_jitter_ > 0
                       ? router_logits(scored_SH, weights_.router_EH)
                       : router_scores(experts_, scored_SH, weights_.router_EH, weights_.router_bias_E);
  if (!saved.id_TK.defined()) {
    const at::Tensor id_SK = chosen_experts(experts_, saved.score_SE, weights_.router_correction_E);
    at::Tensor weight_SK = sparse_jitter_ > 0 ? sparse_mixer_weights(sparse_jitter_, saved.score_SE, id_SK)
                                              : route_weights(experts_, floor_, saved.score_SE, id_SK);
    if (weights_.expert_scale_E.defined())
      weight_SK.mul_(of_chosen(weights_.expert_scale_E, id_SK, weight_SK));
    saved.weight_TK = parallel.all_gather_rows(weight_SK);
    saved.id_TK = parallel.all_gather_rows(id_SK);
  }
  const at::Tensor normed_TH = rows.all_TH();
  if (travels()) {
    saved.normed_TH = normed_TH;
    saved.normed_bytes = static_cast<int64_t>(normed_TH.nbytes());
  } else if (grouped()) {
    saved.assigned = assigned_rows(saved.id_TK, experts_.count, saved.id_TK.numel());
    saved.gate_up_VG = grouped_gate_up(weights_, saved.assigned, saved.assigned.of(normed_TH));
  } else {
    const ops::ExpertAssignments visits = ops::expert_assignments_of(saved.id_TK, experts_.count);
    saved.gate_up_VG = visits_of(visits.row_V.size(0), normed_TH);
    for_each_expert_at_once(weights_, own_, visits, [&](const Expert& expert) {
      expert.gate_up_into(expert.of_assignments(saved.gate_up_VG), expert.rows_of(normed_TH));
    });
  }
  if (shares()) saved.shared_gate_up_TG = rows.product(kSharedGateUp);
  if (weights_.shared_gate_1H.defined()) {
    saved.share_T1 = parallel.all_gather_rows(
        at::sigmoid(ops::wide_times_transposed(rows.shard_SH(), weights_.shared_gate_1H)));
  }
  rows.release();
}

at::Tensor ExpertsMixer::sums_of_visits(const ExpertsState& saved) const {
  const at::Tensor& gate_up_VG = saved.gate_up_VG;
  if (grouped())
    return grouped_sums(weights_, gate_, saved.assigned, gate_up_VG,
                        weights_by_visit(saved.weight_TK, saved.assigned.grouped.slot_V));
  const ops::ExpertAssignments visits = ops::expert_assignments_of(saved.id_TK, experts_.count);
  const at::Tensor weight_V1 = weights_by_visit(saved.weight_TK, visits.slot_V);
  at::Tensor sum_TH = at::zeros({saved.id_TK.size(0), weights_.down.w_EAB.size(2)}, gate_up_VG.options());
  const auto result = [&](const Expert& expert) {
    return expert.result(gate_, expert.of_assignments(gate_up_VG), expert.of_assignments(weight_V1));
  };
  // With few rows all experts' results are at hand at once, but are added in the same order.
  std::vector<at::Tensor> results(are_few(visits) ? static_cast<size_t>(own_) : 0);
  if (are_few(visits)) {
    for_each_expert_at_once(weights_, own_, visits, [&](const Expert& expert) {
      results[static_cast<size_t>(expert.index)] = result(expert);
    });
  }
  for_each_expert(weights_, own_, visits, [&](const Expert& expert) {
    expert.add_to_rows(sum_TH, results.empty() ? result(expert) : results[static_cast<size_t>(expert.index)]);
  });
  return sum_TH;
}

at::Tensor ExpertsMixer::sums_of_travel(const DispatchedRows& rows, ExpertsState& saved) const {
  at::Tensor sum_TH = at::zeros_like(saved.normed_TH);
  saved.counts = travel(rows, {saved.id_TK, saved.weight_TK}, saved.normed_TH, sum_TH, saved.gate_up_VG);
  return sum_TH;
}

at::Tensor ExpertsMixer::sums_of_received(const at::Tensor& x_NH, const TokenDispatcher::ReceivedRows& coming,
                                          KeptVisits& kept) const {
  const AssignedRows assigned = assigned_rows(coming.slot_NK, own_, coming.assignments);
  const at::Tensor gate_up_VG = grouped_gate_up(weights_, assigned, assigned.of(x_NH));
  const at::Tensor kept_XG = kept.up_to(coming.assignments);
  if (kept_XG.defined()) kept_XG.copy_(gate_up_VG.narrow(0, 0, kept_XG.size(0)));
  return grouped_sums(weights_, gate_, assigned, gate_up_VG,
                      weights_by_visit(coming.weight_NK, assigned.grouped.slot_V));
}

TokenDispatcher::Counts ExpertsMixer::travel(const DispatchedRows& rows, const Routes& routes,
                                             const at::Tensor& normed_TH, const at::Tensor& sum_TH,
                                             const at::Tensor& kept_VG) const {
  KeptVisits kept(kept_VG);
  const auto compute = [&](const std::vector<at::Tensor>& came, const TokenDispatcher::ReceivedRows& coming) {
    const at::Tensor& x_NH = came.front();
    if (grouped()) return std::vector{sums_of_received(x_NH, coming, kept)};
    const ops::ExpertAssignments visits = coming.by_expert(own_);
    const at::Tensor weight_V1 = weights_by_visit(coming.weight_NK, visits.slot_V);
    at::Tensor sum_NH = at::zeros_like(x_NH);
    for_each_expert(weights_, own_, visits, [&](const Expert& expert) {
      at::Tensor gate_up_NG = kept.next(expert.assignments.size());
      if (!gate_up_NG.defined()) gate_up_NG = visits_of(expert.assignments.size(), x_NH);
      expert.gate_up_into(gate_up_NG, expert.rows_of(x_NH));
      expert.add_to_rows(sum_NH, expert.result(gate_, gate_up_NG, expert.of_assignments(weight_V1)));
    });
    return std::vector{sum_NH};
  };
  const TokenDispatcher way = travel_of(rows, routes, nullptr);
  if (context_.load != nullptr && layer_ >= 0)
    context_.load->add(layer_, way.load_imbalance(), way.assignments(), routes.id_TK);
  way.dispatch_and_combine({normed_TH}, {sum_TH}, compute);
  return way.counts();
}

Mixed ExpertsMixer::with_shared(const ExpertsState& saved, at::Tensor sum_TH) const {
  if (shares()) {
    const Expert all = shared();
    all.add_to_rows(sum_TH, all.result(gate_, saved.shared_gate_up_TG, share_of(saved)));
  }
  at::Tensor beside_SH;
  if (weights_.down_bias_EH.defined())
    beside_SH = ops::times(weights_of_all(saved).to(sum_TH.scalar_type()), weights_.down_bias_EH);
  return {std::move(sum_TH), std::move(beside_SH)};
}

std::vector<at::Tensor> ExpertsMixer::gradients_of_received(const at::Tensor& x_NH, const at::Tensor& dsum_NH,
                                                            const TokenDispatcher::ReceivedRows& coming,
                                                            KeptVisits& kept) const {
  const AssignedRows assigned = assigned_rows(coming.slot_NK, own_, coming.assignments);
  const at::Tensor& slot_V = assigned.grouped.slot_V;
  const at::Tensor kept_XG = kept.up_to(coming.assignments);
  const bool all = kept_XG.defined() && kept_XG.size(0) == coming.assignments;
  const at::Tensor gate_up_VG =
      all ? kept_XG : grouped_gate_up(weights_, assigned, assigned.of(x_NH), kept_XG);
  const GroupedGradient from = grouped_backward(weights_, gradients_, gate_, assigned, assigned.of(dsum_NH),
                                                gate_up_VG, weights_by_visit(coming.weight_NK, slot_V));
  add_grouped_gradients(gradients_, assigned, from, gate_up_VG, x_NH, dsum_NH);
  at::Tensor dweight_NK = at::zeros_like(coming.weight_NK);
  dweight_NK.view({-1, 1}).index_copy_(0, slot_V, from.dweight_V1);
  return {from.dx_TH, dweight_NK};
}

void ExpertsMixer::travel_backward(const DispatchedRows& rows, const Routes& routes,
                                   const TokenDispatcher::Counts& known, const at::Tensor& normed_TH,
                                   const at::Tensor& dsum_TH, const at::Tensor& dnormed_TH,
                                   const at::Tensor& dweight_TK, const at::Tensor& kept_VG) const {
  KeptVisits kept(kept_VG);
  const auto compute = [&](const std::vector<at::Tensor>& came, const TokenDispatcher::ReceivedRows& coming) {
    const at::Tensor &x_NH = came[0], &dsum_NH = came[1];
    if (grouped()) return gradients_of_received(x_NH, dsum_NH, coming, kept);
    const ops::ExpertAssignments visits = coming.by_expert(own_);
    const at::Tensor weight_V1 = weights_by_visit(coming.weight_NK, visits.slot_V);
    at::Tensor dx_NH = at::zeros_like(x_NH), dweight_NK = at::zeros_like(coming.weight_NK);
    at::Tensor dweight_V1 = at::empty(weight_V1.sizes(), dweight_NK.options());
    for_each_expert(weights_, own_, visits, [&](const Expert& expert) {
      const at::Tensor own_x = expert.rows_of(x_NH), dy = expert.rows_of(dsum_NH);
      at::Tensor gate_up = kept.next(expert.assignments.size());
      if (!gate_up.defined()) {
        gate_up = visits_of(expert.assignments.size(), x_NH);
        expert.gate_up_into(gate_up, own_x);
      }
      at::Tensor dweight, a;
      expert.add_to_rows(dx_NH,
                         expert.backward(gate_, dy, gate_up, expert.of_assignments(weight_V1), dweight, a));
      expert.of_assignments(dweight_V1).copy_(dweight);
      add_gradients(expert.down, gradients_.down.of(expert.index), a, dy);
      add_gradients(expert.gate_up, gradients_.gate_up.of(expert.index), gate_up, own_x);
      if (gradients_.gate_up_bias_EG.defined())
        add_column_sums(gradients_.gate_up_bias_EG[expert.index], gate_up);
    });
    dweight_NK.view({-1, 1}).index_copy_(0, visits.slot_V, dweight_V1);
    return std::vector{dx_NH, dweight_NK};
  };
  travel_of(rows, routes, known)
      .dispatch_and_combine({normed_TH, dsum_TH}, {dnormed_TH, dweight_TK}, compute);
}

VisitsGradient ExpertsMixer::visits_backward(ExpertsState& saved, const at::Tensor& normed_TH,
                                             const at::Tensor& dsum_TH, const at::Tensor& dnormed_TH,
                                             const at::Tensor& dweight_TK) const {
  const ops::ExpertAssignments visits = ops::expert_assignments_of(saved.id_TK, experts_.count);
  const at::Tensor weight_V1 = weights_by_visit(saved.weight_TK, visits.slot_V);
  VisitsGradient left{.dgate_up_VG = std::move(saved.gate_up_VG), .a_VF = {}};
  left.a_VF = at::empty({weight_V1.size(0), weights_.down.w_EAB.size(1)}, left.dgate_up_VG.options());
  at::Tensor dweight_V1 = at::empty(weight_V1.sizes(), saved.weight_TK.options());
  for_each_expert(weights_, own_, visits, [&](const Expert& expert) {
    const at::Tensor dgate_up_NG = expert.of_assignments(left.dgate_up_VG), dsum_NH = expert.rows_of(dsum_TH);
    at::Tensor dweight_N1, a_NF;
    expert.add_to_rows(dnormed_TH, expert.backward(gate_, dsum_NH, dgate_up_NG,
                                                   expert.of_assignments(weight_V1), dweight_N1, a_NF));
    if (normed_TH.defined()) {
      add_gradients(expert.down, gradients_.down.adapters_of(expert.index), a_NF, dsum_NH);
      add_gradients(expert.gate_up, gradients_.gate_up.adapters_of(expert.index), dgate_up_NG,
                    expert.rows_of(normed_TH));
    }
    expert.of_assignments(dweight_V1).copy_(dweight_N1);
    if (gradients_.gate_up_bias_EG.defined())
      add_column_sums(gradients_.gate_up_bias_EG[expert.index], dgate_up_NG);
    expert.of_assignments(left.a_VF).copy_(a_NF);
  });
  dweight_TK.view({-1, 1}).index_copy_(0, visits.slot_V, dweight_V1);
  return left;
}

at::Tensor ExpertsMixer::gradient_of_visits(ExpertsState& saved, const at::Tensor& dsum_TH, PartRows& rows,
                                            PartGradient& to, at::Tensor& dweight_TK) const {
  at::Tensor dnormed_TH;
  VisitsGradient visited;
  if (grouped()) {
    rows.release();
    const AssignedRows assigned = assigned_rows(saved.id_TK, experts_.count, saved.id_TK.numel());
    const at::Tensor& slot_V = assigned.grouped.slot_V;
    visited.dgate_up_VG = std::move(saved.gate_up_VG);
    GroupedGradient from = grouped_backward(weights_, gradients_, gate_, assigned, assigned.of(dsum_TH),
                                            visited.dgate_up_VG, weights_by_visit(saved.weight_TK, slot_V));
    dnormed_TH = std::move(from.dx_TH);
    dweight_TK.view({-1, 1}).index_copy_(0, slot_V, from.dweight_V1);
    visited.a_VF = std::move(from.a_VF);
  } else {
    dnormed_TH = at::zeros_like(dsum_TH);
    at::Tensor normed_TH;
    if (gradients_.adapters_wanted()) normed_TH = rows.all_TH();
    rows.release();
    visited = visits_backward(saved, normed_TH, dsum_TH, dnormed_TH, dweight_TK);
  }
  to.set_visited({saved.id_TK, experts_.count, own_, grouped()});
  if (gradients_.down.w_EAB.defined()) to.add_visits(kDown, std::move(visited.a_VF), /*with_rows=*/false);
  if (gradients_.gate_up.w_EAB.defined())
    to.add_visits(kGateUp, std::move(visited.dgate_up_VG), /*with_rows=*/true);
  return dnormed_TH;
}

at::Tensor ExpertsMixer::backward(const RowLayout& layout, MixerStatePtr state, Arriving from, PartRows& rows,
                                  PartGradient& to) const {
  const TensorParallel& parallel = context_.parallel;
  auto& saved = static_cast<ExpertsState&>(*state);
  const at::Tensor dsum_TH = std::move(from.da_TA);
  at::Tensor dnormed_TH, dweight_TK = at::zeros_like(saved.weight_TK);
  if (travels()) {
    dnormed_TH = at::zeros_like(dsum_TH);
    if (!saved.normed_TH.defined()) saved.normed_TH = rows.all_TH();
    rows.release();
    travel_backward(layout.dispatched, {saved.id_TK, saved.weight_TK}, saved.counts, saved.normed_TH, dsum_TH,
                    dnormed_TH, dweight_TK, saved.gate_up_VG);
    saved.normed_TH.reset();
    saved.gate_up_VG.reset();
  } else {
    dnormed_TH = gradient_of_visits(saved, dsum_TH, rows, to, dweight_TK);
  }
  to.start(std::move(dnormed_TH));
  at::Tensor dshare_T1;
  if (shares()) {
    at::Tensor a_TF =
        shared().backward_of_gate_up(gate_, dsum_TH, saved.shared_gate_up_TG, share_of(saved), dshare_T1);
    if (gradients_.shared_down.wanted()) {
      std::vector<AdapterRows> narrow =
          adapter_rows(weights_.shared_down, gradients_.shared_down, a_TF, dsum_TH);
      to.add_with_sum(kSharedDown, std::move(a_TF), std::move(narrow));
    }
    to.add(kSharedGateUp, std::move(saved.shared_gate_up_TG));
  }
  at::Tensor dweight_SK = parallel.reduce_scatter_rows(dweight_TK);
  const base::Interval shard = parallel.shard_rows(saved.id_TK.size(0));
  const at::Tensor id_SK = saved.id_TK.narrow(0, shard.begin, shard.size());
  if (weights_.down_bias_EH.defined()) down_bias_backward(saved, from.dsum_SH, id_SK, dweight_SK);
  if (weights_.expert_scale_E.defined()) dweight_SK = scales_backward(saved, id_SK, dweight_SK);
  const at::Tensor dscore_SE = balance_gradient(layout, saved, shard);
  const at::Tensor dlogit_SE =
      sparse_jitter_ > 0 ? sparse_mixer_gradient(sparse_jitter_, saved.score_SE, id_SK, dweight_SK, dscore_SE)
                         : router_gradient(experts_, floor_, saved.score_SE, id_SK, dweight_SK, dscore_SE);
  count_visits(layout, shard, id_SK);
  if (gradients_.router_bias_E.defined()) add_column_sums(gradients_.router_bias_E, dlogit_SE);
  const at::ScalarType type = dsum_TH.scalar_type();
  router_backward(dlogit_SE.to(type), rows.input_SH(), to);
  if (dshare_T1.defined()) {
    const at::Tensor share_S1 = saved.share_T1.narrow(0, shard.begin, shard.size());
    to.add(kSharedGate, (parallel.reduce_scatter_rows(dshare_T1) * share_S1 * (1 - share_S1)).to(type));
  }
  return {};
}

}  // namespace

std::unique_ptr<const Part> make_experts(const Site& site, const model::Part& part) {
  constexpr auto kShard = InProduct::Of::kShard;
  return make_framed(site, part,
                     {.in = {{roles::kRouter, {}, kShard, false},
                             {roles::kSharedGateUp, {}, InProduct::Of::kAllRows, false},
                             {roles::kSharedGate, {}, kShard, false}},
                      .inner = {{roles::kExpertsGateUp, {}, {}, false},
                                {roles::kExpertsDown, {}, {}, false},
                                {roles::kSharedDown, {}, {}, false},
                                {roles::kRouter, {}, {}, false}}},
                     std::make_unique<ExpertsMixer>(site, std::get<model::RoutedExperts>(part.mixer)));
}

}  // namespace sluice::layers
