// The gain from offloading that saves lanes, on 64 GPUs: mean steps of fresh batches, by the clock. The
// options compared are memory.offload = 0 and "auto" (plan::PlannerOptions::offload_saves_lanes).
//
//   spared_lanes_bench [folder of length files] [batches] [cluster]
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "session/planning_inputs.h"

namespace {

using namespace sluice;

int64_t mean_step_ns(const plan::Planner& planner, const std::vector<std::vector<int64_t>>& batches,
                     int world_size) {
  const model::ParameterTable table =
      model::parameter_table(planner.cost().options().model, planner.cost().program());
  int64_t sum_ns = 0;
  for (const std::vector<int64_t>& lengths : batches) {
    const strategy::StepPlan plan = planner.plan(0, plan::sequences_of(lengths));
    sum_ns += graph::build(plan, table, planner.cost(), world_size).makespan_ns;
  }
  return sum_ns / std::ssize(batches);
}

void compare(const session::PlanningOptions& options, int64_t batches) {
  const session::PlanningInputs inputs = session::resolve_planning(options);
  plan::PlannerOptions planner = session::planner_options(inputs);
  planner.policies = {{}};
  corpus::Sampler sampler = inputs.sampler();
  std::vector<std::vector<int64_t>> drawn;
  for (int64_t b = 0; b < batches; ++b) {
    std::vector<int64_t>& lengths = drawn.emplace_back();
    for (const corpus::Sample& sample : sampler.next().samples) lengths.push_back(sample.length_tokens);
  }
  const plan::Planner keeping = session::make_planner(planner, inputs.cost());
  planner.offload_saves_lanes = true;
  const plan::Planner choosing = session::make_planner(planner, inputs.cost());
  const int64_t before_ns = mean_step_ns(keeping, drawn, options.gpus);
  const int64_t after_ns = mean_step_ns(choosing, drawn, options.gpus);
  std::printf("| %s | %s | %s | %s | %.1f | %.1f | %.4f | %s |\n", options.model.c_str(),
              options.cluster.c_str(), options.lengths.front().stem().c_str(),
              base::human_count(options.tokens_per_step).c_str(), static_cast<double>(before_ns) / 1e6,
              static_cast<double>(after_ns) / 1e6,
              static_cast<double>(after_ns) / static_cast<double>(before_ns),
              strategy::to_text(choosing.cost().policy()).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "bench/data";
  const int64_t batches = argc > 2 ? std::stoll(argv[2]) : 8;
  const std::vector<std::string> clusters =
      argc > 3 ? std::vector<std::string>{argv[3]} : std::vector<std::string>{"a800x8", "h100x8"};
  std::printf("| model | cluster | lengths | tokens | step ms, all kept | may offload | of it | policy |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const std::string& cluster : clusters) {
    for (const char* model : {"llama-7b", "llama-13b", "llama-32b"}) {
      for (const char* lengths : {"wikipedia_lengths.txt", "code_lengths.txt", "system_lengths.txt"}) {
        for (const int64_t tokens : {200'000, 1'000'000}) {
          compare({.gpus = 64,
                   .cluster = cluster,
                   .model = model,
                   .lengths = {folder / lengths},
                   .context_length = 32'768,
                   .tokens_per_step = tokens,
                   .seed = 7},
                  batches);
        }
      }
    }
  }
  return 0;
}
