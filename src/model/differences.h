// Comparisons of models for messages and for what may be used for another model.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"

namespace sluice::model {

struct SizeDifference {
  const char* name;  // in configurations
  int64_t first = 0, second = 0;
};
// Sizes in which two models differ, layers first.
std::vector<SizeDifference> size_differences(const Model& first, const Model& second);

// Whether models are equal but for their family, the name by which other programs call them.
bool compute_alike(const Model& first, const Model& second);
// Whether models cost the same: they are equal but for names, rotary positions and the epsilon of norms.
bool cost_alike(const Model& first, const Model& second);

}  // namespace sluice::model
