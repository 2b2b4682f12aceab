#include "layers/block.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "layers/attention_block.h"
#include "layers/experts_block.h"
#include "layers/latent_attention_block.h"
#include "layers/mlp_block.h"
#include "layers/part.h"
#include "layers/recurrent_block.h"
#include "model/attention_kind.h"
#include "model/block_kind.h"
#include "model/experts_kind.h"
#include "model/latent_attention_kind.h"
#include "model/mlp_kind.h"
#include "model/recurrent_kind.h"

namespace sluice::layers {
namespace {

// Who computes which part (model/block_kind.cpp).
constexpr struct {
  std::string_view name;
  std::unique_ptr<const Part> (*make)(const Site& site);
} kRegistry[] = {
    {model::AttentionKind::kName, make_attention},
    {model::LatentAttentionKind::kName, make_latent_attention},
    {model::RecurrentKind::kName, make_recurrent},
    {model::MlpKind::kName, make_mlp},
    {model::ExpertsKind::kName, make_experts},
};

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
  explicit Block(const Site& site) : context_(site.context), layer_(site.layer()) {
    const auto& kind = static_cast<const model::BlockKind&>(site.table.program.kind_at(site.position));
    context_.shape = kind.shape();
    context_.type = kind.type();
    const Site own{context_, site.table, site.position, site.weights, site.gradients};
    for (const auto& described : kind.parts()) {
      const auto* const found =
          std::ranges::find(kRegistry, described->name(), [](const auto& entry) { return entry.name; });
      SLUICE_ASSERT(found != std::end(kRegistry), base::text("nothing computes '", described->name(), "'"));
      parts_.push_back(found->make(own));
    }
  }

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    auto state = purpose == Purpose::kTrain ? std::make_unique<BlockState>(parts_.size()) : nullptr;
    ProductErrors* const errors = context_.narrow.errors;
    if (errors != nullptr) errors->backward = false;
    const at::Tensor before_SH = errors != nullptr ? flow.activation_SH : at::Tensor();
    for (size_t i = 0; i < parts_.size(); ++i) {
      StatePtr* const saved = state != nullptr ? &state->parts[i] : nullptr;
      flow.activation_SH = parts_[i]->forward(flow.layout, flow.activation_SH, saved);
    }
    if (errors != nullptr) {
      errors->add(layer_, ProductErrors::Figure::kOfActivation, flow.activation_SH - before_SH,
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

  void help(const TravellingRows& rows, Direction direction) const override {
    for (const auto& part : parts_) part->help(rows, direction);
  }

 private:
  // The last part comes first, and is done with when the one before it is made again.
  template <typename TakeDeferred>
  void backward_parts(Flow& flow, StatePtr saved, TakeDeferred take) const {
    auto& block = static_cast<BlockState&>(*saved);
    ProductErrors* const errors = context_.narrow.errors;
    if (errors != nullptr) errors->backward = true;
    const at::Tensor behind_SH = errors != nullptr ? flow.gradient_SH : at::Tensor();
    for (size_t i = parts_.size(); i-- > 0;) {
      if (block.dropped) restore(flow.layout, block, i);
      StatePtr deferred;
      flow.gradient_SH =
          parts_[i]->backward_input(flow.layout, std::move(block.parts[i]), flow.gradient_SH, deferred);
      take(i, std::move(deferred));
    }
    if (errors != nullptr) {
      errors->add(layer_, ProductErrors::Figure::kOfGradient, flow.gradient_SH - behind_SH, flow.gradient_SH);
    }
  }

  void restore(const MicroBatchLayout& layout, BlockState& block, size_t part) const {
    at::Tensor x_SH;
    for (size_t i = 0; i < part; ++i) {
      if (i > 0) parts_[i]->restore(layout, *block.parts[i], x_SH);
      x_SH = parts_[i]->result(layout, *block.parts[i]);
    }
    parts_[part]->restore(layout, *block.parts[part], x_SH);
  }

  LayerContext context_;  // which parts refer to
  int64_t layer_;         // of the model
  std::vector<std::unique_ptr<const Part>> parts_;
};

}  // namespace

std::unique_ptr<Operation> make_block(const Site& site) { return std::make_unique<Block>(site); }

}  // namespace sluice::layers
