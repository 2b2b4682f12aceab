// What a step's pull brings, by what its ranks hold already.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/differences.h"

namespace sluice::runtime {

struct StepPull {
  enum class Holders : uint8_t { kHaveNothing, kHaveTheStepBefore, kHaveAll };
  Holders holders = Holders::kHaveNothing;
  // By bucket, of the rank's shards: where what comes goes, if they have the step before's.
  std::vector<CodedNumbers>* differences = nullptr;
};

}  // namespace sluice::runtime
