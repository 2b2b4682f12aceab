// sluice plan: plans steps without running them, for a run or for a cluster that need not exist.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/interval.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/acts.h"
#include "cli/command.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/plan_serving.h"
#include "cli/planning.h"
#include "cli/slow_notice.h"
#include "cost/model_flops.h"
#include "cost/snapshot_cost.h"
#include "graph/memory.h"
#include "report/explain.h"
#include "report/plan_table.h"
#include "session/methods.h"
#include "session/planned_step.h"
#include "session/prompt_responses.h"
#include "session/sampling.h"
#include "strategy/readable.h"

namespace sluice::cli {

using base::text;

namespace {

constexpr int64_t kMostSteps = 10'000'000;  // drawing the batches before it takes a minute

struct PlanArguments {
  RunPlanningOptions run;
  session::PlanningOptions inputs;
  std::string calibration;                     // empty: the configuration's, or "analytic"
  std::optional<strategy::MethodName> method;  // none: the configuration's, or ours
  int64_t step = 0;
  int64_t batches = 0;  // 0: one plan; otherwise a JSON line each
  bool explain = false;
  std::filesystem::path out;
  bool json = false;
  ServingArguments serving;
};

Planning make_planning(const PlanArguments& arguments) {
  if (!arguments.run.config.empty()) {
    RunPlanningOptions run = arguments.run;
    run.calibration = arguments.calibration;
    run.method = arguments.method;
    const SlowNotice notice("choosing strategies to plan with");
    return planning_of_run(run);
  }
  session::PlanningOptions inputs = arguments.inputs;
  if (!arguments.calibration.empty()) inputs.calibration = arguments.calibration;
  if (arguments.method) inputs.method = *arguments.method;
  return planning_of(inputs);
}

// Plans batches as a run does, each with the graph that would run; its time is the simulation's.
class Steps {
 public:
  explicit Steps(Planning& planning)
      : planning_(planning),
        table_(model::parameter_table(planning.planner.cost().options().model,
                                      planning.planner.cost().program())),
        acts_(planning) {}

  session::BuiltStep next() {
    const auto [step, sequences] = next_batch();
    const SlowNotice notice(text("planning step ", step, " of ",
                                 base::human_count(std::ssize(sequences), "sequence", "sequences")));
    const auto start = std::chrono::steady_clock::now();
    session::BuiltStep built = session::try_build_step(planning_.planner, table_, step, sequences,
                                                       {.link_plans = &links_}, acts_.earlier())
                                   .or_throw(text("step ", step));
    built.plan.planning_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    if (!built.fallback.empty()) {
      base::log_warning(text("step ", step, ": planning failed (", built.fallback,
                             "); this is the plan that a run would fall back to"));
    }
    return built;
  }

  // A table of the acts of the newest step, by model; empty if the trained model is alone.
  std::string acts_text(const session::BuiltStep& built) { return acts_.text(built, answers_); }

 private:
  struct Batch {
    int64_t step = 0;
    std::vector<strategy::Sequence> sequences;
  };
  // The next batch of documents, or the next update on a rollout.
  Batch next_batch() {
    const corpus::Batch drawn = planning_.sampler.next();
    if (!planning_.rollout)
      return {drawn.step,
              session::sequences_of(drawn.samples, planning_.planner.cost().options().model.head())};
    const auto& [generation, load, updates, shares] = *planning_.rollout;
    const int64_t parts = std::min(updates, std::ssize(load));
    const base::Interval part = base::even_part(std::ssize(load), parts, drawn.step % parts);
    answers_.clear();
    for (int64_t i = part.begin; i < part.end; ++i) {
      const inference::RequestLengths& request = load[static_cast<size_t>(i)];
      session::PromptResponses& each = answers_.emplace_back(request.prompt);
      for (const int64_t length : request.output_lens) each.lengths.push_back(request.prompt + length);
    }
    return {drawn.step, shares ? session::best_response_sequences(planning_.planner, drawn.step, answers_)
                               : session::response_sequences(answers_, 1)};
  }

  Planning& planning_;
  model::ParameterTable table_;
  graph::LinkPlans links_;
  Acts acts_;
  std::vector<session::PromptResponses> answers_;  // in the newest step on a rollout
};

// The ranks that would generate the responses of a rollout, and the time beside its updates.
std::string rollout_text(const Planning& planning, int64_t update_ns) {
  const auto& [generation, load, updates, shares] = *planning.rollout;
  const cost::CostModel& cost = planning.planner.cost();
  int64_t tokens = 0, responses = 0;
  for (const inference::RequestLengths& request : load) {
    responses += std::ssize(request.output_lens);
    for (const int64_t length : request.output_lens) tokens += length;
  }
  const std::string what = text("rollout of ", base::human_count(responses, "response", "responses"), " to ",
                                base::human_count(std::ssize(load), "prompt", "prompts"), ", ",
                                base::human_count(tokens, "token", "tokens"), " in all");
  const std::vector<inference::GenerationLayout> layouts = inference::generation_layouts(
      cost, generation.schemes, load, generation.kv_cache_budget, generation.world_size);
  if (layouts.empty())
    return text(
        what, ": the calibration has no times of engine steps, so as few ranks as hold the model generate\n");
  std::vector<std::vector<std::string>> rows = {
      {"  layout", "pull", "generation", "engine steps", "preemptions"}};
  for (const inference::GenerationLayout& layout : layouts) {
    rows.push_back({"  " + readable(layout.strategy()), base::human_duration(layout.pull_ns),
                    base::human_duration(layout.generation_ns), base::human_count(layout.engine_steps),
                    base::human_count(layout.preemptions)});
  }
  std::string lines = text(what, "\n", base::table_text(rows, "lrrrr"));
  const int64_t all_ns = layouts.front().ns() + updates * update_ns;
  lines += text("colocated: ", base::human_duration(layouts.front().ns()), " + ",
                base::human_count(updates, "update", "updates"), " of ", base::human_duration(update_ns),
                " = ", base::human_duration(all_ns), "\n");
  // Some ranks generate while the others train on the previous rollout.
  int64_t best_ns = all_ns;
  int best_ranks = 0;
  for (int ranks = 1; ranks < generation.world_size; ranks *= 2) {
    const int left = generation.world_size - ranks;
    const std::vector<inference::GenerationLayout> apart = inference::generation_layouts(
        cost, generation.schemes_of(ranks), load, generation.kv_cache_budget, ranks);
    if (apart.empty()) continue;
    const int64_t ns = std::max(apart.front().ns(), updates * update_ns * generation.world_size / left);
    if (ns < best_ns) std::tie(best_ns, best_ranks) = std::pair(ns, ranks);
  }
  if (best_ranks == 0) return lines;
  return text(
      lines, "apart: at best ", base::human_duration(best_ns), ", ", best_ranks, " of ",
      generation.world_size,
      " ranks generating what the others train on a rollout later; not done, for the responses would be an "
      "older policy's\n");
}

// A line with the predicted peak of the device that needs the most memory.
std::string memory_line(const graph::StepGraph& graph, const Planning& planning) {
  int64_t most = 0;
  const cost::CostModel& cost = planning.planner.cost();
  for (const graph::RankMemory& memory : graph::predicted_memory(graph, cost))
    most = std::max(most, memory.peak_bytes);
  char gib[32];
  std::snprintf(gib, sizeof gib, "%.2f", static_cast<double>(most + planning.beside_bytes) / 0x1p30);
  return text("memory: ", gib, " GiB per device, on the fullest\n");
}

// A line with the model's share of the devices' peak FLOPs; empty if the peak is not known.
std::string mfu_line(const Planning& planning, const session::BuiltStep& built) {
  const cost::CostModel& cost = planning.planner.cost();
  const std::optional<double> share =
      cost::utilisation(cost::ModelFlops(cost.program(), cost.window()).of_plan(built.plan),
                        built.graph.makespan_ns, planning.peak_flops_per_ns);
  return share ? text("MFU: ", base::human_percent(*share), " of the data sheets' dense 16-bit FLOPs\n") : "";
}

void plan_one(Planning& planning, const PlanArguments& arguments) {
  Steps steps(planning);
  const session::BuiltStep built = steps.next();
  const strategy::StepPlan& plan = built.plan;
  if (!arguments.out.empty()) base::write_json(arguments.out, strategy::to_json(plan));
  if (arguments.json) {
    std::cout << base::json_text(strategy::to_json(plan)) << "\n";
  } else {
    std::cout << report::plan_table(plan, built.graph.makespan_ns) << "\n"
              << memory_line(built.graph, planning) << mfu_line(planning, built) << steps.acts_text(built);
    if (planning.snapshot_every) {
      const plan::Planner& planner = planning.planner;
      const cost::SnapshotCost snapshots = cost::snapshot_cost(planner.cost(), planner.options().world_size);
      std::cout << "snapshots: "
                << cost::describe_snapshots(snapshots, *planning.snapshot_every, built.graph.makespan_ns)
                << "\n";
    }
  }
  if (!arguments.explain) return;
  const std::string explanation = report::explanation_text(report::explain(plan, planning.planner));
  std::ostream& out = arguments.json ? std::cerr : std::cout << "\n";
  out << explanation;
  if (planning.rollout) out << "\n" << rollout_text(planning, built.graph.makespan_ns);
}

// Writes the lines of --batches, to a file or to standard output.
class LineWriter {
 public:
  explicit LineWriter(const std::filesystem::path& path) {
    if (!path.empty()) file_.emplace(path);
  }
  void write(const std::string& line) {
    if (file_) {
      file_->write(line + "\n");
    } else {
      std::cout << line << "\n";
    }
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<base::AtomicFile> file_;
};

void plan_several(Planning& planning, const PlanArguments& arguments) {
  LineWriter lines(arguments.out);
  base::Progress progress("planning", arguments.batches);
  int64_t planning_ns = 0;
  int64_t predicted_ns = 0;
  int64_t tokens = 0;
  Steps steps(planning);
  for (int64_t i = 0; i < arguments.batches; ++i) {
    const session::BuiltStep built = steps.next();
    const strategy::StepPlan& plan = built.plan;
    base::Json line = strategy::to_json(plan);
    line["planning_ns"] = plan.planning_ns;
    lines.write(base::json_text(line));
    planning_ns += plan.planning_ns;
    predicted_ns += built.graph.makespan_ns;
    tokens += plan.tokens();
    progress.advance(1);
  }
  progress.finish();
  lines.commit();
  if (arguments.out.empty()) return;
  const double seconds = static_cast<double>(predicted_ns) / 1e9;
  std::cout << text(
      arguments.batches, " steps, predicted ", base::human_duration(predicted_ns / arguments.batches),
      " each, ", base::human_count(static_cast<int64_t>(static_cast<double>(tokens) / seconds)),
      " tokens/s; planned in ", base::human_duration(planning_ns / arguments.batches), " each\n");
}

// Skips to a step. Far steps take up to a minute, so progress is shown.
void skip_to(int64_t step, session::PhasedSampler& sampler) {
  constexpr int64_t kFar = 100'000;
  if (step < kFar) return sampler.skip(step);
  base::Progress progress(text("drawing the batches before step ", step), step);
  for (int64_t left = step; left > 0;) {
    const int64_t part = std::min(left, kFar);
    sampler.skip(part);
    progress.advance(part);
    left -= part;
  }
}

void run(const PlanArguments& arguments) {
  if (arguments.serving.serving) {
    session::PlanningOptions inputs = arguments.inputs;
    if (!arguments.calibration.empty()) inputs.calibration = arguments.calibration;
    return plan_serving(inputs, arguments.serving, arguments.json);
  }
  Planning planning = make_planning(arguments);
  skip_to(arguments.step, planning.sampler);
  if (arguments.batches > 0) {
    plan_several(planning, arguments);
  } else {
    plan_one(planning, arguments);
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan", "Plan steps: strategy, pipelines, micro-batches; of a run, or for --gpus, --model, --lengths");
  auto arguments = std::make_shared<PlanArguments>();
  std::vector<CLI::Option*> inputs = add_planning_options(*command, arguments->inputs);
  inputs.push_back(add_strategies_option(*command, arguments->inputs, "Candidates"));
  add_run_options(*command, arguments->run,
                  "Ranks of the run; 0: all devices of the configured cluster, on \"local\" as many as its "
                  "strategies use",
                  inputs);
  command->add_option("--calibration", arguments->calibration,
                      "A calibration.json, a shipped fit or \"analytic\" (default: the configuration's; else "
                      "\"analytic\")");
  add_word_option(*command, "--method", arguments->method, session::parse_method,
                  "ours, paper or exact (default: the configuration's; else ours)");
  command->add_option("--step", arguments->step, "Number of the step, counted from 0")
      ->check(within(int64_t{0}, kMostSteps))
      ->capture_default_str();
  CLI::Option* batches =
      command
          ->add_option("--batches", arguments->batches,
                       "Plan this many successive batches, from --step on, and write a line of JSON for each")
          ->check(within(int64_t{1}, kMostSteps));
  command->add_flag("--explain", arguments->explain, "Say why: choice, last pipeline, next best, bound")
      ->excludes(batches);
  CLI::Option* out = add_output(*command, "--out", arguments->out, Output::kFile,
                                "Write plan.json, or the lines of --batches, here");
  command->add_flag("--json", arguments->json, "Print the content of plan.json instead of a table");
  add_serving_options(*command, arguments->serving, {command->get_option("--config"), batches, out});
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli
