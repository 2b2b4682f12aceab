#include "checkpoint/peft_names.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

// In a model with experts PEFT takes every gate_proj, up_proj and
// down_proj for experts' matrices, wherever the module is. Modules of layers without experts and of shared
// experts are therefore named by their parameters.
bool peft_takes_for_experts(std::string_view module) {
  constexpr std::string_view kTaken[] = {"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3", "gate"};
  return std::ranges::find(kTaken, module) != std::end(kTaken);
}

PeftTargets peft_targets(const model::ParameterTable& adapters) {
  PeftTargets targets;
  for (const model::Bucket& bucket : adapters.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.factor == model::Factor::kNone) continue;  // a head that is saved whole
      for (const std::string& tensor : parameter.tensors) {
        const std::string path = tensor.substr(0, tensor.find(".lora_"));
        const std::string module = path.substr(path.rfind('.') + 1);
        if (parameter.experts > 0) {
          targets.parameters.insert(path);
        } else if (adapters.model.experts().count > 0 && peft_takes_for_experts(module)) {
          targets.parameters.insert(path + ".weight");
        } else {
          targets.modules.insert(module);
        }
      }
    }
  }
  return targets;
}

// Names experts' factors as PEFT does. PEFT wraps a module once for each adapted parameter, in the class's
// order: the wrapper of gate_up_proj lies inside that of down_proj.
void name_as_wrapped(const PeftTargets& targets, model::Parameter& parameter) {
  if (parameter.experts == 0) return;
  for (std::string& tensor : parameter.tensors) {
    const size_t end = tensor.find(".lora_");
    const std::string path = tensor.substr(0, end), stack = path.substr(0, path.rfind('.'));
    const bool inner = !path.ends_with(".down_proj") && targets.parameters.contains(stack + ".down_proj");
    tensor = stack + (inner ? ".base_layer" : "") + tensor.substr(end);
  }
}

}  // namespace

PeftAdapters peft_adapters(const model::ParameterTable& tuned) {
  PeftAdapters peft{.table = tuned, .targets = {}};
  for (model::Bucket& bucket : peft.table.buckets) {
    std::erase_if(bucket.parameters, [](const model::Parameter& parameter) {
      return parameter.factor == model::Factor::kNone && !model::is_of_numbers(parameter);
    });
  }
  peft.targets = peft_targets(peft.table);
  for (model::Bucket& bucket : peft.table.buckets) {
    for (model::Parameter& parameter : bucket.parameters) name_as_wrapped(peft.targets, parameter);
  }
  return peft;
}

}  // namespace sluice::checkpoint
