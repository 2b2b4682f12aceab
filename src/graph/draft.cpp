#include "graph/draft.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"

namespace sluice::graph {

using base::Interval;
using base::text;
using cost::CellKind;

namespace {

// The work of the pieces on a pass's fullest lane.
cost::Work fullest_work(const strategy::PipelinePlan& plan, const strategy::Pass& pass, int64_t window) {
  const auto micro_batch_at = [&](int index) -> const strategy::PipelineMicroBatch& {
    return plan.micro_batches[static_cast<size_t>(index)];
  };
  const strategy::PipelineMicroBatch& micro_batch = micro_batch_at(*std::ranges::max_element(
      pass.micro_batches, {}, [&](int index) { return micro_batch_at(index).tokens(); }));
  if (micro_batch.lanes == 1) {
    cost::Work work;
    for (const strategy::MicroBatchSequence& sequence : micro_batch.sequences)
      work += cost::Work::of_lane(sequence.length_tokens, sequence, 1, window);
    return work;
  }
  int fullest = micro_batch.first_lane;
  while (micro_batch.tokens_on(fullest) < micro_batch.tokens()) ++fullest;
  std::vector<int64_t> lengths;
  for (const strategy::Piece& scheduled : micro_batch.pieces_on(fullest))
    lengths.push_back(scheduled.tokens());
  return cost::Work::of(lengths, window);
}

// The time at which each micro-batch's credit returns: the end of its last cell on any stage.
std::vector<int64_t> release_times(const schedule::PipelineSchedule& schedule, size_t micro_batches) {
  std::vector<int64_t> released(micro_batches, 0);
  for (const auto& stage : schedule.cells) {
    for (const auto& lane : stage) {
      for (const schedule::Cell& cell : lane) {
        int64_t& time = released[static_cast<size_t>(cell.micro_batch)];
        time = std::max(time, cell.end_ns);
      }
    }
  }
  return released;
}

// Replays admission at stage 0. If a micro-batch does not fit a lane, those that the
// schedule released first make room there. They keep holding their credit on their other
// lanes until a micro-batch waits for them there, too: only then is one ordered after them.
void find_admissions(const schedule::PipelineSchedule& schedule, PipelineDraft& draft) {
  const std::vector<schedule::TimedMicroBatch>& micro_batches = draft.load.micro_batches;
  const std::vector<int64_t> released = release_times(schedule, micro_batches.size());
  const auto tokens = [&](int micro_batch) {
    return micro_batches[static_cast<size_t>(micro_batch)].credit();
  };
  const auto later = [&](int a, int b) {
    return std::pair(released[static_cast<size_t>(a)], a) < std::pair(released[static_cast<size_t>(b)], b);
  };
  struct Lane {
    int64_t used_tokens = 0;
    std::vector<int> holding;  // ascending by release
  };
  std::vector<Lane> lanes(static_cast<size_t>(draft.load.lanes));
  for (int u = 0; u < static_cast<int>(micro_batches.size()); ++u) {
    std::vector<int>& after = draft.admitted_after.emplace_back();
    const int first = micro_batches[static_cast<size_t>(u)].first_lane;
    for (int l = first; l < first + micro_batches[static_cast<size_t>(u)].lanes; ++l) {
      Lane& lane = lanes[static_cast<size_t>(l)];
      auto next = lane.holding.begin();
      for (; lane.used_tokens + tokens(u) > draft.load.credit_tokens; ++next) {
        SLUICE_ASSERT(next != lane.holding.end(),
                      text("micro-batch ", u, " exceeds the credit of pipeline ", draft.pipeline));
        lane.used_tokens -= tokens(*next);
        if (std::find(after.begin(), after.end(), *next) == after.end()) after.push_back(*next);
      }
      lane.holding.erase(lane.holding.begin(), next);
      lane.used_tokens += tokens(u);
      lane.holding.insert(std::upper_bound(lane.holding.begin(), lane.holding.end(), u, later), u);
    }
  }
}

// The exposed time of the micro-batch's ring in a cell of that kind on a whole stage.
int64_t ring_ns(const schedule::TimedMicroBatch& micro_batch, CellKind kind, size_t stage) {
  if (micro_batch.lanes == 1 || micro_batch.forward_cp_exchange_ns.empty() ||
      kind == CellKind::kBackwardWeight)
    return 0;
  return kind == CellKind::kForward ? micro_batch.forward_cp_exchange_ns[stage]
                                    : micro_batch.backward_cp_exchange_ns[stage];
}

// The exposed time of gathers and gradient sums in a cell of that kind on a whole stage.
int64_t share_ns(const schedule::TimedMicroBatch& micro_batch, CellKind kind, size_t stage) {
  const auto of = [&](const std::vector<int64_t>& exposed) { return exposed.empty() ? 0 : exposed[stage]; };
  if (kind == CellKind::kForward) return of(micro_batch.forward_fsdp_ns);
  if (kind == CellKind::kBackwardInput) return of(micro_batch.backward_fsdp_ns);
  if (kind == CellKind::kBackwardWeight) return of(micro_batch.weight_fsdp_ns);
  return of(micro_batch.backward_fsdp_ns) + of(micro_batch.weight_fsdp_ns);
}

// Takes the schedule's order. A tied micro-batch's cell, listed on each of its lanes, becomes one cell.
void take_order(const schedule::PipelineSchedule& schedule, const Program& program, PipelineDraft& draft) {
  for (size_t s = 0; s < draft.stages.size(); ++s) {
    DraftStage& stage = draft.stages[s];
    stage.order.resize(schedule.cells[s].size());
    std::map<std::pair<int, CellKind>, int> tied;
    for (size_t lane = 0; lane < schedule.cells[s].size(); ++lane) {
      for (const schedule::Cell& cell : schedule.cells[s][lane]) {
        int index = static_cast<int>(stage.cells.size());
        const schedule::TimedMicroBatch& micro_batch =
            draft.load.micro_batches[static_cast<size_t>(cell.micro_batch)];
        if (micro_batch.lanes > 1) {
          index = tied.emplace(std::pair(cell.micro_batch, cell.kind), index).first->second;
        }
        stage.order[lane].push_back(index);
        if (index < static_cast<int>(stage.cells.size())) continue;
        stage.cells.push_back({cell.kind, cell.micro_batch, at_work(program, cell.kind, stage.run),
                               cell.end_ns - cell.start_ns, ring_ns(micro_batch, cell.kind, s),
                               share_ns(micro_batch, cell.kind, s)});
      }
    }
  }
}

void take_injection_order(PipelineDraft& draft) {
  for (size_t s = 0; s < draft.stages.size(); ++s) {
    DraftStage& stage = draft.stages[s];
    stage.order.resize(static_cast<size_t>(draft.load.lanes));
    for (size_t u = 0; u < draft.load.micro_batches.size(); ++u) {
      const schedule::TimedMicroBatch& micro_batch = draft.load.micro_batches[u];
      for (int lane = 0; lane < micro_batch.lanes; ++lane) {
        stage.order[static_cast<size_t>(micro_batch.first_lane + lane)].push_back(static_cast<int>(u));
      }
      stage.cells.push_back({CellKind::kForward, static_cast<int>(u), stage.run, micro_batch.forward_ns[s],
                             ring_ns(micro_batch, CellKind::kForward, s),
                             share_ns(micro_batch, CellKind::kForward, s)});
    }
  }
}

// Cuts one cell at the given parts, in execution order. Parts share the schedule's
// duration in proportion to their costs alone, so they add up to the nanosecond.
std::vector<DraftCell> cut(const DraftCell& cell, std::vector<Interval> parts, const PipelineDraft& draft,
                           const cost::CostModel& cost) {
  for (Interval& part : parts) part = base::intersect(part, cell.run);
  std::erase_if(parts, [](Interval part) { return part.empty(); });
  if (cell.kind != CellKind::kForward) std::ranges::reverse(parts);
  const cost::Work& work = draft.work[static_cast<size_t>(cell.pass)];
  std::vector<int64_t> until{0};
  for (const Interval part : parts) {
    const int64_t alone_ns = cost.cell_ns(draft.place().scheme, cell.kind, part, work);
    until.push_back(until.back() + std::max<int64_t>(1, alone_ns));
  }
  const auto share = [&](int64_t whole_ns, size_t i) {
    return static_cast<int64_t>(static_cast<__int128>(whole_ns) * until[i] / until.back());
  };
  const auto part_of = [&](int64_t whole_ns, size_t i) {
    return share(whole_ns, i + 1) - share(whole_ns, i);
  };
  std::vector<DraftCell> result;
  for (size_t i = 0; i < parts.size(); ++i) {
    result.push_back({cell.kind, cell.pass, parts[i], part_of(cell.duration_ns, i),
                      part_of(cell.cp_exchange_ns, i), part_of(cell.fsdp_ns, i)});
  }
  return result;
}

// Cuts cells at the given parts on every lane that has them. A first part
// takes its cell's place in `cells`; the others follow after all cells.
void cut_cells(const PipelineDraft& draft, DraftStage& stage, const std::vector<int>& cut_here,
               const std::vector<Interval>& parts, const cost::CostModel& cost) {
  std::vector<base::Interval> further(stage.cells.size());  // by cell, indices of its other parts
  for (const int index : cut_here) {
    const auto cell = static_cast<size_t>(index);
    const std::vector<DraftCell> own = cut(stage.cells[cell], parts, draft, cost);
    stage.cells[cell] = own.front();
    further[cell].begin = static_cast<int64_t>(stage.cells.size());
    stage.cells.insert(stage.cells.end(), own.begin() + 1, own.end());
    further[cell].end = static_cast<int64_t>(stage.cells.size());
  }
  for (std::vector<int>& lane : stage.order) {
    std::vector<int> order;
    for (const int index : lane) {
      order.push_back(index);
      const base::Interval others = further[static_cast<size_t>(index)];
      for (int64_t part = others.begin; part < others.end; ++part) order.push_back(static_cast<int>(part));
    }
    lane = std::move(order);
  }
}

// By lane, the begin of its tail: weight gradients after everything else and after
// every tied cell, because lanes must meet at tied cells in the order of the schedule.
std::vector<size_t> find_tails(const PipelineDraft& draft, const DraftStage& stage) {
  std::vector<size_t> begin;
  for (const std::vector<int>& order : stage.order) {
    size_t at = order.size();
    while (at > 0) {
      const DraftCell& cell = stage.cells[static_cast<size_t>(order[at - 1])];
      const bool tied = draft.load.micro_batches[static_cast<size_t>(cell.pass)].lanes > 1;
      if (tied || cell.kind != CellKind::kBackwardWeight) break;
      --at;
    }
    begin.push_back(at);
  }
  return begin;
}

// If activations are offloaded layer by layer, cells are single layers, so that copies can depend on them.
void split_offloaded_cells(PipelineDraft& draft, const Program& program, const cost::CostModel& cost) {
  for (DraftStage& stage : draft.stages) {
    std::vector<Interval> parts;
    const Interval blocks = program.blocks_in(program.walked_back(stage.run));
    for (int64_t block = blocks.begin; block < blocks.end; ++block) parts.push_back({block, block + 1});
    if (parts.size() <= cost::kLayersThatStay) continue;
    parts.front().begin = stage.run.begin;
    parts.back().end = stage.run.end;
    std::vector<int> cells;
    for (size_t cell = 0; cell < stage.cells.size(); ++cell) {
      const strategy::Pass& pass = draft.passes[static_cast<size_t>(stage.cells[cell].pass)];
      if (pass.memory.offload_permille > 0) cells.push_back(static_cast<int>(cell));
    }
    if (!cells.empty()) cut_cells(draft, stage, cells, parts, cost);
  }
}

}  // namespace

std::vector<PipelineDraft> draft(const strategy::StepPlan& plan, const Program& program,
                                 const cost::CostModel& cost, int world_size, Purpose purpose) {
  std::vector<PipelineDraft> drafts;
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    if (plan.pipelines[p].micro_batches.empty()) continue;
    PipelineDraft draft{.pipeline = static_cast<int>(p),
                        .plan = &plan.pipelines[p],
                        .passes = strategy::passes(plan.pipelines[p]),
                        .work = {},
                        .load = schedule::pipeline_load(plan.pipelines[p], cost, world_size),
                        .admitted_after = {},
                        .stages = {}};
    for (const strategy::Pass& pass : draft.passes)
      draft.work.push_back(fullest_work(*draft.plan, pass, cost.window()));
    for (int stage = 0; stage < draft.load.stages; ++stage) {
      draft.stages.push_back({cost.stage_run(draft.plan->pipeline.scheme, stage), {}, {}});
    }
    if (purpose == Purpose::kTrain) {
      const schedule::PipelineSchedule schedule = schedule::schedule_pipeline(draft.load);
      take_order(schedule, program, draft);
      find_admissions(schedule, draft);
      split_offloaded_cells(draft, program, cost);
    } else {
      take_injection_order(draft);
    }
    drafts.push_back(std::move(draft));
  }
  return drafts;
}

void split_outer_cells(PipelineDraft& draft, const cost::CostModel& cost,
                       const std::vector<int>& pull_rounds) {
  for (DraftStage& stage : draft.stages) {
    std::vector<int> outer;
    for (const std::vector<int>& lane : stage.order) {
      if (lane.empty()) continue;
      outer.push_back(lane.front());
      const CellKind last = stage.cells[static_cast<size_t>(lane.back())].kind;
      const bool stays = draft.place().scheme.fsdp > 1 && last == CellKind::kBackwardWeight;
      if (last == CellKind::kBackward || stays) outer.push_back(lane.back());
    }
    std::ranges::sort(outer);
    outer.erase(std::unique(outer.begin(), outer.end()), outer.end());
    const std::vector<Interval> parts = parts_by_round(stage.run, pull_rounds);
    cut_cells(draft, stage, outer, parts, cost);
  }
}

void reorder_tail_weights(PipelineDraft& draft, const cost::CostModel& cost,
                          const std::vector<int>& pull_rounds) {
  for (DraftStage& stage : draft.stages) {
    const std::vector<Interval> parts = parts_by_round(stage.run, pull_rounds);
    const std::vector<size_t> tails = find_tails(draft, stage);
    std::vector<int> cells;
    for (size_t lane = 0; lane < stage.order.size(); ++lane) {
      cells.insert(cells.end(), stage.order[lane].begin() + static_cast<ptrdiff_t>(tails[lane]),
                   stage.order[lane].end());
    }
    std::ranges::sort(cells);
    cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
    cut_cells(draft, stage, cells, parts, cost);
    for (size_t lane = 0; lane < stage.order.size(); ++lane) {
      std::sort(stage.order[lane].begin() + static_cast<ptrdiff_t>(tails[lane]), stage.order[lane].end(),
                [&](int a, int b) {
                  const DraftCell& x = stage.cells[static_cast<size_t>(a)];
                  const DraftCell& y = stage.cells[static_cast<size_t>(b)];
                  return std::tuple(-x.run.begin, x.pass) < std::tuple(-y.run.begin, y.pass);
                });
    }
  }
}

}  // namespace sluice::graph
