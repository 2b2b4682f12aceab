// PEFT's names for adapters in its files and its configuration.
#pragma once

#include <set>
#include <string>

#include "model/parameters.h"

namespace sluice::checkpoint {

// The lists target_modules and target_parameters of PEFT's adapter_config.json.
struct PeftTargets {
  std::set<std::string> modules, parameters;
};

struct PeftAdapters {
  model::ParameterTable table;  // the tuned model's adapters and any head trained whole, under PEFT's names
  PeftTargets targets;
};
PeftAdapters peft_adapters(const model::ParameterTable& tuned);

}  // namespace sluice::checkpoint
