#include "layers/block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "layers/attention_block.h"
#include "layers/carried_rows.h"
#include "layers/experts_block.h"
#include "layers/latent_attention_block.h"
#include "layers/layer_input_block.h"
#include "layers/mlp_block.h"
#include "layers/part.h"
#include "layers/recurrent_block.h"
#include "layers/row_norm.h"
#include "layers/short_convolution_block.h"
#include "model/layer.h"
#include "model/roles.h"

namespace sluice::layers {
namespace {

std::unique_ptr<const Part> make_part(const Site& site, const model::Part& part) {
  struct Make {
    const Site& site;
    const model::Part& part;
    std::unique_ptr<const Part> operator()(const model::Attention&) const {
      return make_attention(site, part);
    }
    std::unique_ptr<const Part> operator()(const model::LatentAttention&) const {
      return make_latent_attention(site, part);
    }
    std::unique_ptr<const Part> operator()(const model::DeltaRule&) const {
      return make_recurrent(site, part);
    }
    std::unique_ptr<const Part> operator()(const model::Mamba2&) const { return make_recurrent(site, part); }
    std::unique_ptr<const Part> operator()(const model::Gla&) const { return make_recurrent(site, part); }
    std::unique_ptr<const Part> operator()(const model::Kda&) const { return make_recurrent(site, part); }
    std::unique_ptr<const Part> operator()(const model::ShortConvolution&) const {
      return make_short_convolution(site, part);
    }
    std::unique_ptr<const Part> operator()(const model::Mlp&) const { return make_mlp(site, part); }
    std::unique_ptr<const Part> operator()(const model::RoutedExperts&) const {
      return make_experts(site, part);
    }
    std::unique_ptr<const Part> operator()(const model::LayerInput&) const {
      return make_layer_input(site, part);
    }
  };
  return std::visit(Make{site, part}, part.mixer);
}

// By part of the block.
struct BlockState final : State {
  std::vector<StatePtr> parts;
  at::Tensor sum_SH;     // input of the norm behind a sum of parts
  bool dropped = false;  // whether drop_recomputable() was called

  explicit BlockState(size_t count) : parts(count) {}
  std::vector<SavedRows> rows() override {
    std::vector<SavedRows> all{{sum_SH}};
    for (const StatePtr& part : parts) {
      for (const SavedRows& row : part->rows()) all.push_back(row);
    }
    return all;
  }
  // One part at a time is recomputed.
  int64_t recomputed_bytes() const override {
    int64_t most = 0;
    for (const StatePtr& part : parts) most = std::max(most, part->recomputed_bytes());
    return most;
  }
};

class Block final : public Operation {
 public:
  Block(const Site& site, const model::Layer& layer)
      : context_(site.context),
        program_(site.table.program),
        layer_(site.layer()),
        own_(layer),
        scalar_1_(site.own_weights().vector(model::roles::kLayerScalar)) {
    for (const model::Part& part : own_.parts) {
      SLUICE_ASSERT(!part.beside || !parts_.empty(), "a part beside another one follows it");
      first_.push_back(part.beside ? first_.back() : parts_.size());
      parts_.push_back(make_part(site, part));
      const auto* const attention = std::get_if<model::Attention>(&part.mixer);
      lends_ = lends_ || (attention != nullptr && attention->sharing == model::KeySharing::kLends);
    }
    if (!own_.joint) return;
    joint_ = norm_vectors(site.own_weights(), *own_.joint);
    djoint_ = norm_vectors(site.own_gradients(), *own_.joint);
  }

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    auto state = purpose == Purpose::kTrain ? std::make_unique<BlockState>(parts_.size()) : nullptr;
    GemmErrors* const errors = measured_errors();
    if (errors != nullptr) errors->backward = false;
    const at::Tensor before_SH = errors != nullptr ? flow.activation_SH : at::Tensor();
    if (lends_ && !flow.layout.carried) flow.layout.carried = std::make_shared<CarriedRows>();
    at::Tensor first_SH, sum_SH;
    for (size_t i = 0; i < parts_.size(); ++i) {
      StatePtr* const saved = state != nullptr ? &state->parts[i] : nullptr;
      if (!is_beside(i)) first_SH = flow.activation_SH;
      const bool joins = joins_sum(i);
      if (joins && !is_beside(i)) sum_SH = at::zeros_like(first_SH);
      at::Tensor& passing_SH = joins ? sum_SH : flow.activation_SH;
      passing_SH = parts_[i]->forward(flow.layout, first_SH, passing_SH, saved);
    }
    first_SH.reset();
    if (own_.joint) {
      flow.activation_SH = norm_rows(*own_.joint, sum_SH, joint_).y_TH.add_(flow.activation_SH);
      if (state != nullptr) state->sum_SH = std::move(sum_SH);
    }
    if (scalar_1_.defined()) flow.activation_SH = flow.activation_SH * scalar_1_;
    if (errors != nullptr) {
      errors->add(layer_, GemmErrors::Figure::kOfActivation, flow.activation_SH - before_SH,
                  flow.activation_SH);
    }
    return state;
  }

  // A later part's input is the result of the one before it.
  void drop_recomputable(State& state) const override {
    auto& block = static_cast<BlockState&>(state);
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i]->drop_recomputable(*block.parts[i], i == 0 ? Part::Input::kKept : Part::Input::kMadeAgain);
    }
    block.dropped = true;
  }

  StatePtr backward_input(Flow& flow, StatePtr saved) const override {
    auto deferred = std::make_unique<BlockState>(parts_.size());
    backward_parts(flow, std::move(saved), [&](size_t part, StatePtr own) {
      parts_[part]->drop_gathered(*own);
      deferred->parts[part] = std::move(own);
    });
    return deferred;
  }

  void backward_weight(StatePtr deferred) const override {
    auto& block = static_cast<BlockState&>(*deferred);
    for (size_t i = parts_.size(); i-- > 0;) parts_[i]->backward_weight(std::move(block.parts[i]));
  }

  void backward(Flow& flow, StatePtr saved) const override {
    backward_parts(flow, std::move(saved),
                   [&](size_t part, StatePtr own) { parts_[part]->backward_weight(std::move(own)); });
  }

  void help(const DispatchedRows& rows, Direction direction) const override {
    for (const auto& part : parts_) part->help(rows, direction);
  }

 private:
  // Goes from the last part to the first; a part is finished before the one before it is recomputed.
  template <typename TakeDeferred>
  void backward_parts(Flow& flow, StatePtr saved, TakeDeferred take) const {
    auto& block = static_cast<BlockState&>(*saved);
    GemmErrors* const errors = measured_errors();
    if (errors != nullptr) errors->backward = true;
    const at::Tensor behind_SH = errors != nullptr ? flow.gradient_SH : at::Tensor();
    if (scalar_1_.defined()) flow.gradient_SH = flow.gradient_SH * scalar_1_;
    at::Tensor dsum_SH;  // gradient of the sum of a part and those beside it
    if (own_.joint) dsum_SH = joint_backward(flow.gradient_SH, std::move(block.sum_SH));
    for (size_t i = parts_.size(); i-- > 0;) {
      if (block.dropped) restore(flow.layout, block, i);
      if (is_beside(i)) lend(block, i);
      if (!dsum_SH.defined()) dsum_SH = flow.gradient_SH;
      const Part::Gradients from{dsum_SH, flow.gradient_SH};
      if (!is_beside(i)) dsum_SH.reset();
      StatePtr deferred;
      flow.gradient_SH = parts_[i]->backward_input(flow.layout, std::move(block.parts[i]), from, deferred);
      take(i, std::move(deferred));
    }
    if (errors != nullptr) {
      errors->add(layer_, GemmErrors::Figure::kOfGradient, flow.gradient_SH - behind_SH, flow.gradient_SH);
    }
  }

  void restore(const RowLayout& layout, BlockState& block, size_t part) const {
    const size_t first = first_[part];
    if (!parts_[first]->input(*block.parts[first]).defined())
      parts_[first]->lend_input(*block.parts[first], input_made_again(layout, block, first));
    if (is_beside(part)) lend(block, part);
    parts_[part]->restore(layout, *block.parts[part], {});
  }
  // Recomputes a part's dropped input: the result of the parts before it.
  at::Tensor input_made_again(const RowLayout& layout, BlockState& block, size_t part) const {
    at::Tensor x_SH = parts_[0]->input(*block.parts[0]);
    for (size_t i = 0; i < part; ++i) {
      if (is_beside(i)) lend(block, i);
      if (i > 0) parts_[i]->restore(layout, *block.parts[i], x_SH);
      x_SH = parts_[i]->result(layout, *block.parts[i], x_SH);
    }
    return x_SH;
  }
  at::Tensor joint_backward(const at::Tensor& dy_SH, const at::Tensor& sum_SH) const {
    const at::Tensor scale_S = norm_rows(*own_.joint, sum_SH, joint_).inverse_rms_T;
    return norm_rows_backward(*own_.joint, dy_SH, sum_SH, joint_, scale_S, /*residual_TH=*/{}, djoint_).dx_TH;
  }

  // An MTP layer's are not measured.
  GemmErrors* measured_errors() const { return layer_ >= 0 ? context_.low_precision.errors : nullptr; }
  bool is_beside(size_t part) const { return first_[part] != part; }
  bool joins_sum(size_t part) const { return own_.joint && first_[part] == first_.back(); }
  void lend(BlockState& block, size_t part) const {
    const size_t first = first_[part];
    parts_[part]->lend_input(*block.parts[part], parts_[first]->input(*block.parts[first]));
  }

  const LayerContext& context_;
  model::Program program_;  // parts refer to its values
  int64_t layer_;           // index in the model; -1: an MTP layer
  const model::Layer& own_;
  std::vector<std::unique_ptr<const Part>> parts_;
  std::vector<size_t> first_;   // by part: the first part with the same input
  bool lends_ = false;          // keys and values, to later layers
  NormVectors joint_, djoint_;  // norm behind the last parts' sum
  at::Tensor scalar_1_;         // undefined: none
};

}  // namespace

std::unique_ptr<Operation> make_block(const Site& site, const model::Layer& layer) {
  return std::make_unique<Block>(site, layer);
}

}  // namespace sluice::layers
