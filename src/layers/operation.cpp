#include "layers/operation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "layers/decoder_layer.h"
#include "layers/embedding.h"
#include "layers/memory.h"
#include "layers/parameters.h"
#include "model/block_kind.h"
#include "model/end_kinds.h"

namespace sluice::layers {
namespace {

// Where an operation is made.
struct Site {
  const LayerContext& context;
  const model::ParameterTable& table;
  int64_t position;
  const FlatShards& weights;
  const FlatShards& gradients;

  const model::Bucket& bucket() const { return table.buckets[static_cast<size_t>(position)]; }
  // Views that `make` gives of the own bucket's weights and gradients.
  template <typename Make>
  auto views(Make make, const FlatShards& flats) const {
    const auto [group, tp, t] = context.parallel;
    using Views = decltype(make(bucket(), at::Tensor(), tp, t));
    return flats ? make(bucket(), flats(bucket().index), tp, t) : Views{};
  }
};

class EmbeddingOperation final : public Operation {
 public:
  explicit EmbeddingOperation(const Site& site)
      : context_(site.context),
        weights_(site.views(embedding_parameters, site.weights)),
        gradients_(site.views(embedding_parameters, site.gradients)) {}

  StatePtr forward(Flow& flow, Purpose) const override {
    flow.activation_SH = embedding_forward(context_, weights_, flow.id_T);
    return nullptr;
  }
  StatePtr backward_input(Flow& flow, StatePtr) const override {
    embedding_backward(context_, flow.id_T, flow.gradient_SH, gradients_);
    flow.gradient_SH = at::Tensor();
    return nullptr;
  }
  void backward(Flow& flow, StatePtr saved) const override { backward_input(flow, std::move(saved)); }

 private:
  const LayerContext& context_;
  EmbeddingParameters weights_, gradients_;
};

template <typename Tensors>
struct BlockState final : State {
  Tensors tensors;
  std::vector<SavedRows> rows() override { return rows_of(tensors); }
};

template <typename Tensors>
Tensors taken(StatePtr state) {
  return std::move(static_cast<BlockState<Tensors>&>(*state).tensors);
}

class BlockOperation final : public Operation {
 public:
  explicit BlockOperation(const Site& site)
      : context_(of_kind(site)),
        weights_(site.views(layer_parameters, site.weights)),
        gradients_(site.views(layer_parameters, site.gradients)) {}

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    auto state = purpose == Purpose::kTrain ? std::make_unique<BlockState<LayerSaved>>() : nullptr;
    flow.activation_SH = layer_forward(context_, flow.layout, weights_, flow.activation_SH,
                                       state != nullptr ? &state->tensors : nullptr);
    return state;
  }
  void drop_recomputable(State& state) const override {
    layers::drop_recomputable(static_cast<BlockState<LayerSaved>&>(state).tensors);
  }
  int64_t recomputed_bytes(const MicroBatchLayout& layout) const override {
    const auto [group, tp, t] = context_.parallel;
    LayerCut cut{tp, t, static_cast<int64_t>(weights_.qkv_PH.element_size())};
    if (layout.heads.exchanges()) {
      cut.head_lanes = layout.heads.lanes();
      cut.head_lane = layout.heads.lane;
      cut.attended_rows = layout.heads.rows();
    }
    return layers::recomputed_bytes(context_.shape, cut, layout.rows);
  }
  StatePtr backward_input(Flow& flow, StatePtr saved) const override {
    auto deferred = std::make_unique<BlockState<LayerDeferred>>();
    flow.gradient_SH =
        layer_backward_input(context_, flow.layout, weights_, taken<LayerSaved>(std::move(saved)),
                             flow.gradient_SH, gradients_, deferred->tensors);
    return deferred;
  }
  void backward_weight(StatePtr deferred) const override {
    layer_backward_weight(context_, taken<LayerDeferred>(std::move(deferred)), gradients_);
  }
  void backward(Flow& flow, StatePtr saved) const override {
    flow.gradient_SH = layer_backward(context_, flow.layout, weights_, taken<LayerSaved>(std::move(saved)),
                                      flow.gradient_SH, gradients_);
  }

 private:
  static LayerContext of_kind(const Site& site) {
    LayerContext context = site.context;
    context.rotates =
        static_cast<const model::BlockKind&>(site.table.program.kind_at(site.position)).rotates();
    return context;
  }

  LayerContext context_;
  LayerParameters weights_, gradients_;
};

class HeadOperation final : public Operation {
 public:
  explicit HeadOperation(const Site& site)
      : context_(site.context),
        weights_(views(site, site.weights)),
        gradients_(views(site, site.gradients)) {}

  StatePtr forward(Flow& flow, Purpose purpose) const override {
    if (purpose == Purpose::kTrain) {
      HeadResult result =
          head_forward_backward(context_, weights_, flow.activation_SH, flow.targets, gradients_);
      flow.loss_sum = std::move(result.loss_sum);
      flow.gradient_SH = std::move(result.dx_SH);
    } else {
      flow.loss_sum = head_loss(context_, weights_, flow.activation_SH, flow.targets);
    }
    flow.activation_SH = at::Tensor();
    return nullptr;
  }
  StatePtr backward_input(Flow&, StatePtr) const override { SLUICE_ASSERT(false, "a backward of the head"); }
  void backward(Flow&, StatePtr) const override { SLUICE_ASSERT(false, "a backward of the head"); }

 private:
  static HeadParameters views(const Site& site, const FlatShards& flats) {
    if (!flats) return {};
    const auto [group, tp, t] = site.context.parallel;
    const bool tied = site.table.shape.tie_embeddings;
    return head_parameters(site.table, flats(site.bucket().index),
                           tied ? flats(site.table.embedding().index) : at::Tensor(), tp, t);
  }

  const LayerContext& context_;
  HeadParameters weights_, gradients_;
};

template <typename Kind>
std::unique_ptr<Operation> make(const Site& site) {
  return std::make_unique<Kind>(site);
}

// Who computes which kind (model/kind.h).
constexpr struct {
  std::string_view kind;
  std::unique_ptr<Operation> (*make)(const Site& site);
} kRegistry[] = {
    {model::EmbeddingKind::kName, make<EmbeddingOperation>},
    {model::BlockKind::kName, make<BlockOperation>},
    {model::HeadKind::kName, make<HeadOperation>},
};

}  // namespace

int64_t State::bytes() {
  int64_t bytes = 0;
  for (const SavedRows& row : rows()) {
    if (row.tensor.defined()) bytes += static_cast<int64_t>(row.tensor.nbytes());
  }
  return bytes;
}

std::unique_ptr<Operation> make_operation(const LayerContext& context, const model::ParameterTable& table,
                                          int64_t position, const FlatShards& weights,
                                          const FlatShards& gradients) {
  const std::string_view kind = table.program.kind_at(position).name();
  const auto* const found = std::ranges::find(kRegistry, kind, [](const auto& entry) { return entry.kind; });
  SLUICE_ASSERT(found != std::end(kRegistry), base::text("nothing computes operations of kind ", kind));
  return found->make({context, table, position, weights, gradients});
}

}  // namespace sluice::layers
