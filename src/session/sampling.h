// How a run draws its batches, and what it may draw.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "model/shape.h"
#include "strategy/step_plan.h"

namespace sluice::session {

corpus::SamplerOptions sampling_options(const config::DataConfig& data);
// The same of who draws documents one at a time, and whole: longer ones than the context are left out.
corpus::SamplerOptions one_by_one(corpus::SamplerOptions options);

// Of who draws texts that belong together one group at a time; answers, whose ends may decide, whole.
corpus::SamplerOptions group_by_group(const config::HeadConfig& head, corpus::SamplerOptions options);

// Samples as planning takes them.
std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples);
// As a plan without tokens shows them: with a target each, where the head has one for each text; else as if all
// tokens had theirs.
std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples,
                                             const model::HeadStyle& head);
// The same of documents of a blend, with how many of their targets its mask, or labels, give a loss.
std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples,
                                             const corpus::Blend& blend);

// The lengths of all sequences that a pass through the corpora meets, as corpus::Sampler cuts them.
std::vector<int64_t> sequence_lengths(const std::vector<corpus::LengthSource>& sources,
                                      const corpus::SamplerOptions& options);

// The longest of them, the first of equals; nothing when there is none.
std::optional<corpus::Sample> longest_sequence(const std::vector<corpus::LengthSource>& sources,
                                               const corpus::SamplerOptions& options);

}  // namespace sluice::session
