#include "study/megatron.h"

#include <utility>

#include "published/static_strategy.h"
#include "study/fixed_layout.h"
#include "study/rival_traits.h"

namespace sluice::study {
namespace {

published::StaticStrategy best(const SystemInputs& inputs, published::Dealing dealing) {
  return published::best_static({.world_size = inputs.world_size,
                                 .context_length = inputs.context_length,
                                 .sample_batches = inputs.sample_batches,
                                 .max_cp = inputs.max_cp},
                                one_backward_cell(inputs.cost), dealing);
}

}  // namespace

std::unique_ptr<System> make_megatron(const SystemInputs& inputs) {
  return make_megatron(inputs, best(inputs, published::Dealing::kTurns));
}

std::unique_ptr<System> make_static(const SystemInputs& inputs) {
  return make_megatron(inputs, best(inputs, published::Dealing::kLeastWork));
}

std::unique_ptr<System> make_megatron(const SystemInputs& inputs, const published::StaticStrategy& choice) {
  return fixed_layout(
      to_text(choice), one_backward_cell(inputs.cost),
      [choice, ranks = inputs.world_size](const std::vector<int64_t>& lengths, const cost::CostModel& cost) {
        return SystemStep{.plan = published::static_plan(choice, lengths, cost, ranks)};
      });
}

}  // namespace sluice::study
