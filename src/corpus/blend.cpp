#include "corpus/blend.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/range.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace {

constexpr double kPerMillion = 1e6;
constexpr double kPerBillion = 1e9;

void require_weight(double weight, const std::string& name) {
  constexpr base::Range<double> kWeights{1e-9, 1e9};  // as data.train's
  if (kWeights.holds(weight)) return;
  throw InputError(text("corpus ", name, " has weight ", weight, ": give ", base::expectation(kWeights),
                        ", or leave out what is not wanted"));
}

// Weights matter relative to each other: the unit is parts per billion if any is no whole number of ppm.
double unit_of(const std::vector<std::pair<std::string, double>>& prefixes) {
  constexpr double kRounding = 1e-9;
  const bool whole = std::ranges::all_of(prefixes, [](const auto& entry) {
    const double parts = entry.second * kPerMillion;
    return parts >= 0.5 && std::abs(parts - std::round(parts)) <= kRounding * parts;
  });
  return whole ? kPerMillion : kPerBillion;
}

// Keeps the sampler's sums within 64 bits.
void require_sum(const std::vector<std::pair<std::string, double>>& prefixes, double unit) {
  constexpr double kMost = 1LL << 62;
  double sum = 0;
  for (const auto& [prefix, weight] : prefixes) sum += weight;
  if (sum * unit <= kMost) return;
  throw InputError(text("the corpora's weights sum to ", sum,
                        ", and one has more than six decimals: divide all by ",
                        std::ceil(sum * unit / kMost)));
}

}  // namespace

int64_t weight_ppm(double weight, const std::string& name) {
  require_weight(weight, name);
  return std::llround(weight * kPerMillion);
}

Blend::Blend(std::vector<Entry> parts) : parts_(std::move(parts)) {
  first_documents_.push_back(0);
  for (const Entry& part : parts_) {
    first_documents_.push_back(first_documents_.back() + part.corpus->documents());
  }
}

Blend Blend::open(const std::vector<std::pair<std::string, double>>& prefixes, IndexedOptions options) {
  if (prefixes.empty()) {
    throw InputError(
        "no corpus is given: set data.train to [[\"PREFIX\", 1.0]], made by `sluice corpus build`");
  }
  for (const auto& [prefix, weight] : prefixes) require_weight(weight, prefix);
  const double unit = unit_of(prefixes);
  require_sum(prefixes, unit);
  std::vector<Entry> parts;
  for (const auto& [prefix, weight] : prefixes) {
    const int64_t parts_of_unit =
        unit == kPerMillion ? weight_ppm(weight, prefix) : std::llround(weight * unit);
    parts.push_back({std::make_shared<const IndexedCorpus>(prefix, options), parts_of_unit});
  }
  return Blend(std::move(parts));
}

int64_t Blend::tokens() const {
  int64_t tokens = 0;
  for (const Entry& part : parts_) tokens += part.corpus->tokens();
  return tokens;
}

std::pair<size_t, int64_t> Blend::locate(int64_t document) const {
  SLUICE_ASSERT(document >= 0 && document < documents(), text("document ", document, " of ", documents()));
  const auto after = std::upper_bound(first_documents_.begin(), first_documents_.end(), document);
  const auto part = static_cast<size_t>(after - first_documents_.begin()) - 1;
  return {part, document - first_documents_[part]};
}

int64_t Blend::length(int64_t document) const {
  const auto [part, local] = locate(document);
  return parts_[part].corpus->length(local);
}

std::vector<LengthSource> Blend::sources() const {
  std::vector<LengthSource> sources;
  for (const Entry& part : parts_) sources.push_back({part.corpus->lengths(), part.weight_ppm});
  return sources;
}

void Blend::require_targets() const {
  for (const Entry& part : parts_) {
    const std::span<const int32_t> lengths = part.corpus->lengths();
    if (std::ranges::none_of(lengths, [](int32_t length) { return length > 1; })) {
      throw InputError(text(part.corpus->prefix().string(), " has no document of 2 tokens or more among ",
                            lengths.size(), ": nothing in it has a loss; leave it out"));
    }
    if (part.corpus->has_targets()) continue;
    throw InputError(text(part.corpus->prefix().string(),
                          ".mask is 0 for every token, so nothing has a loss: ",
                          "write 1 where the loss counts a token, or remove the file to count all"));
  }
}

void Blend::label_by(std::shared_ptr<const LabelRule> rule) {
  rule_ = std::move(rule);
  if (rule_->form == LabelForm::kNone) return;
  for (const Entry& part : parts_) {
    if (part.corpus->labels() != nullptr) continue;
    throw InputError(
        text(part.corpus->prefix().string(),
             " has no labels, and the model's head learns those: build the corpus with --labels"));
  }
  for (int64_t document = 0; document < documents(); ++document) {
    if (rule_->of_tokens) {
      token_labels(document, 0, length(document));
    } else {
      row_label(document);
    }
  }
}

RowLabel Blend::row_label(int64_t document) const {
  if (rule_->form == LabelForm::kNone) return {};
  const auto [part, local] = locate(document);
  const Labels& labels = *parts_[part].corpus->labels();
  return corpus::row_label(*rule_, labels.of(local), labels.place(local));
}

std::vector<std::optional<RowLabel>> Blend::token_labels(int64_t document, int64_t begin,
                                                         int64_t count) const {
  if (rule_->form == LabelForm::kNone)
    return std::vector<std::optional<RowLabel>>(static_cast<size_t>(count), RowLabel{});
  const auto [part, local] = locate(document);
  const Labels& labels = *parts_[part].corpus->labels();
  const base::Json all = labels.of(local);
  if (!all.is_array() || std::ssize(all) != length(document)) {
    throw InputError(text(labels.place(local), ": there are not labels for each of ", length(document),
                          " tokens: give as many as words have, and build the corpus with --labels"));
  }
  std::vector<std::optional<RowLabel>> of_tokens(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const base::Json& label = all.at(static_cast<size_t>(begin + i));
    if (!label.is_null())
      of_tokens[static_cast<size_t>(i)] = corpus::row_label(*rule_, label, labels.place(local));
  }
  return of_tokens;
}

bool Blend::has_labels() const {
  return std::ranges::all_of(parts_, [](const Entry& part) { return part.corpus->labels() != nullptr; });
}

int64_t Blend::labels_in(int64_t document, int64_t begin, int64_t count) const {
  if (!rule_->of_tokens) return 1;
  const auto labels = token_labels(document, begin, count);
  return std::ranges::count_if(labels, [](const auto& label) { return label.has_value(); });
}

int64_t Blend::loss_ppm() const {
  if (rule_ && !rule_->of_tokens)
    return std::max<int64_t>(1, documents() * 1'000'000 / std::max<int64_t>(1, tokens()));
  __int128 counted = 0, weights = 0;
  for (const Entry& part : parts_) {
    counted += static_cast<__int128>(part.weight_ppm) * part.corpus->loss_ppm() / 1'000'000;
    weights += part.weight_ppm;
  }
  return std::max<int64_t>(1, static_cast<int64_t>(counted * 1'000'000 / weights));
}

void Blend::fetch_ahead(std::span<const TokenRange> ranges) const {
  std::vector<std::vector<TokenRange>> of_parts(parts_.size());
  for (const TokenRange& range : ranges) {
    const auto [part, local] = locate(range.document);
    of_parts[part].push_back({local, range.begin, range.count});
  }
  for (size_t i = 0; i < parts_.size(); ++i) parts_[i].corpus->fetch_ahead(of_parts[i]);
}

void Blend::read(int64_t document, int64_t begin, int64_t count, int32_t* out) const {
  const auto [part, local] = locate(document);
  parts_[part].corpus->read(local, begin, count, out);
}

void Blend::read_mask(int64_t document, int64_t begin, int64_t count, uint8_t* out) const {
  const auto [part, local] = locate(document);
  parts_[part].corpus->read_mask(local, begin, count, out);
}

bool Blend::has_mask() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Entry& part) { return part.corpus->has_mask(); });
}

int64_t Blend::read_bytes() const {
  int64_t bytes = 0;
  for (const Entry& part : parts_) bytes += part.corpus->read_bytes();
  return bytes;
}

}  // namespace sluice::corpus
