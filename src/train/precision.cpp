#include "train/precision.h"

namespace sluice::train {

runtime::Precision precision_of(const config::TrainConfig& train) {
  runtime::Precision precision{comm::DType::kFloat32};
  if (train.dtype == config::ComputeType::kFloat64) precision = {comm::DType::kFloat64};
  if (train.dtype == config::ComputeType::kBFloat16) precision = {comm::DType::kBFloat16};
  if (train.reduce_dtype == config::ReduceType::kBFloat16) precision.reduce = comm::DType::kBFloat16;
  return precision;
}

}  // namespace sluice::train
