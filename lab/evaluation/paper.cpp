// The evaluation of Hydraulis (arXiv 2412.07894, section 8 and appendices), simulated. The systems are those
// of Figures 13 to 16 and Tables 1, 3 and 4, under the published calibrations; paper_appendix.cpp has Figures
// 17 to 20 and appendix B.2. Results are JSON lines, appended to the given file; existing results are not
// computed again. lab/evaluation/paper_page.py turns them into docs/evaluation.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cost/measured_passes.h"
#include "cost/memory_cost.h"
#include "graph/build.h"
#include "paper_case.h"
#include "published/static_strategy.h"
#include "report/run_summary.h"
#include "result_lines.h"
#include "schedule/pipeline_schedule.h"
#include "session/sampling.h"
#include "solved_flexsp.h"
#include "study/comparison.h"
#include "study/hydraulis.h"
#include "study/least_work.h"
#include "study/rival_traits.h"
#include "study/scenario.h"
#include "study/simulation.h"
#include "study/system_kinds.h"
#include "table_3.h"

namespace {

using namespace sluice;
using base::Json;
using base::text;
using bench::Case;
using bench::key_of;
using bench::scenario_of;
using Results = bench::ResultLines;

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
    const int64_t ns = load.micro_batches.empty() ? 0 : schedule::schedule_pipeline(load).makespan_ns;
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
    switch_share +=
        static_cast<double>(step.shares.strategy_switch_ns) / static_cast<double>(run.steps.size());
  }
  // One entry stands for all if they are equal.
  if (!strategies.empty() && std::ranges::count(strategies, strategies.front()) == std::ssize(strategies)) {
    strategies = Json::array({strategies.front()});
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

// A system whose planning time and plan balance are recorded.
class Observed : public study::System {
 public:
  Observed(const Case& of, const std::string& name, const study::SystemInputs& inputs)
      : flexsp_(of.milp_seconds), world_size_(inputs.world_size) {
    const double start_s = processor_s();
    system_ = name == "flexsp" ? flexsp_.make(inputs) : make(of, name, inputs);
    setup_s_ = processor_s() - start_s;
  }
  std::string configuration() const override { return system_->configuration(); }
  const cost::CostModel& cost() const override { return system_->cost(); }
  study::SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    const double start_s = processor_s();
    study::SystemStep step = system_->step(number, sequences);
    step_s_ += processor_s() - start_s;
    spreads_.push_back(spread_of(step.plan, system_->cost(), world_size_));
    estimates_.push_back(step.before_ns + step.plan.estimated_ns);
    Json& candidates = candidates_.emplace_back(Json::object());
    for (const strategy::CandidateEstimate& of : step.plan.candidates)
      candidates[of.strategy] = of.estimated_ns;
    switch_ns_ += step.switch_ns;
    gathers_between_nodes_ |= study::gathers_between_nodes(step.plan, system_->cost().options().topology);
    return step;
  }
  // Whether the second overlap differs.
  bool gathers_between_nodes() const { return gathers_between_nodes_; }
  // The estimates of steps, and of all candidates if the system has some.
  Json expectations() const { return {{"estimates_ns", estimates_}, {"candidates", candidates_}}; }
  Json observations() const {
    const auto steps = static_cast<int64_t>(std::max<size_t>(spreads_.size(), 1));
    Json seen = {
        {"spreads",
         std::vector<double>(spreads_.begin(), spreads_.begin() + std::min<std::ptrdiff_t>(steps, kSpreads))},
        {"switch_ns", switch_ns_ / steps},
        {"setup_cpu_s", setup_s_},
        {"step_cpu_s", step_s_ / static_cast<double>(steps)}};
    if (Json counts = flexsp_.counts(); !counts.is_null()) seen["milp"] = std::move(counts);
    return seen;
  }

 private:
  static constexpr std::ptrdiff_t kSpreads = 5;
  std::unique_ptr<study::System> system_;
  bench::SolvedFlexSp flexsp_;
  int world_size_;
  double setup_s_ = 0;
  double step_s_ = 0;
  int64_t switch_ns_ = 0;
  bool gathers_between_nodes_ = false;
  std::vector<double> spreads_;  // by step
  std::vector<int64_t> estimates_;
  std::vector<Json> candidates_;
};

// The lower bound for all plans, with one rank alone among the schemes.
Json least_work(const study::Scenario& scenario) {
  const study::SystemInputs& inputs = scenario.inputs;
  const std::span models(&inputs.cost, 1);
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

// The busiest stage's computing time: no order of its cells ends sooner, nor do interleaved stages.
int64_t busiest_stage_ns(const strategy::StepPlan& plan, const cost::CostModel& cost, int world_size) {
  int64_t busiest_ns = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, world_size);
    std::vector<int64_t> stages(static_cast<size_t>(load.stages), 0);
    for (const schedule::TimedMicroBatch& micro_batch : load.micro_batches) {
      for (size_t s = 0; s < stages.size(); ++s)
        stages[s] +=
            micro_batch.forward_ns[s] + micro_batch.backward_input_ns[s] + micro_batch.backward_weight_ns[s];
    }
    busiest_ns = std::max(busiest_ns, *std::ranges::max_element(stages));
  }
  return busiest_ns;
}

// Megatron-LM with several stages without bubbles: a bound on interleaved stages. The best strategy and
// micro-batch length for these very batches; pull and push are not counted.
Json without_bubbles(const study::Scenario& scenario) {
  const study::SystemInputs& inputs = scenario.inputs;
  const cost::CostModel cost = study::one_backward_cell(inputs.cost);
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  std::string best;
  const auto consider = [&](published::StaticStrategy choice) {
    int64_t total_ns = 0;
    for (const corpus::Batch& batch : scenario.batches) {
      std::vector<int64_t> lengths;
      for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
      const strategy::StepPlan plan = published::static_plan(choice, lengths, cost, inputs.world_size);
      total_ns += busiest_stage_ns(plan, cost, inputs.world_size);
    }
    if (total_ns >= least_ns) return;
    least_ns = total_ns;
    best = to_text(choice);
  };
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {2, 4, 8}) {
      for (const int cp : {1, 2, 4, 8}) {
        const strategy::Scheme scheme{.tp = tp, .pp = pp, .cp = cp};
        if (inputs.world_size % scheme.ranks() != 0 || !cost.has_scheme(scheme)) continue;
        const int64_t holds = cost::MemoryCost(cost, scheme).max_len_tokens(inputs.world_size);
        if (holds * cp < inputs.context_length) continue;
        for (int64_t tokens = holds; tokens >= holds / 8 && tokens > 0; tokens /= 2) {
          consider({.scheme = scheme,
                    .pipelines = inputs.world_size / scheme.ranks(),
                    .micro_batch_tokens = tokens});
        }
      }
    }
  }
  if (best.empty()) return {{"infeasible", "no strategy of several stages holds the context"}};
  return {{"configuration", best}, {"mean_ns", least_ns / static_cast<int64_t>(scenario.batches.size())}};
}

// Simulates a system and appends its result under a title. Returns whether the second overlap differs.
bool simulate_as(const std::string& title, const Case& of, const std::string& name,
                 const study::SystemInputs& inputs, const study::Scenario& scenario, Results& results) {
  try {
    Observed system(of, name, inputs);
    study::Simulation simulation =
        study::simulate(system, scenario.batches, scenario.table, {.world_size = inputs.world_size});
    simulation.run.configuration = system.configuration();
    Json result = run_json(simulation.run);
    result.update(system.observations());
    if (of.figure == "figure15") result.update(system.expectations());
    results.add(key_of(of, title), result);
    return system.gathers_between_nodes();
  } catch (const base::InfeasibleError& error) {
    results.add(key_of(of, title), {{"infeasible", error.what()}});
    return false;
  }
}

// Appends one system's result and, if the second overlap differs, the "NAME_measured" result under it.
void simulate_system(const Case& of, const std::string& name, const study::Scenario& scenario,
                     Results& results) {
  study::SystemInputs inputs = scenario.inputs;
  if (name == "sluice") inputs.max_cp = 1;
  if (!simulate_as(name, of, name, inputs, scenario, results)) return;
  inputs.cost = cost::with_measured_passes(inputs.cost);
  simulate_as(name + "_measured", of, name, inputs, scenario, results);
}

void simulate(const Case& of, const std::vector<std::string>& systems, int64_t steps, Results& results) {
  std::optional<study::Scenario> scenario;
  for (const std::string& name : systems) {
    const Json key = key_of(of, name);
    if (results.has(key)) continue;
    if (!scenario) scenario = scenario_of(of, steps);
    if (name == "least_work") {
      results.add(key, least_work(*scenario));
    } else if (name == "megatron_without_bubbles") {
      results.add(key, without_bubbles(*scenario));
    } else {
      simulate_system(of, name, *scenario, results);
    }
  }
}

// Table 1's parts of one system's steps: propagation, the update, and the time added by pull and push.
Json breakdown(study::System& system, const study::Scenario& scenario,
               const std::set<std::string>& left_out) {
  int64_t propagation_ns = 0;
  int64_t update_ns = 0;
  int64_t all_ns = 0;
  for (const corpus::Batch& batch : scenario.batches) {
    const study::SystemStep step = system.step(batch.step, session::sequences_of(batch.samples));
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

void table_1(const char* corpus, int64_t steps, Results& results) {
  const Case of{"table1", "32b", 64, corpus, 32768, 200'000};
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

// Cases of the design's goals beside the paper's scenarios, on lengths not used for tuning.
std::vector<Case> goals() {
  return {{"goals", "32b", 64, "system", 32768, 100'000},
          {"goals", "32b", 64, "system", 32768, 200'000},
          {"goals", "7b", 64, "system", 32768, 200'000},
          {"goals", "13b", 32, "system", 32768, 100'000}};
}

// Sluice with increasing numbers of lanes, sharing parameters or not: the mean step never gets longer.
void freedom(int64_t steps, Results& results) {
  for (const auto& [model, gpus] : {std::pair{"7b", 16}, std::pair{"13b", 32}, std::pair{"32b", 64}}) {
    for (const char* corpus : {"wikipedia", "code"}) {
      const Case of{"freedom", model, gpus, corpus, 32768, 200'000};
      for (int lanes = 1; lanes <= gpus; lanes *= 2) {
        for (const bool share : {false, true}) {
          if (lanes == 1 && share) continue;
          const std::string title = std::to_string(lanes) + (share ? " lanes, shared" : " lanes");
          if (results.has(key_of(of, title))) continue;
          study::Scenario scenario = scenario_of(of, steps);
          scenario.inputs.max_cp = lanes;
          scenario.inputs.planner.max_fsdp = share ? 0 : 1;
          simulate_as(title, of, "sluice_lanes", scenario.inputs, scenario, results);
        }
      }
    }
  }
}

// Token counts are appendix F's, which are printed there. The paper's sections 8.2 and 8.4 give 100K as
// default, but Table 1's times equal those of Table 4's 200K.
void interpretation(const std::string& part, int64_t steps, Results& results) {
  for (const char* corpus : {"commoncrawl", "github"}) {
    const auto of = [&](const char* figure) { return Case{figure, "32b", 64, corpus, 32768, 200'000}; };
    if (part == "all" || part == "figure16") {
      simulate(of("figure16"),
               {"megatron", "ablation_a", "ablation_b", "ablation_c", "ablation_d", "hydraulis_first",
                "hydraulis_printed", "sluice", "sluice_lanes"},
               steps, results);
    }
    if (part == "all" || part == "table1") table_1(corpus, steps, results);
    if (part == "all" || part == "figure15") {
      simulate(of("figure15"), {"hydraulis", "sluice_lanes", "megatron", "megatron_table3"}, 100, results);
    }
    if (part != "all" && part != "table4") continue;
    // Table 3 has no 7B on 32 GPUs.
    simulate({"table4", "7b", 32, corpus}, {"hotspa", "hydraulis", "sluice_lanes"}, steps, results);
    for (const Case& printed :
         {Case{"table4", "32b", 32, corpus}, Case{"table4", "32b", 64, corpus, 32768, 200'000}}) {
      simulate(printed, {"hotspa", "hotspa_table3", "hydraulis", "sluice_lanes"}, steps, results);
    }
  }
}

void run(const std::string& part, const std::string& model, int64_t steps, double milp_seconds,
         Results& results) {
  const std::vector<std::string> systems = {"least_work",
                                            "sluice",
                                            "sluice_lanes",
                                            "megatron",
                                            "megatron_without_bubbles",
                                            "deepspeed",
                                            "fsdp",
                                            "hotspa",
                                            "flexsp",
                                            "megatron_dcp",
                                            "byte_scale",
                                            "megatron_table3",
                                            "hotspa_table3",
                                            "deepspeed_table3",
                                            "megatron_table3_packs",
                                            "hotspa_table3_packs",
                                            "deepspeed_table3_packs",
                                            "static",
                                            "hydraulis",
                                            "hydraulis_printed"};
  const auto wanted = [&](const char* name) { return part == "all" || part == name; };
  if (wanted("corpora")) bench::corpora(results);
  if (wanted("figure13")) {
    for (Case of : figure_13()) {
      of.milp_seconds = milp_seconds;
      if (model.empty() || of.model == model) simulate(of, systems, steps, results);
    }
  }
  if (wanted("goals")) {
    for (Case of : goals()) {
      of.milp_seconds = milp_seconds;
      simulate(of, {"least_work", "sluice_lanes", "megatron", "deepspeed", "fsdp", "flexsp"}, steps, results);
    }
  }
  interpretation(part, steps, results);
  if (wanted("freedom")) freedom(steps, results);
  if (wanted("figure14")) {
    for (const Case& of : figure_14()) {
      simulate(of, {"sluice", "sluice_lanes", "megatron", "deepspeed", "hotspa", "hydraulis"}, steps,
               results);
    }
  }
  if (wanted("table2")) {
    simulate({"table2", "32b", 64, "commoncrawl", 32768, 200'000}, {"sluice", "sluice_lanes", "hydraulis"},
             steps, results);
    simulate({"table2", "32b", 1024, "commoncrawl", 32768, 3'200'000}, {"sluice"}, steps, results);
  }
  if (wanted("figure17")) bench::figure_17(results);
  if (wanted("figure18")) bench::figure_18(results);
  if (wanted("figure19b")) bench::figure_19b(results);
  if (wanted("figure20")) bench::figure_20(std::min<int64_t>(steps, 10), results);
  if (wanted("appendix_b2")) bench::appendix_b2(results);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The published evaluation of Hydraulis, simulated");
  std::string out = "bench/results/paper.jsonl";
  std::string part = "all";
  std::string model;
  int64_t steps = 20;
  double milp_seconds = 0;
  app.add_option("--out", out, "Results are appended here")->capture_default_str();
  app.add_option("--part", part,
                 "corpora, figure13 … figure20, table1, table2, table4, appendix_b2, goals, freedom or all")
      ->capture_default_str();
  app.add_option("--model", model, "Only this one of Figure 13: 7b, 13b or 32b");
  app.add_option("--steps", steps, "Simulated steps a scenario and system")->capture_default_str();
  app.add_option("--milp-seconds", milp_seconds, "So long FlexSP's MILP is solved for each micro-batch")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    Results results(out, {"figure", "model", "gpus", "corpus", "context", "tokens", "system"});
    run(part, model, steps, milp_seconds, results);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
