// Entries of Lora::targets: a module's name, or the parameter that stacks experts' matrices ("q_proj",
// "mlp.experts.down_proj"), optionally with its own rank and alpha: "q_proj:4:32".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/lora.h"
#include "model/parameter.h"

namespace sluice::model {

struct LoraTarget {
  std::string name;
  int64_t rank = 0;
  double alpha = 0;
  bool own = false;  // whether rank and alpha are its own

  double factor() const { return alpha / static_cast<double>(rank); }
  std::string entry() const;
};

// InputError if an entry is neither NAME nor NAME:RANK:ALPHA.
std::vector<LoraTarget> lora_targets(const Lora& lora);

// The target that names the module of a tensor ("self_attn.q_proj.weight") or experts' parameter
// ("mlp.experts.down_proj"); none: no adapter.
std::optional<LoraTarget> target_of_module(const Lora& lora, std::string_view tensor);
std::optional<LoraTarget> target_of_stack(const Lora& lora, std::string_view path);

// The factor on the product of an adapter's two matrices. REQUIRES: `parameter` is one of them.
double adapter_factor(const Lora& lora, const Parameter& parameter);

}  // namespace sluice::model
