// What Sluice does with each family's models, as the registry has them: for commands and pages.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

struct FamilyRow {
  std::string model_type;
  std::string title;
  std::string difference;  // from LLaMA's layers
  bool lora = false;       // some of its matrices may have adapters
  std::string missing;     // what is not computed of it; "": nothing
};
// Families, and behind them multimodal models whose language model opens.
std::vector<FamilyRow> family_rows();
base::Json family_rows_json();
// As the page of supported models has it.
std::string family_rows_markdown();

// Matrices of a shape's layers, by their modules in files: those that may have adapters, and the others.
struct AdaptedModules {
  std::vector<std::string> can, cannot;
};
AdaptedModules adapted_modules(const Shape& shape);
// "trains (LoRA on q_proj, ...; not on experts), generates, plans"; of a counted shape "plans alone".
std::string abilities_text(const Shape& shape);

}  // namespace sluice::model
