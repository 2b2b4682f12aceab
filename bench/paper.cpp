// The evaluation of Hydraulis (arXiv 2412.07894, section 8 and appendices), simulated: the systems of Figures
// 13, 14 and 16 and Tables 1, 3 and 4 under the published calibrations, and what Figures 15, 17, 18 and 20
// show. A line of JSON a result, appended to the file given; results that stand there already are not made
// again. bench/paper_page.py makes docs/evaluation.md of it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "config/sampling.h"
#include "graph/build.h"
#include "plan/planner.h"
#include "published/paper_plan.h"
#include "published/static_strategy.h"
#include "report/run_summary.h"
#include "result_lines.h"
#include "schedule/pipeline_schedule.h"
#include "study/baseline_cost.h"
#include "study/comparison.h"
#include "study/hydraulis.h"
#include "study/least_work.h"
#include "study/length_distribution.h"
#include "study/scenario.h"
#include "study/simulation.h"
#include "table_3.h"

namespace {

using namespace sluice;
using base::Json;
using base::text;

constexpr int64_t kDocuments = 100'000;  // of a corpus
constexpr int kMostLanes = 8;

struct Case {
  std::string figure;
  std::string model;  // "7b", "13b", "32b"
  int gpus = 0;
  std::string corpus;
  int64_t context = 32768;
  int64_t tokens = 100'000;
};

const std::vector<int32_t>& corpus_lengths(const std::string& corpus) {
  static std::map<std::string, std::vector<int32_t>> known;
  std::vector<int32_t>& lengths = known[corpus];
  if (lengths.empty()) lengths = study::lengths_by(study::length_law(corpus), kDocuments);
  return lengths;
}

study::Scenario scenario_of(const Case& of, int64_t steps) {
  config::PlanningOptions options;
  options.gpus = of.gpus;
  options.calibration = "a800-" + of.model;
  options.context_length = of.context;
  options.tokens_per_step = of.tokens;
  return study::scenario_of(config::resolve_planning(options, corpus_lengths(of.corpus)), steps, kMostLanes);
}

using Results = bench::ResultLines;

Json key_of(const Case& of, const std::string& system) {
  return {{"figure", of.figure},   {"model", of.model},   {"gpus", of.gpus}, {"corpus", of.corpus},
          {"context", of.context}, {"tokens", of.tokens}, {"system", system}};
}

std::unique_ptr<study::System> make(const Case& of, const std::string& name,
                                    const study::SystemInputs& inputs) {
  const bench::Table3 published{.model = of.model, .gpus = of.gpus, .context = of.context};
  if (name.ends_with("_table3")) return published.make(name.substr(0, name.rfind('_')), inputs);
  if (name.ends_with("_table3_packs")) {
    return published.make_with_best_packs(name.substr(0, name.find('_')), inputs);
  }
  const std::map<std::string, study::AblationStep> ablations = {
      {"ablation_a", study::AblationStep::kDispatch},
      {"ablation_b", study::AblationStep::kPacking},
      {"ablation_c", study::AblationStep::kHeterogeneous},
      {"ablation_d", study::AblationStep::kDynamic}};
  if (name == "hydraulis_without_constants") return study::make_hydraulis_without_constants(inputs);
  const auto ablation = ablations.find(name);
  if (ablation != ablations.end()) return study::make_ablation(inputs, ablation->second);
  return study::system_kind(name == "sluice_lanes" ? "sluice" : name).make(inputs);
}

// (slowest − fastest) ÷ slowest of the pipelines' own times.
double spread_of(const strategy::StepPlan& plan, const cost::CostModel& cost, int world_size) {
  int64_t slowest = 0;
  int64_t fastest = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, world_size);
    const int64_t ns = load.units.empty() ? 0 : schedule::schedule_pipeline(load).makespan_ns;
    fastest = slowest == 0 ? ns : std::min(fastest, ns);
    slowest = std::max(slowest, ns);
  }
  return slowest == 0 ? 0 : static_cast<double>(slowest - fastest) / static_cast<double>(slowest);
}

Json run_json(const report::SystemRun& run) {
  const report::SystemSummary summary = report::summary_of(run);
  Json times = Json::array();
  Json strategies = Json::array();
  double switch_share = 0;
  for (const report::StepRecord& step : run.steps) {
    times.push_back(step.time_ns);
    strategies.push_back(step.strategy);
    switch_share += static_cast<double>(step.shares.between_ns) / static_cast<double>(run.steps.size());
  }
  return {{"configuration", run.configuration},
          {"mean_ns", summary.mean_step_ns},
          {"std_ns", summary.std_step_ns},
          {"between_rank_ns", switch_share},
          {"times_ns", times},
          {"strategies", strategies}};
}

// Processor time of this process, in seconds.
double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A system whose planning is timed, and whose plans' balance is kept.
class Observed : public study::System {
 public:
  Observed(const Case& of, const std::string& name, const study::SystemInputs& inputs)
      : world_size_(inputs.world_size) {
    const double start_s = processor_s();
    system_ = make(of, name, inputs);
    setup_s_ = processor_s() - start_s;
  }
  std::string configuration() const override { return system_->configuration(); }
  const cost::CostModel& cost() const override { return system_->cost(); }
  study::SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    const double start_s = processor_s();
    study::SystemStep step = system_->step(number, sequences);
    step_s_ += processor_s() - start_s;
    spreads_.push_back(spread_of(step.plan, system_->cost(), world_size_));
    switch_ns_ += step.switch_ns;
    return step;
  }
  Json observations() const {
    const auto steps = static_cast<int64_t>(std::max<size_t>(spreads_.size(), 1));
    return {{"spreads", std::vector<double>(spreads_.begin(),
                                            spreads_.begin() + std::min<std::ptrdiff_t>(steps, kSpreads))},
            {"switch_ns", switch_ns_ / steps},
            {"setup_cpu_s", setup_s_},
            {"step_cpu_s", step_s_ / static_cast<double>(steps)}};
  }

 private:
  static constexpr std::ptrdiff_t kSpreads = 5;
  std::unique_ptr<study::System> system_;
  int world_size_;
  double setup_s_ = 0;
  double step_s_ = 0;
  int64_t switch_ns_ = 0;
  std::vector<double> spreads_;  // by step
};

// What no plan can be faster than, with the rows that only Ulysses uses.
Json least_work(const study::Scenario& scenario) {
  const study::SystemInputs& inputs = scenario.inputs;
  const std::vector<cost::CostModel> models = {
      inputs.cost, study::ulysses_cost(inputs.cost, {.world_size = inputs.world_size})};
  Json times = Json::array();
  int64_t total_ns = 0;
  for (const corpus::Batch& batch : scenario.batches) {
    std::vector<int64_t> lengths;
    for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
    times.push_back(study::least_work_ns(lengths, models, inputs.world_size));
    total_ns += times.back().get<int64_t>();
  }
  return {{"mean_ns", total_ns / static_cast<int64_t>(scenario.batches.size())}, {"times_ns", times}};
}

void simulate(const Case& of, const std::vector<std::string>& systems, int64_t steps, Results& results) {
  std::optional<study::Scenario> scenario;
  for (const std::string& name : systems) {
    const Json key = key_of(of, name);
    if (results.has(key)) continue;
    if (!scenario) scenario = scenario_of(of, steps);
    if (name == "least_work") {
      results.add(key, least_work(*scenario));
      continue;
    }
    study::SystemInputs inputs = scenario->inputs;
    if (name == "sluice") inputs.max_cp = 1;
    try {
      Observed system(of, name, inputs);
      study::Simulation simulation =
          study::simulate(system, scenario->batches, scenario->table, {.world_size = inputs.world_size});
      simulation.run.configuration = system.configuration();
      Json result = run_json(simulation.run);
      result.update(system.observations());
      results.add(key, result);
    } catch (const base::InfeasibleError& error) {
      results.add(key, {{"infeasible", error.what()}});
    }
  }
}

// Table 1's parts of one system's steps: propagation, the update, and what pull and push add to them.
Json breakdown(study::System& system, const study::Scenario& scenario,
               const std::set<std::string>& left_out) {
  int64_t propagation_ns = 0;
  int64_t update_ns = 0;
  int64_t all_ns = 0;
  for (const corpus::Batch& batch : scenario.batches) {
    const study::SystemStep step = system.step(batch.step, config::sequences_of(batch.samples));
    const graph::StepGraph graph = graph::build(step.plan, scenario.table, system.cost(),
                                                scenario.inputs.world_size, {.disabled_passes = left_out});
    int64_t longest_ns = 0;
    for (const graph::Node& node : graph.nodes) {
      if (node.kind == graph::NodeKind::kUpdate) longest_ns = std::max(longest_ns, node.duration_ns);
    }
    propagation_ns += step.plan.estimated_ns;
    update_ns += longest_ns;
    all_ns += graph.makespan_ns;
  }
  const auto steps = static_cast<int64_t>(scenario.batches.size());
  return {{"propagation_ns", propagation_ns / steps},
          {"update_ns", update_ns / steps},
          {"exchange_ns", (all_ns - propagation_ns - update_ns) / steps},
          {"all_ns", all_ns / steps}};
}

void table_1(int64_t steps, Results& results) {
  const Case of{"table1", "32b", 64, "commoncrawl"};
  struct Column {
    std::string name;
    std::string system;
    std::set<std::string> left_out;
  };
  const std::set<std::string> no_overlap = {"layer-parts", "tail-weights"};
  for (const Column& column :
       {Column{"homogeneous, no overlap", "ablation_b", no_overlap}, Column{"homogeneous", "ablation_b", {}},
        Column{"heterogeneous, no overlap", "ablation_d", no_overlap},
        Column{"heterogeneous, overlap", "ablation_d", {}},
        Column{"sluice, no overlap", "sluice", no_overlap}, Column{"sluice, overlap", "sluice", {}}}) {
    const Json key = key_of(of, column.name);
    if (results.has(key)) continue;
    study::Scenario scenario = scenario_of(of, steps);
    scenario.inputs.max_cp = 1;
    const auto system = make(of, column.system, scenario.inputs);
    results.add(key, breakdown(*system, scenario, column.left_out));
  }
}

// What the two laws of lengths come to, to hold against what is published of the corpora.
void corpora(Results& results) {
  for (const char* corpus : {"commoncrawl", "github"}) {
    const Case of{"corpora", "", 0, corpus};
    const Json key = key_of(of, "lengths");
    if (results.has(key)) continue;
    const std::vector<int32_t>& lengths = corpus_lengths(corpus);
    const auto count = static_cast<double>(lengths.size());
    double tokens = 0;
    double cut_tokens = 0;
    double above_15k = 0;
    double above_32k = 0;
    double tokens_above_128k = 0;
    double tokens_above_256k = 0;
    for (const int32_t length : lengths) {
      tokens += length;
      cut_tokens += std::min(length, 32768);
      above_15k += length > 15'000;
      above_32k += length >= 32768;
      tokens_above_128k += length > 131'072 ? length : 0;
      tokens_above_256k += length > 262'144 ? length : 0;
    }
    const double documents = 1.6e6 / (cut_tokens / count);  // of 1.6M tokens
    results.add(key, {{"mean", tokens / count},
                      {"mean_cut_32k", cut_tokens / count},
                      {"p50", lengths[lengths.size() / 2]},
                      {"p90", lengths[lengths.size() * 9 / 10]},
                      {"p99", lengths[lengths.size() * 99 / 100]},
                      {"above_15k_in_1600k", documents * above_15k / count},
                      {"above_32k_in_1600k", documents * above_32k / count},
                      {"tokens_above_128k", tokens_above_128k / tokens},
                      {"tokens_above_256k", tokens_above_256k / tokens}});
  }
}

void figure_17(Results& results) {
  const Case of{"figure17", "32b", 64, "commoncrawl", 32768, 1'600'000};
  const Json key = key_of(of, "lengths");
  if (results.has(key)) return;
  Json longest = Json::array();
  for (const corpus::Batch& batch : scenario_of(of, 30).batches) {
    int64_t most = 0;
    for (const corpus::Sample& sample : batch.samples) most = std::max(most, sample.length_tokens);
    longest.push_back(most);
  }
  results.add(key, {{"longest", longest}});
}

// First-fit decreasing to 32K; only batches of four packed sequences, as published.
void figure_18(Results& results) {
  const Case of{"figure18", "7b", 8, "commoncrawl"};
  const study::Scenario scenario = scenario_of(of, 60);
  const cost::CostModel cost = study::one_backward_cell(scenario.inputs.cost);
  for (const auto& [name, scheme] :
       {std::pair{"PP", strategy::Scheme{.tp = 4, .pp = 2}}, std::pair{"DP", strategy::Scheme{.tp = 4}}}) {
    const Json key = key_of(of, name);
    if (results.has(key)) continue;
    Json times = Json::array();
    for (const corpus::Batch& batch : scenario.batches) {
      std::vector<int64_t> lengths;
      for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
      const published::StaticStrategy choice{.scheme = scheme,
                                             .pipelines = of.gpus / scheme.ranks(),
                                             .micro_batch_tokens = of.context,
                                             .dealing = published::Dealing::kTurns};
      const strategy::StepPlan plan = published::static_plan(choice, lengths, cost, of.gpus);
      size_t packs = 0;
      for (const strategy::PipelinePlan& pipeline : plan.pipelines) packs += pipeline.units.size();
      if (packs == 4) times.push_back(plan.estimated_ns);
    }
    results.add(key, {{"times_ns", times}});
  }
}

// Greedy against ideal dispatch: the estimate by which it dispatches, and the schedule that runs.
void figure_20(int64_t steps, Results& results) {
  const Case of{"figure20", "32b", 64, "commoncrawl", 32768, 200'000};
  const Json key = key_of(of, "dispatch");
  if (results.has(key)) return;
  const study::Scenario scenario = scenario_of(of, steps);
  const cost::CostModel cost = study::one_backward_cell(scenario.inputs.cost);
  plan::PlannerOptions options{
      .world_size = of.gpus,
      .candidates = {strategy::parse_strategy("1x<16,1,1> + 3x<8,1,1> + 6x<4,1,1>", of.gpus)},
      .method = published::paper()};
  const plan::Planner greedy(options, cost);
  options.method =
      published::paper({.dispatch_rule = published::DispatchRule::kIdeal, .ideal_node_budget = 50'000});
  const plan::Planner ideal(options, cost);
  Json ratios = Json::array();
  for (const corpus::Batch& batch : scenario.batches) {
    const auto sequences = config::sequences_of(batch.samples);
    ratios.push_back(static_cast<double>(greedy.plan(batch.step, sequences).estimated_ns) /
                     static_cast<double>(ideal.plan(batch.step, sequences).estimated_ns));
  }
  results.add(key, {{"ratios", ratios}});
}

std::vector<Case> figure_13() {
  std::vector<Case> cases;
  for (const auto& [model, gpus] : {std::pair{"7b", 8}, std::pair{"7b", 16}, std::pair{"13b", 16},
                                    std::pair{"13b", 32}, std::pair{"32b", 32}, std::pair{"32b", 64}}) {
    for (const char* corpus : {"commoncrawl", "github"}) {
      cases.push_back({"figure13", model, gpus, corpus, 16384, 100'000});
      cases.push_back({"figure13", model, gpus, corpus, 32768, 100'000});
      cases.push_back({"figure13", model, gpus, corpus, 32768, 200'000});
    }
  }
  return cases;
}

std::vector<Case> figure_14() {
  std::vector<Case> cases;
  const auto add = [&](int gpus, int64_t context, int64_t tokens) {
    cases.push_back({"figure14", "7b", gpus, "commoncrawl", context, tokens});
  };
  for (const int gpus : {16, 32, 64}) add(gpus, 32768, 200'000);
  for (const int64_t context : {16384, 65536, 131072}) add(16, context, 200'000);
  for (const int64_t tokens : {100'000, 400'000}) add(16, 32768, tokens);
  return cases;
}

void run(const std::string& part, const std::string& model, int64_t steps, Results& results) {
  const std::vector<std::string> systems = {"least_work",
                                            "sluice",
                                            "sluice_lanes",
                                            "megatron",
                                            "deepspeed",
                                            "hotspa",
                                            "flexsp",
                                            "megatron_table3",
                                            "hotspa_table3",
                                            "deepspeed_table3",
                                            "megatron_table3_packs",
                                            "hotspa_table3_packs",
                                            "deepspeed_table3_packs",
                                            "static",
                                            "hydraulis",
                                            "hydraulis_without_constants"};
  const auto wanted = [&](const char* name) { return part == "all" || part == name; };
  if (wanted("corpora")) corpora(results);
  if (wanted("figure13")) {
    for (const Case& of : figure_13()) {
      if (model.empty() || of.model == model) simulate(of, systems, steps, results);
    }
  }
  if (wanted("figure16")) {
    simulate({"figure16", "32b", 64, "commoncrawl"},
             {"megatron", "ablation_a", "ablation_b", "ablation_c", "ablation_d", "sluice", "sluice_lanes"},
             steps, results);
    simulate({"figure16", "32b", 64, "commoncrawl"}, {"hydraulis_first", "hydraulis_without_constants"},
             steps, results);
  }
  if (wanted("table1")) table_1(steps, results);
  if (wanted("figure14")) {
    for (const Case& of : figure_14()) {
      simulate(of, {"sluice", "sluice_lanes", "megatron", "deepspeed", "hotspa", "hydraulis"}, steps,
               results);
    }
  }
  if (wanted("figure15")) {
    simulate({"figure15", "32b", 64, "commoncrawl"},
             {"hydraulis", "sluice", "sluice_lanes", "megatron", "megatron_table3"}, 100, results);
  }
  if (wanted("table4")) {
    const std::vector<std::string> compared = {"hotspa", "hydraulis", "sluice", "sluice_lanes"};
    simulate({"table4", "7b", 32, "commoncrawl"}, compared, steps, results);  // Table 3 has no 7B on 32 GPUs
    for (const Case& of : {Case{"table4", "32b", 32, "commoncrawl"},
                           Case{"table4", "32b", 64, "commoncrawl", 32768, 200'000}}) {
      simulate(of, compared, steps, results);
      simulate(of, {"hotspa_table3"}, steps, results);
    }
  }
  if (wanted("table2")) {
    simulate({"table2", "32b", 64, "commoncrawl", 32768, 200'000}, {"sluice", "sluice_lanes", "hydraulis"},
             steps, results);
    simulate({"table2", "32b", 1024, "commoncrawl", 32768, 3'200'000}, {"sluice"}, steps, results);
  }
  if (wanted("figure17")) figure_17(results);
  if (wanted("figure18")) figure_18(results);
  if (wanted("figure20")) figure_20(std::min<int64_t>(steps, 10), results);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The published evaluation of Hydraulis, simulated");
  std::string out = "bench/results/paper.jsonl";
  std::string part = "all";
  std::string model;
  int64_t steps = 20;
  app.add_option("--out", out, "Results are appended here")->capture_default_str();
  app.add_option("--part", part, "corpora, figure13 … figure20, table1, table2, table4 or all")
      ->capture_default_str();
  app.add_option("--model", model, "Only this one of Figure 13: 7b, 13b or 32b");
  app.add_option("--steps", steps, "Simulated steps a scenario and system")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    Results results(out, {"figure", "model", "gpus", "corpus", "context", "tokens", "system"});
    run(part, model, steps, results);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
