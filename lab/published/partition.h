// Partition of items into a given number of bins with the least largest work: identical machines with a
// capacity. Solved by branch and bound, the same on every machine: its budget counts nodes, not time.
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
  int64_t capacity_tokens = 0;       // per bin
  int64_t tolerance_ppm = 0;         // a fullest bin within this of the bound counts as the best
  int64_t node_budget = 10'000'000;  // limit on placements of items tried
};

struct Partition {
  // Indices into the items, ascending; bins may be empty. Nullopt if no solution was found.
  std::optional<std::vector<std::vector<int>>> bins;
  int64_t largest_work = 0;
  // A lower bound on the fullest bin.
  int64_t lower_bound = 0;
  // True if within the tolerance of the best; without bins: true if there is no solution.
  bool proved = false;
};

// A lower bound on the fullest of `bins` bins: the average, the heaviest item, and the lightest k + 1 of the
// heaviest k·bins + 1 items, which must share a bin.
int64_t partition_bound(std::span<const PartitionItem> items, int bins);

// Bisection on the largest work T of a bin, from the bound up. For one T, bins are filled one after the
// other, each from the heaviest item left, by depth-first search over the items that join it. A bin that
// could take a further item is skipped (bin completion: Martello and Toth, 1990). So is a bin with so
// little work that the others cannot take the rest. If the search for a T runs out of nodes, T counts as
// infeasible and the result is not proved. More than kMostSearchedItems items are not searched: the
// heaviest go first, each into the emptiest bin with room. REQUIRES: bins >= 1; works and tokens not
// negative.
Partition partition(std::span<const PartitionItem> items, const PartitionOptions& options);
// Another solver of the same problem, for example one based on a MILP library.
using PartitionSolver = Partition (*)(std::span<const PartitionItem>, const PartitionOptions&);
constexpr int kMostSearchedItems = 2000;

}  // namespace sluice::published
