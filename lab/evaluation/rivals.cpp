// Rivals' plans beside Sluice's on random batches. Models, clusters, GPUs, lengths and batch sizes are drawn;
// each system chooses its configuration on samples; one clock times each batch's plans. Results are JSON
// lines, one per batch and rival, appended to the given file; existing results are not computed again. Then
// follow a table, and every batch on which a rival is more than 1 % faster, with the times of both by
// category. FlexSP's micro-batches are also solved as its MILP, for some seconds each.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
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
constexpr double kTolerance = 0.01;
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

struct Verdict {
  std::vector<double> ratios;
  int64_t faster = 0;
  int64_t milp_asked = 0, milp_proved = 0, milp_improved = 0;  // micro-batches
  void add_milp(const Json& counts) {
    if (counts.is_null()) return;
    milp_asked += counts.at("asked").get<int64_t>();
    milp_proved += counts.at("proved").get<int64_t>();
    milp_improved += counts.at("improved").get<int64_t>();
  }
  std::string milp_text() const {
    if (milp_asked == 0) return "-";
    return text(milp_improved, " of ", milp_asked, " improved, ", milp_proved, " proved");
  }
};

// Prints the table, then the exceptions in order of descending loss.
void print(const std::string& path) {
  std::map<std::pair<std::string, std::string>, Verdict> verdicts;
  std::vector<std::pair<double, std::string>> exceptions;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    Verdict& verdict = verdicts[{row.at("rival"), row.at("overlap")}];
    verdict.add_milp(row.value("milp", Json()));
    for (size_t b = 0; b < row.at("ratios").size(); ++b) {
      const double ratio = row.at("ratios")[b].get<double>();
      verdict.ratios.push_back(ratio);
      if (ratio >= 1 - kTolerance) continue;
      ++verdict.faster;
      const Json& ours = row.at("ours")[b];
      const Json& theirs = row.at("theirs")[b];
      const auto above = ours.at("ns").get<double>() / std::max(1.0, ours.at("bound_ns").get<double>());
      std::ostringstream out;
      out << std::fixed << std::setprecision(3) << ratio << "  " << row.at("rival").get<std::string>() << ", "
          << row.at("overlap").get<std::string>() << ", seed " << row.at("seed") << " batch " << b << ": "
          << row.at("scenario").get<std::string>() << "\n       theirs "
          << theirs.at("ns").get<double>() / 1e9 << " s, " << theirs.at("configuration").get<std::string>()
          << ": " << theirs.at("shares").get<std::string>() << "\n       ours   "
          << ours.at("ns").get<double>() / 1e9 << " s, " << above << " of its bound, "
          << ours.at("strategy").get<std::string>() << ": " << ours.at("shares").get<std::string>() << "\n";
      exceptions.emplace_back(ratio, out.str());
    }
  }
  std::vector<std::vector<std::string>> rows = {{"rival ÷ Sluice", "overlap", "batches", "least", "p5",
                                                 "median", "mean", "more than 1 % faster",
                                                 "MILP, micro-batches"}};
  for (auto& [key, verdict] : verdicts) {
    std::vector<double>& ratios = verdict.ratios;
    if (ratios.empty()) continue;
    std::ranges::sort(ratios);
    double sum = 0;
    for (const double ratio : ratios) sum += ratio;
    const auto shown = [](double value) {
      std::ostringstream out;
      out << std::fixed << std::setprecision(3) << value;
      return out.str();
    };
    rows.push_back({key.first, key.second, text(ratios.size()), shown(ratios.front()),
                    shown(ratios[ratios.size() / 20]), shown(ratios[ratios.size() / 2]),
                    shown(sum / static_cast<double>(ratios.size())), text(verdict.faster),
                    verdict.milp_text()});
  }
  std::cout << base::table_text(rows, "llrrrrrrl") << "\n\n" << exceptions.size() << " exceptions\n";
  std::ranges::sort(exceptions);
  for (const auto& [ratio, of] : exceptions) std::cout << of;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Rivals beside Sluice on random batches");
  std::string out = "bench/results/rivals.jsonl";
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
    print(out);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
