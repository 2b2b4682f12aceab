#include "study/comparison.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "report/run_summary.h"
#include "study/simulation.h"

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

SystemResult run_system(const Scenario& scenario, const std::string& name, const ComparisonOptions& options) {
  const SystemKind& kind = system_kind(name);
  options.before_system(kind.title);
  SystemResult result;
  result.run.name = kind.name;
  result.run.title = kind.title;
  try {
    const std::unique_ptr<System> system = kind.make(scenario.inputs);
    result.run.configuration = system->configuration();
    Simulation simulation = simulate(*system, scenario.batches, scenario.table,
                                     {.world_size = scenario.inputs.world_size,
                                      .timeline_steps = options.timeline_steps,
                                      .after_step = options.after_step});
    result.run.steps = std::move(simulation.run.steps);
    result.timelines = std::move(simulation.timelines);
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
  return {{"compute", shares.compute_ns}, {"ring", shares.ring_ns},      {"gather", shares.gather_ns},
          {"link", shares.link_ns},       {"update", shares.update_ns},  {"bubble", shares.bubble_ns},
          {"idle", shares.idle_ns},       {"between", shares.between_ns}};
}

Json system_json(const SystemResult& result) {
  if (!result.run.infeasible.empty()) {
    return {{"title", result.run.title},
            {"configuration", result.run.configuration},
            {"infeasible", result.run.infeasible}};
  }
  const report::SystemSummary summary = report::summary_of(result.run);
  return {{"title", result.run.title},
          {"configuration", result.run.configuration},
          {"mean_step_ns", summary.mean_step_ns},
          {"std_step_ns", summary.std_step_ns},
          {"tokens_per_s", std::llround(summary.tokens_per_s)},
          {"peak_bytes", summary.peak_bytes},
          {"rank_time_ns", to_json(summary.shares)}};
}

Json metrics_json(const std::string& system, const report::StepRecord& step) {
  const double seconds = static_cast<double>(step.time_ns) / 1e9;
  return {{"step", step.step},
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
          {"rank_time_ns", to_json(step.shares)}};
}

std::vector<std::string> table_row(const SystemResult& result, const report::SystemSummary& sluice) {
  const report::SystemSummary summary = report::summary_of(result.run);
  const report::TimeShares& shares = summary.shares;
  const int64_t all_ns = std::max<int64_t>(shares.total_ns(), 1);
  const auto share = [&](int64_t ns) {
    return fixed(100.0 * static_cast<double>(ns) / static_cast<double>(all_ns), 1);
  };
  const double slower = static_cast<double>(summary.mean_step_ns) / static_cast<double>(sluice.mean_step_ns);
  return {result.run.title,
          base::human_duration(summary.mean_step_ns),
          text("± ", base::human_duration(summary.std_step_ns)),
          base::human_count(std::llround(summary.tokens_per_s)),
          text(fixed(slower, 2), "x"),
          share(shares.compute_ns),
          share(shares.ring_ns + shares.gather_ns),
          share(shares.bubble_ns),
          share(shares.link_ns + shares.between_ns),
          share(shares.idle_ns + shares.update_ns)};
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

std::string comparison_table(const std::vector<SystemResult>& results) {
  const report::SystemSummary sluice = report::summary_of(results.front().run);
  std::vector<std::vector<std::string>> rows = {
      {"system", "step", "", "tokens/s", "time", "compute %", "lanes %", "bubble %", "link %", "idle %"}};
  std::string notes;
  for (const SystemResult& result : results) {
    if (result.run.infeasible.empty()) {
      rows.push_back(table_row(result, sluice));
      notes += text("\n", result.run.title, ": ", result.run.configuration);
    } else {
      notes += text("\n", result.run.title, " cannot run this: ", result.run.infeasible);
    }
  }
  return base::table_text(rows, "lrrrrrrrrr") + notes + "\n";
}

}  // namespace sluice::study
