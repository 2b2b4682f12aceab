// Length distributions for people: a table and histograms in text, and a picture.
#pragma once

#include <string>
#include <vector>

#include "corpus/lengths.h"

namespace sluice::corpus {

struct NamedLengths {
  std::string name;
  LengthDistribution lengths;
};

// A row for each distribution: documents, tokens, mean, percentiles, longest, padding. Ends with a newline.
std::string lengths_table(const std::vector<NamedLengths>& distributions);

// Two bars for each power-of-two bin of lengths, the share of the documents and of the tokens. Ends with a
// newline. REQUIRES: not empty.
std::string lengths_histogram(const NamedLengths& distribution);

// The histograms one above the other, as a stand-alone SVG file. REQUIRES: none is empty.
std::string lengths_svg(const std::vector<NamedLengths>& distributions);

}  // namespace sluice::corpus
