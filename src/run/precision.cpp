#include "run/precision.h"

#include "base/error.h"

namespace sluice::run {

runtime::Precision precision_of(const config::TrainConfig& train) {
  if (train.dtype == config::ComputeType::kFloat64) return {comm::DType::kFloat64};
  const bool narrow = train.master_dtype == config::MasterType::kBFloat16;
  const auto masters = narrow ? runtime::Masters::kBFloat16 : runtime::Masters::kWide;
  if (train.dtype == config::ComputeType::kBFloat16) return {comm::DType::kBFloat16, masters};
  SLUICE_ASSERT(train.dtype == config::ComputeType::kFloat32, "train.dtype is not settled");
  return {comm::DType::kFloat32, masters};
}

}  // namespace sluice::run
