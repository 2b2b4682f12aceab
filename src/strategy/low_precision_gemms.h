// The layers whose GEMMs a pipeline computes in fewer bits.
#pragma once

#include <vector>

#include "base/gemm_format.h"

namespace sluice::strategy {

struct LowPrecisionGemms {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  std::vector<int> layers;  // indices in the model, ascending
  bool operator==(const LowPrecisionGemms&) const = default;
};

}  // namespace sluice::strategy
