// Lengths of corpora that are described but not at hand: a log-normal body and a tail of power laws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::study {

// Behind `from_tokens` the share of longer documents falls with x^−exponent; 0: there are none of a length
// up to the next piece, or behind the last piece none but those that are cut to the longest.
struct LengthTail {
  double from_tokens = 0;
  double exponent = 0;
};

// The share of documents longer than x tokens is that of a log-normal distribution up to the first piece of
// the tail.
struct LengthLaw {
  double median = 0;             // tokens
  double sigma = 0;              // standard deviation of ln(length)
  std::vector<LengthTail> tail;  // ascending, at least one
  int64_t longest = 0;           // tokens; what is longer is cut
};

// "commoncrawl", "github", "byted" (ByteDance's long-tailed corpus): fitted to what is published of them
// (data/published/corpora.csv, whose facts the test of this file holds the laws to). InputError listing them
// for another name.
LengthLaw length_law(const std::string& name);

// The length that a share `quantile` of the documents does not exceed, at least 2. REQUIRES: 0 < quantile
// < 1.
int64_t length_at(const LengthLaw& law, double quantile);

// `documents` lengths at evenly spaced quantiles, ascending: the law without the noise of a sample.
std::vector<int32_t> lengths_by(const LengthLaw& law, int64_t documents);

}  // namespace sluice::study
