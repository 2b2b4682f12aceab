#include "schedule/unit_table.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::schedule {

void UnitTable::resize(int units) {
  heads_.resize(static_cast<size_t>(units));
  cells_.resize(static_cast<size_t>(units) * static_cast<size_t>(stages_));
}

void UnitTable::append(const TimedUnit& unit) {
  SLUICE_ASSERT(unit.forward_ns.size() == static_cast<size_t>(stages_),
                base::text("a unit of ", unit.forward_ns.size(), " stages"));
  resize(units() + 1);
  head(units() - 1) = {unit.first_lane, unit.lanes, unit.fused, unit.first_backward_stage, unit.credit()};
  const std::span<Cells> cells = row(units() - 1);
  for (size_t s = 0; s < cells.size(); ++s) {
    cells[s] = {unit.forward_ns[s], unit.backward_input_ns[s], unit.backward_weight_ns[s],
                s + 1 < cells.size() ? unit.transfer_ns[s] : 0};
  }
}

}  // namespace sluice::schedule
