// Adapters of low rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::model {

// Adapters of low rank (Hu et al., LoRA, 2021): a named matrix w becomes w + alpha ÷ rank · b·a. Parameters b
// and a have `rank` columns and rows. b starts at zero.
struct Lora {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  std::vector<std::string> targets;  // Hugging Face's module names: "q_proj"
  double factor() const { return alpha / static_cast<double>(rank); }
  bool operator==(const Lora&) const = default;
};

}  // namespace sluice::model
