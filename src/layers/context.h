// Settings and borrowed objects that all layers of a rank share under one strategy.
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
#include "model/model.h"
#include "model/parameters.h"
#include "model/rope.h"
#include "ops/rotary.h"

namespace sluice::layers {

// This lane's place in its expert group: the lanes that divide each layer's experts (EP).
struct ExpertLanes {
  int lanes = 1;
  int lane = 0;
  // By layer of the model: the expert in each expert slot (model/expert_slots.h). Empty: even parts in order.
  std::span<const std::vector<int>> expert_slots = {};

  std::span<const int> expert_slots_of(int64_t layer) const {
    return expert_slots.empty() || layer < 0 ? std::span<const int>()
                                             : expert_slots[static_cast<size_t>(layer)];
  }
};

// Statistics of token-to-expert assignments in forward, for experts that lanes divide.
struct ExpertLoad {
  // The busiest lane's assignments over the mean lane's: sum over layers and micro-batches, and their number.
  double sum = 0;
  int64_t count = 0;
  // Assignments of this lane's rows by layer of the model and expert; empty for layers that ran no experts.
  std::vector<std::vector<int64_t>> assignments;
  // Likewise, by pair of experts: this lane's rows that chose both, double [E, E]; if counts_coactivations.
  std::vector<at::Tensor> coactivations;
  bool counts_coactivations = false;

  // `visits_E`: assignments by expert. `id_TK`: the rows' experts.
  void add(int64_t layer, double busiest, std::span<const int64_t> visits_E, const at::Tensor& id_TK);
};

// Layers that compute their products in low precision, and sums that measure the rounding errors.
struct LowPrecisionLayers {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  std::span<const int> layers = {};  // ascending
  GemmErrors* errors = nullptr;      // borrowed, added to by all layers; null: not measured
};

// The model's rotary tables (RoPE), each for all positions up to the longest sequence.
class RotaryTables {
 public:
  void add(const model::Rope& rope, int64_t width, ops::RotaryTable table) {
    tables_.push_back({rope, width, std::move(table)});
  }
  // The table for heads of which `width` dimensions rotate, or null.
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

// Routers' score corrections of all experts by layer of the model, an MTP layer's last, in float; undefined
// without a router.
using Corrections = std::vector<at::Tensor>;

// Immutable and cheap to copy.
struct LayerContext {
  model::Model model;  // layers read their own values (model/layer.h)
  TensorParallel parallel;
  LaneChannel* lanes = nullptr;  // borrowed; null: no micro-batch spans several lanes
  ExpertLanes experts;           // this lane's place in its expert group
  ExpertLoad* load = nullptr;    // borrowed, added to; null: not counted
  LowPrecisionLayers low_precision;
  std::shared_ptr<const RotaryTables> rotary;
  // Replaces the weights' own corrections if the weights' type is narrower. Null: their type is wide enough.
  std::shared_ptr<const Corrections> corrections = nullptr;
  const AdapterMask* adapter_rows = nullptr;           // as LowPrecision::rows
  double temperature = 1;                              // logits are divided by it
  std::shared_ptr<const Loss> loss = cross_entropy();  // the training loss
  std::shared_ptr<const NumberLoss> number_loss = {};  // training loss of heads of numbers; null: none
  std::optional<Distillation> distillation = {};       // replaces `loss` in training; none: no teacher
  double mtp_loss_weight = 0;                          // factor of an MTP layer's loss (mtp.h)
  bool keeps_head_rows = false;    // evaluation leaves Flow::head_rows in place of the losses
  double moe_aux_loss_coeff = 0;   // factor of the expert-balancing loss (balance.h); 0: none
  int64_t logits_chunk_bytes = 0;  // bounds the logits of the head's row chunks; see head.h
  bool groups_experts = false;     // experts without adapters as grouped products (grouped_experts.h)

  // How many sums training reports beside its loss. Those of an MTP layer come last: its loss and its
  // targets.
  int64_t notes() const {
    return (number_loss ? number_loss->notes() : loss->notes()) + (model.has_mtp() ? kMtpNotes : 0);
  }
  static constexpr int64_t kMtpNotes = 2;

  // The correction of a layer's router: an MTP layer's (-1) comes behind all others.
  const at::Tensor& correction_of(int64_t layer) const {
    return (*corrections)[static_cast<size_t>(layer >= 0 ? layer : model.layers())];
  }

  // This rank's part of an operation's parameters. `layer`: its number among the blocks, -1 for model ends.
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
// model::tp_fault's text when tp cannot cut the model.
LayerContext layer_context(const model::Model& model, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like);

// Default of LayerContext::logits_chunk_bytes.
int64_t default_logits_chunk_bytes(const at::Device& device);

}  // namespace sluice::layers
