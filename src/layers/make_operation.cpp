#include "layers/make_operation.h"

#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "layers/block.h"
#include "layers/carried_rows.h"
#include "layers/embedding.h"
#include "layers/head.h"
#include "layers/layer_embedding.h"
#include "layers/mtp.h"
#include "layers/number_head.h"
#include "layers/row_norm.h"
#include "model/layer.h"

namespace sluice::layers {
namespace {

// State of an embedding with a norm or per-layer embeddings.
struct EmbeddingState final : State {
  at::Tensor x_SH;  // input of the norm
  LayerEmbeddingState by_layer;
  std::vector<SavedRows> rows() override { return {{x_SH}, {by_layer.x_SH}, {by_layer.projected_SC}}; }
  // If lanes share parameters, backward does not have the embedding's at hand.
  at::Tensor norm_H, norm_bias_H;
};

class EmbeddingOperation final : public Operation {
 public:
  explicit EmbeddingOperation(const Site& site)
      : context_(site.context),
        weights_(embedding_parameters(site.own_weights())),
        gradients_(embedding_parameters(site.own_gradients())) {}

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    flow.activation_SH = embedding_forward(context_, weights_, flow.id_T, flow.layout.position_T);
    const model::Embedding& own = *weights_.kind;
    if (!own.norm && !own.by_layer) return nullptr;
    auto state = std::make_unique<EmbeddingState>();
    if (own.norm) norm_forward(flow, *state);
    if (own.by_layer) {
      flow.layout.carried = std::make_shared<CarriedRows>();
      flow.layout.carried->input_SC =
          layer_embedding_forward(context_, weights_, flow.id_T, flow.activation_SH,
                                  purpose == Purpose::kTrain ? &state->by_layer : nullptr);
    }
    return purpose == Purpose::kTrain ? std::move(state) : nullptr;
  }
  StatePtr backward_input(Flow& flow, StatePtr saved) const override {
    if (saved != nullptr) {
      const auto& state = static_cast<EmbeddingState&>(*saved);
      if (weights_.kind->by_layer && flow.layout.carried->dinput_SC.defined()) {
        flow.layout.carried->widen_input_gradient();
        layer_embedding_backward(context_, flow.id_T, state.by_layer, flow.layout.carried->dinput_SC,
                                 gradients_, flow.gradient_SH);
      }
      if (weights_.kind->norm) norm_backward(flow, state);
    }
    embedding_backward(context_, flow.id_T, flow.layout.position_T, flow.gradient_SH, gradients_);
    flow.gradient_SH = at::Tensor();
    flow.layout.carried.reset();
    return nullptr;
  }
  void backward(Flow& flow, StatePtr saved) const override { backward_input(flow, std::move(saved)); }

 private:
  void norm_forward(Flow& flow, EmbeddingState& state) const {
    state.x_SH = std::move(flow.activation_SH);
    flow.activation_SH = norm_rows(*weights_.kind->norm, state.x_SH, vectors_of(weights_)).y_TH;
    if (weights_.norm_H.defined()) state.norm_H = weights_.norm_H.clone();
    if (weights_.norm_bias_H.defined()) state.norm_bias_H = weights_.norm_bias_H.clone();
  }
  void norm_backward(Flow& flow, const EmbeddingState& state) const {
    const model::Norm& norm = *weights_.kind->norm;
    const NormVectors vectors{state.norm_H, state.norm_bias_H};
    flow.gradient_SH = norm_rows_backward(norm, flow.gradient_SH, state.x_SH, vectors,
                                          norm_rows(norm, state.x_SH, vectors).inverse_rms_T,
                                          /*residual_TH=*/{}, vectors_of(gradients_))
                           .dx_TH;
  }
  static NormVectors vectors_of(const EmbeddingParameters& of) { return {of.norm_H, of.norm_bias_H}; }

  const LayerContext& context_;
  EmbeddingParameters weights_, gradients_;
};

class NumberHeadOperation final : public Operation {
 public:
  explicit NumberHeadOperation(const Site& site)
      : context_(site.context),
        weights_(head_parameters(site.own_weights())),
        gradients_(head_parameters(site.own_gradients())) {}

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    if (purpose == Purpose::kTrain) {
      HeadResult result = number_head_forward_backward(context_, weights_, flow.activation_SH, flow.targets,
                                                       flow.layout.sequences, gradients_);
      flow.sums = std::move(result.sums);
      flow.gradient_SH = std::move(result.dx_SH);
    } else {
      flow.numbers_RK =
          head_numbers(context_, weights_, flow.activation_SH, flow.targets, flow.layout.sequences);
      flow.loss_R =
          context_.number_loss
              ? context_.number_loss->of(flow.numbers_RK, flow.targets.target_R, flow.targets.given_RF).loss_R
              : at::zeros({flow.numbers_RK.size(0)}, flow.numbers_RK.options());
    }
    flow.activation_SH = at::Tensor();
    return nullptr;
  }
  StatePtr backward_input(Flow&, StatePtr) const override { SLUICE_ASSERT(false, "a backward of the head"); }
  void backward(Flow&, StatePtr) const override { SLUICE_ASSERT(false, "a backward of the head"); }

 private:
  const LayerContext& context_;
  HeadParameters weights_, gradients_;
};

class HeadOperation final : public Operation {
 public:
  explicit HeadOperation(const Site& site)
      : context_(site.context),
        weights_(head_parameters(site.own_weights())),
        gradients_(head_parameters(site.own_gradients())) {
    if (weights_.kind->mtp) mtp_.emplace(site);
  }

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    if (purpose == Purpose::kTrain) {
      HeadResult result =
          head_forward_backward(context_, weights_, flow.activation_SH, flow.targets, gradients_);
      if (mtp_) mtp_->forward_backward(flow, result);
      flow.sums = std::move(result.sums);
      flow.gradient_SH = std::move(result.dx_SH);
    } else if (context_.keeps_head_rows) {
      flow.head_rows = head_rows(context_, weights_, flow.activation_SH, flow.targets);
      flow.loss_R =
          at::zeros({flow.targets.place_R.size(0)}, flow.activation_SH.options().dtype(at::kDouble));
    } else {
      flow.loss_R = head_losses(context_, weights_, flow.activation_SH, flow.targets);
    }
    flow.activation_SH = at::Tensor();
    return nullptr;
  }
  StatePtr backward_input(Flow&, StatePtr) const override { SLUICE_ASSERT(false, "a backward of the head"); }
  void backward(Flow&, StatePtr) const override { SLUICE_ASSERT(false, "a backward of the head"); }
  void help(const DispatchedRows& rows, Direction /*direction*/) const override {
    if (mtp_) mtp_->help(rows);
  }

 private:
  const LayerContext& context_;
  HeadParameters weights_, gradients_;
  std::optional<Mtp> mtp_;
};

}  // namespace

std::unique_ptr<Operation> make_operation(const LayerContext& context, const model::ParameterTable& table,
                                          int64_t position, const FlatShards& weights,
                                          const FlatShards& gradients) {
  const Site site{context, table, position, weights, gradients};
  const model::Kind& kind = table.program.kind_at(position);
  if (kind.layer() != nullptr) return make_block(site, *kind.layer());
  if (kind.embedding() != nullptr) return std::make_unique<EmbeddingOperation>(site);
  if (!kind.head()->is_vocabulary()) return std::make_unique<NumberHeadOperation>(site);
  return std::make_unique<HeadOperation>(site);
}

}  // namespace sluice::layers
