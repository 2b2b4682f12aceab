// The sampling of a run's batches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "model/head_style.h"
#include "strategy/step_plan.h"

namespace sluice::session {

corpus::SamplerOptions sampling_options(const config::DataConfig& data);
// The same for drawing whole documents one at a time: documents longer than the context are left out.
corpus::SamplerOptions one_by_one(corpus::SamplerOptions options);

// The same for drawing groups of texts one at a time; reward answers, whose ends may decide, stay whole.
corpus::SamplerOptions group_by_group(const config::HeadConfig& head, corpus::SamplerOptions options);

// Samples as sequences for planning.
std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples);
// As seen by a plan without tokens: with one target each if the head has one for each text, else as if all
// tokens had targets.
std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples,
                                             const model::HeadStyle& head);
// The same for a blend's documents, with the number of targets that its mask, or labels, give a loss.
std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples,
                                             const corpus::Blend& blend);

// The lengths of all sequences in a pass through the corpora, cut as by corpus::Sampler.
std::vector<int64_t> sequence_lengths(const std::vector<corpus::LengthSource>& sources,
                                      const corpus::SamplerOptions& options);

// The longest of these sequences, the first of equals; nothing if there is none.
std::optional<corpus::Sample> longest_sequence(const std::vector<corpus::LengthSource>& sources,
                                               const corpus::SamplerOptions& options);

}  // namespace sluice::session
