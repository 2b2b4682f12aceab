// Families of models, as Hugging Face's config.json distinguishes them. A family is a file of this folder,
// which reads a config.json, and a row of registry.cpp. For the model module's own files.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "model/families/reader.h"
#include "model/outline.h"
#include "model/weight.h"

namespace sluice::model {

// The layout of experts in files: a tensor for each; one tensor [experts, out, in]; one tensor [experts, in,
// out] with interleaved rows of gate and up. For vectors one tensor [1, rows].
enum class Stack : uint8_t { kNone, kOutIn, kInOut, kOneRow };

// The names of a weight's tensors in a family's files, if they differ from LLaMA's.
struct TensorNames {
  std::string_view role;
  std::array<std::string_view, 3> tensors;  // unused ones are empty and come last
  Stack stack = Stack::kNone;
};
using Names = std::span<const TensorNames>;

// Sets the outline from the file, except Outline::family and Outline::config. The file is refused if a key
// that Read does not ask the reader for switches something on.
using Read = void(Reader& config, Outline& outline);

// The MTP layer in a family's files: none that Sluice trains; a layer behind the model's last one, as
// DeepSeek-V3 has it; or a module "mtp", as Qwen 3 Next has it.
enum class MtpPlace : uint8_t { kNone, kBehindLayers, kModule };

struct Family {
  std::string_view model_type;    // "qwen3"
  std::string_view title;         // "Qwen 3"
  std::string_view difference;    // from LLaMA's layers
  std::string_view architecture;  // "Qwen3ForCausalLM"
  Read* read = nullptr;
  Names names;
  std::string_view trunk = "model";    // the module that all tensors of blocks are in
  std::string_view also = "";          // another architecture name in its files
  std::string_view blocks = "layers";  // the trunk's list of blocks
  MtpPlace mtp = MtpPlace::kNone;
};

std::span<const Family> families();
// The family with this model_type; null: none.
const Family* family_of(std::string_view model_type);
// A counted outline has a family without names.
const Family& family_of(const Outline& outline);

// Gives a weight's tensors their names in files of the outline's family.
void name_tensors(const Outline& outline, Weight& weight);

}  // namespace sluice::model
