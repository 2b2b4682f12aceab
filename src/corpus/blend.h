// Several weighted corpora as one: documents are numbered consecutively through all corpora.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "corpus/indexed.h"
#include "corpus/labels.h"

namespace sluice::corpus {

// A corpus as the sampler sees it.
struct LengthSource {
  std::span<const int32_t> lengths;  // every document's, in tokens
  int64_t weight_ppm = 1'000'000;    // share of the tokens, relative to the others': in any one unit
};

// 0.3 -> 300'000. InputError unless the weight is within what data.train may have, 1e-9 to 1e9.
int64_t weight_ppm(double weight, const std::string& name);

// Thread-safe.
class Blend {
 public:
  struct Entry {
    std::shared_ptr<const IndexedCorpus> corpus;
    int64_t weight_ppm = 1'000'000;
  };

  explicit Blend(std::vector<Entry> parts);

  // Opens each [prefix, weight]. InputError as IndexedCorpus and weight_ppm, or if `prefixes` is empty.
  static Blend open(const std::vector<std::pair<std::string, double>>& prefixes, IndexedOptions options = {});

  const std::vector<Entry>& parts() const { return parts_; }
  int64_t documents() const { return first_documents_.back(); }
  int64_t tokens() const;
  int64_t length(int64_t document) const;

  // One source per part, valid as long as the blend.
  std::vector<LengthSource> sources() const;

  // InputError naming the first corpus whose mask leaves no token to learn from.
  void require_targets() const;
  // As IndexedCorpus::loss_ppm, over all tokens of the blend.
  int64_t loss_ppm() const;

  // Labels the blend's documents by `rule` from now on. InputError naming the first label that breaks the
  // rule, or a corpus without labels.
  void label_by(std::shared_ptr<const LabelRule> rule);
  const LabelRule* label_rule() const { return rule_.get(); }
  bool has_labels() const;  // true if all its corpora have labels
  // The label of a document, or of its tokens [begin, begin + count); nullopt for a token without a label.
  // REQUIRES: a rule that labels documents, or tokens.
  RowLabel row_label(int64_t document) const;
  std::vector<std::optional<RowLabel>> token_labels(int64_t document, int64_t begin, int64_t count) const;
  // The number of tokens with a label in [begin, begin + count) of a document.
  int64_t labels_in(int64_t document, int64_t begin, int64_t count) const;

  // As IndexedCorpus::fetch_ahead, read and read_mask, by the document's number in the blend.
  void fetch_ahead(std::span<const TokenRange> ranges) const;
  void read(int64_t document, int64_t begin, int64_t count, int32_t* out) const;
  void read_mask(int64_t document, int64_t begin, int64_t count, uint8_t* out) const;
  bool has_mask() const;
  int64_t read_bytes() const;

 private:
  // The part that holds a document, and the document's number in that part.
  std::pair<size_t, int64_t> locate(int64_t document) const;

  std::vector<Entry> parts_;
  std::shared_ptr<const LabelRule> rule_;
  std::vector<int64_t> first_documents_;  // each part's, then the number of all documents
};

}  // namespace sluice::corpus
