#include "study/comparison.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "cost/measured_passes.h"
#include "report/run_summary.h"
#include "strategy/device_peaks.h"
#include "strategy/readable.h"
#include "study/least_work.h"
#include "study/rival_traits.h"
#include "study/simulation.h"
#include "study/system_kinds.h"

namespace sluice::study {

using base::Json;
using base::text;

namespace {

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// A system that records whether any of its steps gathers parameters between nodes.
class Watched : public System {
 public:
  Watched(std::unique_ptr<System> system, strategy::Topology topology)
      : system_(std::move(system)), topology_(std::move(topology)) {}
  std::string configuration() const override { return system_->configuration(); }
  const cost::CostModel& cost() const override { return system_->cost(); }
  SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    SystemStep step = system_->step(number, sequences);
    gathers_ = gathers_ || gathers_between_nodes(step.plan, topology_);
    return step;
  }
  std::vector<report::ExplainedCompression> wire(const SystemStep& step) const override {
    return system_->wire(step);
  }
  bool gathers_between_nodes_ever() const { return gathers_; }

 private:
  std::unique_ptr<System> system_;
  strategy::Topology topology_;
  bool gathers_ = false;
};

std::optional<double> peak_of(const Scenario& scenario) {
  return strategy::peak_flops_per_ns(scenario.inputs.cluster, scenario.inputs.world_size);
}

// The system's steps under the second overlap.
report::SystemRun measured_run(const Scenario& scenario, const SystemKind& kind) {
  SystemInputs inputs = scenario.inputs;
  inputs.cost = cost::with_measured_passes(inputs.cost);
  const std::unique_ptr<System> system = kind.make(inputs);
  report::SystemRun run = simulate(*system, scenario.batches, scenario.table,
                                   {.world_size = inputs.world_size,
                                   .peak_flops_per_ns = peak_of(scenario),
                                   .others = scenario.others.get()})
                              .run;
  run.configuration = system->configuration();
  return run;
}

SystemResult run_system(const Scenario& scenario, const std::string& name, const ComparisonOptions& options) {
  const SystemKind& kind = system_kind(name);
  options.before_system(kind.title);
  SystemResult result;
  result.run.name = kind.name;
  result.run.title = kind.title;
  try {
    Watched system(kind.make(scenario.inputs), scenario.inputs.cost.options().topology);
    result.run.configuration = system.configuration();
    Simulation simulation = simulate(system, scenario.batches, scenario.table,
                                     {.world_size = scenario.inputs.world_size,
                                      .timeline_steps = options.timeline_steps,
                                      .after_step = options.after_step,
                                      .explains_wire = options.explains_wire,
                                      .peak_flops_per_ns = peak_of(scenario),
                                     .others = scenario.others.get()});
    result.run.steps = std::move(simulation.run.steps);
    result.timelines = std::move(simulation.timelines);
    result.wire = std::move(simulation.wire);
    if (system.gathers_between_nodes_ever()) result.measured = measured_run(scenario, kind);
    for (report::Timeline& timeline : result.timelines) {
      timeline.system = kind.name;
      timeline.title = text(kind.title, ", ", timeline.title);
    }
  } catch (const base::InfeasibleError& error) {
    result.run.infeasible = error.what();
  }
  return result;
}

Json to_json(const report::TimeShares& shares) {
  return {{"compute", shares.compute_ns}, {"cp_exchange", shares.cp_exchange_ns},
          {"fsdp", shares.fsdp_ns},       {"pull_push", shares.pull_push_ns},
          {"update", shares.update_ns},   {"bubble", shares.bubble_ns},
          {"idle", shares.idle_ns},       {"strategy_switch", shares.strategy_switch_ns}};
}

// A mean step under the second overlap.
int64_t measured_ns(const SystemResult& result) {
  return report::summary_of(result.measured.steps.empty() ? result.run : result.measured).mean_step_ns;
}

Json system_json(const SystemResult& result) {
  if (!result.run.infeasible.empty()) {
    return {{"title", result.run.title},
            {"configuration", result.run.configuration},
            {"infeasible", result.run.infeasible}};
  }
  const report::SystemSummary summary = report::summary_of(result.run);
  Json json = {{"title", result.run.title},
               {"configuration", result.run.configuration},
               {"mean_step_ns", summary.mean_step_ns},
               {"mean_step_ns_measured_gathers", measured_ns(result)},
               {"std_step_ns", summary.std_step_ns},
               {"tokens_per_s", std::llround(summary.tokens_per_s)},
               {"mfu", summary.mfu ? Json(*summary.mfu) : Json()},
               {"peak_bytes", summary.peak_bytes},
               {"rank_time_ns", to_json(summary.shares)}};
  for (const report::ActSum& act : report::act_sums(result.run)) {
    json["acts"].push_back({{"name", act.name},
                            {"mean_ns", act.sum.time_ns / act.steps},
                            {"peak_bytes", act.sum.peak_bytes}});
  }
  for (const report::ExplainedCompression& each : result.wire)
    json["compressed_communication"].push_back({{"setting", each.setting}, {"step_ns", each.step_ns}});
  return json;
}

Json metrics_json(const std::string& system, const report::StepRecord& step) {
  const double seconds = static_cast<double>(step.time_ns) / 1e9;
  Json json = {{"step", step.step},
          {"system", system},
          {"tokens", step.tokens},
          {"sequences", step.sequences},
          {"strategy", step.strategy},
          {"fallback", step.fallback.empty() ? Json() : Json(step.fallback)},
          {"time_ms", milliseconds(step.time_ns)},
          {"lower_bound_ms", milliseconds(step.lower_bound_ns)},
          {"gap_ppm", step.gap_ppm},
          {"peak_bytes", step.peak_bytes},
          {"tokens_per_s", static_cast<double>(step.tokens) / seconds},
          {"mfu", step.mfu ? Json(*step.mfu) : Json()},
          {"rank_time_ns", to_json(step.shares)}};
  if (!step.acts.empty()) json["acts"] = report::acts_json(step.acts);
  return json;
}

std::vector<std::string> table_row(const SystemResult& result, const SystemResult& first, int64_t work_ns) {
  const report::SystemSummary summary = report::summary_of(result.run);
  const report::TimeShares& shares = summary.shares;
  const int64_t all_ns = std::max<int64_t>(shares.total_ns(), 1);
  const auto share = [&](int64_t ns) {
    return fixed(100.0 * static_cast<double>(ns) / static_cast<double>(all_ns), 1);
  };
  const auto times = [](int64_t ns, int64_t of_ns) {
    return text(fixed(static_cast<double>(ns) / static_cast<double>(std::max<int64_t>(of_ns, 1)), 2), "x");
  };
  return {result.run.title,
          base::human_duration(summary.mean_step_ns),
          text("± ", base::human_duration(summary.std_step_ns)),
          base::human_count(std::llround(summary.tokens_per_s)),
          summary.mfu ? base::human_percent(*summary.mfu) : "-",
          times(summary.mean_step_ns, report::summary_of(first.run).mean_step_ns),
          times(measured_ns(result), measured_ns(first)),
          times(summary.mean_step_ns, work_ns),
          share(shares.compute_ns),
          share(shares.cp_exchange_ns + shares.fsdp_ns),
          share(shares.bubble_ns),
          share(shares.pull_push_ns + shares.strategy_switch_ns),
          share(shares.idle_ns + shares.update_ns),
          fixed(static_cast<double>(summary.peak_bytes) / 0x1p30, 1)};
}

// The mean lower bound for all plans.
int64_t mean_work_ns(const Scenario& scenario) {
  const std::span models(&scenario.inputs.cost, 1);
  int64_t total_ns = 0;
  for (const corpus::Batch& batch : scenario.batches) {
    std::vector<int64_t> lengths;
    for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
    total_ns += least_work_ns(lengths, models, scenario.inputs.world_size);
  }
  return total_ns / static_cast<int64_t>(std::max<size_t>(scenario.batches.size(), 1));
}

// The fastest of the other systems by this time, compared with the first.
std::string fastest_other(const std::vector<SystemResult>& results, int64_t (*time_ns)(const SystemResult&)) {
  const SystemResult* fastest = nullptr;
  for (size_t i = 1; i < results.size(); ++i) {
    if (results[i].run.steps.empty()) continue;
    if (fastest == nullptr || time_ns(results[i]) < time_ns(*fastest)) fastest = &results[i];
  }
  if (fastest == nullptr) return "";
  const double ratio = static_cast<double>(time_ns(*fastest)) /
                       static_cast<double>(std::max<int64_t>(time_ns(results.front()), 1));
  return text(fixed(ratio, 2), "x (", fastest->run.title, ")");
}

constexpr const char* kColumns =
    "* vs Sluice if gathers between nodes cost what FlexSP measured. vs work bound: the step over what no "
    "plan takes "
    "less\nthan. GiB per device: of the fullest one.\n";

std::string verdict(const std::vector<SystemResult>& results) {
  const std::string kind = fastest_other(
      results, [](const SystemResult& result) { return report::summary_of(result.run).mean_step_ns; });
  if (kind.empty()) return "";
  return text("\nThe fastest other system takes ", kind,
              " of Sluice's time where gathers between nodes overlap as the clock predicts, and ",
              fastest_other(results, measured_ns), " where each costs what FlexSP measured.\n");
}

}  // namespace

std::vector<std::string> parse_systems(const std::string& value) {
  std::vector<std::string> names = {"sluice"};
  if (value == "all") {
    for (const SystemKind& kind : system_kinds()) names.push_back(kind.name);
  } else {
    for (const std::string& name : base::split(value, ',')) {
      if (!value.empty()) names.push_back(system_kind(std::string(base::trim(name))).name);
    }
  }
  std::vector<std::string> distinct;
  for (const std::string& name : names) {
    if (std::ranges::find(distinct, name) == distinct.end()) distinct.push_back(name);
  }
  return distinct;
}

std::vector<SystemResult> compare(const Scenario& scenario, const ComparisonOptions& options) {
  // Other systems know one kind of device, and so does their simulation.
  if (!scenario.inputs.devices.empty()) {
    for (const std::string& name : options.systems) {
      if (name == "sluice") continue;
      throw base::InputError(text("the cluster ", scenario.inputs.cluster.name,
                                  " has devices of several kinds, for which ", name,
                                  " does not plan: compare on one kind, or leave --compare out"));
    }
  }
  std::vector<SystemResult> results;
  for (const std::string& name : options.systems) {
    results.push_back(run_system(scenario, name, options));
    const SystemResult& first = results.front();
    if (!first.run.infeasible.empty()) throw base::InfeasibleError(first.run.infeasible);
  }
  return results;
}

Json simulation_json(const Scenario& scenario, const std::vector<SystemResult>& results) {
  Json systems = Json::object();
  for (const SystemResult& result : results) systems[result.run.name] = system_json(result);
  Json facts = Json::object();
  for (const auto& [name, value] : scenario.facts) facts[name] = value;
  return {{"schema", "sluice.simulation/1"},
          {"facts", facts},
          {"ranks", scenario.inputs.world_size},
          {"hardware", scenario.inputs.cluster.name},
          {"device_bytes", scenario.inputs.cost.options().memory.device_bytes},
          {"systems", systems},
          {"made_from", scenario.made_from},
          {"lengths", corpus::to_json(scenario.lengths).at("lengths")}};
}

std::string metrics_lines(const std::vector<SystemResult>& results) {
  std::string lines;
  for (const SystemResult& result : results) {
    for (const report::StepRecord& step : result.run.steps) {
      lines += base::json_text(metrics_json(result.run.name, step)) + "\n";
    }
  }
  return lines;
}

std::string comparison_table(const Scenario& scenario, const std::vector<SystemResult>& results) {
  const int64_t work_ns = mean_work_ns(scenario);
  std::vector<std::vector<std::string>> rows = {{"system", "step", "", "tokens/s", "MFU", "vs Sluice",
                                                 "vs Sluice*", "vs work bound", "compute %", "lanes %",
                                                 "bubble %", "pull, push %", "idle %", "GiB per device"}};
  std::string notes;
  for (const SystemResult& result : results) {
    if (result.run.infeasible.empty()) {
      rows.push_back(table_row(result, results.front(), work_ns));
      notes += text("\n", result.run.title, ": ", strategy::readable_text(result.run.configuration));
      if (!result.measured.steps.empty()) {
        notes += text("; ", base::human_duration(measured_ns(result)),
                      " a step where each gather between nodes costs what FlexSP measured");
      }
    } else {
      notes += text("\n", result.run.title, " cannot run this: ", result.run.infeasible);
    }
  }
  for (const report::ActSum& act : report::act_sums(results.front().run)) {
    notes += text("\nact ", act.name, ": ", base::human_duration(act.sum.time_ns / act.steps), " a step, ",
                  base::human_bytes(static_cast<double>(act.sum.peak_bytes)), " on the fullest device");
  }
  const std::string wire = report::compression_text(results.front().wire);
  return text(base::table_text(rows, "lrrrrrrrrrrrrr"), kColumns, verdict(results), notes, "\n",
              wire.empty() ? "" : text("\nStep ", results.front().run.steps.front().step, ": ", wire));
}

}  // namespace sluice::study
