#include "session/earlier_act.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "graph/memory.h"
#include "model/program.h"
#include "strategy/pipeline_micro_batch.h"

namespace sluice::session {
namespace {

// As layers::kDistilledCopies, less the logits that every head has; and layers::head_chunk_rows' least.
constexpr int64_t kCopiesBeside = 6, kLeastChunkRows = 64;

// Everything in a plan of the step's model alone is nothing of the other's.
strategy::StepPlan plan_of_other(strategy::StepPlan plan) {
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    pipeline.stage_layers = {};
    pipeline.pipeline.placement = nullptr;
    pipeline.pipeline.device.low_precision = nullptr;
  }
  return plan;
}

std::string cut_fault(const strategy::StepPlan& plan, const model::Shape& shape) {
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    const std::string fault = model::cut_fault(shape, scheme.tp, scheme.pp, scheme.ep);
    if (!fault.empty()) return base::text("the teacher under ", strategy::to_text(scheme), ": ", fault);
  }
  return "";
}

// Why the step has no room beside what the act leaves; empty: it has.
std::string room_fault(const EarlierAct& act, const graph::StepGraph& step, const cost::CostModel& cost) {
  const std::vector<graph::RankMemory> memory = graph::predicted_memory(step, cost);
  for (const strategy::PipelinePlan& plan : step.plan.pipelines) {
    const strategy::Pipeline& pipeline = plan.pipeline;
    const int64_t capacity = cost.on(pipeline).device_bytes();
    for (int lane = 0; lane < pipeline.scheme.cp && capacity > 0; ++lane) {
      const int64_t kept = kept_bytes(act, plan, lane, cost.options().memory);
      for (int t = 0; t < pipeline.scheme.tp; ++t) {
        const int rank = pipeline.rank_of(pipeline.scheme.pp - 1, lane, t);
        const int64_t needed = memory[static_cast<size_t>(rank)].peak_bytes + kept;
        if (needed <= capacity) continue;
        const auto bytes = [](int64_t value) { return base::human_bytes(static_cast<double>(value)); };
        return base::text("rank ", rank, " needs ", bytes(needed), ", ", bytes(kept),
                          " of them for the teacher's rows and output matrix, but a plan may use ",
                          bytes(capacity), " there: raise tp, or lower data.tokens_per_step");
      }
    }
  }
  return "";
}

}  // namespace

int64_t kept_bytes(const EarlierAct& act, const strategy::PipelinePlan& plan, int lane,
                   const cost::MemoryModel& memory) {
  int64_t tokens = 0, most = 0;
  const std::vector<std::vector<strategy::LanePart>> parts = strategy::lane_parts(plan);
  for (const strategy::LanePart& part : parts[static_cast<size_t>(lane)]) {
    tokens += part.tokens();
    most = std::max(most, part.tokens());
  }
  if (tokens == 0) return 0;
  const int64_t tp = plan.pipeline.scheme.tp;
  const model::Shape& shape = act.table.shape;
  const int64_t row_bytes = shape.hidden * memory.element_bytes;
  const int64_t entries = (shape.vocab + tp - 1) / tp;
  const int64_t chunk_bytes = std::max(
      memory.logits_chunk_bytes, kLeastChunkRows * entries * std::max<int64_t>(4, memory.element_bytes));
  // Rows of all TP ranks are gathered for the micro-batch at work.
  return (tokens + tp - 1) / tp * row_bytes + most * row_bytes + entries * row_bytes +
         kCopiesBeside * chunk_bytes;
}

base::Feasible<graph::StepGraph> try_build_earlier(const EarlierAct& act, const graph::StepGraph& step,
                                                   const cost::CostModel& cost) {
  const strategy::StepPlan plan = plan_of_other(step.plan);
  if (std::string fault = cut_fault(plan, act.table.shape); !fault.empty()) return base::Infeasible{fault};
  if (std::string fault = room_fault(act, step, cost); !fault.empty()) return base::Infeasible{fault};
  const graph::BuildOptions options{.purpose = graph::Purpose::kEvaluate, .link_plans = &act.link_plans};
  try {
    base::Feasible<graph::StepGraph> built =
        graph::try_build(plan, act.table, act.cost, step.world_size, options);
    if (!built) return base::Infeasible{base::text("the teacher: ", built.none().why)};
    return built;
  } catch (const base::InputError& error) {  // lanes that exchange heads, more than that model has
    return base::Infeasible{base::text("the teacher: ", error.what())};
  }
}

}  // namespace sluice::session
