#include "cost/cut_stages.h"

#include "base/error.h"

namespace sluice::cost {
namespace {

// By kind: how many of its operations there are, and how many of them a backward reaches.
struct Reached {
  int64_t all = 0;
  int64_t walked_back = 0;
};
std::vector<Reached> reached_by_kind(const model::Program& program) {
  std::vector<Reached> reached(program.kinds().size());
  for (int64_t position = 0; position < program.size(); ++position) {
    Reached& of = reached[static_cast<size_t>(program.at(position).kind)];
    ++of.all;
    if (position >= program.first_trained()) ++of.walked_back;
  }
  return reached;
}

}  // namespace

CostModel::Options cut_by_time(CostModel::Options options, std::span<const int64_t> lengths) {
  SLUICE_ASSERT(!lengths.empty(), "stages are cut by the times of some lengths");
  const int64_t window = options.model.window();
  const Work work = Work::of(lengths, window);
  const model::Program program(options.model);
  const std::vector<Reached> reached = reached_by_kind(program);
  options.cut_times.clear();
  for (const auto& [tp, kinds] : options.kinds_by_tp) {
    std::vector<int64_t>& times = options.cut_times[tp];
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const OperationTimes& of = kinds[kind].times;
      const auto backward = [&](const Quadratic& time) {
        return time.share(reached[kind].walked_back, reached[kind].all);
      };
      Quadratic time = of.forward;
      time += backward(of.backward_input);
      if (program.kinds()[kind]->work().window > 0) time = time.through_window();
      time += backward(of.backward_weight);
      const Wide all = time.of_work_fixed(work) >> Quadratic::kFractionBits;
      times.push_back(static_cast<int64_t>(all / static_cast<int64_t>(lengths.size())));
    }
  }
  return options;
}

std::vector<int64_t> stage_layers(const CostModel& cost, const strategy::Scheme& scheme) {
  std::vector<int64_t> layers;
  for (int stage = 0; stage < scheme.pp; ++stage) layers.push_back(cost.stage_blocks(scheme, stage));
  return layers;
}

}  // namespace sluice::cost
