// Which layers' products a pipeline computes in fewer bits.
#pragma once

#include <vector>

#include "base/gemm_format.h"

namespace sluice::strategy {

struct LowPrecisionGemms {
  base::GemmFormat format = base::GemmFormat::kAsComputed;
  std::vector<int> layers;  // of the model, ascending
  bool operator==(const LowPrecisionGemms&) const = default;
};

}  // namespace sluice::strategy
