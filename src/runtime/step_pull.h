// The state in which a step's pull finds the holders' parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/differences.h"

namespace sluice::runtime {

struct StepPull {
  enum class Holders : uint8_t { kHaveNothing, kHaveTheStepBefore, kHaveAll };
  Holders holders = Holders::kHaveNothing;
  // By bucket, for the rank's shards: where received differences go, if holders have the last step's.
  std::vector<CodedNumbers>* differences = nullptr;
};

}  // namespace sluice::runtime
