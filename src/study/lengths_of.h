// Lengths of a batch's sequences, which is all that choosing between layouts depends on.
#pragma once

#include <cstdint>
#include <vector>

#include "strategy/step_plan.h"

namespace sluice::study {

inline std::vector<int64_t> lengths_of(const std::vector<strategy::Sequence>& sequences) {
  std::vector<int64_t> lengths;
  for (const strategy::Sequence& sequence : sequences) lengths.push_back(sequence.length_tokens);
  return lengths;
}

}  // namespace sluice::study
