#include "layers/frame.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/parameters.h"
#include "ops/linear.h"

namespace sluice::layers {

BoundWeights bound(const OperationShards& shards, const model::Part& part, const Weights& roles) {
  const auto vectors = [&](const std::optional<model::Norm>& norm) {
    return norm ? norm_vectors(shards, *norm) : NormVectors();
  };
  BoundWeights all{.norm = vectors(part.before)};
  all.exit.norm = vectors(part.behind);
  if (!roles.out.empty()) {
    all.exit.w_AH = shards.matrix(roles.out);
    all.exit.bias_H = shards.vector(roles.out_bias);
  }
  const auto matrix = [&](const InProduct& product) {
    Matrix of_role = shards.matrix(product.role);
    if (!product.narrow) of_role.low_precision = {.rows = of_role.low_precision.rows};
    return of_role;
  };
  for (const InProduct& product : roles.in) {
    all.in.push_back(matrix(product));
    all.in_bias.push_back(product.bias.empty() ? at::Tensor() : shards.vector(product.bias));
  }
  for (const InProduct& product : roles.inner) all.inner.push_back(matrix(product));
  return all;
}

namespace {

// By in-product: factors of this rank's columns. Empty if the part has no factors.
std::vector<at::Tensor> in_factors(const Site& site, const model::Part& part, const Weights& roles,
                                   const BoundWeights& weights) {
  std::vector<at::Tensor> all;
  if (part.factors.empty()) return all;
  const std::vector<model::Parameter>& parameters = site.own_weights().kind().parameters();
  for (size_t i = 0; i < roles.in.size(); ++i) {
    const auto own = std::ranges::find(part.factors, roles.in[i].role, &model::GroupFactors::role);
    at::Tensor& factor = all.emplace_back();
    const at::Tensor& weight = weights.in[i].w_AB;
    // A W without weights at hand needs no factors: its rows already have them.
    if (own == part.factors.end() || !weight.defined()) continue;
    const auto parameter = std::ranges::find(parameters, own->role, &model::Parameter::role);
    std::vector<at::Tensor> groups;
    for (const base::Interval& rows : model::local_rows(*parameter, site.context.cut(site.layer())))
      groups.push_back(at::full({rows.size()}, own->of_groups[groups.size()], weight.options()));
    factor = at::cat(groups);
  }
  return all;
}

struct FramedState final : State {
  at::Tensor x_SH;
  at::Tensor inverse_rms_S;
  at::Tensor product_SH;  // input of a norm behind the part; may be missing
  MixerStatePtr mixer;
  int64_t dropped_bytes = 0;

  std::vector<SavedRows> rows() override {
    std::vector<SavedRows> all{{x_SH}, {inverse_rms_S}, {product_SH}};
    for (const SavedRows& row : mixer->rows()) all.push_back(row);
    return all;
  }
  int64_t recomputed_bytes() const override {
    return dropped_bytes > 0 ? dropped_bytes + mixer->made_beside_bytes() : 0;
  }
};

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

// Slots of gradients: the in-products, their biases, the out product, then the mixer's own.
class Framed final : public Part {
 public:
  Framed(const Site& site, const model::Part& part, Weights roles, std::unique_ptr<const Mixer> mixer)
      : context_(site.context),
        part_(part),
        roles_(std::move(roles)),
        weights_(bound(site.own_weights(), part, roles_)),
        gradients_(bound(site.own_gradients(), part, roles_)),
        mixer_(std::move(mixer)) {
    weights_.in_factor = in_factors(site, part, roles_, weights_);
  }

  at::Tensor forward(const RowLayout& layout, const at::Tensor& x_SH, const at::Tensor& passing_SH,
                     StatePtr* saved) const override {
    auto state = saved != nullptr ? std::make_unique<FramedState>() : nullptr;
    PartRows rows(context_, part_, roles_, weights_, x_SH);
    const Mixed mixed = mixer_->forward(layout, rows, state != nullptr ? &state->mixer : nullptr);
    rows.release();
    at::Tensor product_SH;
    at::Tensor y_SH = joined(passing_SH, mixed, &product_SH);
    if (state != nullptr) {
      if (!part_.beside) state->x_SH = x_SH;
      state->inverse_rms_S = rows.inverse_rms_S();
      state->product_SH = std::move(product_SH);
      *saved = std::move(state);
    }
    return y_SH;
  }

  void drop_recomputable(State& state, Input input) const override {
    auto& own = static_cast<FramedState&>(state);
    std::vector<at::Tensor*> again{&own.inverse_rms_S};
    if (has_out()) again.push_back(&own.product_SH);
    if (input == Input::kMadeAgain) again.push_back(&own.x_SH);
    for (at::Tensor* tensor : own.mixer->made_again()) again.push_back(tensor);
    for (at::Tensor* tensor : again) {
      own.dropped_bytes += bytes_of(*tensor);
      tensor->reset();
    }
  }

  const at::Tensor& input(const State& state) const override {
    return static_cast<const FramedState&>(state).x_SH;
  }
  void lend_input(State& state, const at::Tensor& x_SH) const override {
    static_cast<FramedState&>(state).x_SH = x_SH;
  }

  at::Tensor result(const RowLayout& layout, State& state, const at::Tensor& passing_SH) const override {
    auto& own = static_cast<FramedState&>(state);
    PartRows rows(context_, part_, roles_, weights_, own.x_SH);
    const Mixed mixed = mixer_->again(layout, rows, *own.mixer);
    rows.release();
    return joined(passing_SH, mixed, nullptr);
  }

  void restore(const RowLayout& layout, State& state, const at::Tensor& x_SH) const override {
    auto& own = static_cast<FramedState&>(state);
    if (own.dropped_bytes == 0) return;
    own.dropped_bytes = 0;
    if (!own.x_SH.defined()) own.x_SH = x_SH;
    PartRows rows(context_, part_, roles_, weights_, own.x_SH);
    mixer_->restore(layout, rows, *own.mixer);
    own.inverse_rms_S = rows.inverse_rms_S();
  }

  at::Tensor backward_input(const RowLayout& layout, StatePtr state, const Gradients& from,
                            StatePtr& deferred) const override;
  void drop_gathered(State& deferred) const override {
    static_cast<PendingProducts&>(deferred).drop_gathered();
  }
  void backward_weight(StatePtr deferred) const override {
    static_cast<PendingProducts&>(*deferred).add_to(slots(), context_.parallel);
  }
  void help(const DispatchedRows& rows, Direction direction) const override { mixer_->help(rows, direction); }

 private:
  bool has_out() const { return weights_.exit.w_AH.defined(); }
  int bias_slot(int which) const { return static_cast<int>(roles_.in.size()) + which; }
  int out_slot() const { return 2 * static_cast<int>(roles_.in.size()); }
  int inner_slot(int which) const { return out_slot() + 1 + which; }
  std::vector<Matrix> slots() const {
    std::vector<Matrix> all = gradients_.in;
    for (const at::Tensor& bias : gradients_.in_bias) all.push_back({.w_AB = bias});
    all.push_back(gradients_.exit.w_AH);
    all.insert(all.end(), gradients_.inner.begin(), gradients_.inner.end());
    return all;
  }

  at::Tensor joined(const at::Tensor& passing_SH, const Mixed& mixed, at::Tensor* product_SH) const {
    if (has_out()) return join(context_, part_, passing_SH, mixed.a_TA, weights_.exit, product_SH);
    at::Tensor sum_SH = context_.parallel.reduce_scatter_rows(mixed.a_TA);
    if (mixed.beside_SH.defined()) sum_SH.add_(mixed.beside_SH);
    if (part_.behind) {
      if (part_.norms_sum) sum_SH.add_(passing_SH);
      at::Tensor y_SH = norm_rows(*part_.behind, sum_SH, weights_.exit.norm).y_TH;
      if (!part_.norms_sum) y_SH.add_(passing_SH);
      if (product_SH != nullptr) *product_SH = std::move(sum_SH);
      return y_SH;
    }
    if (part_.scale != 1.0) sum_SH.mul_(part_.scale);
    return sum_SH.add_(passing_SH);
  }

  at::Tensor gradient_of_rows(PartGradient::Left& left) const;
  void leave_pending(const PartGradient::Left& left, const at::Tensor& y_SH, int sum,
                     PendingProducts& pending) const;

  const LayerContext& context_;
  const model::Part& part_;
  Weights roles_;
  BoundWeights weights_, gradients_;
  std::unique_ptr<const Mixer> mixer_;
};

// First adds products over all rows, in the order in which the mixer gave their gradients, then those over
// the shard's rows.
at::Tensor Framed::gradient_of_rows(PartGradient::Left& left) const {
  const auto is_of_shard = [&](const PartGradient::Result& result) {
    return roles_.in[static_cast<size_t>(result.which)].of == InProduct::Of::kShard;
  };
  const auto add = [&](const PartGradient::Result& result, at::Tensor& sum) {
    const at::Tensor d = times(result.dy_TW, weights_.in[static_cast<size_t>(result.which)]);
    if (sum.defined()) {
      sum.add_(d);
    } else {
      sum = d;
    }
  };
  at::Tensor all_TH = std::move(left.start_TH), shard_SH;
  for (const PartGradient::Result& result : left.results) {
    if (!is_of_shard(result)) add(result, all_TH);
  }
  if (all_TH.defined()) shard_SH = context_.parallel.reduce_scatter_rows(all_TH);
  all_TH.reset();
  for (const PartGradient::Result& result : left.results) {
    if (is_of_shard(result)) add(result, shard_SH);
  }
  return shard_SH;
}

// `sum`: the pending products' index for the gradient of the part's sum.
void Framed::leave_pending(const PartGradient::Left& left, const at::Tensor& y_SH, int sum,
                           PendingProducts& pending) const {
  for (const auto& [inner, a_TX, narrow] : left.with_sum)
    pending.product(inner_slot(inner), {pending.keep(a_TX)}, {sum, {}, true}, narrow);
  int rows = -1;
  const auto of_rows = [&](bool gathered) {
    if (rows < 0) rows = pending.keep(y_SH);
    return PendingProducts::Side{rows, {}, gathered};
  };
  for (const PartGradient::Visits& visits : left.visits) {
    const PendingProducts::Side b = visits.with_rows ? of_rows(true) : PendingProducts::Side{sum, {}, true};
    pending.visits(inner_slot(visits.inner), {pending.keep(visits.a_VX)}, b, left.visited);
  }
  for (const auto& [which, dy_TW] : left.results) {
    const auto at = static_cast<size_t>(which);
    const bool wanted = gradients_.in[at].wanted(), biased = gradients_.in_bias[at].defined();
    if (!wanted && !biased) continue;
    const PendingProducts::Side a{pending.keep(dy_TW)};
    if (wanted) {
      const bool all = roles_.in[at].of == InProduct::Of::kAllRows;
      pending.product(which, a, of_rows(all),
                      adapter_rows(weights_.in[at], gradients_.in[at], dy_TW, y_SH,
                                   all ? context_.parallel : TensorParallel()));
    }
    if (biased) pending.column_sums(bias_slot(which), a);
  }
}

at::Tensor Framed::backward_input(const RowLayout& layout, StatePtr state, const Gradients& from,
                                  StatePtr& deferred) const {
  auto& saved = static_cast<FramedState&>(*state);
  if (has_out() && part_.behind && !saved.product_SH.defined()) {
    PartRows rows(context_, part_, roles_, weights_, saved.x_SH);
    const Mixed mixed = mixer_->again(layout, rows, *saved.mixer);
    rows.release();
    saved.product_SH = joined_product(context_, mixed.a_TA, weights_.exit);
    if (part_.norms_sum) saved.product_SH.add_(saved.x_SH);
  }
  const at::Tensor dsum_SH =
      join_backward(part_, from.dy_SH, weights_.exit, saved.product_SH, gradients_.exit);
  saved.product_SH.reset();
  const at::Tensor dsum_TH = context_.parallel.all_gather_rows(dsum_SH);
  auto pending = std::make_unique<PendingProducts>();
  const bool wants_out = has_out() && gradients_.exit.w_AH.wanted();
  PartGradient to(*pending, inner_slot(0), wants_out);
  at::Tensor da_TA = has_out() ? times_transposed(dsum_TH, weights_.exit.w_AH) : dsum_TH;
  PartRows rows(context_, part_, roles_, weights_, saved.x_SH);
  const at::Tensor a_TA =
      mixer_->backward(layout, std::move(saved.mixer), {std::move(da_TA), dsum_SH}, rows, to);
  rows.release();
  PartGradient::Left left = to.take();
  for (auto& [which, dy_TW] : left.results) {
    const auto at = static_cast<size_t>(which);
    if (!weights_.in_factor.empty() && weights_.in_factor[at].defined()) dy_TW.mul_(weights_.in_factor[at]);
  }
  const bool with_sum =
      wants_out || !left.with_sum.empty() ||
      std::ranges::any_of(left.visits, [](const auto& visits) { return !visits.with_rows; });
  const int sum = with_sum ? pending->keep(dsum_SH, dsum_TH) : -1;
  if (wants_out) {
    pending->product(out_slot(), {pending->keep(a_TA)}, {sum, {}, true},
                     adapter_rows(weights_.exit.w_AH, gradients_.exit.w_AH, a_TA, dsum_TH));
  }
  const at::Tensor passing_SH = part_.norms_sum ? dsum_SH : from.dpassing_SH;
  const at::Tensor dpassing_SH = left.dinput_SH.defined() ? left.dinput_SH.add_(passing_SH) : passing_SH;
  PartInputGradient input = enter_backward(part_, gradient_of_rows(left), saved.x_SH, weights_.norm,
                                           saved.inverse_rms_S, dpassing_SH, gradients_.norm);
  leave_pending(left, input.y_SH, sum, *pending);
  deferred = std::move(pending);
  return input.dx_SH;
}

std::unique_ptr<const Part> make_framed(const Site& site, const model::Part& part, Weights roles,
                                        std::unique_ptr<const Mixer> mixer) {
  return std::make_unique<const Framed>(site, part, std::move(roles), std::move(mixer));
}

}  // namespace sluice::layers
