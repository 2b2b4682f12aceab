// The recurrent part of a block, where others have attention: queries, keys and values of few heads that a
// short convolution mixes along the sequence, a decay and a rate of each value head, and a gate of what comes
// out.
#pragma once

#include <cstdint>

#include "model/kind.h"
#include "model/shape.h"

namespace sluice::model {

// Columns of a state go from piece to piece in so many messages, so that one is on its way while the next is
// made.
inline constexpr int64_t kStateBlocks = 4;

class RecurrentKind final : public Part {
 public:
  static constexpr std::string_view kName = "recurrent";
  // Roles of its parameters.
  static constexpr std::string_view kNorm = "recurrent_norm";
  // Rows q, k, v, or by key head q, k, v, gate, or of Mamba-2 gate, v, k, q, step: x·wᵀ
  static constexpr std::string_view kQkv = "recurrent_qkv";
  // Rows rates, decays, one a value head, or by key head these: x·wᵀ; of GLA decays of key channels, from the
  // narrow rows; of Mamba-2 this and the gate are absent
  static constexpr std::string_view kRates = "recurrent_rates";
  static constexpr std::string_view kDecayNarrow = "recurrent_decay_narrow";  // of GLA: x·wᵀ
  static constexpr std::string_view kGate = "recurrent_gate";                 // x·wᵀ; by key head absent
  static constexpr std::string_view kConvolution = "recurrent_convolution";   // a row for each of q, k, v's
  // In the order of kQkv's rows; their biases
  static constexpr std::string_view kConvolutionBias = "recurrent_convolution_bias";
  static constexpr std::string_view kDecay = "recurrent_decay";         // logarithms, one a value head
  static constexpr std::string_view kStepBias = "recurrent_step_bias";  // of each decay, before softplus
  static constexpr std::string_view kSkip = "recurrent_skip";  // of Mamba-2: how much of a value passes by
  static constexpr std::string_view kHeadNorm = "recurrent_head_norm";  // of a value head's width, or of all
  static constexpr std::string_view kOut = "recurrent_out";             // stored [in, out]: a·w

  RecurrentKind(const Shape& shape, const BlockType&) : shape_(shape), own_(shape.recurrent) {}

  std::string_view name() const override { return kName; }
  std::vector<Parameter> parameters() const override;
  std::string tp_fault(int tp) const override;
  TokenWork work() const override;
  PartBytes bytes(const Cut& cut, int64_t element_bytes) const override;
  CacheBytes cache(const Cut& cut, int64_t element_bytes) const override;

 private:
  std::vector<Parameter> mamba_parameters() const;
  std::vector<Parameter> gla_parameters() const;

  Shape shape_;
  Recurrent own_;
};

}  // namespace sluice::model
