#include "graph/build.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_time.h"
#include "cost/cut_stages.h"
#include "cost/exchange.h"
#include "graph/clock.h"
#include "graph/lower.h"
#include "graph/memory.h"
#include "graph/verifier.h"

namespace sluice::graph {

namespace {

const std::vector<std::string> kOptionalPasses = {"layer-parts", "tail-weights", "verify"};

// Runs passes by name: leaves out the disabled ones, times the others.
class GraphPasses {
 public:
  GraphPasses(const std::set<std::string>& disabled, std::vector<PassTime>* times)
      : disabled_(disabled), times_(times) {
    for (const std::string& name : disabled) {
      if (std::ranges::find(kOptionalPasses, name) != kOptionalPasses.end()) continue;
      throw base::InputError(base::text("there is no optional graph pass '", name, "': there are ",
                                        base::join(kOptionalPasses, ", ")));
    }
  }

  template <typename Action>
  void run(const std::string& name, Action action) {
    if (disabled_.contains(name)) return;
    const int64_t begin_ns = base::thread_time_ns();
    action();
    if (times_ != nullptr) times_->push_back({name, base::thread_time_ns() - begin_ns});
  }

 private:
  const std::set<std::string>& disabled_;
  std::vector<PassTime>* times_;
};

// InputError if the plan, made for other times, cuts the model elsewhere.
void refuse_other_stages(const strategy::StepPlan& plan, const cost::CostModel& cost) {
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    if (pipeline.stage_layers.empty()) continue;
    const std::vector<int64_t> layers = cost::stage_layers(cost, pipeline.pipeline.scheme);
    if (pipeline.stage_layers == layers) continue;
    throw base::InputError(base::text("the plan's stages of ", to_text(pipeline.pipeline.scheme), " have ",
                                      strategy::stages_text(pipeline.stage_layers),
                                      " layers, but by the times ", strategy::stages_text(layers),
                                      ": plan again with this calibration"));
  }
}

}  // namespace

base::Feasible<StepGraph> try_build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                                    const cost::CostModel& cost, int world_size, const BuildOptions& options,
                                    std::vector<PassTime>* times) {
  GraphPasses passes(options.disabled_passes, times);
  if (const std::string fault = cost::exchange_fault(table.model, plan); !fault.empty())
    throw base::InputError(fault);
  const Program& program = table.program;
  SLUICE_ASSERT(program.cuts_as(cost.program()), "the parameters' stages are not those of the times");
  refuse_other_stages(plan, cost);
  std::shared_ptr<const LinkPlan> links;
  std::vector<int> rounds;
  std::vector<PipelineDraft> drafts;
  StepGraph graph;
  passes.run("link", [&] {
    const LinkMachine machine{world_size, cost.options().topology, cost.options().newton_schulz_steps > 0};
    const strategy::Strategy active = active_strategy(plan);
    links = options.link_plans ? options.link_plans->of(table, active, machine)
                               : std::make_shared<const LinkPlan>(link_plan(table, active, machine));
    rounds = pull_rounds(program, links->rounds);
  });
  passes.run("order", [&] { drafts = draft(plan, program, cost, world_size, options.purpose); });
  passes.run("layer-parts", [&] {
    for (PipelineDraft& draft : drafts) split_outer_cells(draft, cost, rounds);
  });
  passes.run("tail-weights", [&] {
    for (PipelineDraft& draft : drafts) reorder_tail_weights(draft, cost, rounds);
  });
  passes.run("lower", [&] { graph = lower(plan, drafts, program, links, cost, options.purpose); });
  passes.run("clock", [&] { run_clock(graph); });
  std::string no_room;
  passes.run("verify", [&] {
    require_proved(graph, table, cost);
    no_room = memory_fault(graph, cost);
  });
  if (!no_room.empty()) return base::Infeasible{std::move(no_room)};
  return graph;
}

StepGraph build(const strategy::StepPlan& plan, const model::ParameterTable& table,
                const cost::CostModel& cost, int world_size, const BuildOptions& options,
                std::vector<PassTime>* times) {
  return try_build(plan, table, cost, world_size, options, times).or_throw();
}

}  // namespace sluice::graph
