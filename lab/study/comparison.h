// Runs several systems on one scenario, and writes the files with their results.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "report/run_data.h"
#include "study/scenario.h"

namespace sluice::study {

struct ComparisonOptions {
  std::vector<std::string> systems = {"sluice"};  // by name, in the order of the results
  std::set<int64_t> timeline_steps;               // steps with kept timelines
  std::function<void(const std::string& system)> before_system = [](const std::string&) {};
  std::function<void()> after_step = [] {};
  bool explains_wire = false;  // explains the first step of systems that know codecs
};

struct SystemResult {
  report::SystemRun run;  // without steps if infeasible
  // The run under the second overlap (cost::with_measured_passes), and planned for it. It has steps only if
  // passes gather parameters between nodes, and so may take longer than by the clock.
  report::SystemRun measured;
  std::vector<report::Timeline> timelines;
  std::vector<report::ExplainedCompression> wire;  // the gain from fewer bits in the first step
};

// Runs one system after the other. A failure of any system but the first is a result. InputError for an
// unknown system, InfeasibleError if the first is infeasible.
std::vector<SystemResult> compare(const Scenario& scenario, const ComparisonOptions& options);

// "all", or names separated by commas; returns names with "sluice" first. InputError listing the valid names.
std::vector<std::string> parse_systems(const std::string& text);

// simulation.json ("sluice.simulation/1").
base::Json simulation_json(const Scenario& scenario, const std::vector<SystemResult>& results);
// metrics.jsonl: one line per step and system, systems one after the other.
std::string metrics_lines(const std::vector<SystemResult>& results);
// A table for people: times as multiples of the first system's, and of the work alone (study/least_work.h).
std::string comparison_table(const Scenario& scenario, const std::vector<SystemResult>& results);

}  // namespace sluice::study
