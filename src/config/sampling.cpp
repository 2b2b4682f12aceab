#include "config/sampling.h"

#include <cmath>

namespace sluice::config {

corpus::SamplerOptions sampling_options(const DataConfig& data) {
  corpus::SamplerOptions options;
  options.context_length = data.context_length;
  options.overflow = data.overflow;
  options.tokens_per_step = data.tokens_per_step;
  options.seed = static_cast<uint64_t>(data.seed);
  options.validation_ppm = std::llround(data.validation_fraction * 1e6);
  return options;
}

}  // namespace sluice::config
