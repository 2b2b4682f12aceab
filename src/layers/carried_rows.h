// What operations of a micro-batch make for later ones beside the residual stream: embeddings by layer, and
// keys and values that layers share. It is there from the forward that makes it until the backward that takes
// its gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "model/border_rows.h"
#include "model/layer.h"

namespace sluice::layers {

struct CarriedRows {
  // Of this TP rank's shard, by layers from `first_layer` on. C: these layers times a layer's width.
  at::Tensor input_SC, dinput_SC;
  int64_t first_layer = 0;
  // Of all rows and this TP rank's heads, keys beside values; the gradient is what later layers gave.
  struct Keys {
    at::Tensor kv_TK, dkv_TK;
  };
  std::array<Keys, model::kKeySlots> keys;

  std::vector<at::Tensor> rows() const;  // all there are
  int64_t bytes() const;
  at::Tensor input_of(int64_t layer, int64_t width) const {
    return input_SC.narrow(1, (layer - first_layer) * width, width);
  }
  void add_input_gradient(int64_t layer, const at::Tensor& dinput_SP);
  void add_key_gradient(size_t slot, const at::Tensor& dkv_TK);
  // The lender's: what the others gave, undefined where they gave nothing.
  at::Tensor take_key_gradient(size_t slot);
};

enum class Travels : uint8_t { kRows, kGradients };

// One flat tensor of the residual stream's rows and of what is carried at a border of stages, and these again
// from it. What nobody gave a gradient is zero.
at::Tensor packed_border(const at::Tensor& stream_SH, const CarriedRows* carried,
                         const model::BorderRows& border, int tp, Travels travels);
at::Tensor unpacked_border(const at::Tensor& packed, int64_t hidden, const model::BorderRows& border, int tp,
                           Travels travels, CarriedRows& carried);

}  // namespace sluice::layers
