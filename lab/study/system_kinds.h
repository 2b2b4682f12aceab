// The existing training systems, by the names that commands use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "study/system.h"

namespace sluice::study {

// A system, by the name that commands use.
struct SystemKind {
  std::string name;   // "sluice", "megatron", "deepspeed", …
  std::string title;  // "Megatron-LM"
  // InfeasibleError, naming the context, if no configuration holds it.
  std::unique_ptr<System> (*make)(const SystemInputs& inputs);
};

// Sluice first.
const std::vector<SystemKind>& system_kinds();
// InputError listing the names for an unknown name.
const SystemKind& system_kind(const std::string& name);

}  // namespace sluice::study
