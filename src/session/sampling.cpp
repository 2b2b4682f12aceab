#include "session/sampling.h"

#include <algorithm>
#include <cmath>

namespace sluice::session {

namespace {

constexpr int64_t kShortest = 2;  // a sequence needs at least one target

// Calls `visit(sample)` for each sequence, corpus by corpus in document order.
template <typename Visit>
void for_each_sequence(const std::vector<corpus::LengthSource>& sources,
                       const corpus::SamplerOptions& options, const Visit& visit) {
  const int64_t context = options.context_length;
  const bool validation = options.subset == corpus::Subset::kValidation;
  int64_t first_document = 0;
  for (const corpus::LengthSource& source : sources) {
    const auto documents = static_cast<int64_t>(source.lengths.size());
    for (int64_t document = 0; document < documents; ++document) {
      if (corpus::is_held_out(document, options) != validation) continue;
      const int64_t length = source.lengths[static_cast<size_t>(document)];
      if (length > context && options.overflow == corpus::Overflow::kDrop) continue;
      const int64_t end = options.overflow == corpus::Overflow::kSplit ? length : std::min(length, context);
      for (int64_t begin = 0; end - begin >= kShortest; begin += context) {
        visit(corpus::Sample{first_document + document, begin, std::min(context, end - begin)});
      }
    }
    first_document += documents;
  }
}

}  // namespace

corpus::SamplerOptions sampling_options(const config::DataConfig& data) {
  corpus::SamplerOptions options;
  options.context_length = data.context_length;
  options.overflow = data.overflow;
  options.tokens_per_step = data.tokens_per_step;
  options.seed = static_cast<uint64_t>(data.seed);
  options.validation_ppm = std::llround(data.validation_fraction * 1e6);
  return options;
}

corpus::SamplerOptions one_by_one(corpus::SamplerOptions options) {
  options.tokens_per_step = 1;
  options.overflow = corpus::Overflow::kDrop;
  return options;
}

corpus::SamplerOptions group_by_group(const config::HeadConfig& head, corpus::SamplerOptions options) {
  options.tokens_per_step = 1;
  if (head.kind == config::HeadUse::kReward) options.overflow = corpus::Overflow::kDrop;
  return options;
}

std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples) {
  std::vector<strategy::Sequence> sequences;
  for (const corpus::Sample& sample : samples)
    sequences.push_back({sample.document, sample.begin_token, sample.length_tokens});
  return sequences;
}

std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples,
                                             const model::HeadStyle& head) {
  std::vector<strategy::Sequence> sequences = sequences_of(samples);
  if (head.kind != model::HeadKind::kSequence && head.kind != model::HeadKind::kRows) return sequences;
  for (strategy::Sequence& sequence : sequences) sequence.loss_tokens = 1;
  return sequences;
}

std::vector<strategy::Sequence> sequences_of(const std::vector<corpus::Sample>& samples,
                                             const corpus::Blend& blend) {
  std::vector<strategy::Sequence> sequences = sequences_of(samples);
  if (blend.label_rule() != nullptr) {
    for (strategy::Sequence& sequence : sequences)
      sequence.loss_tokens = blend.labels_in(sequence.document, sequence.begin_token, sequence.length_tokens);
    return sequences;
  }
  if (!blend.has_mask()) return sequences;
  std::vector<uint8_t> mask;
  for (strategy::Sequence& sequence : sequences) {
    mask.resize(static_cast<size_t>(sequence.length_tokens - 1));
    blend.read_mask(sequence.document, sequence.begin_token + 1, sequence.length_tokens - 1, mask.data());
    sequence.loss_tokens = std::ranges::count_if(mask, [](uint8_t counts) { return counts != 0; });
  }
  return sequences;
}

std::vector<int64_t> sequence_lengths(const std::vector<corpus::LengthSource>& sources,
                                      const corpus::SamplerOptions& options) {
  std::vector<int64_t> lengths;
  for_each_sequence(sources, options,
                    [&](const corpus::Sample& sample) { lengths.push_back(sample.length_tokens); });
  return lengths;
}

std::optional<corpus::Sample> longest_sequence(const std::vector<corpus::LengthSource>& sources,
                                               const corpus::SamplerOptions& options) {
  std::optional<corpus::Sample> longest;
  for_each_sequence(sources, options, [&](const corpus::Sample& sample) {
    if (!longest || sample.length_tokens > longest->length_tokens) longest = sample;
  });
  return longest;
}

}  // namespace sluice::session
