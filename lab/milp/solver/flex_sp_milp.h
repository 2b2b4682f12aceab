// FlexSP's own program for one micro-batch, solved by COIN-OR's CBC: virtual groups of each size are used or
// not, and each sequence lies in one group. The slowest group ends as early as possible (arXiv 2412.01523).
// The published system rounds sequences up into buckets of lengths; here none is rounded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "published/flex_sp.h"

namespace sluice::milp {

struct FlexSpSolution {
  // Timed by the cost model, not by the program's sums; empty if CBC found none in time.
  std::optional<published::FlexSpGroups> groups;
  double optimum_us = 0;
  bool proved = false;  // no groups are faster, or none end within the limit, except for rounded times
};

// Looks for groups that end within `limit_us`, for `seconds` of CPU time. The search's time is a good limit:
// a sequence that would exceed it on a group gets no column there.
FlexSpSolution solve_flex_sp(std::span<const int64_t> lengths, const published::FlexSpCost& cost,
                             double seconds, double limit_us);

// Whether each sequence lies in one group, or may be shared by groups of different sizes.
enum class Sequences { kWhole, kShared };

// The fewest ranks that groups ending by `end_us` need, a bound for every solution: groups of one size
// together take at most their number times end_us. Nullopt if CBC did not prove it in two seconds.
struct FewestRanks {
  double ranks = 0;        // infinite if no groups end by end_us
  std::vector<int> sizes;  // sizes of these groups, descending
};
std::optional<FewestRanks> ranks_by(double end_us, std::span<const int64_t> lengths,
                                    const published::FlexSpCost& cost, Sequences sequences);

// Improves the groups found by published::flex_sp_plan's search: first with group sizes from the bound and
// sequences assigned by the search, then by FlexSP's own program. It counts micro-batches for tables.
class FlexSpImprover {
 public:
  explicit FlexSpImprover(double seconds) : seconds_(seconds) {}
  published::FlexSpGroups operator()(std::span<const int64_t> lengths, const published::FlexSpCost& cost,
                                     const published::FlexSpGroups& found);
  // Numbers of micro-batches.
  struct Counts {
    int64_t asked = 0;
    int64_t proved = 0;    // no groups are faster than the returned ones by a thousandth
    int64_t improved = 0;  // CBC's groups are faster than the search's
  };
  const Counts& counts() const { return counts_; }

 private:
  double seconds_;
  Counts counts_;
};

}  // namespace sluice::milp
