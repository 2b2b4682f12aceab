// Families of models as Hugging Face's config.json tells them apart. For the model module's own files.
//
// All families share the keys of LLaMA's; an entry of the registry says what else a family's config.json has.
// A new family is a value of Family (shape.h) and a line of the registry in family.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "model/family_tensors.h"
#include "model/shape.h"
#include "model/weight.h"

namespace sluice::model {

struct FamilyEntry {
  Family family = Family::kLlama;
  std::string_view model_type;    // "qwen3"
  std::string_view architecture;  // "Qwen3ForCausalLM"
  // What transformers takes where the key is absent; 0: as many key-value heads as heads, hidden ÷ heads.
  int64_t absent_kv_heads = 0;
  int64_t absent_heads = 0;  // 0, also of the next: never absent
  int64_t absent_vocab = 0;
  int64_t absent_head_dim = 0;
  double absent_norm_eps = 1e-6;
  double absent_rope_theta = 10000.0;
  bool absent_tied = false;
  std::string_view hidden_act = "silu";
  bool biases = false;               // attention_bias may say that attention has them
  bool ropes_by_type = false;        // rope_parameters may have a dictionary for each type of layers
  std::string_view trunk = "model";  // what all tensors of blocks are in
  std::span<const KeyName> renamed;  // keys of all families that its files call otherwise
  double absent_rotated = 1.0;       // below 1: positions turn only so much of a head, or what a key says
  std::span<const std::string_view> keys;  // that it reads beside those of all families
  std::span<const TensorNames> tensors;
  // Sets what is the family's own. InputError naming `name`, the key and the value that Sluice does not
  // compute.
  void (*read)(const base::Json& config, const std::string& name, Shape& shape) = nullptr;
  // Adds what transformers' class wants beside the keys of all families.
  void (*write)(const Shape& shape, base::Json& config) = nullptr;
};

std::span<const FamilyEntry> families();
const FamilyEntry& entry_of(Family family);

// Calls a weight's tensors as files of the shape's family do.
void name_tensors(const Shape& shape, Weight& weight);

}  // namespace sluice::model
