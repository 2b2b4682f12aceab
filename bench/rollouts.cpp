// The time of a reinforcement learning iteration on a cluster that need not exist, by costs alone, as tables
// in Markdown; bench/record.py rollouts writes them.
//
// An iteration generates responses of heavy-tailed lengths, moves parameters to the generating layout, and
// trains on the responses in mini-batches. Generation tries every layout and simulates sequences with the
// scheduler that serves. Updates are planned by this planner, and by the best fixed layout of the systems
// with which verl trains, by one clock.
//
//   rollouts_bench [MODEL …]
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "cost/parameter_counts.h"
#include "inference/layouts.h"
#include "lognormal.h"
#include "session/planning_inputs.h"
#include "study/comparison.h"

namespace {

using namespace sluice;

constexpr int kGpus = 64, kGpusPerNode = 8, kSamples = 16, kUpdates = 16;
constexpr int64_t kPrompt = 512;
constexpr double kCacheShare = 0.5;  // share of a device's memory after its owned parameters

// Distribution of response lengths: log-normal, cut at the rollout's limit.
struct Tail {
  const char* name;
  int responses;
  double median, sigma;
  int64_t most;
};
constexpr Tail kTails[] = {{"median 2,500, sigma 0.9, at most 20,480", 8192, 2500, 0.9, 20'480},
                           {"median 1,000, sigma 1.2, at most 20,480", 8192, 1000, 1.2, 20'480},
                           {"median 4,000, sigma 0.8, at most 32,768", 2048, 4000, 0.8, 32'768}};

std::vector<inference::RequestLengths> load_of(const Tail& tail) {
  base::Rng rng(7);
  std::vector<inference::RequestLengths> load(static_cast<size_t>(tail.responses / kSamples));
  for (inference::RequestLengths& request : load) {
    request = {.prompt = kPrompt, .max_tokens = tail.most, .output_lens = {}};
    for (int sample = 0; sample < kSamples; ++sample) {
      request.output_lens.push_back(bench::lognormal_tokens(rng, tail.median, tail.sigma, tail.most));
    }
  }
  return load;
}

int64_t tokens_of(const std::vector<inference::RequestLengths>& load) {
  int64_t tokens = 0;
  for (const inference::RequestLengths& request : load)
    for (const int64_t said : request.output_lens) tokens += said + request.prompt;
  return tokens;
}

session::PlanningInputs inputs_of(const std::string& model,
                                  const std::vector<inference::RequestLengths>& load, int64_t most) {
  std::vector<int32_t> lengths;
  for (const inference::RequestLengths& request : load)
    for (const int64_t said : request.output_lens)
      lengths.push_back(static_cast<int32_t>(said + request.prompt));
  session::PlanningOptions options{.gpus = kGpus, .cluster = "h100x8", .model = model};
  options.context_length = kPrompt + most;
  options.tokens_per_step = tokens_of(load) / kUpdates;
  return session::resolve_planning(options, std::move(lengths));
}

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Seconds of all updates of a rollout; NaN if the system can't run them.
double updates_s(const study::SystemResult& result) {
  if (result.run.steps.empty()) return std::nan("");
  double sum = 0;
  for (const report::StepRecord& step : result.run.steps) sum += seconds(step.time_ns);
  return sum;
}

// Resharding as in HybridFlow's engine, from parameters divided by TP over a node to groups of fewer TP
// ranks. Each rank gathers the others' parts of its group (Sheng et al., 2025, table 2): (t·p − t_g·p_g) ÷
// (t_g·p_g·t·p) of the model.
int64_t reshard_ns(const cost::CostModel& cost, const strategy::Scheme& scheme) {
  const int64_t trained = inference::parameter_bytes(cost, {.tp = kGpusPerNode});
  const int64_t held = inference::parameter_bytes(cost, scheme);
  return held > trained ? cost.exchange_ns(held - trained, /*level=*/0) : 0;
}

void print_tail(const std::string& model, const Tail& tail) {
  const std::vector<inference::RequestLengths> load = load_of(tail);
  const session::PlanningInputs inputs = inputs_of(model, load, tail.most);
  const cost::CostModel cost = inputs.cost();
  const int64_t device = cost.options().memory.device_bytes;
  const inference::KvCacheBudget room{.cache_bytes = kCacheShare * static_cast<double>(device),
                                      .max_num_seqs = 1024};
  const cost::MemoryModel& memory = cost.options().memory;
  const int64_t owned = cost::all_parameters(cost.program(), memory).all / kGpus;
  const int64_t left = device - static_cast<int64_t>(room.cache_bytes) - memory.owner_bytes(owned, owned);
  const std::vector<inference::GenerationLayout> layouts = inference::generation_layouts(
      cost, inference::generation_schemes(cost, kGpus, left), load, room, kGpus);
  std::printf("\n**%s, %s responses of %s** (%.1fM tokens with prompts of %lld)\n\n", model.c_str(),
              base::human_count(tail.responses).c_str(), tail.name,
              static_cast<double>(tokens_of(load)) / 1e6, static_cast<long long>(kPrompt));
  std::printf(
      "| saying on | bring parameters, ms | as HybridFlow, ms | say, s | over the best | put off |\n"
      "|---|---:|---:|---:|---:|---:|\n");
  for (const inference::GenerationLayout& layout : layouts) {
    if (layout.scheme.pp > 1) continue;  // stages wait for each other here: never the best
    std::printf("| %s | %.0f | %.0f | %.1f | %.2f | %s |\n", to_text(layout.strategy()).c_str(),
                1e3 * seconds(layout.pull_ns), 1e3 * seconds(reshard_ns(cost, layout.scheme)),
                seconds(layout.generation_ns),
                static_cast<double>(layout.ns()) / static_cast<double>(layouts.front().ns()),
                base::human_count(layout.preemptions).c_str());
  }
  const study::Scenario scenario = study::scenario_of(inputs, kUpdates);
  const std::vector<study::SystemResult> results =
      study::compare(scenario, {.systems = {"sluice", "megatron", "deepspeed"}});
  const double saying = seconds(layouts.front().ns());
  std::printf("\n| updates by | %d updates, s | iteration, s | over Sluice |\n|---|---:|---:|---:|\n",
              kUpdates);
  const double ours = saying + updates_s(results.front());
  for (const study::SystemResult& result : results) {
    const double updates = updates_s(result);
    std::printf("| %s %s | %.1f | %.1f | %.2f |\n", result.run.title.c_str(),
                result.run.configuration.c_str(), updates, saying + updates, (saying + updates) / ours);
  }
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> models(words + 1, words + count);
  if (models.empty()) models = {"llama-7b", "llama-32b"};
  std::printf("%d H100s, eight a node; half of a device's memory is for keys and values.\n", kGpus);
  for (const std::string& model : models)
    for (const Tail& tail : kTails) print_tail(model, tail);
}
