// Lengths of corpora that are described but not at hand: a log-normal body and a Pareto tail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::study {

// The share of documents longer than x tokens is that of a log-normal distribution up to `tail_from`, and
// falls with x^−tail_exponent behind it.
struct LengthLaw {
  double median = 0;         // tokens
  double sigma = 0;          // standard deviation of ln(length)
  double tail_from = 0;      // tokens
  double tail_exponent = 0;  // above 1, or there is no mean
  int64_t longest = 0;       // tokens; what is longer is cut
};

// "commoncrawl", "github": fitted to what is published of them (data/published/corpora.csv, whose facts the
// test of this file holds the laws to). InputError listing them for another name.
LengthLaw length_law(const std::string& name);

// The length that a share `quantile` of the documents does not exceed, at least 2. REQUIRES: 0 < quantile
// < 1.
int64_t length_at(const LengthLaw& law, double quantile);

// `documents` lengths at evenly spaced quantiles, ascending: the law without the noise of a sample.
std::vector<int32_t> lengths_by(const LengthLaw& law, int64_t documents);

}  // namespace sluice::study
