// What planning needs when there is no run: a cluster that one may not have, a model, its calibration,
// lengths and strategies, each by a name or a file. Commands and bindings share it.
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

namespace sluice::session {

struct PlanningOptions {
  int gpus = 0;                          // 0: all of a cluster file, one node of a preset
  std::string cluster;                   // a preset or a file (JSON, TOML); empty: a800x8
  std::string model;                     // a shipped shape or a Hugging Face folder; empty: calibration's
  std::string calibration = "analytic";  // a shipped fit, a file, or "analytic"
  std::optional<cost::MeasuredPrices> prices = {};  // in place of model and calibration
  std::vector<std::filesystem::path> lengths;       // corpora, lengths.json, or files with one length a line
  int64_t context_length = 0;           // tokens; longer documents are truncated; 0: the longest's length
  int64_t tokens_per_step = 200'000;    // 0: all documents are one batch
  std::vector<std::string> strategies;  // texts or files of them (session/strategy_file.h)
  int64_t seed = 1;                     // of the order in which documents are drawn
  std::string stages = "time";          // what stages are cut by: time or layers
  std::string exchange = "auto";        // between lanes (cost::parse_exchange_set)
};

// Of a device's memory, as far as nobody says, what a plan may use.
inline constexpr int kUsableTenths = 9;

// Everything read and checked.
struct PlanningInputs {
  PlanningOptions options;  // gpus, context_length and tokens_per_step as they turned out
  strategy::Cluster cluster;
  cost::Calibration calibration;
  std::vector<int32_t> lengths;  // of the documents of all files, one after the other
  std::vector<strategy::Strategy> strategies;

  cost::CostModel cost() const { return cost::CostModel(calibration.options); }
  // What ranks compute on, where the cluster's nodes differ.
  std::vector<strategy::Device> devices() const {
    return strategy::devices_of(cluster, options.gpus, kUsableTenths);
  }
  // Of the documents that are trained on: those of 2 tokens or more, truncated to the context.
  std::vector<int64_t> sequence_lengths() const;
  // Batches of options.tokens_per_step in a seeded order, the first step's first. Copies the lengths.
  corpus::Sampler sampler() const;
};

// With "analytic", times and memory follow the cluster: 16-bit parameters, FP32 gradients and optimiser
// states, a tenth of the memory left free. Otherwise they follow the calibration, except that a cluster which
// is named brings its links and nodes. InputError naming the value and the way out: unknown names, files that
// cannot be read, a calibration of another model, more GPUs than the cluster file has, strategies that need
// more GPUs, a context shorter than 2, no lengths.
PlanningInputs resolve_planning(const PlanningOptions& options);
// The same for lengths of documents that the caller has; options.lengths is not read.
PlanningInputs resolve_planning(const PlanningOptions& options, std::vector<int32_t> lengths);
// The same without lengths, for batches that come one by one: gpus, cluster, calibration and strategies.
PlanningInputs resolve_machine(const PlanningOptions& options);

// The lengths behind all paths, one after the other, as corpus::read_lengths; InputError when one has none.
std::vector<int32_t> read_lengths(const std::vector<std::filesystem::path>& paths);

// For files made from the inputs: what to give again for the same result, and which data that was.
base::Json to_json(const PlanningInputs& inputs);

// The inputs as a task, with their strategies in place of the choices'; without any, and with lengths, sample
// batches to propose with.
PlanningTask task_of(const PlanningInputs& inputs, PlannerChoices choices);

// A preset with so many nodes, or a cluster file, JSON or TOML, as it is. InputError listing the presets.
strategy::Cluster find_cluster(const std::string& name, int nodes);

}  // namespace sluice::session
