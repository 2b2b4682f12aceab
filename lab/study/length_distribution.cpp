#include "study/length_distribution.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace sluice::study {
namespace {

constexpr int64_t kShortest = 2;  // tokens; a shorter document has no target

// The share of a standard normal distribution above `z`.
double normal_above(double z) { return std::erfc(z / std::sqrt(2.0)) / 2; }

// The z above which the share `above` lies, by bisection: the standard library has no inverse of erfc.
double normal_point(double above) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (normal_above(middle) > above ? low : high) = middle;
  }
  return low;
}

}  // namespace

LengthLaw length_law(const std::string& name) {
  if (name == "commoncrawl") return {260, 1.3, {{4096, 1.8}}, 200'000};
  if (name == "github") return {1083, 2.0, {{16384, 1.62}}, 2'000'000};
  if (name == "byted") {
    return {2370, 0.65, {{4096, 0.864}, {131'072, 0.62}, {262'144, 2.69}, {680'000, 0}}, 2'097'152};
  }
  throw base::InputError(base::text("there is no length law '", name,
                                    "': choose commoncrawl, github or byted, or give lengths"));
}

int64_t length_at(const LengthLaw& law, double quantile) {
  const double above = 1 - quantile;
  double share = normal_above(std::log(law.tail.front().from_tokens / law.median) / law.sigma);
  double length = law.median * std::exp(law.sigma * normal_point(above));
  for (size_t piece = 0; piece < law.tail.size() && above < share; ++piece) {
    const auto& [from_tokens, exponent] = law.tail[piece];
    length = exponent > 0 ? from_tokens * std::pow(share / above, 1 / exponent) : 1e15;
    if (piece + 1 < law.tail.size())
      share *= std::pow(from_tokens / law.tail[piece + 1].from_tokens, exponent);
  }
  return std::clamp(std::llround(std::min(length, 1e15)), static_cast<long long>(kShortest),
                    static_cast<long long>(law.longest));
}

std::vector<int32_t> lengths_by(const LengthLaw& law, int64_t documents) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < documents; ++i) {
    const double quantile = (static_cast<double>(i) + 0.5) / static_cast<double>(documents);
    lengths.push_back(static_cast<int32_t>(length_at(law, quantile)));
  }
  return lengths;
}

}  // namespace sluice::study
