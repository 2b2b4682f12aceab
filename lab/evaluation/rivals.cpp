// Rivals' plans beside Sluice's on random batches. Models, clusters, GPUs, lengths and batch sizes are drawn;
// each system chooses its configuration on samples; one clock times each batch's plans. Results are JSON
// lines, one per draw, rival and overlap, appended to the given file; existing results are not computed
// again. rivals_page.py draws them. FlexSP's micro-batches are also solved as its MILP, for some seconds
// each.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/measured_passes.h"
#include "result_lines.h"
#include "session/planning_inputs.h"
#include "solved_flexsp.h"
#include "study/comparison.h"
#include "study/length_distribution.h"
#include "study/rival_traits.h"
#include "study/scenario.h"
#include "study/simulation.h"
#include "study/system_kinds.h"

namespace {

using namespace sluice;
using base::Json;
using base::text;

constexpr int64_t kDocuments = 20'000;
const std::vector<std::string> kRivals = {"megatron",     "deepspeed",  "fsdp",     "flexsp",
                                          "megatron_dcp", "byte_scale", "hydraulis"};

// One scenario, as drawn.
struct Draw {
  session::PlanningOptions options;
  study::LengthLaw law;
  std::string name;
};

template <typename T>
const T& one_of(base::Rng& rng, const std::vector<T>& all) {
  return all[static_cast<size_t>(rng.below(all.size()))];
}

// Half of the draws use the published fits on their cluster, half use analytic costs.
Draw draw(uint64_t seed) {
  base::Rng rng(seed, 77);
  Draw drawn;
  session::PlanningOptions& options = drawn.options;
  std::string size = one_of<std::string>(rng, {"7b", "13b", "32b"});
  options.gpus =
      one_of<int>(rng, size == "32b" ? std::vector<int>{32, 64, 128} : std::vector<int>{8, 16, 32, 64});
  if (rng.below(2) == 0) {
    options.calibration = "a800-" + size;
  } else {
    if (size == "32b") size = "13b";
    options.model = "llama-" + size;
    options.cluster = one_of<std::string>(rng, {"a100x8", "a800x8", "h100x8"});
  }
  drawn.law = one_of<study::LengthLaw>(rng, {study::length_law("commoncrawl"),
                                             study::length_law("github"),
                                             study::length_law("byted"),
                                             {.median = static_cast<double>(rng.between(200, 4000)),
                                              .sigma = static_cast<double>(rng.between(60, 170)) / 100,
                                              .tail = {{.from_tokens = 16384, .exponent = 1.5}},
                                              .longest = 131'072}});
  options.context_length = one_of<int64_t>(rng, {8192, 16384, 32768, 65536});
  options.tokens_per_step =
      std::max<int64_t>(2 * options.context_length, options.gpus * one_of<int64_t>(rng, {1536, 3072, 6144}));
  options.seed = static_cast<int64_t>(seed) + 1;
  drawn.name = text(options.model.empty() ? options.calibration : options.model + " on " + options.cluster,
                    ", ", options.gpus, " GPUs, context ", options.context_length, ", ",
                    options.tokens_per_step, " tokens, median ", static_cast<int64_t>(drawn.law.median));
  return drawn;
}

std::optional<study::Scenario> scenario_of(const Draw& drawn, int64_t batches) {
  try {
    return study::scenario_of(
        session::resolve_planning(drawn.options, study::lengths_by(drawn.law, kDocuments)), batches);
  } catch (const base::InfeasibleError&) {
    return std::nullopt;
  }
}

std::string shares_text(const report::TimeShares& shares) {
  const auto percent = [&](int64_t ns) {
    return static_cast<int64_t>(std::llround(100.0 * static_cast<double>(ns) /
                                             static_cast<double>(std::max<int64_t>(1, shares.total_ns()))));
  };
  return text(percent(shares.compute_ns), " % compute, ", percent(shares.cp_exchange_ns), " exchange, ",
              percent(shares.fsdp_ns), " gather, ", percent(shares.bubble_ns), " bubble, ",
              percent(shares.pull_push_ns), " pull and push, ", percent(shares.idle_ns), " idle");
}

Json step_json(const report::StepRecord& step) {
  return {{"ns", step.time_ns},
          {"bound_ns", step.lower_bound_ns},
          {"strategy", step.strategy},
          {"shares", shares_text(step.shares)}};
}

// Results by batch; empty if the system cannot run the scenario.
std::vector<Json> steps_of(const study::SystemInputs& given, const study::Scenario& scenario,
                           const std::string& name, bool measured, bench::SolvedFlexSp& flexsp) {
  study::SystemInputs inputs = given;
  if (measured) inputs.cost = cost::with_measured_passes(inputs.cost);
  std::vector<Json> steps;
  try {
    const auto system = name == "flexsp" ? flexsp.make(inputs) : study::system_kind(name).make(inputs);
    const study::Simulation simulation =
        study::simulate(*system, scenario.batches, scenario.table, {.world_size = inputs.world_size});
    for (const report::StepRecord& step : simulation.run.steps) {
      steps.push_back(step_json(step));
      steps.back()["configuration"] = system->configuration();
    }
  } catch (const base::InfeasibleError&) {
    return {};
  }
  return steps;
}

void run(uint64_t seed, int64_t batches, const std::vector<std::string>& rivals, bench::SolvedFlexSp& flexsp,
         bench::ResultLines& results) {
  const Draw drawn = draw(seed);
  std::optional<study::Scenario> scenario;
  for (const bool measured : {false, true}) {
    const std::string overlap = measured ? "measured" : "kind";
    std::vector<Json> ours;
    for (const std::string& rival : rivals) {
      const Json key = {{"seed", seed}, {"rival", rival}, {"overlap", overlap}};
      if (results.has(key)) continue;
      if (!scenario && !(scenario = scenario_of(drawn, batches))) return;
      const study::SystemInputs& inputs = scenario->inputs;
      if (ours.empty()) ours = steps_of(inputs, *scenario, "sluice", measured, flexsp);
      if (ours.empty()) return;
      const std::vector<Json> theirs = steps_of(inputs, *scenario, rival, measured, flexsp);
      Json ratios = Json::array();
      for (size_t b = 0; b < theirs.size(); ++b)
        ratios.push_back(theirs[b].at("ns").get<double>() / ours[b].at("ns").get<double>());
      Json result = {{"scenario", drawn.name}, {"ratios", ratios}, {"theirs", theirs}, {"ours", ours}};
      if (rival == "flexsp") result["milp"] = flexsp.counts();
      results.add(key, result);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Rivals beside Sluice on random batches");
  std::string out = "build/rivals.jsonl";
  std::string only;
  uint64_t first = 0, draws = 100;
  int64_t batches = 5;
  double milp_seconds = 0;
  app.add_option("--out", out, "Results are appended here")->capture_default_str();
  app.add_option("--draws", draws, "Scenarios")->capture_default_str();
  app.add_option("--first", first, "The first seed")->capture_default_str();
  app.add_option("--batches", batches, "Batches of each")->capture_default_str();
  app.add_option("--rivals", only, "Only these, with commas between");
  app.add_option("--milp-seconds", milp_seconds, "So long FlexSP's MILP is solved for each micro-batch")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    bench::SolvedFlexSp flexsp(milp_seconds);
    bench::ResultLines results(out, {"seed", "rival", "overlap"});
    const std::vector<std::string> rivals = only.empty() ? kRivals : base::split(only, ',');
    for (uint64_t seed = first; seed < first + draws; ++seed) run(seed, batches, rivals, flexsp, results);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
