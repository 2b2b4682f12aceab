#include "cost/quadratic.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace sluice::cost {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 31;

int64_t fixed_point(double value, const char* name) {
  SLUICE_ASSERT(std::isfinite(value) && value >= 0 && value < 0x1p31,
                base::text("coefficient ", name, " is ", value, " ns"));
  return std::llround(std::ldexp(value, Quadratic::kFractionBits));
}

}  // namespace

int64_t whole_ns(Wide fixed) {
  constexpr Wide kHalf = Wide{1} << (Quadratic::kFractionBits - 1);
  return narrow((fixed + kHalf) >> Quadratic::kFractionBits, kLongestNs);
}

int64_t windowed_square(int64_t length, int64_t window) {
  return length <= window ? length * length : window * (2 * length - window);
}

Work Work::of(std::span<const int64_t> lengths, int64_t window) {
  Work work;
  for (const int64_t length : lengths) work += of_lane(length, length, 1, window);
  return work;
}

Work Work::of_lane(int64_t piece_tokens, int64_t length, int lanes, int64_t window) {
  SLUICE_ASSERT(length >= 0 && length < kMaxLength && lanes >= 1,
                base::text("length ", length, " on ", lanes, " lanes"));
  const int64_t windowed = window == 0 ? 0 : divide_up(windowed_square(length, window), lanes);
  return {piece_tokens, windowed, (Wide{length} * length + lanes - 1) / lanes};
}

// A branch of l tokens after a prefix of p adds what a sequence of p + l tokens has more than one of p.
Work Work::of_lane(int64_t piece_tokens, const strategy::MicroBatchSequence& sequence, int lanes,
                   int64_t window) {
  if (!sequence.has_branches()) return of_lane(piece_tokens, sequence.length_tokens, lanes, window);
  const int64_t prefix = sequence.prefix_tokens, branch = sequence.branch_tokens;
  const int64_t tokens = sequence.length_tokens - prefix;  // all branches' tokens
  Work all = of_lane(0, prefix, 1, window), longer = of_lane(0, prefix + branch, 1, window);
  longer -= all;
  all.squares += longer.squares * tokens / branch;
  all.windowed += static_cast<int64_t>(Wide{longer.windowed} * tokens / branch);
  return {piece_tokens, divide_up(all.windowed, lanes), (all.squares + lanes - 1) / lanes};
}

Work& Work::operator+=(const Work& other) {
  tokens += other.tokens;
  windowed += other.windowed;
  squares += other.squares;
  return *this;
}

Work& Work::operator-=(const Work& other) {
  tokens -= other.tokens;
  windowed -= other.windowed;
  squares -= other.squares;
  return *this;
}

Quadratic Quadratic::from_ns(double a_ns, double b_ns, double c_ns) {
  SLUICE_ASSERT(std::isfinite(c_ns) && c_ns >= 0 && c_ns < 0x1p62, base::text("coefficient c is ", c_ns));
  return {fixed_point(a_ns, "a"), fixed_point(b_ns, "b"), std::llround(c_ns)};
}

Wide Quadratic::of_work_fixed(const Work& work) const {
  const Wide whole = Wide{a} * work.squares + Wide{b} * work.tokens;
  return a_windowed == 0 ? whole : whole + Wide{a_windowed} * work.windowed;
}

int64_t Quadratic::of_work(const Work& work) const { return whole_ns(of_work_fixed(work)) + c_ns; }

Quadratic& Quadratic::operator+=(const Quadratic& other) {
  a = narrow(Wide{a} + other.a);
  b = narrow(Wide{b} + other.b);
  c_ns = narrow(Wide{c_ns} + other.c_ns);
  a_windowed = narrow(Wide{a_windowed} + other.a_windowed);
  return *this;
}

Quadratic Quadratic::times(int64_t count) const {
  return {narrow(Wide{a} * count), narrow(Wide{b} * count), narrow(Wide{c_ns} * count),
          narrow(Wide{a_windowed} * count)};
}

Quadratic Quadratic::share(int64_t part, int64_t whole) const {
  const auto of = [&](int64_t value) { return narrow((Wide{value} * part + whole / 2) / whole); };
  return {of(a), of(b), of(c_ns), of(a_windowed)};
}

}  // namespace sluice::cost
