#include "session/earlier_act.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "graph/memory.h"
#include "model/head_chunk_rows.h"
#include "model/program.h"
#include "strategy/pipeline_micro_batch.h"

namespace sluice::session {
namespace {

// Removes the parts of a plan that hold for the step's own model alone.
strategy::StepPlan plan_of_other(strategy::StepPlan plan) {
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    pipeline.stage_layers = {};
    pipeline.pipeline.placement = nullptr;
    pipeline.pipeline.device.low_precision = nullptr;
  }
  return plan;
}

std::string cut_fault(const strategy::StepPlan& plan, const model::Model& model) {
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    const std::string fault = model::cut_fault(model, scheme.tp, scheme.pp, scheme.ep);
    if (!fault.empty()) return base::text("the teacher under ", strategy::to_text(scheme), ": ", fault);
  }
  return "";
}

// The rows of a step on a rank of a last stage.
struct LaneRows {
  int64_t all = 0;
  int64_t most = 0;                     // in one micro-batch
  std::vector<int64_t> with_loss = {};  // upper bound, by micro-batch
};

// At most this many rows of a lane part have a loss: not more than the sequence's, nor than its tokens there.
int64_t loss_rows(const strategy::StepPlan& plan, const strategy::LanePart& part) {
  int64_t rows = 0;
  for (const strategy::Piece& piece : part.pieces) {
    const strategy::Sequence& sequence = plan.sequences[static_cast<size_t>(piece.sequence)];
    rows += std::min(piece.tokens(), sequence.loss_tokens.value_or(piece.tokens()));
  }
  return rows;
}

// A divergence's bytes for a chunk's logits beyond a target loss's, which the step's proof counts
// (cost::MemoryCost::head_working_bytes). Both cut rows into chunks of as many bytes, of a few rows at least.
int64_t divergence_bytes(int64_t rows, int64_t entries, const cost::MemoryModel& memory, EarlierActs acts) {
  const int64_t wide = std::max<int64_t>(4, memory.element_bytes);
  const int64_t counted = wide + (memory.element_bytes < wide ? memory.element_bytes : 0);
  const int64_t copies = model::distilled_logit_copies(acts.front().divergence, acts.size());
  const auto rows_at_once = [&](int64_t row_bytes) {
    return std::min(rows, std::max(model::kLeastHeadChunkRows, memory.logits_chunk_bytes / row_bytes));
  };
  const int64_t summed = std::min(rows, model::kDivergenceSumRows) * entries * int64_t{sizeof(double)};
  return std::max<int64_t>(0, rows_at_once(entries * wide * copies) * entries * wide * copies + summed -
                                  rows_at_once(entries * counted) * entries * counted);
}

int64_t row_bytes(const EarlierAct& act, const cost::MemoryModel& memory) {
  return act.table.model.hidden() * memory.element_bytes;
}

// `bytes(rows, tp)` by rank, for its lane's rows and TP degree; 0 for ranks without a last stage.
template <typename Bytes>
std::vector<int64_t> bytes_of_ranks(const graph::StepGraph& step, const Bytes& bytes) {
  std::vector<int64_t> of_ranks(static_cast<size_t>(step.world_size), 0);
  for (const strategy::PipelinePlan& plan : step.plan.pipelines) {
    const strategy::Scheme& scheme = plan.pipeline.scheme;
    const std::vector<std::vector<strategy::LanePart>> parts = strategy::lane_parts(plan);
    for (int lane = 0; lane < scheme.cp; ++lane) {
      LaneRows rows;
      for (const strategy::LanePart& part : parts[static_cast<size_t>(lane)]) {
        rows.all += part.tokens();
        rows.most = std::max(rows.most, part.tokens());
        rows.with_loss.push_back(loss_rows(step.plan, part));
      }
      for (int t = 0; t < scheme.tp && rows.all > 0; ++t)
        of_ranks[static_cast<size_t>(plan.pipeline.rank_of(scheme.pp - 1, lane, t))] = bytes(rows, scheme.tp);
    }
  }
  return of_ranks;
}

// The reason why a graph has no room beside the acts' bytes on its ranks; empty: it has room.
std::string room_fault(const graph::StepGraph& graph, const cost::CostModel& cost,
                       const std::vector<int64_t>& left, const std::string& what) {
  const std::vector<graph::RankMemory> memory = graph::predicted_memory(graph, cost);
  for (const strategy::PipelinePlan& plan : graph.plan.pipelines) {
    const strategy::Pipeline& pipeline = plan.pipeline;
    const int64_t capacity = cost.on(pipeline).device_bytes();
    for (int each = 0; each < pipeline.scheme.cp * pipeline.scheme.tp && capacity > 0; ++each) {
      const int rank =
          pipeline.rank_of(pipeline.scheme.pp - 1, each / pipeline.scheme.tp, each % pipeline.scheme.tp);
      const int64_t own = left[static_cast<size_t>(rank)];
      const int64_t needed = memory[static_cast<size_t>(rank)].peak_bytes + own;
      if (needed <= capacity) continue;
      const auto bytes = [](int64_t value) { return base::human_bytes(static_cast<double>(value)); };
      return base::text("rank ", rank, " needs ", bytes(needed), ", ", bytes(own), " of them for ", what,
                        ", but a plan may use ", bytes(capacity),
                        " there: raise tp, or lower data.tokens_per_step");
    }
  }
  return "";
}

}  // namespace

EarlierAct earlier_act(const TrunkPlanning& planning, graph::LinkPlans& link_plans) {
  return {.table = planning.table,
          .cost = planning.planner.cost(),
          .link_plans = link_plans,
          .beside_bytes = planning.beside_bytes,
          .divergence = planning.model.divergence};
}

std::vector<int64_t> left_bytes(EarlierActs acts, const graph::StepGraph& step,
                                const cost::MemoryModel& memory) {
  return bytes_of_ranks(step, [&](const LaneRows& rows, int64_t tp) {
    int64_t bytes = 0;
    for (const EarlierAct& act : acts)
      bytes += ((rows.all + tp - 1) / tp + (act.table.model.vocab() + tp - 1) / tp) * row_bytes(act, memory);
    return bytes;
  });
}

std::vector<int64_t> kept_bytes(EarlierActs acts, const graph::StepGraph& step,
                                const cost::MemoryModel& memory) {
  const std::vector<int64_t> left = left_bytes(acts, step, memory);
  std::vector<int64_t> kept = bytes_of_ranks(step, [&](const LaneRows& rows, int64_t tp) {
    // All models have the run's vocabulary.
    const int64_t entries = (acts.front().table.model.vocab() + tp - 1) / tp;
    int64_t beside_bytes = 0;
    for (const int64_t own : rows.with_loss)
      beside_bytes = std::max(beside_bytes, divergence_bytes(own, entries, memory, acts));
    // The rows of all TP ranks are gathered for the running micro-batch.
    for (const EarlierAct& act : acts) beside_bytes += rows.most * row_bytes(act, memory);
    return beside_bytes;
  });
  for (size_t rank = 0; rank < kept.size(); ++rank) kept[rank] += left[rank];
  return kept;
}

std::vector<int64_t> peak_bytes(EarlierActs acts, std::span<const graph::StepGraph> graphs,
                                const graph::StepGraph& step, const cost::MemoryModel& memory) {
  std::vector<int64_t> peaks;
  for (size_t i = 0; i < graphs.size(); ++i) {
    const std::vector<int64_t> left = left_bytes(acts.first(i + 1), step, memory);
    const std::vector<graph::RankMemory> own = graph::predicted_memory(graphs[i], acts[i].cost);
    int64_t most = 0;
    for (size_t rank = 0; rank < own.size(); ++rank) most = std::max(most, own[rank].peak_bytes + left[rank]);
    peaks.push_back(most + acts[i].beside_bytes);
  }
  return peaks;
}

namespace {

// The last act's graph.
base::Feasible<graph::StepGraph> try_build_last(EarlierActs acts, const strategy::StepPlan& plan,
                                                const graph::StepGraph& step,
                                                const cost::MemoryModel& memory) {
  const EarlierAct& act = acts.back();
  if (std::string fault = cut_fault(plan, act.table.model); !fault.empty()) return base::Infeasible{fault};
  const graph::BuildOptions options{.purpose = graph::Purpose::kEvaluate, .link_plans = &act.link_plans};
  try {
    base::Feasible<graph::StepGraph> built =
        graph::try_build(plan, act.table, act.cost, step.world_size, options);
    if (!built) return base::Infeasible{base::text("the teacher: ", built.none().why)};
    const char* const what =
        acts.size() > 1 ? "the rows that it and the teachers before it leave" : "the rows that it leaves";
    if (std::string fault = room_fault(*built, act.cost, left_bytes(acts, step, memory), what);
        !fault.empty())
      return base::Infeasible{base::text("the teacher: ", fault)};
    return built;
  } catch (const base::InputError& error) {  // more lanes exchange heads than that model has
    return base::Infeasible{base::text("the teacher: ", error.what())};
  }
}

}  // namespace

base::Feasible<std::vector<graph::StepGraph>> try_build_earlier(EarlierActs acts,
                                                                const graph::StepGraph& step,
                                                                const cost::CostModel& cost) {
  std::vector<graph::StepGraph> graphs;
  if (acts.empty()) return graphs;
  const cost::MemoryModel& memory = cost.options().memory;
  const char* const what =
      acts.size() > 1 ? "the teachers' rows and output matrices" : "the teacher's rows and output matrix";
  if (std::string fault = room_fault(step, cost, kept_bytes(acts, step, memory), what); !fault.empty())
    return base::Infeasible{fault};
  const strategy::StepPlan plan = plan_of_other(step.plan);
  for (size_t i = 0; i < acts.size(); ++i) {
    base::Feasible<graph::StepGraph> built = try_build_last(acts.first(i + 1), plan, step, memory);
    if (!built) return built.none();
    graphs.push_back(std::move(*built));
  }
  return graphs;
}

}  // namespace sluice::session
