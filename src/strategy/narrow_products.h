// Which layers' products a pipeline computes in fewer bits.
#pragma once

#include <vector>

#include "base/product_format.h"

namespace sluice::strategy {

struct NarrowProducts {
  base::ProductFormat format = base::ProductFormat::kAsComputed;
  std::vector<int> layers;  // of the model, ascending
  bool operator==(const NarrowProducts&) const = default;
};

}  // namespace sluice::strategy
