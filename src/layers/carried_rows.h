// Tensors that operations of a micro-batch make for later operations, beside the residual stream: per-layer
// embeddings, and keys and values that layers share. A tensor lives from the forward that makes it to the
// backward that takes its gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "model/border_rows.h"
#include "model/layer.h"

namespace sluice::layers {

struct CarriedRows {
  // Per-layer embeddings of this TP rank's rows, from `first_layer` on. C: number of layers × layer's width.
  at::Tensor input_SC, dinput_SC;
  int64_t first_layer = 0;
  // Keys beside values, for all rows and this TP rank's heads. dkv_TK sums the later layers' gradients.
  struct Keys {
    at::Tensor kv_TK, dkv_TK;
  };
  std::array<Keys, model::kKeySlots> keys;

  std::vector<at::Tensor> rows() const;  // all defined tensors
  int64_t bytes() const;
  at::Tensor input_of(int64_t layer, int64_t width) const {
    return input_SC.narrow(1, (layer - first_layer) * width, width);
  }
  void add_input_gradient(int64_t layer, const at::Tensor& dinput_SP);
  void add_key_gradient(size_t slot, const at::Tensor& dkv_TK);
  // For the layer that made the keys: the sum of later layers' gradients, undefined if none gave any.
  at::Tensor take_key_gradient(size_t slot);
};

enum class Travels : uint8_t { kRows, kGradients };

// Packs the residual stream's rows and the carried tensors of a stage border into one flat tensor, and
// unpacks them again. Gradients that no layer gave are zero.
at::Tensor packed_border(const at::Tensor& stream_SH, const CarriedRows* carried,
                         const model::BorderRows& border, int tp, Travels travels);
at::Tensor unpacked_border(const at::Tensor& packed, int64_t hidden, const model::BorderRows& border, int tp,
                           Travels travels, CarriedRows& carried);

}  // namespace sluice::layers
