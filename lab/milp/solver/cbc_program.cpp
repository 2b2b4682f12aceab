#include "solver/cbc_program.h"

#include <Cbc_C_Interface.h>

namespace sluice::milp {

int CbcProgram::add_row(double low, double high) {
  row_low_.push_back(low);
  row_high_.push_back(high);
  return static_cast<int>(row_low_.size()) - 1;
}

int CbcProgram::add_column(double cost, double low, double high, bool whole) {
  starts_.push_back(static_cast<int>(rows_.size()));
  costs_.push_back(cost);
  low_.push_back(low);
  high_.push_back(high);
  whole_.push_back(whole);
  return static_cast<int>(costs_.size()) - 1;
}

void CbcProgram::add(int row, double value) {
  rows_.push_back(row);
  values_.push_back(value);
}

CbcProgram::Solution CbcProgram::solve(
    const std::vector<std::pair<std::string, std::string>>& settings) const {
  std::vector<int> starts = starts_;
  starts.push_back(static_cast<int>(rows_.size()));
  const int columns = static_cast<int>(costs_.size());
  Cbc_Model* model = Cbc_newModel();
  Cbc_loadProblem(model, columns, static_cast<int>(row_low_.size()), starts.data(), rows_.data(),
                  values_.data(), low_.data(), high_.data(), costs_.data(), row_low_.data(),
                  row_high_.data());
  for (int column = 0; column < columns; ++column) {
    if (whole_[static_cast<size_t>(column)]) Cbc_setInteger(model, column);
  }
  Cbc_setParameter(model, "logLevel", "0");
  for (const auto& [name, value] : settings) Cbc_setParameter(model, name.c_str(), value.c_str());
  Cbc_solve(model);
  Solution solution{.infeasible = Cbc_isProvenInfeasible(model) != 0,
                    .optimal = Cbc_isProvenOptimal(model) != 0,
                    .objective = Cbc_getObjValue(model),
                    .columns = {}};
  const double* found = Cbc_getColSolution(model);
  if (!solution.infeasible && found != nullptr) solution.columns.assign(found, found + columns);
  Cbc_deleteModel(model);
  return solution;
}

}  // namespace sluice::milp
