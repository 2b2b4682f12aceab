#include "study/other_acts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "graph/build.h"
#include "graph/memory.h"
#include "session/earlier_act.h"
#include "session/planned_step.h"

namespace sluice::study {
namespace {

void add(const graph::StepGraph& graph, int64_t peak_bytes, OtherActs::Act& act) {
  report::add({.time_ns = graph.makespan_ns,
               .predicted_ns = graph.makespan_ns,
               .peak_bytes = peak_bytes,
               .predicted_peak_bytes = peak_bytes},
              act.record);
  act.shares += report::time_shares(graph);
}

}  // namespace

OtherActs::OtherActs(const plan::Planner& trained, std::vector<session::OtherModel> models,
                     Reference reference, int64_t beside_bytes) {
  for (session::OtherModel& model : models)
    trunks_.emplace_back(session::plan_beside(trained, std::move(model), beside_bytes));
  if (reference == Reference::kEvaluated) trunks_.emplace_back(session::reference_of(trained, beside_bytes));
}

std::vector<OtherActs::Act> OtherActs::of(const SystemStep& step,
                                          const std::vector<strategy::Sequence>& sequences,
                                          const graph::StepGraph& graph, const cost::CostModel& cost,
                                          const model::ParameterTable& table) {
  std::vector<Act> acts = teachers(step, graph, cost, table);
  for (Trunk& trunk : trunks_) {
    if (trunk.planning.model.leaves_rows) continue;
    acts.push_back(planned_apart(trunk, graph.step, sequences));
    acts.back().record.name = trunk.planning.model.act;
  }
  return acts;
}

std::vector<OtherActs::Act> OtherActs::teachers(const SystemStep& step, const graph::StepGraph& graph,
                                                const cost::CostModel& cost,
                                                const model::ParameterTable& table) {
  std::vector<session::EarlierAct> earlier;
  std::vector<Act> acts;
  for (Trunk& trunk : trunks_) {
    if (!trunk.planning.model.leaves_rows) continue;
    earlier.push_back(session::earlier_act(trunk.planning, trunk.links));
    acts.emplace_back().record.name = trunk.planning.model.act;
  }
  const auto add_under = [&](const graph::StepGraph& own) {
    const std::vector<graph::StepGraph> forwards = session::try_build_earlier(earlier, own, cost).or_throw();
    const std::vector<int64_t> peaks = session::peak_bytes(earlier, forwards, own, cost.options().memory);
    for (size_t i = 0; i < forwards.size(); ++i) add(forwards[i], peaks[i], acts[i]);
  };
  if (earlier.empty()) return acts;
  for (const strategy::StepPlan& plan : step.earlier)
    add_under(graph::build(plan, table, cost, graph.world_size));
  add_under(graph);
  return acts;
}

OtherActs::Act OtherActs::planned_apart(Trunk& trunk, int64_t step,
                                        const std::vector<strategy::Sequence>& sequences) {
  const session::TrunkPlanning& planning = trunk.planning;
  const graph::Purpose purpose = planning.model.trained ? graph::Purpose::kTrain : graph::Purpose::kEvaluate;
  const session::BuiltStep built = session::build_step(planning.planner, planning.table, step, sequences,
                                                       {.purpose = purpose, .link_plans = &trunk.links});
  Act act;
  int64_t most = 0;
  for (const graph::RankMemory& memory : graph::predicted_memory(built.graph, planning.planner.cost()))
    most = std::max(most, memory.peak_bytes);
  add(built.graph, most + planning.beside_bytes, act);
  return act;
}

}  // namespace sluice::study
