// Several corpora with weights, as one: documents are numbered through all of them, laid end to end.
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
  std::span<const int32_t> lengths;  // of every document
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

  // Opens each [prefix, weight]. InputError as IndexedCorpus and weight_ppm, or without any.
  static Blend open(const std::vector<std::pair<std::string, double>>& prefixes, IndexedOptions options = {});

  const std::vector<Entry>& parts() const { return parts_; }
  int64_t documents() const { return first_documents_.back(); }
  int64_t tokens() const;
  int64_t length(int64_t document) const;

  // One source a part, valid as long as the blend.
  std::vector<LengthSource> sources() const;

  // InputError naming the first corpus whose mask leaves no token to learn from.
  void require_targets() const;
  // As IndexedCorpus::loss_ppm, of the blend's tokens.
  int64_t loss_ppm() const;

  // From here on its documents are labelled as a rule says. InputError naming the first label that breaks it,
  // or a corpus without labels.
  void label_by(std::shared_ptr<const LabelRule> rule);
  const LabelRule* label_rule() const { return rule_.get(); }
  bool has_labels() const;  // all of its corpora
  // Of a document, or of its tokens, from one on; nothing for those without a label. REQUIRES: a rule of
  // documents, or of tokens.
  RowLabel row_label(int64_t document) const;
  std::vector<std::optional<RowLabel>> token_labels(int64_t document, int64_t begin, int64_t count) const;
  // How many of a document's tokens have a label.
  int64_t labels_in(int64_t document, int64_t begin, int64_t count) const;

  // As IndexedCorpus::fetch_ahead, read and read_mask, by the document's number in the blend.
  void fetch_ahead(std::span<const TokenRange> ranges) const;
  void read(int64_t document, int64_t begin, int64_t count, int32_t* out) const;
  void read_mask(int64_t document, int64_t begin, int64_t count, uint8_t* out) const;
  bool has_mask() const;
  int64_t read_bytes() const;

 private:
  // The part of a document and its number there.
  std::pair<size_t, int64_t> locate(int64_t document) const;

  std::vector<Entry> parts_;
  std::shared_ptr<const LabelRule> rule_;
  std::vector<int64_t> first_documents_;  // of each part, and the count of all
};

}  // namespace sluice::corpus
