#include "config/data.h"

#include <algorithm>

#include "base/error.h"
#include "config/sampling.h"

namespace sluice::config {

namespace {

ValidationData validation_data(corpus::Blend blend, const corpus::SamplerOptions& options) {
  std::vector<corpus::Batch> batches = corpus::batches_in_order(blend.sources(), options);
  return {std::move(blend), std::move(batches)};
}

std::optional<ValidationData> open_validation(const DataConfig& data, corpus::IndexedOptions indexed,
                                              corpus::SamplerOptions options) {
  if (!data.validation.empty()) {
    std::vector<std::pair<std::string, double>> prefixes;
    for (const std::string& prefix : data.validation) prefixes.emplace_back(prefix, 1.0);
    options.validation_ppm = 0;
    return validation_data(corpus::Blend::open(prefixes, indexed), options);
  }
  if (options.validation_ppm > 0) {
    options.subset = corpus::Subset::kValidation;
    return validation_data(corpus::Blend::open(data.train, indexed), options);
  }
  return std::nullopt;
}

}  // namespace

std::optional<corpus::Sample> Data::longest_training() const {
  return config::longest_sequence(training.sources(), sampling);
}

std::optional<corpus::Sample> Data::longest_validation() const {
  std::optional<corpus::Sample> longest;
  if (!validation) return longest;
  for (const corpus::Batch& batch : validation->batches) {
    for (const corpus::Sample& sample : batch.samples) {
      if (!longest || sample.length_tokens > longest->length_tokens) longest = sample;
    }
  }
  return longest;
}

int64_t Data::longest_sequence() const {
  int64_t length = 0;
  for (const auto& longest : {longest_training(), longest_validation()}) {
    if (longest) length = std::max(length, longest->length_tokens);
  }
  return length;
}

Data open_data(const RunConfig& config) {
  if (config.data.train.empty()) {
    throw base::InputError("[config] data.train is empty: name at least one [prefix, weight] pair");
  }
  if (!config.data.validation.empty() && config.data.validation_fraction > 0) {
    throw base::InputError("[config] data.validation and data.validation_fraction are both given: keep one");
  }
  const corpus::IndexedOptions indexed{config.model.shape->vocab};
  const corpus::SamplerOptions sampling = sampling_options(config.data);
  Data data{corpus::Blend::open(config.data.train, indexed), sampling,
            open_validation(config.data, indexed, sampling)};
  data.training.require_targets();
  if (data.validation) data.validation->blend.require_targets();
  data.sampler().skip(1);  // what no batch can be drawn with is found here
  return data;
}

}  // namespace sluice::config
