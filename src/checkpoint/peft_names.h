// What PEFT calls adapters in its files and its configuration.
#pragma once

#include <set>
#include <string>

#include "model/parameters.h"

namespace sluice::checkpoint {

// target_modules and target_parameters of PEFT's adapter_config.json.
struct PeftTargets {
  std::set<std::string> modules, parameters;
};

struct PeftAdapters {
  model::ParameterTable table;  // of a tuned model its adapters and a head that is trained whole, whose tensors have PEFT's names
  PeftTargets targets;
};
PeftAdapters peft_adapters(const model::ParameterTable& tuned);

}  // namespace sluice::checkpoint
