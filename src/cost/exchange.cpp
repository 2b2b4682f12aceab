#include "cost/exchange.h"

#include "base/text.h"
#include "model/head_parts.h"

namespace sluice::cost {

std::string exchange_fault(const model::Shape& shape, const strategy::StepPlan& plan) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const strategy::Scheme& scheme = plan.pipelines[p].pipeline.scheme;
    const int64_t heads = model::head_counts(shape, scheme.tp).queries;
    for (const strategy::Unit& unit : plan.pipelines[p].units) {
      if (unit.head_lanes() <= heads) continue;
      return base::text("ring ", unit.ring, " of pipeline ", p, " ", to_text(scheme), ": ", unit.head_lanes(),
                        " lanes exchange heads, but of the model's ", shape.heads, " a TP rank has ", heads,
                        ": use fewer lanes, nested with runs of at most ", heads, ", or a ring");
    }
  }
  return "";
}

}  // namespace sluice::cost
