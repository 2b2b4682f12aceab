// What all layers of a rank share under one strategy.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layers/distillation.h"
#include "layers/lane_channel.h"
#include "layers/loss.h"
#include "layers/product.h"
#include "layers/tensor_parallel.h"
#include "model/parameters.h"
#include "model/shape.h"
#include "ops/rotary.h"

namespace sluice::layers {

// This lane's place among those that divide each layer's experts between them.
struct ExpertLanes {
  int lanes = 1;
  int lane = 0;
  // By layer of the model the experts of each seat (model/expert_slots.h); none: even parts in their order.
  std::span<const std::vector<int>> expert_slots = {};

  std::span<const int> expert_slots_of(int64_t layer) const {
    return expert_slots.empty() || layer < 0 ? std::span<const int>()
                                             : expert_slots[static_cast<size_t>(layer)];
  }
};

// How rows visited experts that lanes divide, forward.
struct ExpertLoad {
  // The busiest lane's visits over the mean lane's: the sum over layers and micro-batches, and their number.
  double sum = 0;
  int64_t count = 0;
  // By layer of the model, and expert: visits of this lane's rows. None of a layer that ran none.
  std::vector<std::vector<int64_t>> assignments;
  // Likewise, of pairs of experts those of its rows that visited both, double [E, E]; where it is asked for.
  std::vector<at::Tensor> coactivations;
  bool counts_coactivations = false;

  // `id_TK`: the experts of the rows.
  void add(int64_t layer, double busiest, std::span<const int64_t> visits_E, const at::Tensor& id_TK);
};

// Which layers of the model compute their products in fewer bits, and what that would add.
struct LowPrecisionLayers {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  std::span<const int> layers = {};  // ascending
  GemmErrors* errors = nullptr;      // borrowed, added to by all layers; null: nobody asks
};

// The tables of a model's rotary positions, which reach up to the longest sequence.
class RotaryTables {
 public:
  void add(const model::Rope& rope, int64_t width, ops::RotaryTable table) {
    tables_.push_back({rope, width, std::move(table)});
  }
  // The table that turns so many of a head's dimensions, or null.
  const ops::RotaryTable* find(const model::Rope& rope, int64_t width) const {
    const auto found = std::ranges::find_if(
        tables_, [&](const Entry& entry) { return entry.width == width && entry.rope == rope; });
    return found != tables_.end() ? &found->table : nullptr;
  }

 private:
  struct Entry {
    model::Rope rope;
    int64_t width;
    ops::RotaryTable table;
  };
  std::vector<Entry> tables_;
};

// Routers' corrections of all experts, in float, by layer of the model; undefined for layers without routers.
using Corrections = std::vector<at::Tensor>;

// Immutable and cheap to copy.
struct LayerContext {
  model::Shape shape;  // layers read their own values (model/layer.h)
  TensorParallel parallel;
  LaneChannel* lanes = nullptr;  // borrowed; null: no micro-batch lies on several
  ExpertLanes experts;           // that divide experts between them
  ExpertLoad* load = nullptr;    // borrowed, added to; null: nobody asks
  LowPrecisionLayers low_precision;
  std::shared_ptr<const RotaryTables> rotary;
  // Replace the corrections among the weights, which are narrower; null: the weights' are as wide.
  std::shared_ptr<const Corrections> corrections = nullptr;
  const AdapterMask* adapter_rows = nullptr;           // as of LowPrecision
  double temperature = 1;                              // logits are divided by it
  std::shared_ptr<const Loss> loss = cross_entropy();  // of training
  std::shared_ptr<const NumberLoss> number_loss = {};  // of heads of numbers; null: nothing is compared
  std::optional<Distillation> distillation = {};       // of training, in place of `loss`; none: no teacher
  bool keeps_head_rows = false;    // an evaluation leaves them (Flow::head_rows) in place of losses
  double moe_aux_loss_coeff = 0;         // factor of the loss that balances experts (balance.h); 0: none
  int64_t logits_chunk_bytes = 0;  // the head works on as many rows at once as fit; see head.h

  // What training sums beside its loss.
  int64_t notes() const { return number_loss ? number_loss->notes() : loss->notes(); }

  // Which part of an operation's parameters this rank computes with; `layer`: its number among the blocks.
  model::Cut cut(int64_t layer) const {
    const std::span<const int> all = experts.expert_slots_of(layer);
    const size_t own = all.size() / static_cast<size_t>(experts.lanes);
    return {.tp = parallel.tp,
            .t = parallel.t,
            .expert_lanes = experts.lanes,
            .expert_lane = experts.lane,
            .own_experts = all.subspan(own * static_cast<size_t>(experts.lane), own)};
  }
  LowPrecision low_precision_of(int64_t layer) const {
    const bool is_narrow = layer >= 0 && std::ranges::binary_search(low_precision.layers, layer);
    return {.format = is_narrow ? low_precision.format : base::GemmFormat::kAsComputed,
            .errors = layer >= 0 ? low_precision.errors : nullptr,
            .layer = layer,
            .rows = adapter_rows};
  }
};

// `like` gives device and compute type; `positions` is the context length. Throws base::InputError with
// model::tp_fault's text when tp cannot cut the shape.
LayerContext layer_context(const model::Shape& shape, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like);

// What the logits of one chunk of rows should take of a device.
int64_t default_logits_chunk_bytes(const at::Device& device);

}  // namespace sluice::layers
