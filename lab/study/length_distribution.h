// Lengths of corpora that are described but not available: a log-normal body and a tail of power laws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::study {

// From `from_tokens` on, the share of longer documents falls as x^−exponent. Exponent 0: no lengths up to the
// next piece; in the last piece, only documents that are cut to the longest.
struct LengthTail {
  double from_tokens = 0;
  double exponent = 0;
};

// Up to the first piece of the tail, the share of documents longer than x tokens is that of a log-normal
// distribution.
struct LengthLaw {
  double median = 0;             // tokens
  double sigma = 0;              // standard deviation of ln(length)
  std::vector<LengthTail> tail;  // ascending, at least one
  int64_t longest = 0;           // tokens; longer documents are cut
};

// "commoncrawl", "github", "byted" (ByteDance's long-tailed corpus): fitted to published facts
// (data/published/corpora.csv; this file's test compares the laws with them). InputError listing the names
// for any other name.
LengthLaw length_law(const std::string& name);

// The length, at least 2, that a share `quantile` of the documents does not exceed. REQUIRES: 0 < quantile <
// 1.
int64_t length_at(const LengthLaw& law, double quantile);

// `documents` lengths at evenly spaced quantiles, ascending: the law without the noise of a sample.
std::vector<int32_t> lengths_by(const LengthLaw& law, int64_t documents);

}  // namespace sluice::study
