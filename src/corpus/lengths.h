// The distribution of document lengths in a corpus: the numbers from which strategies are proposed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/indexed.h"

namespace sluice::corpus {

// Documents of [from, to) tokens.
struct LengthBin {
  int64_t from = 0;
  int64_t to = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
  bool operator==(const LengthBin&) const = default;
};

class LengthDistribution {
 public:
  LengthDistribution() = default;
  explicit LengthDistribution(std::span<const int32_t> lengths);

  // REQUIRES: length >= 0, documents > 0.
  void add(int64_t length, int64_t documents = 1);
  void add(const LengthDistribution& other);

  // Length -> number of documents of exactly that length.
  const std::map<int64_t, int64_t>& counts() const { return counts_; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  bool empty() const { return documents_ == 0; }

  // REQUIRES for all below: not empty.
  int64_t shortest() const { return counts_.begin()->first; }
  int64_t longest() const { return counts_.rbegin()->first; }
  double mean() const { return static_cast<double>(tokens_) / static_cast<double>(documents_); }
  // The smallest length that at least `ppm` parts per million of all documents do not exceed (nearest rank).
  int64_t percentile(int64_t ppm) const;
  // Bins [0, 2), [2, 4), [4, 8) … from the shortest document's to the longest's, empty ones between too.
  std::vector<LengthBin> histogram() const;
  // Positions that hold no token when every document is padded to the longest, in parts per million.
  int64_t padding_ppm() const;

 private:
  std::map<int64_t, int64_t> counts_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
};

// The percentiles that tables and lengths.json show, in parts per million.
inline constexpr int64_t kPercentilesPpm[] = {10'000,  50'000,  100'000, 250'000, 500'000,
                                              750'000, 900'000, 950'000, 990'000, 999'000};
// 500'000 -> "p50", 999'000 -> "p99.9".
std::string percentile_name(int64_t ppm);

// Limit on the memory of a list of lengths: 4 GiB.
inline constexpr int64_t kMostDocuments = int64_t{1} << 30;

// lengths.json ("sluice.lengths/1") and back. from_json reads only `lengths` ([length, documents] pairs) and
// throws InputError naming `name` when they are malformed or more than kMostDocuments in all.
base::Json to_json(const LengthDistribution& lengths);
// The text of a lengths.json: one line per key, so that the pairs stay compact and people can read it.
std::string lengths_text(const base::Json& json);
LengthDistribution lengths_from_json(const base::Json& json, const std::string& name);

// One length a line; '#' begins a comment. InputError naming `name`, line and value.
std::vector<int32_t> lengths_from_text(const std::string& bytes, const std::string& name);

// The documents' lengths behind a path: a corpus (prefix, .idx, .bin, or the folder of corpus.idx), a
// lengths.json, or a text file (lengths_from_text), on this machine or in a bucket that `places` knows.
// Corpora and text files keep their order; lengths.json gives ascending lengths. InputError naming file, line
// and value.
std::vector<int32_t> read_lengths(const std::filesystem::path& path, const IndexedOptions& places = {});
// The prefix of the corpus that a path names: a prefix, .idx, .bin, or the folder of corpus.idx. Nullopt if
// no such corpus exists.
std::optional<std::filesystem::path> corpus_at(const std::filesystem::path& path,
                                               const IndexedOptions& places = {});

// Entropy, in nats per token, of the distribution with these counts; 0 without any. A model that knows only
// the token frequencies has this loss.
double unigram_entropy_nats(std::span<const int64_t> counts);

}  // namespace sluice::corpus
