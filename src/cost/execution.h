// Facts about how a program runs the passes of a step that prices and memory depend on. The base class is
// Sluice's runtime. Prices of another program hold a class that overrides them (lab/study/rival_traits.h), so
// planners and clocks need not know whose prices they use.
#pragma once

#include <algorithm>
#include <memory>

#include "cost/fixed_point.h"
#include "cost/token_dispatch_cost.h"
#include "strategy/scheme.h"

namespace sluice::cost {

class Execution {
 public:
  Execution() = default;
  Execution(const Execution&) = default;
  Execution& operator=(const Execution&) = default;
  virtual ~Execution() = default;

  // Whether the weight gradient may be a cell of its own. Otherwise it is part of the input gradient's cell;
  // kBackwardWeight takes no time and holds nothing.
  virtual bool defers_weight_gradients() const { return true; }
  // How many times a backward pass runs the layers' forward pass again, with its exchange.
  virtual int repeated_forwards() const { return 0; }
  // Lanes among which an operation's parameters are divided, without the experts that EP divides.
  virtual int parameter_holders(const strategy::Scheme& scheme) const { return scheme.fsdp; }
  // Whether passes gather parameters. Otherwise lanes hold them whole all through a step.
  virtual bool gathers_in_passes() const { return true; }
  // Whether neighbouring lanes sum gradients first (strategy::FsdpRuns). Otherwise partial sums go round a
  // ring of all lanes, as all-gathers do.
  virtual bool sums_in_runs() const { return true; }
  // Whether rows that travelled to experts stay there until the backward pass.
  virtual bool keeps_dispatched() const { return false; }
  // The exposed part of the time in which rows travel to experts and back, beside so much time of products.
  virtual Wide exposed_dispatch(Wide moving, Wide products) const {
    return moving / kUsualDispatchChunks + std::max<Wide>(0, moving - products);
  }
};

// The runtime's.
inline std::shared_ptr<const Execution> own_execution() {
  static const std::shared_ptr<const Execution> own = std::make_shared<Execution>();
  return own;
}

}  // namespace sluice::cost
