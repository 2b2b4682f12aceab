// ByteScale's comparison (arXiv 2502.21231) at contexts of 1M and 2M tokens, simulated: static context
// parallelism, and the step-by-step gains of lanes, offloading, balance and Sluice's own planning. Results
// are JSON lines, appended to the given file; existing results are not computed again.
// lab/evaluation/long_context_page.py turns them into docs/long_context.md.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "report/run_summary.h"
#include "result_lines.h"
#include "study/any_exchange.h"
#include "study/byte_scale.h"
#include "study/least_work.h"
#include "study/length_distribution.h"
#include "study/megatron.h"
#include "study/scenario.h"
#include "study/simulation.h"
#include "study/system_kinds.h"

namespace {

using namespace sluice;
using base::Json;

constexpr int64_t kDocuments = 100'000;    // documents per corpus
constexpr int64_t kStepTokens = 32 << 20;  // as published
constexpr int kRanks = 1024;
constexpr int kShareLanes = 64;       // for mixtures of experts
constexpr size_t kSampleStride = 12;  // stride over the 48 sample batches, ascending by longest sequence

struct Case {
  std::string model;  // a shipped model, or a folder beside this file
  std::string corpus;
  int64_t context = 0;
};

struct Candidate {
  std::string layout;  // the system whose lanes it uses; "any": it chooses
  std::string name;
  std::function<std::unique_ptr<study::System>(const study::SystemInputs&)> make;
};

// Sluice with one pipeline of all ranks, for each of the TP degrees. For mixtures of experts, whose
// parameters one lane does not hold, one more strategy lets lanes share them.
std::unique_ptr<study::System> make_sluice(study::SystemInputs inputs, const std::vector<int>& degrees) {
  for (const int tp : degrees) {
    inputs.planner.candidates.push_back(
        strategy::parse_strategy(base::text("1x<", tp, ",1,", kRanks / tp, ">"), kRanks));
    if (inputs.cost.options().model.experts().count == 0 || degrees.size() == 1) continue;
    inputs.planner.candidates.push_back(
        strategy::parse_strategy(base::text("1x<", tp, ",1,", kRanks / tp, ",", kShareLanes, ">"), kRanks));
  }
  return study::system_kind("sluice").make(inputs);
}

// Adds the steps of the ablation with lanes of one layout.
void add_steps(const std::string& name, const study::LaneLayout& layout, std::vector<Candidate>& to) {
  using published::OffloadRule;
  using study::ByteScaleStep;
  using study::SystemInputs;
  to.push_back({name, "static_cp", [layout](const SystemInputs& inputs) {
                  return study::with_any_exchange(
                      study::make_megatron(inputs, study::static_cp(inputs, layout)), kRanks);
                }});
  const auto add = [&](const char* system, ByteScaleStep step, OffloadRule offload) {
    to.push_back({name, system, [=](const SystemInputs& inputs) {
                    return study::with_any_exchange(study::make_byte_scale(inputs, step, layout, offload),
                                                    kRanks);
                  }});
  };
  to.push_back({name, "static_cp_rings", [layout](const SystemInputs& inputs) {
                  return study::make_megatron(inputs, study::static_cp(inputs, layout));
                }});
  add("lanes", ByteScaleStep::kLanes, OffloadRule::kNone);
  add("lanes_eq3", ByteScaleStep::kLanes, OffloadRule::kFewestLanes);
  add("lanes_offload", ByteScaleStep::kLanes, OffloadRule::kLeastWork);
  add("balance", ByteScaleStep::kBalance, OffloadRule::kNone);
  add("balance_offload", ByteScaleStep::kBalance, OffloadRule::kLeastWork);
  to.push_back(
      {name, "sluice", [layout](const SystemInputs& inputs) { return make_sluice(inputs, {layout.tp}); }});
}

std::vector<Candidate> candidates() {
  std::vector<Candidate> all;
  add_steps("tp1", {.tp = 1, .tokens = 8192}, all);
  add_steps("tp8", {.tp = 8, .tokens = 65'536}, all);
  for (const char* name : {"megatron", "megatron_dcp"}) {
    all.push_back({"any", name, [name](const study::SystemInputs& inputs) {
                     return study::with_any_exchange(study::system_kind(name).make(inputs), kRanks);
                   }});
  }
  // Not FlexSP: its heuristic tries many numbers of rounds per batch, for many minutes on so many ranks.
  all.push_back({"any", "fsdp", study::system_kind("fsdp").make});
  all.push_back({"any", "sluice", [](const study::SystemInputs& inputs) {
                   return make_sluice(inputs, {1, 2, 4, 8});
                 }});
  return all;
}

study::Scenario scenario_of(const Case& of, int64_t steps) {
  session::PlanningOptions options;
  options.gpus = kRanks;
  options.cluster = "h100x8";
  const auto folder = std::filesystem::path("lab/evaluation") / of.model;
  options.model = std::filesystem::exists(folder) ? folder.string() : of.model;
  options.context_length = of.context;
  options.tokens_per_step = kStepTokens;
  options.max_cp = kRanks;
  const std::vector<int32_t> lengths = study::lengths_by(study::length_law(of.corpus), kDocuments);
  study::Scenario scenario = study::scenario_of(session::resolve_planning(options, lengths), steps);
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
          {"ring_rank_ns", shares.cp_exchange_ns},
          {"idle_rank_ns", shares.idle_ns + shares.bubble_ns},
          {"rest_rank_ns", shares.pull_push_ns + shares.update_ns + shares.strategy_switch_ns}};
}

// Figures of a law of lengths, for comparison with published ones.
void describe(const std::string& corpus, bench::ResultLines& results) {
  const Json key = {{"model", ""}, {"corpus", corpus}, {"context", 0}, {"layout", ""}, {"system", "lengths"}};
  if (results.has(key)) return;
  const std::vector<int32_t> lengths = study::lengths_by(study::length_law(corpus), kDocuments);
  const double all = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const auto share = [&](int64_t shortest, int64_t longest) {
    double documents = 0;
    double tokens = 0;
    for (const int32_t length : lengths) {
      if (length < shortest || length > longest) continue;
      documents += 1;
      tokens += length;
    }
    return Json{{"documents", documents / kDocuments}, {"tokens", tokens / all}};
  };
  constexpr int64_t kK = 1024;
  constexpr int64_t kAll = int64_t{1} << 40;
  results.add(key, {{"documents", kDocuments},
                    {"mean_tokens", all / kDocuments},
                    {"up_to_4k", share(0, 4 * kK)},
                    {"from_128k", share(128 * kK, kAll)},
                    {"from_256k", share(256 * kK, kAll)},
                    {"from_2m", share(2048 * kK, kAll)}});
}

// The lower bound for all plans: the work alone.
Json least_work(const study::Scenario& scenario) {
  int64_t total_ns = 0;
  for (const corpus::Batch& batch : scenario.batches) {
    std::vector<int64_t> lengths;
    for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
    total_ns += study::least_work_ns(lengths, std::span(&scenario.inputs.cost, 1), kRanks);
  }
  return {{"mean_ns", total_ns / static_cast<int64_t>(scenario.batches.size())}};
}

void simulate(const Case& of, int64_t steps, const std::string& only, bench::ResultLines& results) {
  const study::Scenario scenario = scenario_of(of, steps);
  const auto key_of = [&](const std::string& layout, const std::string& system) -> Json {
    return {{"model", of.model},
            {"corpus", of.corpus},
            {"context", of.context},
            {"layout", layout},
            {"system", system}};
  };
  const Json floor = key_of("any", "least_work");
  if (!results.has(floor)) results.add(floor, least_work(scenario));
  for (const Candidate& candidate : candidates()) {
    const Json key = key_of(candidate.layout, candidate.name);
    if (results.has(key) || (!only.empty() && only != candidate.name)) continue;
    try {
      const auto system = candidate.make(scenario.inputs);
      study::Simulation simulation =
          study::simulate(*system, scenario.batches, scenario.table, {.world_size = kRanks});
      simulation.run.configuration = system->configuration();
      Json result = result_of(simulation.run);
      result["device_bytes"] = scenario.inputs.cost.options().memory.device_bytes;
      results.add(key, result);
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
  std::string corpus, model;
  int64_t steps = 3;
  app.add_option("--out", out, "Results are appended here")->capture_default_str();
  app.add_option("--system", only, "Only this one");
  app.add_option("--corpus", corpus, "Only this one: github or byted");
  app.add_option("--model", model, "Only this one: llama-7b or mixtral-8x7b");
  app.add_option("--steps", steps, "Simulated steps a scenario and system")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    bench::ResultLines results(out, {"model", "corpus", "context", "layout", "system"});
    const auto simulate_if_asked = [&](const Case& of) {
      if ((model.empty() || model == of.model) && (corpus.empty() || corpus == of.corpus))
        simulate(of, steps, only, results);
    };
    for (const char* name : {"github", "byted"}) {
      if (!corpus.empty() && corpus != name) continue;
      describe(name, results);
      for (const int64_t context : {2 << 20, 1 << 20}) simulate_if_asked({"llama-7b", name, context});
      simulate_if_asked({"mixtral-8x7b", name, 2 << 20});
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
