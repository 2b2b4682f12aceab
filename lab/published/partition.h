// Items into a given number of bins so that the fullest holds the least work: identical machines that also
// have a capacity. Solved by branch and bound, the same on every machine: its budget counts nodes, not time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::published {

struct PartitionItem {
  int64_t work = 0;
  int64_t tokens = 0;
};

struct PartitionOptions {
  int bins = 1;
  int64_t capacity_tokens = 0;       // of a bin
  int64_t tolerance_ppm = 0;         // a fullest bin this close above the bound counts as the best
  int64_t node_budget = 10'000'000;  // places tried for items
};

struct Partition {
  // Indices into the items, ascending; bins may be empty. Nothing when no solution was found.
  std::optional<std::vector<std::vector<int>>> bins;
  int64_t largest_work = 0;
  // No fullest bin holds less.
  int64_t lower_bound = 0;
  // Within the tolerance of the best; without bins: that there is no solution.
  bool proved = false;
};

// What any partition into so many bins has in its fullest: the average, the heaviest item, and the lightest
// k + 1 of the heaviest k·bins + 1 items, which must meet somewhere.
int64_t partition_bound(std::span<const PartitionItem> items, int bins);

// Bisects the work T that the fullest bin may hold, from the bound up. For one T, bins are filled one after
// the other, each from the heaviest item left, by depth-first search over what joins it: a bin that could
// take a further item need not be looked at (bin completion: Martello and Toth, 1990), and one that holds so
// little that the others cannot take the rest is left. A T whose search runs out of nodes is passed over as
// if there were no solution, and the result is not proved. More than kMostSearchedItems items are not
// searched: the heaviest first, each into the emptiest bin that has room. REQUIRES: bins >= 1; works and
// tokens not negative.
Partition partition(std::span<const PartitionItem> items, const PartitionOptions& options);
// Another program that solves the same, such as one on a MILP library.
using PartitionSolver = Partition (*)(std::span<const PartitionItem>, const PartitionOptions&);
constexpr int kMostSearchedItems = 2000;

}  // namespace sluice::published
