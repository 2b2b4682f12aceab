#include "train/narrow_choosing.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "session/narrow_products.h"

namespace sluice::train {
namespace {

using layers::ProductErrors;

constexpr size_t kSums = 2 * ProductErrors::kFigures;  // of a layer: sums, and of how many

double mean_of(std::span<const double> sums, ProductErrors::Figure figure) {
  const auto at = 2 * static_cast<size_t>(figure);
  return sums[at + 1] > 0 ? sums[at] / sums[at + 1] : 0;
}

}  // namespace

bool NarrowChoosing::narrows() const {
  return run_.config().parallel.narrow_products != base::ProductFormat::kAsComputed;
}

NarrowChoosing::NarrowChoosing(RunContext& run) : run_(run), measures_(narrows()) {
  if (measures_) run_.engine().ask_of_narrow_products(run_.config().parallel.narrow_products);
}

void NarrowChoosing::look(int64_t step, const runtime::StepResult& result) {
  if (!std::exchange(measures_, false)) return;
  const int64_t layers = run_.config().model.shape->layers;
  std::vector<double> sums(static_cast<size_t>(layers) * kSums, 0);
  for (size_t layer = 0; layer < result.errors.by_layer.size(); ++layer) {
    for (size_t figure = 0; figure < ProductErrors::kFigures; ++figure) {
      const ProductErrors::Sum& sum = result.errors.by_layer[layer][figure];
      sums[layer * kSums + 2 * figure] = sum.sum;
      sums[layer * kSums + 2 * figure + 1] = static_cast<double>(sum.count);
    }
  }
  run_.control().add_up(sums);
  session::NarrowTask task =
      session::narrow_task_of(run_.config(), run_.data().sequence_lengths(), run_.control().world_size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto own = std::span(sums).subspan(static_cast<size_t>(layer) * kSums, kSums);
    using enum ProductErrors::Figure;
    task.noise.push_back({mean_of(own, kForward), mean_of(own, kInputGradient), mean_of(own, kWeightGradient),
                          mean_of(own, kOfActivation), mean_of(own, kOfGradient),
                          own[2 * static_cast<size_t>(kGradientSquares)]});
  }
  const session::NarrowChoice choice = session::choose_narrow(task, run_.devices(), run_.cost());
  // Steps that may have been planned already stay as they are, on all ranks.
  const int64_t from = step + 1 + PlanAhead::kMostAhead + 1;
  run_.step_planners().narrow_from(from, choice.devices);
  if (run_.rank() == 0)
    base::log_info(base::text("from step ", from, " on ", session::to_text(task, choice)));
}

}  // namespace sluice::train
