// A mixed-integer program, column by column, for COIN-OR's CBC.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice::milp {

class CbcProgram {
 public:
  // Rows are low <= Σ value·column <= high; columns have bounds of their own. Returns the number of the new
  // row or column.
  int add_row(double low, double high);
  int add_column(double cost, double low, double high, bool whole);
  // Sets a coefficient of the column that was added last.
  void add(int row, double value);

  struct Solution {
    bool infeasible = false;  // proved
    bool optimal = false;     // proved
    double objective = 0;
    std::vector<double> columns;  // empty: none was found; may be fractional if time ran out
  };
  // Minimizes the sum of costs. `settings`: CBC's parameters by name.
  Solution solve(const std::vector<std::pair<std::string, std::string>>& settings) const;

 private:
  std::vector<int> starts_, rows_;
  std::vector<double> values_, costs_, low_, high_, row_low_, row_high_;
  std::vector<bool> whole_;
};

}  // namespace sluice::milp
