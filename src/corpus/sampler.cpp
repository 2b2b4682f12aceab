#include "corpus/sampler.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/permutation_order.h"
#include "base/rng.h"
#include "base/text.h"
#include "corpus/parallel.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kShortest = 2;  // a sequence needs at least one target
constexpr uint64_t kValidationStream = 0x76616C6964617465;

// Random streams: each corpus of the blend has 2^40 of them, one per epoch.
constexpr int kEpochBits = 40;

void check_options(const SamplerOptions& options) {
  if (options.context_length < kShortest) {
    throw InputError(text("data.context_length is ", options.context_length,
                          ": a sequence needs at least 2 tokens to have a target; set it to 2 or more"));
  }
  if (options.tokens_per_step < 1) {
    throw InputError(text("data.tokens_per_step is ", options.tokens_per_step, ": set it to 1 or more"));
  }
  if (options.validation_ppm < 0 || options.validation_ppm > kMillion) {
    throw InputError(text("data.validation_fraction is ", options.validation_ppm,
                          " parts per million: set it between 0 and 1"));
  }
}

// Calls `visit(index, length)` for each sampled document of the source, and counts all documents.
template <typename Visit>
void for_each_sampled(const LengthSource& source, const SamplerOptions& options, SamplerCounts& counts,
                      const Visit& visit) {
  const bool validation = options.subset == Subset::kValidation;
  for (size_t index = 0; index < source.lengths.size(); ++index) {
    const int64_t length = source.lengths[index];
    if (is_held_out(static_cast<int64_t>(index), options) != validation) {
      ++counts.other_subset;
    } else if (length < kShortest) {
      ++counts.short_documents;
      counts.lost_tokens += length;
    } else if (length <= options.context_length) {
      ++counts.documents;
      visit(index, length);
    } else {
      ++counts.long_documents;
      const int64_t rest = length % options.context_length;
      switch (options.overflow) {
        case Overflow::kTruncate: counts.lost_tokens += length - options.context_length; break;
        case Overflow::kSplit: counts.lost_tokens += rest < kShortest ? rest : 0; break;
        case Overflow::kDrop: counts.lost_tokens += length; continue;
      }
      ++counts.documents;
      visit(index, length);
    }
  }
}

uint64_t fingerprint(const std::vector<LengthSource>& sources, const SamplerOptions& options) {
  base::CanonicalBytes bytes;
  bytes.add(options.context_length).add(name(options.overflow));
  bytes.add(static_cast<int64_t>(options.seed)).add(static_cast<int64_t>(options.validation_seed));
  bytes.add(options.validation_ppm).add(static_cast<int64_t>(options.subset));
  for (const LengthSource& source : sources) {
    bytes.add(source.weight_ppm).add(static_cast<int64_t>(source.lengths.size()));
    bytes.add(static_cast<int64_t>(base::hash_bytes(source.lengths.data(), source.lengths.size_bytes())));
  }
  return bytes.hash();
}

// Whether another sequence follows [begin, begin + length) in a document of `document_length` tokens.
bool has_more(const SamplerOptions& options, const Sample& sample, int64_t document_length) {
  return options.overflow == Overflow::kSplit &&
         document_length - sample.begin_token - sample.length_tokens >= kShortest;
}

}  // namespace

std::string name(Overflow overflow) {
  switch (overflow) {
    case Overflow::kTruncate: return "truncate";
    case Overflow::kSplit: return "split";
    case Overflow::kDrop: return "drop";
  }
  return "";
}

Overflow parse_overflow(const std::string& value, const std::string& key) {
  for (const Overflow overflow : {Overflow::kTruncate, Overflow::kSplit, Overflow::kDrop}) {
    if (value == name(overflow)) return overflow;
  }
  throw InputError(text(key, " is '", value, "': set it to truncate, split or drop"));
}

bool is_held_out(int64_t document, const SamplerOptions& options) {
  if (options.validation_ppm == 0) return false;
  const uint64_t bits =
      base::random_bits(options.validation_seed, kValidationStream, static_cast<uint64_t>(document));
  // bits ÷ 2^64 < validation_ppm ÷ 10^6, in integers.
  return static_cast<unsigned __int128>(bits) * kMillion <
         static_cast<unsigned __int128>(options.validation_ppm) << 64;
}

Sampler::Sampler(const std::vector<LengthSource>& sources, const SamplerOptions& options)
    : options_(options) {
  check_options(options);
  int64_t first_document = 0;
  for (const LengthSource& lengths : sources) {
    Source source;
    source.first_document = first_document;
    source.weight_ppm = lengths.weight_ppm;
    source.stream = static_cast<uint64_t>(sources_.size()) << kEpochBits;
    for_each_sampled(lengths, options, counts_, [&](size_t index, int64_t length) {
      source.documents.push_back({static_cast<int32_t>(index), static_cast<int32_t>(length)});
    });
    if (source.documents.empty()) {
      throw InputError(text("corpus ", sources_.size() + 1, " of the blend has no document to sample among ",
                            lengths.lengths.size(),
                            ": documents need 2 tokens, and with overflow 'drop' at most ",
                            options.context_length, "; check validation_fraction too"));
    }
    first_document += static_cast<int64_t>(lengths.lengths.size());
    total_weight_ppm_ += lengths.weight_ppm;
    sources_.push_back(std::move(source));
  }
  if (sources_.empty()) throw InputError("no corpus is given to sample from: set data.train");
  fingerprint_ = fingerprint(sources, options);
}

// The corpus with the largest weight · delivered − own tokens · all weights; the first one on a tie. Before
// anything is delivered one token is assumed, so that the largest weight begins.
size_t Sampler::lagging_source() const {
  if (sources_.size() == 1) return 0;
  size_t best = 0;
  __int128 largest_lag = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const __int128 due = static_cast<__int128>(sources_[i].weight_ppm) * (delivered_tokens_ + 1);
    const __int128 lag = due - static_cast<__int128>(sources_[i].cursor.delivered_tokens) * total_weight_ppm_;
    if (i == 0 || lag > largest_lag) {
      best = i;
      largest_lag = lag;
    }
  }
  return best;
}

const Sampler::Document& Sampler::current_document(Source& source) const {
  if (source.current) return *source.current;
  const auto count = static_cast<int64_t>(source.documents.size());
  const int64_t epoch = source.cursor.position / count;
  if (epoch != source.epoch) {
    source.epoch = epoch;
    source.order = base::PermutationTable(static_cast<uint64_t>(count), options_.seed,
                                          source.stream + static_cast<uint64_t>(epoch));
  }
  const uint64_t at = source.order.at(static_cast<uint64_t>(source.cursor.position % count));
  return source.current.emplace(source.documents[at]);
}

Sample Sampler::peek(Source& source) const {
  const Document& document = current_document(source);
  const int64_t begin = source.cursor.begin_token;
  return {source.first_document + document.index, begin,
          std::min(document.length_tokens - begin, options_.context_length)};
}

void Sampler::take(Source& source, const Sample& sample) {
  if (has_more(options_, sample, source.current->length_tokens)) {
    source.cursor.begin_token += sample.length_tokens;
  } else {
    source.cursor.begin_token = 0;
    ++source.cursor.position;
    source.current.reset();
  }
  source.cursor.delivered_tokens += sample.length_tokens;
  delivered_tokens_ += sample.length_tokens;
}

// Calls `visit` for each sequence of the next batch.
template <typename Visit>
void Sampler::draw_batch(const Visit& visit) {
  ++step_;
  int64_t sequences = 0;
  int64_t tokens = 0;
  while (true) {
    Source& source = sources_[lagging_source()];
    const Sample sample = peek(source);
    if (sequences > 0 && tokens + sample.length_tokens > options_.tokens_per_step) return;
    if (sequences == kMostSequences) {
      throw InputError(text("data.tokens_per_step is ", options_.tokens_per_step, ": ",
                            base::human_count(sequences), " sequences have only ", tokens,
                            " tokens, and a batch holds no more of them; set it to that at most"));
    }
    take(source, sample);
    visit(sample);
    ++sequences;
    tokens += sample.length_tokens;
  }
}

Batch Sampler::next() {
  Batch batch{.step = step_};
  draw_batch([&](const Sample& sample) {
    batch.samples.push_back(sample);
    batch.tokens += sample.length_tokens;
  });
  return batch;
}

namespace {

// The documents of one source in the order of its epochs, ordered on all cores some way ahead of the reader.
// The first stretch is short, since a near step needs no more.
template <typename Document>
class OrderedAhead {
 public:
  OrderedAhead(const std::vector<Document>& documents, uint64_t seed, uint64_t stream)
      : documents_(documents), seed_(seed), stream_(stream) {}

  const Document& at(int64_t position) {
    if (position < begin_ || position >= begin_ + static_cast<int64_t>(ahead_.size())) order_from(position);
    return ahead_[static_cast<size_t>(position - begin_)];
  }

 private:
  void order_from(int64_t position) {
    constexpr int64_t kMost = 1 << 20;
    constexpr int64_t kPart = 1 << 14;
    const auto count = static_cast<int64_t>(documents_.size());
    if (!order_ || position / count != epoch_) {
      epoch_ = position / count;
      order_.emplace(static_cast<uint64_t>(count), seed_, stream_ + static_cast<uint64_t>(epoch_));
    }
    begin_ = position;
    const int64_t first = position % count;
    const int64_t size = std::min(size_, count - first);
    size_ = std::min(2 * size_, kMost);
    ahead_.resize(static_cast<size_t>(size));
    parallel_for(static_cast<size_t>((size + kPart - 1) / kPart), 0, [&](size_t part) {
      const int64_t from = static_cast<int64_t>(part) * kPart;
      std::vector<uint64_t> order(static_cast<size_t>(std::min(kPart, size - from)));
      order_->list(static_cast<uint64_t>(first + from), order);
      Document* document = &ahead_[static_cast<size_t>(from)];
      for (const uint64_t index : order) *document++ = documents_[index];
    });
  }

  const std::vector<Document>& documents_;
  const uint64_t seed_;
  const uint64_t stream_;
  int64_t epoch_ = -1;
  std::optional<base::PermutationOrder> order_;
  int64_t size_ = 1 << 10;  // length of the next stretch to order
  int64_t begin_ = 0;       // position of the first of `ahead_`
  std::vector<Document> ahead_;
};

}  // namespace

void Sampler::skip(int64_t steps) {
  std::vector<OrderedAhead<Document>> ahead;
  for (const Source& source : sources_) ahead.emplace_back(source.documents, options_.seed, source.stream);
  const auto look_up = [&](const Sample&) {
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (!sources_[i].current) sources_[i].current = ahead[i].at(sources_[i].cursor.position);
    }
  };
  look_up({});
  for (int64_t i = 0; i < steps; ++i) draw_batch(look_up);
}

SamplerState Sampler::state() const {
  SamplerState state{step_, fingerprint_, {}};
  for (const Source& source : sources_) state.cursors.push_back(source.cursor);
  return state;
}

void Sampler::restore(const SamplerState& state, const std::string& where) {
  if (state.fingerprint != fingerprint_ || state.cursors.size() != sources_.size()) {
    throw InputError(text(where,
                          " was sampling other data: corpora, weights, seed, context_length, overflow or ",
                          "validation_fraction differ from the configuration's; resume with the old ones, "
                          "and write what is to change from here on as a [[phase]]"));
  }
  step_ = state.step;
  delivered_tokens_ = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    const SamplerState::Cursor& cursor = state.cursors[i];
    source.current.reset();
    source.cursor = cursor;
    if (cursor.position < 0 || cursor.delivered_tokens < 0 || !begins_sequence(source)) {
      throw InputError(text(where, ": cursor ", i,
                            " of the sampler stands where no sequence begins (document ", cursor.position,
                            ", token ", cursor.begin_token, "): it is damaged"));
    }
    delivered_tokens_ += cursor.delivered_tokens;
  }
}

// Whether the cursor stands on the first token of a sequence.
bool Sampler::begins_sequence(Source& source) const {
  const int64_t begin = source.cursor.begin_token;
  if (begin == 0) return true;
  if (options_.overflow != Overflow::kSplit || begin < 0 || begin % options_.context_length != 0)
    return false;
  return current_document(source).length_tokens - begin >= kShortest;
}

std::vector<int64_t> Sampler::epochs() const {
  std::vector<int64_t> epochs;
  for (const Source& source : sources_) {
    epochs.push_back(source.cursor.position / static_cast<int64_t>(source.documents.size()));
  }
  return epochs;
}

std::vector<int64_t> Sampler::delivered_tokens() const {
  std::vector<int64_t> tokens;
  for (const Source& source : sources_) tokens.push_back(source.cursor.delivered_tokens);
  return tokens;
}

std::vector<Batch> batches_in_order(const std::vector<LengthSource>& sources, const SamplerOptions& options) {
  check_options(options);
  std::vector<Batch> batches;
  SamplerCounts counts;
  int64_t first_document = 0;
  const auto append = [&](const Sample& sample) {
    if (batches.empty() || batches.back().tokens + sample.length_tokens > options.tokens_per_step) {
      batches.push_back({static_cast<int64_t>(batches.size()), {}, 0});
    }
    batches.back().samples.push_back(sample);
    batches.back().tokens += sample.length_tokens;
  };
  for (const LengthSource& source : sources) {
    for_each_sampled(source, options, counts, [&](size_t index, int64_t length) {
      Sample sample{first_document + static_cast<int64_t>(index), 0,
                    std::min(length, options.context_length)};
      append(sample);
      while (has_more(options, sample, length)) {
        sample.begin_token += sample.length_tokens;
        sample.length_tokens = std::min(length - sample.begin_token, options.context_length);
        append(sample);
      }
    });
    first_document += static_cast<int64_t>(source.lengths.size());
  }
  return batches;
}

}  // namespace sluice::corpus
