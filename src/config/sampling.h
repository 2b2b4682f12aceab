// How a run draws its batches.
#pragma once

#include "config/run_config.h"
#include "corpus/sampler.h"

namespace sluice::config {

corpus::SamplerOptions sampling_options(const DataConfig& data);

}  // namespace sluice::config
