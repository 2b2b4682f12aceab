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
  // A gradient that arrived over a border has the columns of the last layers alone until others are added.
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
  // Gives the gradient all columns of input_SC.
  void widen_input_gradient();
  // Frees the rows once a stage's backward is done: only their gradients travel on.
  void keep_gradients_alone();
  void add_key_gradient(size_t slot, const at::Tensor& dkv_TK);
  // For the layer that made the keys: the sum of later layers' gradients, undefined if none gave any.
  at::Tensor take_key_gradient(size_t slot);
};

enum class Travels : uint8_t { kRows, kGradients };

// The tensors that leave over a stage border, in the order in which they travel: the residual stream's rows
// and the carried ones. All are contiguous, and only columns of some layers are copied. Gradients that no
// layer gave are zero.
std::vector<at::Tensor> leaving_rows(const at::Tensor& stream_SH, const CarriedRows* carried,
                                     const model::BorderRows& border, int tp, Travels travels);
// Memory for them on the other side, with the type of `like`. S: this TP rank's rows.
std::vector<at::Tensor> room_for_rows(int64_t shard, int64_t hidden, const at::TensorOptions& like,
                                      const model::BorderRows& border, int tp);
// Puts tensors that have arrived in their places. Returns the residual stream's rows.
at::Tensor take_arrived(std::vector<at::Tensor> arrived, const model::BorderRows& border, Travels travels,
                        CarriedRows& carried);

}  // namespace sluice::layers
