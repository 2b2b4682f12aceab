#include "layers/block.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "layers/attention_block.h"
#include "layers/experts_block.h"
#include "layers/latent_attention_block.h"
#include "layers/mlp_block.h"
#include "layers/part.h"
#include "layers/recurrent_block.h"
#include "layers/short_convolution_block.h"
#include "model/layer.h"

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
    std::unique_ptr<const Part> operator()(const model::ShortConvolution&) const {
      return make_short_convolution(site, part);
    }
    std::unique_ptr<const Part> operator()(const model::Mlp&) const { return make_mlp(site, part); }
    std::unique_ptr<const Part> operator()(const model::RoutedExperts&) const {
      return make_experts(site, part);
    }
  };
  return std::visit(Make{site, part}, part.mixer);
}

// By part.
struct BlockState final : State {
  std::vector<StatePtr> parts;
  bool dropped = false;  // what can be made again

  explicit BlockState(size_t count) : parts(count) {}
  std::vector<SavedRows> rows() override {
    std::vector<SavedRows> all;
    for (const StatePtr& part : parts) {
      for (const SavedRows& row : part->rows()) all.push_back(row);
    }
    return all;
  }
  // Parts are made again one at a time.
  int64_t recomputed_bytes() const override {
    int64_t most = 0;
    for (const StatePtr& part : parts) most = std::max(most, part->recomputed_bytes());
    return most;
  }
};

class Block final : public Operation {
 public:
  explicit Block(const Site& site)
      : context_(site.context), program_(site.table.program), layer_(site.layer()) {
    for (const model::Part& part : program_.kind_at(site.position).layer()->parts) {
      SLUICE_ASSERT(!part.beside || beside_ + 1 == parts_.size(), "parts beside the first one follow it");
      if (part.beside) ++beside_;
      parts_.push_back(make_part(site, part));
    }
  }

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    auto state = purpose == Purpose::kTrain ? std::make_unique<BlockState>(parts_.size()) : nullptr;
    GemmErrors* const errors = context_.low_precision.errors;
    if (errors != nullptr) errors->backward = false;
    const at::Tensor before_SH = errors != nullptr ? flow.activation_SH : at::Tensor();
    at::Tensor first_SH = beside_ > 0 ? flow.activation_SH : at::Tensor();
    for (size_t i = 0; i < parts_.size(); ++i) {
      StatePtr* const saved = state != nullptr ? &state->parts[i] : nullptr;
      if (i > beside_) first_SH.reset();
      flow.activation_SH = parts_[i]->forward(flow.layout, is_beside(i) ? first_SH : flow.activation_SH,
                                              flow.activation_SH, saved);
    }
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
  // The last part comes first, and is done with when the one before it is made again.
  template <typename TakeDeferred>
  void backward_parts(Flow& flow, StatePtr saved, TakeDeferred take) const {
    auto& block = static_cast<BlockState&>(*saved);
    GemmErrors* const errors = context_.low_precision.errors;
    if (errors != nullptr) errors->backward = true;
    const at::Tensor behind_SH = errors != nullptr ? flow.gradient_SH : at::Tensor();
    at::Tensor dsum_SH;  // of the first part and those beside it
    for (size_t i = parts_.size(); i-- > 0;) {
      if (is_beside(i)) lend(block, i);
      if (block.dropped) restore(flow.layout, block, i);
      if (i == beside_) dsum_SH = flow.gradient_SH;
      const Part::Gradients from{i <= beside_ ? dsum_SH : flow.gradient_SH, flow.gradient_SH};
      StatePtr deferred;
      flow.gradient_SH = parts_[i]->backward_input(flow.layout, std::move(block.parts[i]), from, deferred);
      take(i, std::move(deferred));
    }
    if (errors != nullptr) {
      errors->add(layer_, GemmErrors::Figure::kOfGradient, flow.gradient_SH - behind_SH, flow.gradient_SH);
    }
  }

  void restore(const RowLayout& layout, BlockState& block, size_t part) const {
    at::Tensor x_SH;
    for (size_t i = 0; i < part && !is_beside(part); ++i) {
      if (is_beside(i)) lend(block, i);
      if (i > 0) parts_[i]->restore(layout, *block.parts[i], x_SH);
      x_SH = parts_[i]->result(layout, *block.parts[i], i == 0 ? parts_[0]->input(*block.parts[0]) : x_SH);
    }
    parts_[part]->restore(layout, *block.parts[part], x_SH);
  }

  bool is_beside(size_t part) const { return part > 0 && part <= beside_; }
  void lend(BlockState& block, size_t part) const {
    parts_[part]->lend_input(*block.parts[part], parts_[0]->input(*block.parts[0]));
  }

  const LayerContext& context_;
  model::Program program_;  // whose values parts refer to
  int64_t layer_;           // of the model
  std::vector<std::unique_ptr<const Part>> parts_;
  size_t beside_ = 0;  // so many behind the first part take the same rows
};

}  // namespace

std::unique_ptr<Operation> make_block(const Site& site) { return std::make_unique<Block>(site); }

}  // namespace sluice::layers
