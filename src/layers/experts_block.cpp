#include "layers/experts_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
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
#include "layers/experts_travel.h"
#include "layers/parameters.h"
#include "layers/product.h"
#include "layers/residual.h"
#include "layers/router.h"
#include "model/expert_seats.h"
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
  at::Tensor gate_up_VG;        // where rows travel: what KeptVisits has room for
  at::Tensor shared_gate_up_TG;
  at::Tensor share_T1;   // factor of what is shared; undefined without one
  at::Tensor normed_TH;  // where rows travel, while they are at hand
};

// What the weight gradients need of visits.
struct VisitsGradient {
  at::Tensor dgate_up_VG, a_VF;  // a: with its weight
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

// What a lane keeps of visits by rows that travelled: gate and up of as many as its own rows make, those of
// the first experts of the first waves that fit. The rest a backward makes again, so routers decide of time
// alone, not of memory.
class KeptVisits {
 public:
  explicit KeptVisits(at::Tensor room_VG) : room_VG_(std::move(room_VG)) {}
  // The next `visits`, in the same order forward and backward; undefined: they are not kept.
  at::Tensor next(int64_t visits) {
    if (!room_VG_.defined() || used_ + visits > room_VG_.size(0)) return {};
    used_ += visits;
    return room_VG_.narrow(0, used_ - visits, visits);
  }

 private:
  at::Tensor room_VG_;  // undefined: none
  int64_t used_ = 0;
};

class ExpertsPart final : public Part {
 public:
  explicit ExpertsPart(const Site& site)
      : context_(site.context),
        experts_(site.context.shape.experts),
        layer_(site.layer()),
        seats_(seats_of(context_.experts, layer_, experts_.count)),
        own_(std::ssize(seats_) / context_.experts.lanes),
        weights_(experts_parameters(site.own_weights(), experts_.count, own_)),
        gradients_(experts_parameters(site.own_gradients(), experts_.count, own_)) {}

  at::Tensor forward(const MicroBatchLayout& layout, const at::Tensor& x_SH, StatePtr* saved) const override {
    ExpertsSaved half = first_half(x_SH, {}, {});
    if (travels() && saved != nullptr && layout.travelling.keeps)
      half.gate_up_VG = visits_of(half.id_TK.numel(), x_SH);
    at::Tensor y_SH =
        second_half(half, travels() ? sums_of_travel(layout.travelling, half) : sums_of_visits(half));
    half.normed_TH.reset();
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
  // Where rows travel nobody asks: experts are a block's last part.
  at::Tensor result(const State& state) const override {
    SLUICE_ASSERT(!travels(), "a part behind experts that rows travel to");
    const auto& saved = tensors_of<ExpertsSaved>(state);
    const ExpertsSaved again = first_half(saved.x_SH, saved.id_TK, saved.weight_TK);
    return second_half(again, sums_of_visits(again));
  }
  void restore(const MicroBatchLayout&, State& state, const at::Tensor& x_SH) const override {
    auto& saved = tensors_of<ExpertsSaved>(state);
    if (saved.score_SE.defined()) return;
    saved = first_half(saved.x_SH.defined() ? saved.x_SH : x_SH, saved.id_TK, saved.weight_TK);
  }
  int64_t recomputed_bytes(const MicroBatchLayout& layout) const override {
    const at::Tensor& gate_up_EGH = weights_.gate_up_EGH;
    const int64_t element = gate_up_EGH.element_size(), statistic = std::max<int64_t>(4, element);
    const int64_t shared = weights_.shared_gate_up_GH.defined() ? weights_.shared_gate_up_GH.size(0) : 0;
    // Of rows that travel the normed ones, of others what their experts make of them.
    const int64_t by_expert = travels() ? gate_up_EGH.size(2) : experts_.per_token * gate_up_EGH.size(1);
    const int64_t shard = gate_up_EGH.size(2) * element + (1 + experts_.count) * statistic;
    return layout.rows / context_.parallel.tp * shard +
           layout.rows * (element * (by_expert + shared) + (experts_.shared_gate ? statistic : 0));
  }

  at::Tensor backward_input(const MicroBatchLayout&, StatePtr state, const at::Tensor& dy_SH,
                            StatePtr& deferred) const override;
  void drop_gathered(State& deferred) const override { tensors_of<ExpertsDeferred>(deferred).dy_TH.reset(); }
  void backward_weight(StatePtr deferred) const override;

  void help(const TravellingRows& rows, Direction direction) const override {
    const at::Tensor none_TH = at::empty({0, weights_.down_EFH.size(2)}, weights_.down_EFH.options());
    const Routes no_routes{
        at::empty({0, experts_.per_token}, none_TH.options().dtype(at::kInt)),
        at::empty({0, experts_.per_token}, none_TH.options().dtype(ops::accumulator_type(none_TH)))};
    if (direction == Direction::kForward) {
      travel(rows, no_routes, none_TH, none_TH, {});
    } else {
      travel_backward(rows, no_routes, none_TH, none_TH, none_TH, no_routes.weight_TK, {});
    }
  }

 private:
  bool travels() const { return context_.experts.lanes > 1; }
  static std::vector<int> seats_of(const ExpertLanes& lanes, int64_t layer, int64_t experts) {
    const std::span<const int> placed = lanes.seats_of(layer);
    return placed.empty() ? model::even_seats(experts) : std::vector<int>(placed.begin(), placed.end());
  }
  // What a forward of x_SH begins with and saves; by these routes, where they are defined.
  ExpertsSaved first_half(const at::Tensor& x_SH, at::Tensor id_TK, at::Tensor weight_TK) const;
  // What the visited experts give, then the part's result with those sums.
  at::Tensor sums_of_visits(const ExpertsSaved& saved) const;
  at::Tensor sums_of_travel(const TravellingRows& rows, const ExpertsSaved& saved) const;
  at::Tensor second_half(const ExpertsSaved& saved, const at::Tensor& sum_TH) const;

  // Adds what the experts of all lanes give these rows. `kept_VG`: of KeptVisits.
  void travel(const TravellingRows& rows, const Routes& routes, const at::Tensor& normed_TH,
              const at::Tensor& sum_TH, const at::Tensor& kept_VG) const;
  // Adds the gradients of rows and of their weights, and those of this lane's experts.
  void travel_backward(const TravellingRows& rows, const Routes& routes, const at::Tensor& normed_TH,
                       const at::Tensor& dsum_TH, const at::Tensor& dnormed_TH, const at::Tensor& dweight_TK,
                       const at::Tensor& kept_VG) const;
  ExpertsTravel travel_of(const TravellingRows& rows, const Routes& routes) const {
    SLUICE_ASSERT(context_.lanes != nullptr, "rows travel and lanes have no channel");
    return {*context_.lanes,
            rows,
            context_.experts,
            experts_.count,
            seats_,
            routes,
            model::wave_rows(context_.experts.lanes)};
  }
  // Adds the gradients of rows and of their weights, of visits to experts at hand.
  VisitsGradient visits_backward(ExpertsSaved& saved, const at::Tensor& dsum_TH, const at::Tensor& dnormed_TH,
                                 const at::Tensor& dweight_TK) const;
  // Room for gate and up.
  at::Tensor visits_of(int64_t visits, const at::Tensor& like) const {
    return at::empty({visits, weights_.gate_up_EGH.size(1)}, like.options());
  }
  // In the type that is computed with. [V, 1]
  at::Tensor weights_by_visit(const at::Tensor& weight_TK, const ops::Visits& visits) const {
    return weight_TK.reshape({-1, 1}).index_select(0, visits.slot_V).to(weights_.down_EFH.scalar_type());
  }
  at::Tensor share_of(const ExpertsSaved& saved) const {
    return saved.share_T1.defined() ? saved.share_T1.to(weights_.down_EFH.scalar_type()) : saved.share_T1;
  }
  // Of this rank's scores; undefined where nothing balances them.
  at::Tensor balance_gradient(const MicroBatchLayout& layout, const ExpertsSaved& saved,
                              const base::Interval& shard) const {
    if (context_.balance_loss == 0) return {};
    if (weights_.router_loads_E.defined()) {
      at::Tensor dscore_SE = at::zeros_like(saved.score_SE);
      const at::Tensor share_E = shares_of_loads(weights_.router_loads_E.to(dscore_SE.scalar_type()));
      tokens_of(layout, shard, dscore_SE).copy_(share_E.mul_(context_.balance_loss));
      return dscore_SE;
    }
    const at::Tensor share_QE = shares_of_visits(context_.lanes, layout.sequences, saved.id_TK,
                                                 experts_.count, saved.score_SE.options());
    const at::Tensor row_S = layout.sequences.sequence_T.narrow(0, shard.begin, shard.size());
    return share_QE.index_select(0, row_S).mul_(context_.balance_loss);
  }
  // The rows of this rank's shard that stand for tokens.
  static at::Tensor tokens_of(const MicroBatchLayout& layout, const base::Interval& shard,
                              const at::Tensor& all_SX) {
    return all_SX.narrow(0, 0, std::clamp<int64_t>(layout.tokens - shard.begin, 0, shard.size()));
  }
  // What is counted of this rank's rows in a gradient's place (model::Learns).
  void count_visits(const MicroBatchLayout& layout, const base::Interval& shard,
                    const at::Tensor& id_SK) const {
    const at::Tensor &beyond_E = gradients_.router_correction_E, &loads_E = gradients_.router_loads_E;
    if (!beyond_E.defined() && !loads_E.defined()) return;
    const at::Tensor visited = tokens_of(layout, shard, id_SK);
    const at::Tensor visits_E = at::bincount(visited.reshape(-1), {}, experts_.count);
    if (loads_E.defined()) at::Tensor(loads_E).add_(visits_E);
    if (beyond_E.defined()) at::Tensor(beyond_E).add_(visits_E * experts_.count - visited.numel());
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
  Expert shared() const { return {weights_.shared_gate_up_GH, weights_.shared_down_FH, {}, {}, {}}; }
  bool shares() const { return weights_.shared_down_FH.defined(); }

  const LayerContext& context_;
  const model::Experts& experts_;
  int64_t layer_;
  std::vector<int> seats_;  // of all lanes their experts
  int64_t own_;             // experts that this lane has
  ExpertsParameters weights_, gradients_;
};

ExpertsSaved ExpertsPart::first_half(const at::Tensor& x_SH, at::Tensor id_TK, at::Tensor weight_TK) const {
  const TensorParallel& parallel = context_.parallel;
  PartInput input = enter(context_, x_SH, weights_.norm_H);
  const at::Tensor normed_SH = std::move(input.y_SH);
  ExpertsSaved saved{.x_SH = x_SH, .inverse_rms_S = std::move(input.inverse_rms_S)};
  saved.score_SE = router_scores(experts_, normed_SH, weights_.router_EH, weights_.router_bias_E);
  if (!id_TK.defined()) {
    const at::Tensor id_SK = chosen_experts(experts_, saved.score_SE, weights_.router_correction_E);
    weight_TK = parallel.all_gather_rows(route_weights(experts_, saved.score_SE, id_SK));
    id_TK = parallel.all_gather_rows(id_SK);
  }
  const at::Tensor normed_TH = parallel.all_gather_rows(normed_SH);
  if (travels()) {
    saved.normed_TH = normed_TH;
  } else {
    const ops::Visits visits = ops::visits_of(id_TK, experts_.count);
    saved.gate_up_VG = visits_of(visits.row_V.size(0), normed_TH);
    for_each_expert_at_once(weights_, own_, visits, [&](const Expert& expert) {
      expert.gate_up_into(expert.of_visits(saved.gate_up_VG), expert.rows_of(normed_TH));
    });
  }
  if (shares()) saved.shared_gate_up_TG = ops::times_transposed(normed_TH, weights_.shared_gate_up_GH);
  if (weights_.shared_gate_1H.defined()) {
    saved.share_T1 =
        parallel.all_gather_rows(at::sigmoid(ops::wide_times_transposed(normed_SH, weights_.shared_gate_1H)));
  }
  saved.id_TK = std::move(id_TK);
  saved.weight_TK = std::move(weight_TK);
  return saved;
}

at::Tensor ExpertsPart::sums_of_visits(const ExpertsSaved& saved) const {
  const at::Tensor& gate_up_VG = saved.gate_up_VG;
  const ops::Visits visits = ops::visits_of(saved.id_TK, experts_.count);
  const at::Tensor weight_V1 = weights_by_visit(saved.weight_TK, visits);
  at::Tensor sum_TH = at::zeros({saved.id_TK.size(0), weights_.down_EFH.size(2)}, gate_up_VG.options());
  const auto result = [&](const Expert& expert) {
    return expert.result(context_, expert.of_visits(gate_up_VG), expert.of_visits(weight_V1));
  };
  // Of few visits results are at hand at the same time; they are added in one order all the same.
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

at::Tensor ExpertsPart::sums_of_travel(const TravellingRows& rows, const ExpertsSaved& saved) const {
  at::Tensor sum_TH = at::zeros_like(saved.normed_TH);
  travel(rows, {saved.id_TK, saved.weight_TK}, saved.normed_TH, sum_TH, saved.gate_up_VG);
  return sum_TH;
}

void ExpertsPart::travel(const TravellingRows& rows, const Routes& routes, const at::Tensor& normed_TH,
                         const at::Tensor& sum_TH, const at::Tensor& kept_VG) const {
  KeptVisits kept(kept_VG);
  const auto compute = [&](const std::vector<at::Tensor>& came, const ExpertsTravel::Coming& coming) {
    const at::Tensor& x_NH = came.front();
    const at::Tensor weight_V1 = weights_by_visit(coming.weight_NK, coming.visits);
    at::Tensor sum_NH = at::zeros_like(x_NH);
    for_each_expert(weights_, own_, coming.visits, [&](const Expert& expert) {
      at::Tensor gate_up_NG = kept.next(expert.visits.size());
      if (!gate_up_NG.defined()) gate_up_NG = visits_of(expert.visits.size(), x_NH);
      expert.gate_up_into(gate_up_NG, expert.rows_of(x_NH));
      expert.add_to_rows(sum_NH, expert.result(context_, gate_up_NG, expert.of_visits(weight_V1)));
    });
    return std::vector{sum_NH};
  };
  const ExpertsTravel way = travel_of(rows, routes);
  if (context_.load != nullptr) context_.load->add(layer_, way.busiest(), way.visits(), routes.id_TK);
  way.run({normed_TH}, {sum_TH}, compute);
}

at::Tensor ExpertsPart::second_half(const ExpertsSaved& saved, const at::Tensor& sum_TH) const {
  if (shares()) {
    const Expert all = shared();
    all.add_to_rows(sum_TH, all.result(context_, saved.shared_gate_up_TG, share_of(saved)));
  }
  at::Tensor sum_SH = context_.parallel.reduce_scatter_rows(sum_TH);
  if (weights_.down_bias_EH.defined())
    sum_SH.add_(ops::times(weights_of_all(saved).to(sum_SH.scalar_type()), weights_.down_bias_EH));
  const double factor = context_.shape.residual_scale;
  if (factor != 1.0) sum_SH.mul_(factor);
  return sum_SH.add_(saved.x_SH);
}

void ExpertsPart::travel_backward(const TravellingRows& rows, const Routes& routes,
                                  const at::Tensor& normed_TH, const at::Tensor& dsum_TH,
                                  const at::Tensor& dnormed_TH, const at::Tensor& dweight_TK,
                                  const at::Tensor& kept_VG) const {
  KeptVisits kept(kept_VG);
  const auto of_expert = [](const at::Tensor& all, const Expert& expert) {
    return all.defined() ? all[expert.index] : all;
  };
  const auto compute = [&](const std::vector<at::Tensor>& came, const ExpertsTravel::Coming& coming) {
    const at::Tensor &x_NH = came[0], &dsum_NH = came[1];
    const at::Tensor weight_V1 = weights_by_visit(coming.weight_NK, coming.visits);
    at::Tensor dx_NH = at::zeros_like(x_NH), dweight_NK = at::zeros_like(coming.weight_NK);
    at::Tensor dweight_V1 = at::empty(weight_V1.sizes(), dweight_NK.options());
    for_each_expert(weights_, own_, coming.visits, [&](const Expert& expert) {
      const at::Tensor own_x = expert.rows_of(x_NH), dy = expert.rows_of(dsum_NH);
      at::Tensor gate_up = kept.next(expert.visits.size());
      if (!gate_up.defined()) {
        gate_up = visits_of(expert.visits.size(), x_NH);
        expert.gate_up_into(gate_up, own_x);
      }
      at::Tensor dweight, a;
      expert.add_to_rows(dx_NH,
                         expert.backward(context_, dy, gate_up, expert.of_visits(weight_V1), dweight, a));
      expert.of_visits(dweight_V1).copy_(dweight);
      accumulate_gradient(of_expert(gradients_.down_EFH, expert), a, dy);
      accumulate_gradient(of_expert(gradients_.gate_up_EGH, expert), gate_up, own_x);
      if (gradients_.gate_up_bias_EG.defined())
        add_column_sums(gradients_.gate_up_bias_EG[expert.index], gate_up);
    });
    dweight_NK.view({-1, 1}).index_copy_(0, coming.visits.slot_V, dweight_V1);
    return std::vector{dx_NH, dweight_NK};
  };
  travel_of(rows, routes).run({normed_TH, dsum_TH}, {dnormed_TH, dweight_TK}, compute);
}

VisitsGradient ExpertsPart::visits_backward(ExpertsSaved& saved, const at::Tensor& dsum_TH,
                                            const at::Tensor& dnormed_TH,
                                            const at::Tensor& dweight_TK) const {
  const ops::Visits visits = ops::visits_of(saved.id_TK, experts_.count);
  const at::Tensor weight_V1 = weights_by_visit(saved.weight_TK, visits);
  VisitsGradient left{.dgate_up_VG = std::move(saved.gate_up_VG), .a_VF = {}};
  left.a_VF = at::empty({weight_V1.size(0), weights_.down_EFH.size(1)}, left.dgate_up_VG.options());
  at::Tensor dweight_V1 = at::empty(weight_V1.sizes(), saved.weight_TK.options());
  for_each_expert(weights_, own_, visits, [&](const Expert& expert) {
    const at::Tensor dgate_up_NG = expert.of_visits(left.dgate_up_VG);
    at::Tensor dweight_N1, a_NF;
    expert.add_to_rows(dnormed_TH, expert.backward(context_, expert.rows_of(dsum_TH), dgate_up_NG,
                                                   expert.of_visits(weight_V1), dweight_N1, a_NF));
    expert.of_visits(dweight_V1).copy_(dweight_N1);
    if (gradients_.gate_up_bias_EG.defined())
      add_column_sums(gradients_.gate_up_bias_EG[expert.index], dgate_up_NG);
    expert.of_visits(left.a_VF).copy_(a_NF);
  });
  dweight_TK.view({-1, 1}).index_copy_(0, visits.slot_V, dweight_V1);
  return left;
}

at::Tensor ExpertsPart::backward_input(const MicroBatchLayout& layout, StatePtr state,
                                       const at::Tensor& dy_SH, StatePtr& deferred) const {
  const TensorParallel& parallel = context_.parallel;
  ExpertsSaved saved = std::move(tensors_of<ExpertsSaved>(*state));
  const double factor = context_.shape.residual_scale;
  const at::Tensor dsum_SH = factor == 1.0 ? dy_SH : dy_SH * factor;
  const at::Tensor dsum_TH = parallel.all_gather_rows(dsum_SH);
  at::Tensor dnormed_TH = at::zeros_like(dsum_TH), dweight_TK = at::zeros_like(saved.weight_TK);
  VisitsGradient visited;
  if (travels()) {
    if (!saved.normed_TH.defined())
      saved.normed_TH = parallel.all_gather_rows(enter(context_, saved.x_SH, weights_.norm_H).y_SH);
    travel_backward(layout.travelling, {saved.id_TK, saved.weight_TK}, saved.normed_TH, dsum_TH, dnormed_TH,
                    dweight_TK, saved.gate_up_VG);
    saved.normed_TH.reset();
    saved.gate_up_VG.reset();
  } else {
    visited = visits_backward(saved, dsum_TH, dnormed_TH, dweight_TK);
  }
  at::Tensor dshare_T1, shared_a_TF;
  if (shares()) {
    dnormed_TH.add_(shared().backward(context_, dsum_TH, saved.shared_gate_up_TG, share_of(saved), dshare_T1,
                                      shared_a_TF));
  }
  const at::Tensor dweight_SK = parallel.reduce_scatter_rows(dweight_TK);
  const base::Interval shard = parallel.shard_rows(saved.id_TK.size(0));
  const at::Tensor id_SK = saved.id_TK.narrow(0, shard.begin, shard.size());
  if (weights_.down_bias_EH.defined()) down_bias_backward(saved, dsum_SH, id_SK, dweight_SK);
  const at::Tensor dlogit_SE =
      router_gradient(experts_, saved.score_SE, id_SK, dweight_SK, balance_gradient(layout, saved, shard));

  count_visits(layout, shard, id_SK);
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
  if (gradients_.gate_up_EGH.defined()) kept.dgate_up_VG = visited.dgate_up_VG;
  if (gradients_.down_EFH.defined()) kept.a_VF = visited.a_VF;
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
  const bool of_visits = deferred.a_VF.defined() || deferred.dgate_up_VG.defined();
  const ops::Visits visits = of_visits ? ops::visits_of(deferred.id_TK, experts_.count) : ops::Visits();
  if (deferred.dy_SH.defined()) {
    at::Tensor dy_TH = std::move(deferred.dy_TH);
    if (!dy_TH.defined()) dy_TH = parallel.all_gather_rows(deferred.dy_SH);
    if (deferred.a_VF.defined()) {
      for_each_expert(gradients_, own_, visits, [&](const Expert& expert) {
        accumulate_gradient(expert.down_FH, expert.of_visits(deferred.a_VF), expert.rows_of(dy_TH));
      });
    }
    if (deferred.shared_a_TF.defined())
      accumulate_gradient(gradients_.shared_down_FH, deferred.shared_a_TF, dy_TH);
    deferred.a_VF.reset();
    deferred.shared_a_TF.reset();
  }
  if (deferred.dlogit_SE.defined())
    accumulate_gradient(gradients_.router_EH, deferred.dlogit_SE, deferred.normed_SH);
  if (deferred.dshare_S1.defined())
    accumulate_gradient(gradients_.shared_gate_1H, deferred.dshare_S1, deferred.normed_SH);
  if (!deferred.dgate_up_VG.defined() && !deferred.shared_dgate_up_TG.defined()) return;
  const at::Tensor normed_TH = parallel.all_gather_rows(deferred.normed_SH);
  if (deferred.dgate_up_VG.defined()) {
    for_each_expert(gradients_, own_, visits, [&](const Expert& expert) {
      accumulate_gradient(expert.gate_up_GH, expert.of_visits(deferred.dgate_up_VG),
                          expert.rows_of(normed_TH));
    });
  }
  if (deferred.shared_dgate_up_TG.defined())
    accumulate_gradient(gradients_.shared_gate_up_GH, deferred.shared_dgate_up_TG, normed_TH);
}

}  // namespace

std::unique_ptr<const Part> make_experts(const Site& site) {
  return std::make_unique<const ExpertsPart>(site);
}

}  // namespace sluice::layers
