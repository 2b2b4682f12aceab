#include "cost/published_table.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::cost {

Quadratic SchemeTimes::cell_times(CellKind kind, int64_t layers, int64_t stage_layers) const {
  const Quadratic third = stage.share(1, 3);
  Quadratic part = third;
  if (kind == CellKind::kBackwardInput) part.a = stage.a - third.a;
  if (kind == CellKind::kBackwardWeight)
    part = {.a = 0, .b = stage.b - 2 * third.b, .c_ns = stage.c_ns - 2 * third.c_ns};
  return part.share(layers, stage_layers);
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

}  // namespace sluice::cost
