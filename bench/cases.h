// Planning benchmark cases: models, clusters and document lengths, with one lane per pipeline, with up to
// eight lanes and with the default options; and their candidate strategies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "inputs.h"
#include "model/outline.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "plan/proposal.h"
#include "plan/propose.h"

namespace sluice::bench {

inline constexpr int64_t kContextTokens = 32'768;
inline constexpr int kCandidates = 8;
inline constexpr int kAllLanes = 0;  // the default: lanes of all ranks, which may share parameters
inline constexpr int kLanes[] = {1, 8, kAllLanes};  // most lanes of a pipeline

struct Machine {
  int gpus;
  int64_t batch_tokens;
};
inline constexpr Machine kMachines[] = {{8, 100'000},   {16, 100'000},    {32, 100'000},    {64, 200'000},
                                        {256, 800'000}, {512, 1'600'000}, {1024, 3'200'000}};
inline constexpr const char* kModels[] = {"a800-7b",  "a800-13b",  "a800-32b",
                                          "llama-7b", "llama-13b", "llama-32b"};

inline std::vector<strategy::Sequence> draw(const std::vector<int64_t>& lengths, int64_t tokens,
                                            base::Rng& rng) {
  std::vector<strategy::Sequence> batch;
  for (int64_t drawn = 0; drawn < tokens; drawn += batch.back().length_tokens) {
    const int64_t length = lengths[static_cast<size_t>(rng.below(lengths.size()))];
    batch.push_back({.document = static_cast<int64_t>(batch.size()), .length_tokens = length});
  }
  return batch;
}

// A shipped calibration by name, or a model's shape on H100s.
inline cost::CostModel cost_of(const std::string& model, int gpus) {
  const std::vector<std::string> shipped = cost::shipped_names();
  if (std::find(shipped.begin(), shipped.end(), model) != shipped.end()) {
    return cost::CostModel(cost::shipped(model).options);
  }
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", gpus / 8);
  cost::AnalyticMemory memory;
  memory.device_bytes = cluster.device_memory_bytes / 10 * 9;
  memory.element_bytes = 2;
  memory.owner_bytes_per_parameter = 12;
  const std::vector<int> degrees = {1, 2, 4, 8};
  return cost::CostModel(cost::analytic_options(model::named_outline(model), cost::rates_of(cluster), memory,
                                                degrees, cluster.gpus_per_node));
}

struct Timed {
  strategy::StepPlan plan;
  double ms = 0;
};

inline double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

inline Timed timed(const plan::Planner& planner, int64_t step,
                   const std::vector<strategy::Sequence>& sequences) {
  const double begin_ms = processor_ms();
  Timed result{planner.plan(step, sequences)};
  result.ms = processor_ms() - begin_ms;
  return result;
}

struct Case {
  std::string model;
  Machine machine;
  std::string corpus;  // the corpus that gives the lengths
  int max_cp = 1;
  std::vector<int64_t> lengths;
  std::string kept;  // a folder of candidates; empty: none are kept

  std::string lanes() const { return max_cp == kAllLanes ? "all" : std::to_string(max_cp); }
  std::string name() const {
    return model + "-" + std::to_string(machine.gpus) + "-" + corpus + "-" + lanes();
  }
  std::string file() const { return kept + "/" + name() + ".txt"; }
};

inline std::vector<Case> cases(const std::string& folder, const std::string& kept) {
  std::vector<Case> all;
  for (const char* model : kModels) {
    for (const Machine& machine : kMachines) {
      for (const char* corpus : {"wikipedia", "code", "system"}) {
        const std::vector<int64_t> lengths =
            read_lengths(folder + "/" + corpus + "_lengths.txt", 2, kContextTokens);
        for (const int max_cp : kLanes) all.push_back({model, machine, corpus, max_cp, lengths, kept});
      }
    }
  }
  return all;
}

// Empty if no strategy holds the context.
inline std::vector<strategy::Strategy> proposed(const Case& of, const cost::CostModel& cost) {
  plan::PlannerOptions options{.world_size = of.machine.gpus, .context_length = kContextTokens};
  options.max_strategies = kCandidates;
  options.max_cp = of.max_cp == kAllLanes ? of.machine.gpus : of.max_cp;
  if (of.max_cp == kAllLanes) options.max_fsdp = of.machine.gpus;
  options.sample_batches = plan::stratified_batches(of.lengths, {.tokens_per_step = of.machine.batch_tokens});
  const auto proposals = plan::propose(options, cost);
  return proposals ? plan::strategies_of(*proposals) : std::vector<strategy::Strategy>{};
}

// Reads the kept candidates, or proposes and keeps them.
inline std::vector<strategy::Strategy> candidates_of(const Case& of) {
  const cost::CostModel cost = cost_of(of.model, of.machine.gpus);
  if (of.kept.empty()) return proposed(of, cost);
  std::vector<strategy::Strategy> strategies;
  if (!std::filesystem::exists(of.file())) {
    strategies = proposed(of, cost);
    std::ofstream file(of.file());
    for (const strategy::Strategy& strategy : strategies) file << to_text(strategy) << '\n';
    return strategies;
  }
  std::ifstream file(of.file());
  for (std::string line; std::getline(file, line);)
    strategies.push_back(strategy::parse_strategy(line, of.machine.gpus));
  return strategies;
}

}  // namespace sluice::bench
