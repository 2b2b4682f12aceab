#include "cbc_partition.h"

#include <Cbc_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace sluice::tests {
namespace {

// Columns: o_ij for item i and bin j at i·V + j, then the fullest bin's work. Rows: items, works, tokens.
struct Program {
  std::vector<int> starts;
  std::vector<int> rows;
  std::vector<double> values, low, high, cost, row_low, row_high;

  Program(std::span<const published::PartitionItem> items, const published::PartitionOptions& options) {
    const int bins = options.bins;
    const int count = static_cast<int>(items.size());
    const double infinite = std::numeric_limits<double>::max();
    for (int i = 0; i < count; ++i) {
      const published::PartitionItem& item = items[static_cast<size_t>(i)];
      for (int j = 0; j < bins; ++j) {
        add_column(0, 1);
        add(i, 1);
        add(count + j, static_cast<double>(item.work));
        add(count + bins + j, static_cast<double>(item.tokens));
      }
    }
    add_column(static_cast<double>(published::partition_bound(items, bins)), infinite);
    cost.back() = 1;
    for (int j = 0; j < bins; ++j) add(count + j, -1);
    starts.push_back(static_cast<int>(rows.size()));
    row_low.assign(static_cast<size_t>(count), 1);
    row_high.assign(static_cast<size_t>(count), 1);
    row_low.resize(row_low.size() + 2 * static_cast<size_t>(bins), -infinite);
    row_high.resize(row_high.size() + static_cast<size_t>(bins), 0);
    row_high.resize(row_high.size() + static_cast<size_t>(bins),
                    static_cast<double>(options.capacity_tokens));
  }

 private:
  void add_column(double least, double most) {
    starts.push_back(static_cast<int>(rows.size()));
    low.push_back(least);
    high.push_back(most);
    cost.push_back(0);
  }
  void add(int row, double value) {
    rows.push_back(row);
    values.push_back(value);
  }
};

}  // namespace

published::Partition cbc_partition(std::span<const published::PartitionItem> items,
                                   const published::PartitionOptions& options) {
  const Program program(items, options);
  const int columns = static_cast<int>(program.cost.size());
  Cbc_Model* model = Cbc_newModel();
  Cbc_loadProblem(model, columns, static_cast<int>(program.row_low.size()), program.starts.data(),
                  program.rows.data(), program.values.data(), program.low.data(), program.high.data(),
                  program.cost.data(), program.row_low.data(), program.row_high.data());
  for (int column = 0; column + 1 < columns; ++column) Cbc_setInteger(model, column);
  Cbc_setParameter(model, "logLevel", "0");
  Cbc_setParameter(model, "maxNodes", std::to_string(options.node_budget).c_str());
  Cbc_setParameter(model, "ratioGap",
                   std::to_string(static_cast<double>(options.tolerance_ppm) / 1e6).c_str());
  Cbc_solve(model);
  published::Partition result;
  result.lower_bound = published::partition_bound(items, options.bins);
  const bool infeasible = Cbc_isProvenInfeasible(model) != 0;
  result.proved = infeasible || Cbc_isProvenOptimal(model) != 0;
  if (!infeasible && Cbc_getColSolution(model) != nullptr) {
    const double* solution = Cbc_getColSolution(model);
    result.bins.emplace(static_cast<size_t>(options.bins));
    std::vector<int64_t> work(static_cast<size_t>(options.bins), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t j = 0; j < work.size(); ++j) {
        if (solution[i * work.size() + j] < 0.5) continue;
        (*result.bins)[j].push_back(static_cast<int>(i));
        work[j] += items[i].work;
      }
    }
    result.largest_work = *std::max_element(work.begin(), work.end());
    if (result.proved && options.tolerance_ppm == 0) result.lower_bound = result.largest_work;
  }
  Cbc_deleteModel(model);
  return result;
}

}  // namespace sluice::tests
