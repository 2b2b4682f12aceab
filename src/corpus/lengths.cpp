#include "corpus/lengths.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "base/utf8.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

namespace {

constexpr const char* kSchema = "sluice.lengths/1";
constexpr int64_t kLongestLength = std::numeric_limits<int32_t>::max();

// Bin 0 holds lengths 0 and 1, bin k [2^k, 2^(k+1)).
int bin_of(int64_t length) { return length < 2 ? 0 : std::bit_width(static_cast<uint64_t>(length)) - 1; }

std::vector<int32_t> expand(const LengthDistribution& distribution) {
  std::vector<int32_t> lengths;
  lengths.reserve(static_cast<size_t>(distribution.documents()));
  for (const auto& [length, documents] : distribution.counts()) {
    lengths.insert(lengths.end(), static_cast<size_t>(documents), static_cast<int32_t>(length));
  }
  return lengths;
}

}  // namespace

LengthDistribution::LengthDistribution(std::span<const int32_t> lengths) {
  for (const int32_t length : lengths) add(length);
}

void LengthDistribution::add(int64_t length, int64_t documents) {
  SLUICE_ASSERT(length >= 0 && documents > 0, text(documents, " documents of ", length, " tokens"));
  counts_[length] += documents;
  documents_ += documents;
  tokens_ += length * documents;
}

void LengthDistribution::add(const LengthDistribution& other) {
  for (const auto& [length, documents] : other.counts_) add(length, documents);
}

int64_t LengthDistribution::percentile(int64_t ppm) const {
  SLUICE_ASSERT(!empty(), "no documents");
  int64_t seen = 0;
  for (const auto& [length, documents] : counts_) {
    seen += documents;
    if (static_cast<__int128>(seen) * 1'000'000 >= static_cast<__int128>(ppm) * documents_) return length;
  }
  return longest();
}

std::vector<LengthBin> LengthDistribution::histogram() const {
  SLUICE_ASSERT(!empty(), "no documents");
  const int first = bin_of(shortest());
  std::vector<LengthBin> bins;
  for (int k = first; k <= bin_of(longest()); ++k)
    bins.push_back({k == 0 ? 0 : int64_t{1} << k, int64_t{2} << k});
  for (const auto& [length, documents] : counts_) {
    LengthBin& bin = bins[static_cast<size_t>(bin_of(length) - first)];
    bin.documents += documents;
    bin.tokens += length * documents;
  }
  return bins;
}

int64_t LengthDistribution::padding_ppm() const {
  const __int128 positions = static_cast<__int128>(longest()) * documents_;
  return positions == 0 ? 0 : static_cast<int64_t>((positions - tokens_) * 1'000'000 / positions);
}

std::string percentile_name(int64_t ppm) {
  const int64_t tenths = ppm / 1000;
  return tenths % 10 == 0 ? text("p", tenths / 10) : text("p", tenths / 10, ".", tenths % 10);
}

Json to_json(const LengthDistribution& lengths) {
  Json json = {{"schema", kSchema}, {"count", lengths.documents()}, {"tokens", lengths.tokens()}};
  json["percentiles"] = Json::object();
  json["histogram"] = Json::array();
  json["lengths"] = Json::array();
  if (lengths.empty()) return json;
  json["min"] = lengths.shortest();
  json["max"] = lengths.longest();
  json["mean"] = lengths.mean();
  json["padding_ppm"] = lengths.padding_ppm();
  for (const int64_t ppm : kPercentilesPpm)
    json["percentiles"][percentile_name(ppm)] = lengths.percentile(ppm);
  for (const LengthBin& bin : lengths.histogram()) {
    json["histogram"].push_back(
        {{"from", bin.from}, {"to", bin.to}, {"count", bin.documents}, {"tokens", bin.tokens}});
  }
  for (const auto& [length, documents] : lengths.counts())
    json["lengths"].push_back(Json::array({length, documents}));
  return json;
}

std::string lengths_text(const Json& json) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : json.items())
    lines.push_back(text("  ", base::json_text(key), ": ", base::json_text(value)));
  return text("{\n", base::join(lines, ",\n"), "\n}\n");
}

LengthDistribution lengths_from_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  LengthDistribution distribution;
  for (const auto& [length, documents] : base::require<Pairs>(json, "lengths", name)) {
    if (length < 0 || length > kLongestLength || documents <= 0) {
      throw InputError(text(name, ": 'lengths' has [", length, ", ", documents,
                            "]: pairs are [length, documents], neither negative"));
    }
    if (documents > kMostDocuments - distribution.documents()) {
      throw InputError(
          text(name, ": 'lengths' counts more than ", kMostDocuments, " documents: draw a sample of them"));
    }
    distribution.add(length, documents);
  }
  return distribution;
}

std::vector<int32_t> lengths_from_text(const std::string& bytes, const std::string& name) {
  std::vector<int32_t> lengths;
  int64_t line_number = 0;
  for (const std::string& line : base::split(base::without_byte_order_mark(bytes), '\n')) {
    ++line_number;
    const std::string_view value = base::trim(std::string_view(line).substr(0, line.find('#')));
    if (value.empty()) continue;
    const std::optional<int64_t> length = base::parse_integer(value);
    if (!length || *length < 0 || *length > kLongestLength) {
      throw InputError(text(name, ":", line_number, ": '", value.substr(0, 40),
                            "' is not a length: give one whole ",
                            "number of tokens a line, a corpus, or a lengths.json"));
    }
    lengths.push_back(static_cast<int32_t>(*length));
  }
  if (lengths.empty()) throw InputError(text(name, " holds no lengths: give one number of tokens a line"));
  return lengths;
}

std::optional<std::filesystem::path> corpus_at(const std::filesystem::path& path,
                                               const IndexedOptions& places) {
  const std::filesystem::path prefix = corpus_prefix(path);
  if (prefix != path || place_of(with_suffix(prefix, ".idx"), places).is_file()) return prefix;
  const std::filesystem::path inside = path / "corpus";
  const bool holds_one =
      std::filesystem::is_directory(path) ||
      (storage::is_s3(path.string()) && place_of(inside.string() + ".idx", places).is_file());
  return holds_one ? std::optional(inside) : std::nullopt;
}

std::vector<int32_t> read_lengths(const std::filesystem::path& path, const IndexedOptions& places) {
  const std::string name = path.string();
  const storage::Location place = place_of(path, places);
  const auto bytes = [&] { return place.is_path() ? base::read_file(path) : place.read(); };
  if (path.extension() == ".json") return expand(lengths_from_json(base::parse_json(bytes(), name), name));
  if (const auto prefix = corpus_at(path, places)) {
    const IndexedCorpus corpus(*prefix, places);
    return {corpus.lengths().begin(), corpus.lengths().end()};
  }
  return lengths_from_text(bytes(), name);
}

double unigram_entropy_nats(std::span<const int64_t> counts) {
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count <= 0) continue;
    const double share = static_cast<double>(count) / total;
    entropy -= share * std::log(share);
  }
  return entropy;
}

}  // namespace sluice::corpus
