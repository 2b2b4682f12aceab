// ByteScale's comparison (arXiv 2502.21231) at contexts of 1M and 2M tokens, simulated: static context
// parallelism, and what lanes of any number and balance gain step by step. A line of
// JSON a result, appended to the file given; results that stand there already are not made again.
// bench/long_context_page.py makes docs/long_context.md of it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "report/run_summary.h"
#include "result_lines.h"
#include "study/byte_scale.h"
#include "study/length_distribution.h"
#include "study/megatron.h"
#include "study/scenario.h"
#include "study/simulation.h"

namespace {

using namespace sluice;
using base::Json;

constexpr int64_t kDocuments = 100'000;    // of a corpus
constexpr int64_t kStepTokens = 32 << 20;  // as published
constexpr int kRanks = 1024;
constexpr size_t kSampleStride = 12;  // of the 48 sample batches, which ascend by their longest sequence

struct Case {
  std::string corpus;
  int64_t context = 0;
};

struct Candidate {
  std::string name;
  std::function<std::unique_ptr<study::System>(const study::SystemInputs&)> make;
};

// With one pipeline of all ranks for each TP degree, or for one of them.
std::unique_ptr<study::System> make_sluice(study::SystemInputs inputs, const std::vector<int>& degrees) {
  for (const int tp : degrees) {
    inputs.strategies.push_back(
        strategy::parse_strategy(base::text("1x<", tp, ",1,", kRanks / tp, ">"), kRanks));
  }
  return study::system_kind("sluice").make(inputs);
}

std::vector<Candidate> candidates() {
  using study::ByteScaleStep;
  using study::SystemInputs;
  const study::LaneLayout layout{.tokens = 8192};
  const auto byte_scale = [layout](ByteScaleStep step) {
    return
        [layout, step](const SystemInputs& inputs) { return study::make_byte_scale(inputs, step, layout); };
  };
  const auto known = [](const std::string& name) {
    return [name](const SystemInputs& inputs) { return study::system_kind(name).make(inputs); };
  };
  return {{"static_cp",
           [layout](const SystemInputs& inputs) {
             return study::make_megatron(inputs, study::static_cp(inputs, layout));
           }},
          {"lanes", byte_scale(ByteScaleStep::kLanes)},
          {"balance", byte_scale(ByteScaleStep::kBalance)},
          {"sluice", [](const SystemInputs& inputs) { return make_sluice(inputs, {1}); }},
          {"sluice_tp",
           [](const SystemInputs& inputs) {
             return make_sluice(inputs, {1, 2, 4, 8});
           }},
          {"sluice_proposed", known("sluice")},
          {"megatron", known("megatron")},
          {"megatron_dcp", known("megatron_dcp")}};
}

study::Scenario scenario_of(const Case& of, int64_t steps) {
  config::PlanningOptions options;
  options.gpus = kRanks;
  options.cluster = "h100x8";
  options.model = "llama-7b";
  options.context_length = of.context;
  options.tokens_per_step = kStepTokens;
  const std::vector<int32_t> lengths = study::lengths_by(study::length_law(of.corpus), kDocuments);
  study::Scenario scenario = study::scenario_of(config::resolve_planning(options, lengths), steps, kRanks);
  std::vector<std::vector<int64_t>> fewer;
  for (size_t b = kSampleStride / 2; b < scenario.inputs.sample_batches.size(); b += kSampleStride) {
    fewer.push_back(scenario.inputs.sample_batches[b]);
  }
  scenario.inputs.sample_batches = std::move(fewer);
  return scenario;
}

Json result_of(const report::SystemRun& run) {
  const report::SystemSummary summary = report::summary_of(run);
  Json times = Json::array();
  for (const report::StepRecord& step : run.steps) times.push_back(step.time_ns);
  const report::TimeShares& shares = summary.shares;
  return {{"configuration", run.configuration},
          {"mean_ns", summary.mean_step_ns},
          {"times_ns", times},
          {"peak_bytes", summary.peak_bytes},
          {"compute_rank_ns", shares.compute_ns},
          {"ring_rank_ns", shares.ring_ns},
          {"idle_rank_ns", shares.idle_ns + shares.bubble_ns},
          {"rest_rank_ns", shares.link_ns + shares.update_ns + shares.between_ns}};
}

void simulate(const Case& of, int64_t steps, const std::string& only, bench::ResultLines& results) {
  const study::Scenario scenario = scenario_of(of, steps);
  for (const Candidate& candidate : candidates()) {
    const Json key = {{"corpus", of.corpus}, {"context", of.context}, {"system", candidate.name}};
    if (results.has(key) || (!only.empty() && only != candidate.name)) continue;
    try {
      const auto system = candidate.make(scenario.inputs);
      const auto begin = std::chrono::steady_clock::now();
      study::Simulation simulation =
          study::simulate(*system, scenario.batches, scenario.table, {.world_size = kRanks});
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      simulation.run.configuration = system->configuration();
      results.add(key, result_of(simulation.run));
      std::printf("%.2f s a simulated step\n", taken.count() / static_cast<double>(steps));
    } catch (const base::InfeasibleError& error) {
      results.add(key, {{"infeasible", error.what()}});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Contexts of 1M and 2M tokens on 1,024 GPUs, simulated");
  std::string out = "bench/results/long_context.jsonl";
  std::string only;
  std::string corpus;
  int64_t steps = 5;
  app.add_option("--out", out, "Results are appended here")->capture_default_str();
  app.add_option("--system", only, "Only this one");
  app.add_option("--corpus", corpus, "Only this one: github or byted");
  app.add_option("--steps", steps, "Simulated steps a scenario and system")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    bench::ResultLines results(out, {"corpus", "context", "system"});
    for (const char* name : {"github", "byted"}) {
      if (!corpus.empty() && corpus != name) continue;
      for (const int64_t context : {2 << 20, 1 << 20}) simulate({name, context}, steps, only, results);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
