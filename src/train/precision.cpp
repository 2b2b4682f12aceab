#include "train/precision.h"

namespace sluice::train {

runtime::Precision precision_of(const std::string& dtype) {
  if (dtype == "float64") return {comm::DType::kFloat64};
  if (dtype == "bfloat16") return {comm::DType::kBFloat16};
  return {comm::DType::kFloat32};
}

}  // namespace sluice::train
