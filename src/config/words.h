// Words of a configuration that commands read, too.
#pragma once

#include "base/words.h"
#include "config/run_config.h"

namespace sluice::config {

using base::Word;

inline constexpr Word<ComputeType> kComputeTypes[] = {{"auto", ComputeType::kAuto},
                                                      {"float32", ComputeType::kFloat32},
                                                      {"bfloat16", ComputeType::kBFloat16},
                                                      {"float64", ComputeType::kFloat64}};
inline constexpr Word<DeviceChoice> kDevices[] = {
    {"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}};

}  // namespace sluice::config
