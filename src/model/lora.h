// Adapters of low rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::model {

// Adapters of low rank (Hu et al., LoRA, 2021): a named matrix w becomes w + alpha ÷ rank · b·a. Parameters b
// and a have `rank` columns and rows. b starts at zero.
//
// With `dora` (Liu et al., DoRA, 2024) the sum v = w + alpha ÷ rank · b·a gives the directions of the weights
// of its outputs, and a trained vector m their magnitudes: output i has the weights m_i · v_i ÷ ‖v_i‖. m
// starts at ‖w_i‖. Gradients take the norms for constants, as in section 4.3 and in PEFT.
struct Lora {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  std::vector<std::string> targets;  // Hugging Face's module names: "q_proj"
  bool dora = false;
  double factor() const { return alpha / static_cast<double>(rank); }
  bool operator==(const Lora&) const = default;
};

}  // namespace sluice::model
