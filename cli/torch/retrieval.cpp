#include "cli/torch/retrieval.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"

namespace sluice::cli {
namespace {

using base::text;

int32_t last_token(const corpus::Blend& blend, int64_t document) {
  int32_t token = -1;
  blend.read(document, blend.length(document) - 1, 1, &token);
  return token;
}

// The token that ends all documents, for example one that the tokenizer adds; none if their ends differ.
std::optional<int32_t> end_of_texts(const corpus::Blend& blend) {
  std::optional<int32_t> end;
  for (int64_t document = 0; document < blend.documents(); ++document) {
    if (blend.length(document) == 0) continue;
    const int32_t own = last_token(blend, document);
    if (end && *end != own) return std::nullopt;
    end = own;
  }
  return blend.documents() > 1 ? end : std::nullopt;
}

// Reads the texts of groups as the model gets them.
class GroupReader {
 public:
  GroupReader(const RetrievalCorpora& corpora, const RetrievalOptions& options) : options_(options) {
    blends_.push_back(&corpora.queries);
    for (const corpus::Blend& partner : corpora.partners) blends_.push_back(&partner);
    for (const corpus::Blend* const blend : blends_) ends_.push_back(end_of_texts(*blend));
  }

  int64_t texts_of_group() const { return std::ssize(blends_); }

  // Empty if a text has no token, or is too long and may not be cut.
  std::vector<std::vector<int32_t>> read(int64_t document) const {
    std::vector<std::vector<int32_t>> texts;
    for (size_t i = 0; i < blends_.size(); ++i) {
      const int64_t length = blends_[i]->length(document);
      const bool longer = length > options_.context_length;
      if (length == 0 || (longer && options_.overflow == corpus::Overflow::kDrop)) return {};
      std::vector<int32_t>& tokens =
          texts.emplace_back(static_cast<size_t>(std::min(length, options_.context_length)));
      blends_[i]->read(document, 0, std::ssize(tokens), tokens.data());
      if (longer && ends_[i]) tokens.back() = *ends_[i];
    }
    return texts;
  }

 private:
  const RetrievalOptions& options_;
  std::vector<const corpus::Blend*> blends_;
  std::vector<std::optional<int32_t>> ends_;
};

void require_finite(const std::vector<run::TextNumbers>& rows) {
  for (const run::TextNumbers& row : rows) {
    if (std::ranges::all_of(row, [](double each) { return std::isfinite(each); })) continue;
    throw base::RunError(
        "a text's embedding is no number: the model's activations overflow; try --dtype float32");
  }
}

}  // namespace

RetrievalCorpora RetrievalCorpora::open(const std::vector<std::string>& queries,
                                        const std::vector<std::vector<std::string>>& partners,
                                        const corpus::IndexedOptions& options) {
  const auto blend_of = [&](const std::vector<std::string>& prefixes) {
    std::vector<std::pair<std::string, double>> parts;
    for (const std::string& prefix : prefixes) parts.emplace_back(prefix, 1.0);
    return corpus::Blend::open(parts, options);
  };
  RetrievalCorpora corpora{blend_of(queries), {}};
  for (const std::vector<std::string>& prefixes : partners) {
    const corpus::Blend& partner = corpora.partners.emplace_back(blend_of(prefixes));
    if (partner.documents() == corpora.queries.documents()) continue;
    throw base::InputError(text(base::join(prefixes, ", "), " has ", partner.documents(), " documents and ",
                                base::join(queries, ", "), " ", corpora.queries.documents(),
                                ": they belong together, in the same order"));
  }
  return corpora;
}

int64_t RetrievalCorpora::longest_text(int64_t most_groups) const {
  const int64_t groups = most_groups > 0 ? std::min(most_groups, queries.documents()) : queries.documents();
  int64_t longest = 0;
  for (int64_t document = 0; document < groups; ++document) {
    longest = std::max(longest, queries.length(document));
    for (const corpus::Blend& partner : partners) longest = std::max(longest, partner.length(document));
  }
  return longest;
}

run::RetrievalScores evaluate_retrieval(run::Evaluator& evaluator, const RetrievalCorpora& corpora,
                                        const RetrievalOptions& options) {
  const GroupReader reader(corpora, options);
  const int64_t all = corpora.queries.documents();
  const int64_t groups = options.most_queries > 0 ? std::min(options.most_queries, all) : all;
  std::vector<run::TextNumbers> numbers;
  std::vector<base::WideHash> hashes;
  std::vector<std::vector<int32_t>> batch;
  int64_t batch_tokens = 0, left_out = 0;
  std::optional<base::Progress> progress;
  if (options.rank == 0) progress.emplace("embedding", groups);
  const auto embed_batch = [&] {
    if (batch.empty()) return;
    std::vector<run::TextNumbers> rows = evaluator.text_numbers(batch);
    require_finite(rows);
    std::ranges::move(rows, std::back_inserter(numbers));
    batch.clear();
    batch_tokens = 0;
  };
  for (int64_t document = 0; document < groups; ++document) {
    if (progress) progress->advance(1);
    std::vector<std::vector<int32_t>> texts = reader.read(document);
    left_out += texts.empty() ? 1 : 0;
    for (std::vector<int32_t>& tokens : texts) {
      if (batch_tokens + std::ssize(tokens) > options.tokens_per_batch) embed_batch();
      batch_tokens += std::ssize(tokens);
      hashes.push_back(run::text_hash(tokens));
      batch.push_back(std::move(tokens));
    }
  }
  embed_batch();
  progress.reset();
  if (left_out > 0 && options.rank == 0) {
    base::log_warning(text(base::human_count(left_out, "query is", "queries are"),
                           " left out, because a text has no token or more than ", options.context_length));
  }
  if (numbers.empty()) {
    throw base::InputError(text("no query is left: each has a text without a token or of more than ",
                                options.context_length, ": raise --context-length"));
  }
  return run::retrieval_scores(numbers, hashes, reader.texts_of_group());
}

}  // namespace sluice::cli
