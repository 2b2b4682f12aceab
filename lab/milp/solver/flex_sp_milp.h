// FlexSP's own program for one micro-batch, solved by COIN-OR's CBC: virtual groups of each size are used or
// not, each sequence lies in one group, and the slowest group ends as early as possible (arXiv 2412.01523).
// The published system rounds sequences up into buckets of lengths; here none is rounded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "published/flex_sp.h"

namespace sluice::milp {

struct FlexSpSolution {
  // Timed by the cost model, not by the program's sums; empty where CBC found none in time.
  std::optional<published::FlexSpGroups> groups;
  double optimum_us = 0;
  bool proved = false;  // that none are faster, or none end within the limit, but for times that round
};

// Looks for groups that end within `limit_us`, for `seconds` of CPU time. The search's time is a good limit:
// sequences that would take longer on a group have no column there.
FlexSpSolution solve_flex_sp(std::span<const int64_t> lengths, const published::FlexSpCost& cost,
                             double seconds, double limit_us);

// Whether a sequence lies in one group, or shares of it may lie in groups of different sizes.
enum class Sequences { kWhole, kShared };

// Fewest ranks that groups ending by `end_us` need, a bound that every solution obeys: groups of one size
// together take no more than their number times that. Nothing where CBC did not prove it in two seconds.
struct FewestRanks {
  double ranks = 0;        // infinite where no groups end by then
  std::vector<int> sizes;  // of these groups, descending
};
std::optional<FewestRanks> ranks_by(double end_us, std::span<const int64_t> lengths,
                                    const published::FlexSpCost& cost, Sequences sequences);

// Improves the groups that published::flex_sp_plan's search found: first by group sizes from the bound, with
// sequences assigned by the search, then by FlexSP's own program. It counts micro-batches for tables.
class FlexSpImprover {
 public:
  explicit FlexSpImprover(double seconds) : seconds_(seconds) {}
  published::FlexSpGroups operator()(std::span<const int64_t> lengths, const published::FlexSpCost& cost,
                                     const published::FlexSpGroups& found);
  // Micro-batches.
  struct Counts {
    int64_t asked = 0;
    int64_t proved = 0;    // none are faster than those returned, by a thousandth
    int64_t improved = 0;  // CBC's are faster than the search's
  };
  const Counts& counts() const { return counts_; }

 private:
  double seconds_;
  Counts counts_;
};

}  // namespace sluice::milp
