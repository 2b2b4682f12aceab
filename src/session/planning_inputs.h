// Inputs for planning without a run: a cluster that need not exist, a model, its calibration, lengths and
// strategies, each by a name or a file. Commands and bindings share them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/sampler.h"
#include "cost/calibration.h"
#include "cost/measured_prices.h"
#include "session/candidates.h"
#include "strategy/cluster.h"
#include "strategy/planning_words.h"

namespace sluice::session {

// What a user asks for.
struct PlanningOptions {
  int gpus = 0;                          // 0: all of a cluster file, one node of a preset
  std::string cluster;                   // a preset or a file (JSON, TOML); empty: a800x8
  std::string model;                     // a shipped model or a Hugging Face folder; empty: calibration's
  std::string calibration = "analytic";  // a shipped fit, a file, or "analytic"
  std::optional<cost::MeasuredPrices> prices = {};  // instead of model and calibration
  std::vector<std::filesystem::path> lengths;       // corpora, lengths.json, or files with one length a line
  int64_t context_length = 0;           // tokens; longer documents are truncated; 0: the longest's length
  int64_t tokens_per_step = 200'000;    // 0: all documents are one batch
  std::vector<std::string> strategies;  // texts or files of them (session/strategy_file.h)
  int64_t seed = 1;                     // for the order of drawn documents
  strategy::StageCut stages = strategy::StageCut::kTime;
  strategy::ExchangeRule exchange = strategy::ExchangeRule::kAuto;
  strategy::MethodName method = strategy::MethodName::kOurs;
  int max_strategies = 8;  // proposed strategies at most
  int max_cp = 0;          // most lanes of a pipeline; 0: as many as the method plans
  bool fsdp = true;        // whether proposed pipelines may use FSDP
};

// The tenths of a device's memory that a plan may use unless configured otherwise.
inline constexpr int kUsableTenths = 9;

// The inputs, read and checked.
struct PlanningInputs {
  PlanningOptions options;  // with the resolved gpus, context_length and tokens_per_step
  strategy::Cluster cluster;
  cost::Calibration calibration;
  std::vector<int32_t> lengths;  // all files' documents, one after the other
  std::vector<strategy::Strategy> strategies;

  cost::CostModel cost() const { return cost::CostModel(calibration.options); }
  // The devices of ranks, if the cluster's nodes differ.
  std::vector<strategy::Device> devices() const {
    return strategy::devices_of(cluster, options.gpus, kUsableTenths);
  }
  // Lengths of the trained documents: those of 2 tokens or more, truncated to the context.
  std::vector<int64_t> sequence_lengths() const;
  // Batches of options.tokens_per_step in a seeded order, starting at the first step. Copies the lengths.
  corpus::Sampler sampler() const;
};

// With "analytic", times and memory follow the cluster: 16-bit parameters, FP32 gradients and optimizer
// states, a tenth of the memory left free. Otherwise they follow the calibration; a named cluster still
// replaces links and nodes. InputError naming the value and the way out: unknown names, unreadable files, a
// calibration of another model, no lengths, or a context shorter than 2. Also if the cluster file has fewer
// GPUs than asked for, or strategies need more.
PlanningInputs resolve_planning(const PlanningOptions& options);
// The same for the caller's lengths of documents; options.lengths is not read.
PlanningInputs resolve_planning(const PlanningOptions& options, std::vector<int32_t> lengths);
// The same without lengths, for batches that arrive one by one: gpus, cluster, calibration, strategies.
PlanningInputs resolve_machine(const PlanningOptions& options);

// The lengths in all files, one after the other, as corpus::read_lengths; InputError if a file has none.
std::vector<int32_t> read_lengths(const std::vector<std::filesystem::path>& paths);

// For files made from the inputs: the options that reproduce them, and a description of the data.
base::Json to_json(const PlanningInputs& inputs);

// Those of a planner with the inputs' cost(). Without strategies, but with lengths, they have sample batches
// to propose with.
plan::PlannerOptions planner_options(const PlanningInputs& inputs);

// A preset with so many nodes, or a cluster file (JSON or TOML) unchanged. InputError listing the presets.
strategy::Cluster find_cluster(const std::string& name, int nodes);

}  // namespace sluice::session
