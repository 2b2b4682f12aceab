#include "cost/published_table.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cost/cost_model.h"

namespace sluice::cost {

Quadratic SchemeTimes::cell_times(CellKind kind, int64_t layers, int64_t stage_layers) const {
  const Quadratic third = stage.share(1, 3);
  const Quadratic rest = {stage.a - 2 * third.a, stage.b - 2 * third.b, stage.c_ns - 2 * third.c_ns};
  return (kind == CellKind::kBackwardWeight ? rest : third).share(layers, stage_layers);
}

const SchemeTimes& row_of(const SchemeTable& table, const strategy::Scheme& scheme) {
  const auto found = table.find({scheme.tp, scheme.pp});
  if (found != table.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [degrees, unused] : table) {
    known.push_back(to_text(strategy::Scheme{.tp = degrees.first, .pp = degrees.second}));
  }
  throw base::InputError(base::text("the calibration has no row for scheme ", to_text(scheme), " (it has ",
                                    base::join(known, ", "), "): leave the scheme out"));
}

int64_t util_len_tokens(const CostModel& cost, const strategy::Scheme& scheme) {
  if (const SchemeTimes* known = cost.published(scheme)) return known->util_len_tokens;
  const Quadratic slowest = cost.stage_times(scheme, cost.slowest_stage(scheme));
  if (slowest.b == 0) return 0;
  return divide_nearest((Wide{slowest.c_ns} << Quadratic::kFractionBits) * 85, Wide{slowest.b} * 15);
}

bool is_derived(const CostModel& cost, const strategy::Scheme& scheme) {
  const SchemeTimes* known = cost.published(scheme);
  return known != nullptr && known->derived;
}

}  // namespace sluice::cost
