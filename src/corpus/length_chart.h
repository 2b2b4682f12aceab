// Length distributions for people: a table and histograms in text, and a picture.
#pragma once

#include <string>
#include <vector>

#include "base/markup.h"
#include "corpus/lengths.h"

namespace sluice::corpus {

struct NamedLengths {
  std::string name;
  LengthDistribution lengths;
};

// One row per distribution: documents, tokens, mean, percentiles, longest, padding. Ends with a newline.
std::string lengths_table(const std::vector<NamedLengths>& distributions);

// Two bars for each power-of-two bin of lengths: the share of the documents, and of the tokens. Ends with a
// newline. REQUIRES: not empty.
std::string lengths_histogram(const NamedLengths& distribution);

// Draws the bars, grid and labels of a histogram into an SVG element that shows overflow. The drawing is as
// wide as the element and kLengthsHeight tall, and needs room for labels: 28 pixels above, 40 below, 52 to
// the left. Its classes are documents, tokens, grid, tick, middle and end; odd marks every second label,
// which may be hidden. REQUIRES: not empty.
inline constexpr int kLengthsHeight = 200;
void draw_lengths(base::Markup& out, const LengthDistribution& lengths);

// The histograms one above the other, as a stand-alone SVG file. REQUIRES: none is empty.
std::string lengths_svg(const std::vector<NamedLengths>& distributions);

}  // namespace sluice::corpus
