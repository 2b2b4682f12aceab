#include "cbc_partition.h"

#include <algorithm>
#include <limits>
#include <string>

#include "solver/cbc_program.h"

namespace sluice::tests {
namespace {

using milp::CbcProgram;

// Columns: o_ij for item i and bin j at i·V + j, then the fullest bin's work. Rows: items, works, tokens.
CbcProgram program_of(std::span<const published::PartitionItem> items,
                      const published::PartitionOptions& options) {
  const int bins = options.bins;
  const int count = static_cast<int>(items.size());
  const double infinite = std::numeric_limits<double>::max();
  CbcProgram program;
  for (int i = 0; i < count; ++i) program.add_row(1, 1);
  for (int j = 0; j < bins; ++j) program.add_row(-infinite, 0);
  for (int j = 0; j < bins; ++j) program.add_row(-infinite, static_cast<double>(options.capacity_tokens));
  for (int i = 0; i < count; ++i) {
    const published::PartitionItem& item = items[static_cast<size_t>(i)];
    for (int j = 0; j < bins; ++j) {
      program.add_column(0, 0, 1, true);
      program.add(i, 1);
      program.add(count + j, static_cast<double>(item.work));
      program.add(count + bins + j, static_cast<double>(item.tokens));
    }
  }
  program.add_column(1, static_cast<double>(published::partition_bound(items, bins)), infinite, false);
  for (int j = 0; j < bins; ++j) program.add(count + j, -1);
  return program;
}

}  // namespace

published::Partition cbc_partition(std::span<const published::PartitionItem> items,
                                   const published::PartitionOptions& options) {
  const CbcProgram::Solution solution =
      program_of(items, options)
          .solve({{"maxNodes", std::to_string(options.node_budget)},
                  {"ratioGap", std::to_string(options.tolerance_ppm / 1e6)}});
  published::Partition result;
  result.lower_bound = published::partition_bound(items, options.bins);
  result.proved = solution.infeasible || solution.optimal;
  if (!solution.columns.empty()) {
    result.bins.emplace(static_cast<size_t>(options.bins));
    std::vector<int64_t> work(static_cast<size_t>(options.bins), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t j = 0; j < work.size(); ++j) {
        if (solution.columns[i * work.size() + j] < 0.5) continue;
        (*result.bins)[j].push_back(static_cast<int>(i));
        work[j] += items[i].work;
      }
    }
    result.largest_work = *std::max_element(work.begin(), work.end());
    if (result.proved && options.tolerance_ppm == 0) result.lower_bound = result.largest_work;
  }
  return result;
}

}  // namespace sluice::tests
