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

// The act's name in the metrics and reports of runs.
std::string act_name(const session::OtherModel& model) {
  if (model.leaves_rows) return "teacher";
  return model.trained ? "critic" : "rewards";
}

void add(const graph::StepGraph& graph, const cost::CostModel& cost, int64_t beside_bytes,
         const std::vector<int64_t>& rows, OtherActs::Act& act) {
  const std::vector<graph::RankMemory> memory = graph::predicted_memory(graph, cost);
  int64_t most = 0;
  for (size_t rank = 0; rank < memory.size(); ++rank)
    most = std::max(most, memory[rank].peak_bytes + (rows.empty() ? 0 : rows[rank]));
  report::add({.time_ns = graph.makespan_ns,
               .predicted_ns = graph.makespan_ns,
               .peak_bytes = most + beside_bytes,
               .predicted_peak_bytes = most + beside_bytes},
              act.record);
  act.shares += report::time_shares(graph);
}

}  // namespace

OtherActs::OtherActs(const plan::Planner& trained, std::vector<session::OtherModel> models, int64_t beside_bytes) {
  for (session::OtherModel& model : models)
    trunks_.emplace_back(session::plan_beside(trained, std::move(model), beside_bytes));
}

std::vector<OtherActs::Act> OtherActs::of(const SystemStep& step,
                                          const std::vector<strategy::Sequence>& sequences,
                                          const graph::StepGraph& graph, const cost::CostModel& cost,
                                          const model::ParameterTable& table) {
  std::vector<Act> acts;
  for (Trunk& trunk : trunks_) {
    acts.push_back(trunk.planning.model.leaves_rows ? teacher(trunk, step, graph, cost, table)
                                                        : planned_apart(trunk, graph.step, sequences));
    acts.back().record.name = act_name(trunk.planning.model);
  }
  return acts;
}

OtherActs::Act OtherActs::teacher(Trunk& trunk, const SystemStep& step, const graph::StepGraph& graph,
                                  const cost::CostModel& cost, const model::ParameterTable& table) {
  const session::EarlierAct earlier = session::earlier_act(trunk.planning, trunk.links);
  Act act;
  const auto add_under = [&](const graph::StepGraph& own) {
    const graph::StepGraph forward = session::try_build_earlier(earlier, own, cost).or_throw();
    add(forward, earlier.cost, earlier.beside_bytes, session::left_bytes(earlier, own, cost.options().memory), act);
  };
  for (const strategy::StepPlan& plan : step.earlier)
    add_under(graph::build(plan, table, cost, graph.world_size));
  add_under(graph);
  return act;
}

OtherActs::Act OtherActs::planned_apart(Trunk& trunk, int64_t step,
                                        const std::vector<strategy::Sequence>& sequences) {
  const session::TrunkPlanning& planning = trunk.planning;
  const graph::Purpose purpose = planning.model.trained ? graph::Purpose::kTrain : graph::Purpose::kEvaluate;
  const session::BuiltStep built =
      session::build_step(planning.planner, planning.table, step, sequences,
                          {.purpose = purpose, .link_plans = &trunk.links});
  Act act;
  add(built.graph, planning.planner.cost(), planning.beside_bytes, {}, act);
  return act;
}

}  // namespace sluice::study
