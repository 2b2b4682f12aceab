// In which number formats a run computes.
#pragma once

#include <string>

#include "runtime/precision.h"

namespace sluice::train {

// Of a configuration's train.dtype.
runtime::Precision precision_of(const std::string& dtype);

}  // namespace sluice::train
