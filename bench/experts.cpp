// The steps of mixtures of experts on clusters of GPUs, planned and timed by analytic costs, as a table in
// Markdown. bench/record.py experts writes it.
//
// A row is a model, a cluster and a number of tokens per rank. The step of the proposed strategies, on fresh
// batches, stands over the evenly shared work alone. Then come the strategy of most batches, and a rank's
// memory for gathered parameters and waves. The last columns are relative to our step. They are: every expert
// gathered (E = 1), rows that travel before and after products instead of beside them, and rivals with their
// best layouts by enumeration. Steps are whole ones, by the clock.
//
//   experts_bench [LENGTHS]
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/feasible.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "expert_models.h"
#include "graph/build.h"
#include "inputs.h"
#include "model/model_figures.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "session/candidates.h"
#include "study/deepspeed.h"
#include "study/megatron.h"
#include "study/rival_traits.h"

namespace {

using namespace sluice;

constexpr int64_t kContextTokens = 32'768;
constexpr int kFreshBatches = 8;
constexpr int kRivalBatches = 12;  // used to tune rivals
constexpr int kManyRanks = 512;    // from here on enumerating layouts is slow: few batches
constexpr int kMostRanks = 512;    // limit for enumerating rivals' layouts
constexpr int kFewBatches = 4;

struct Setting {
  const char* name;
  const char* config;
  const char* cluster;
  int ranks;
};
constexpr Setting kSettings[] = {
    {"Mixtral 8x7B", bench::kMixtral, "a800x8", 64}, {"Mixtral 8x7B", bench::kMixtral, "h100x8", 64},
    {"Qwen3-30B-A3B", bench::kQwen3, "h100x8", 64},  {"gpt-oss-120b", bench::kGptOss, "h100x8", 64},
    {"gpt-oss-120b", bench::kGptOss, "h100x8", 512}, {"DeepSeek-V3", bench::kDeepSeek, "h100x8", 1024},
};

std::vector<std::vector<int64_t>> batches_of(const std::vector<int64_t>& lengths, int64_t tokens, int batches,
                                             uint64_t seed) {
  return plan::stratified_batches(lengths, {.tokens_per_step = tokens, .batches = batches, .seed = seed});
}

// A whole step by the clock: pull, passes, push and update.
int64_t step_ns(const strategy::StepPlan& plan, const cost::CostModel& cost, int ranks) {
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  return graph::build(plan, table, cost, ranks, {.disabled_passes = {"verify"}}).makespan_ns;
}

// The mean step over fresh batches, and the strategy of most of them.
struct Steps {
  double mean_ns = 0;
  std::string usual;
};

Steps steps_of(const plan::Planner& planner, const std::vector<std::vector<int64_t>>& batches) {
  Steps steps;
  std::map<std::string, int> taken;
  for (const std::vector<int64_t>& batch : batches) {
    const strategy::StepPlan plan = planner.plan(0, plan::sequences_of(batch));
    steps.mean_ns += static_cast<double>(step_ns(plan, planner.cost(), planner.options().world_size)) /
                     static_cast<double>(batches.size());
    ++taken[to_text(plan.strategy())];
  }
  steps.usual = std::ranges::max_element(taken, {}, [](const auto& each) { return each.second; })->first;
  return steps;
}

// The time of one rank for a batch, without memory limits, divided by the number of ranks.
double alone_ns(const std::vector<std::vector<int64_t>>& batches, const cost::CostModel& cost, int ranks) {
  double sum = 0;
  const cost::Quadratic times = cost.stage_times({}, 0);
  for (const std::vector<int64_t>& batch : batches) {
    for (const int64_t length : batch)
      sum +=
          static_cast<double>(times.of_work(cost::Work::of(std::vector{length}, cost.window())) - times.c_ns);
  }
  return sum / static_cast<double>(batches.size()) / ranks;
}

// The planner's mean step under other costs; 0: it does not fit.
double mean_ns(plan::PlannerOptions options, const cost::CostModel& cost,
               const std::vector<std::vector<int64_t>>& batches) {
  options.step_overhead = {};
  try {
    return steps_of(plan::Planner(std::move(options), cost), batches).mean_ns;
  } catch (const base::InfeasibleError&) {
    return 0;
  }
}

// The mean step of the proposed strategies with every expert gathered.
double gathering_ns(const plan::Planner& planner, const std::vector<std::vector<int64_t>>& batches) {
  plan::PlannerOptions options = planner.options();
  for (strategy::Strategy& candidate : options.candidates) {
    for (strategy::Pipeline& pipeline : candidate.pipelines) pipeline.scheme.ep = 1;
  }
  return mean_ns(std::move(options), planner.cost(), batches);
}

// The mean step if no product hides travel.
double waiting_ns(const plan::Planner& planner, const std::vector<std::vector<int64_t>>& batches) {
  return mean_ns(planner.options(), study::with_traits(planner.cost(), {.dispatch_waits = true}), batches);
}

struct Rival {
  std::string configuration = "does not fit";
  double mean_ns = 0;
};

using MakeSystem = std::unique_ptr<study::System> (*)(const study::SystemInputs&);

Rival rival(MakeSystem make, const study::SystemInputs& inputs,
            const std::vector<std::vector<int64_t>>& batches) {
  try {
    const std::unique_ptr<study::System> system = make(inputs);
    Rival found{.configuration = system->configuration()};
    for (const std::vector<int64_t>& batch : batches) {
      const study::SystemStep step = system->step(0, plan::sequences_of(batch));
      const int64_t ns = step.before_ns + step_ns(step.plan, system->cost(), inputs.world_size);
      found.mean_ns += static_cast<double>(ns) / static_cast<double>(batches.size());
    }
    return found;
  } catch (const base::InfeasibleError&) {
    return {};
  }
}

std::string fixed(double value, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string gibibytes(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30), 1);
}

std::string multiple(double ns, double of_ns) { return ns == 0 ? "does not fit" : fixed(ns / of_ns, 2); }

void print(const Setting& setting, int64_t tokens_a_rank, const std::vector<int64_t>& lengths) {
  const cost::CostModel cost(bench::expert_costs(setting.config, setting.cluster, setting.ranks));
  const int64_t tokens = tokens_a_rank * setting.ranks;
  const bool many = setting.ranks >= kManyRanks;
  const std::string head = base::text("| ", setting.name, " | ", setting.ranks, " x ", setting.cluster, " | ",
                                      tokens_a_rank, " | ");
  const plan::PlannerOptions options{
      .world_size = setting.ranks,
      .policies = {{}},
      .context_length = kContextTokens,
      .sample_batches = batches_of(lengths, tokens, many ? kRivalBatches : 48, 1),
      .max_cp = 0,
      .max_fsdp = 0};
  std::optional<plan::Planner> planner;
  try {
    planner = session::make_planner(options, cost);
  } catch (const base::InfeasibleError&) {
    std::printf("%snone holds it | | | | | | | | |\n", head.c_str());
    return;
  }
  const auto fresh = batches_of(lengths, tokens, many ? kFewBatches : kFreshBatches, 1'000'003);
  const double alone = alone_ns(fresh, cost, setting.ranks);
  const Steps steps = steps_of(*planner, fresh);
  const strategy::Scheme scheme =
      strategy::parse_strategy(steps.usual, setting.ranks).pipelines.front().scheme;
  const cost::MemoryCost memory(cost, scheme);
  int64_t window = 0;
  for (const cost::CellKind kind : {cost::CellKind::kForward, cost::CellKind::kBackward})
    window = std::max(window, memory.gathered_bytes(kind, cost.stage_run(scheme, 0)));
  const int64_t waves =
      model::dispatch_chunk_bytes(cost.options().model, {.tp = scheme.tp, .expert_lanes = scheme.ep}, 2);
  std::printf("%s%s%s | %.2f | %s | %s | %s | %s | ", head.c_str(), steps.usual.c_str(),
              planner->cost().policy().recompute_dispatch ? ", visits again" : "", steps.mean_ns / alone,
              multiple(gathering_ns(*planner, fresh), alone).c_str(),
              scheme.ep > 1 ? multiple(waiting_ns(*planner, fresh), alone).c_str() : "",
              gibibytes(window).c_str(), gibibytes(waves).c_str());
  const study::SystemInputs inputs{
      .cluster = strategy::cluster_preset(setting.cluster, setting.ranks / 8),
      .world_size = setting.ranks,
      .cost = cost,
      .context_length = kContextTokens,
      .max_cp = setting.ranks,
      .sample_batches = batches_of(lengths, tokens, many ? kFewBatches : kRivalBatches, 1)};
  if (setting.ranks > kMostRanks) {
    std::printf("| | |\n");
    return;
  }
  std::vector<std::string> rivals;
  for (const auto make : {static_cast<MakeSystem>(study::make_megatron), study::make_fsdp,
                          static_cast<MakeSystem>(study::make_deepspeed)}) {
    const Rival found = rival(make, inputs, fresh);
    rivals.push_back(found.mean_ns == 0
                         ? found.configuration
                         : base::text(fixed(found.mean_ns / steps.mean_ns, 2), ": ", found.configuration));
  }
  std::printf("%s |\n", base::join(rivals, " | ").c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<int64_t> lengths =
        bench::read_lengths(argc > 1 ? argv[1] : "bench/data/code_lengths.txt", 2, kContextTokens);
    std::printf(
        "| model | GPUs | tokens a rank | usual strategy | step ÷ work | with E = 1 | travel waits | window, "
        "GiB | waves, GiB | Megatron-LM | FSDP | DeepSpeed |\n"
        "|---|---|---:|---|---:|---:|---:|---:|---:|---:|---|---|---|\n");
    for (const Setting& setting : kSettings) {
      for (const int64_t tokens : {2'048, 8'192, 32'768}) {
        if (setting.ranks < kManyRanks || tokens == 8'192) print(setting, tokens, lengths);
      }
    }
  } catch (const base::InputError& error) {
    std::fprintf(stderr, "experts_bench: %s\n", error.what());
    return 2;
  }
}
