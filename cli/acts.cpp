#include "cli/acts.h"

#include <algorithm>

#include "base/text.h"
#include "graph/memory.h"

namespace sluice::cli {
namespace {

int64_t fullest_bytes(const graph::StepGraph& graph, const cost::CostModel& cost,
                      const std::vector<int64_t>& more = {}) {
  int64_t most = 0;
  const std::vector<graph::RankMemory> memory = graph::predicted_memory(graph, cost);
  for (size_t rank = 0; rank < memory.size(); ++rank)
    most = std::max(most, memory[rank].peak_bytes + (more.empty() ? 0 : more[rank]));
  return most;
}

std::string named(const session::OtherModel& model) {
  return model.folder.empty() ? model.key : base::text(model.key, " ", model.folder.string());
}

}  // namespace

Acts::Acts(const Planning& planning) : planning_(planning) {
  for (const session::TrunkPlanning& trunk : planning.others) {
    if (trunk.model.leaves_rows)
      earlier_.push_back(session::earlier_act(trunk, teacher_links_.emplace_back()));
  }
}

Acts::Line Acts::line_of(const session::TrunkPlanning& trunk, const strategy::StepPlan& update,
                         const std::vector<session::PromptResponses>& answers) {
  graph::LinkPlans links;
  // The reference reads what the update reads; other models may not share prompts.
  const std::vector<strategy::Sequence> sequences =
      trunk.model.act == "reference" ? update.sequences : session::response_sequences(answers, 1);
  const graph::Purpose purpose = trunk.model.trained ? graph::Purpose::kTrain : graph::Purpose::kEvaluate;
  const session::BuiltStep built = session::try_build_step(trunk.planner, trunk.table, update.step, sequences,
                                                           {.purpose = purpose, .link_plans = &links})
                                       .or_throw(named(trunk.model));
  return {named(trunk.model), built.graph.makespan_ns,
          fullest_bytes(built.graph, trunk.planner.cost()) + trunk.beside_bytes};
}

std::string Acts::text(const session::BuiltStep& built,
                       const std::vector<session::PromptResponses>& answers) {
  if (planning_.others.empty()) return "";
  const cost::CostModel& cost = planning_.planner.cost();
  const cost::MemoryModel& memory = cost.options().memory;
  std::vector<Line> lines;
  std::vector<int64_t> kept;
  if (!earlier_.empty()) kept = session::kept_bytes(earlier_, built.graph, memory);
  const std::vector<int64_t> peaks = session::peak_bytes(earlier_, built.earlier, built.graph, memory);
  size_t teacher = 0;
  for (const session::TrunkPlanning& trunk : planning_.others) {
    if (trunk.model.leaves_rows) {
      lines.push_back({named(trunk.model), built.earlier[teacher].makespan_ns, peaks[teacher]});
      ++teacher;
    } else {
      lines.push_back(line_of(trunk, built.plan, answers));
    }
  }
  lines.push_back({"update of the trained model", built.graph.makespan_ns,
                   fullest_bytes(built.graph, cost, kept) + planning_.beside_bytes});
  int64_t all_ns = 0;
  for (const Line& line : lines) all_ns += line.ns;
  std::vector<std::vector<std::string>> rows = {{"act", "time", "memory, fullest"}};
  for (const Line& line : lines)
    rows.push_back(
        {line.name, base::human_duration(line.ns), base::human_bytes(static_cast<double>(line.bytes))});
  rows.push_back({"all, one behind the other", base::human_duration(all_ns), ""});
  return base::table_text(rows, "lrr");
}

}  // namespace sluice::cli
