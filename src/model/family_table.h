// A table of the registry's families and what Sluice can do with each, for commands and pages.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/model.h"

namespace sluice::model {

struct FamilyRow {
  std::string model_type;
  std::string title;
  std::string difference;  // from LLaMA's layers
  bool lora = false;       // some of its matrices may have adapters
  bool generates = true;   // its models end in a vocabulary
  std::string missing;     // parts that are not computed; "": none
};
// All families, then multimodal models whose language model Sluice can open.
std::vector<FamilyRow> family_rows();
base::Json family_rows_json();
// The table of docs/supported_models.md.
std::string family_rows_markdown();

// Matrices of a model's layers by their modules in files: with adapters allowed (`can`), and the others.
struct AdaptedModules {
  std::vector<std::string> can, cannot;
};
AdaptedModules adapted_modules(const Model& model);
// "trains (LoRA on q_proj, ...; not on experts), generates, plans"; for a counted model "plans alone".
std::string abilities_text(const Model& model);

}  // namespace sluice::model
