#include "cost/border_bytes.h"

#include "model/border_rows.h"

namespace sluice::cost {

BorderBytes border_bytes(const CostModel& cost, const strategy::Scheme& scheme, int stage) {
  const model::Program& program = cost.program();
  const base::Interval run = cost.stage_run(scheme, stage);
  const int64_t element_bytes = cost.options().memory.element_bytes;
  const auto of_rank = [&](int64_t width) { return divide_up(width * element_bytes, scheme.tp); };
  const int64_t row = of_rank(model::widest_border(program, scheme.tp, /*stages=*/1));
  BorderBytes bytes{
      .row = row, .held = row, .gradients = of_rank(model::carried_gradient_width(program, run, scheme.tp))};
  if (stage > 0) {
    const int64_t carried = model::carried_bytes(program, run.begin, scheme.tp, element_bytes);
    bytes.entering = row + carried;
    bytes.held += carried;
  }
  if (stage + 1 < scheme.pp) bytes.held += model::carried_bytes(program, run.end, scheme.tp, element_bytes);
  return bytes;
}

}  // namespace sluice::cost
