#include "corpus/blend.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

int64_t weight_ppm(double weight, const std::string& name) {
  constexpr double kLargest = 1e9;
  if (!(weight >= 1e-6) || weight > kLargest) {
    throw InputError(text("corpus ", name, " has weight ", weight,
                          ": weights are shares of tokens from 0.000001 up; leave out what is not wanted"));
  }
  return std::llround(weight * 1e6);
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
  std::vector<Entry> parts;
  for (const auto& [prefix, weight] : prefixes) {
    const int64_t ppm = weight_ppm(weight, prefix);
    parts.push_back({std::make_shared<const IndexedCorpus>(prefix, options), ppm});
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
    if (part.corpus->has_targets()) continue;
    throw InputError(text(part.corpus->prefix().string(),
                          ".mask is 0 for every token, so nothing has a loss: ",
                          "write 1 where the loss counts a token, or remove the file to count all"));
  }
}

int64_t Blend::loss_ppm() const {
  int64_t counted = 0, weights = 0;
  for (const Entry& part : parts_) {
    counted += part.weight_ppm * part.corpus->loss_ppm() / 1'000'000;
    weights += part.weight_ppm;
  }
  return std::max<int64_t>(1, counted * 1'000'000 / weights);
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
