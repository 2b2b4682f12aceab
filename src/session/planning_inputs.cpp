#include "session/planning_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/toml.h"
#include "corpus/lengths.h"
#include "cost/analytic.h"
#include "cost/cut_stages.h"
#include "cost/exchange.h"
#include "cost/shipped.h"
#include "session/methods.h"
#include "session/public_models.h"
#include "session/strategy_file.h"

namespace sluice::session {

namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Json;
using base::text;

constexpr const char* kAnalytic = "analytic";
constexpr const char* kDefaultCluster = "a800x8";

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A part of a message: "did you mean …", and the known names.
std::string suggestion(const std::string& value, const std::vector<std::string>& known) {
  const std::string nearest = base::nearest_word(value, known);
  return text(nearest.empty() ? "" : text("did you mean '", nearest, "'? "), "known are ",
              base::join(known, ", "));
}

// Whether the name is a preset, which has as many nodes as it is asked for.
bool is_preset(const std::string& name) {
  const std::vector<std::string> presets = strategy::cluster_preset_names();
  return std::ranges::find(presets, name) != presets.end();
}

// Sets options.gpus if it is 0. A preset gets as many nodes as the GPUs need.
strategy::Cluster resolve_cluster(PlanningOptions& options) {
  if (options.gpus < 0) throw InputError(text("gpus is ", options.gpus, ": give 1 or more"));
  const std::string& name = options.cluster.empty() ? kDefaultCluster : options.cluster;
  if (is_preset(name)) {
    strategy::Cluster cluster = strategy::cluster_preset(name, 1);
    if (options.gpus == 0) options.gpus = cluster.gpus_per_node;
    const int nodes = (options.gpus + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
    return strategy::cluster_preset(name, nodes);
  }
  strategy::Cluster cluster = find_cluster(name, 1);
  if (options.gpus == 0) options.gpus = cluster.gpus();
  if (options.gpus > cluster.gpus()) {
    throw InputError(text(name, " has ", cluster.gpus(), " GPUs but gpus is ", options.gpus,
                          ": lower it, or ", is_there(name) ? "raise the file's nodes" : "name more nodes"));
  }
  return cluster;
}

cost::Calibration analytic(const PlanningInputs& inputs) {
  if (inputs.options.model.empty()) {
    throw InputError(
        "no model is given: name a public model, as qwen3-8b or llama-7b, or a Hugging Face folder as model, "
        "or a calibration that has one");
  }
  const model::Model model = model_to_plan(inputs.options.model);
  const cost::AnalyticMemory memory{.device_bytes = inputs.cluster.device_memory_bytes / 10 * kUsableTenths,
                                    .element_bytes = 2,
                                    .host_bytes = cost::host_bytes_of(inputs.cluster)};
  return {inputs.cluster.name, cost::analytic_source(model, "the cluster"),
          cost::analytic_options(
              model, cost::rates_of(inputs.cluster), memory,
              tensor_parallel_degrees(model, inputs.strategies,
                                      std::min(inputs.options.gpus, inputs.cluster.gpus_per_node)),
              inputs.cluster.topology())};
}

// Replaces the calibrated links, host memory and nodes by the cluster's.
void move_to(const strategy::Cluster& cluster, cost::CostModel::Options& options) {
  const cost::CostModel::Options machine =
      cost::analytic_options(options.model, cost::rates_of(cluster), {}, {}, cluster.topology());
  options.intra = machine.intra;
  options.inter = machine.inter;
  options.beyond = machine.beyond;
  options.host = machine.host;
  options.memory.host_bytes = cost::host_bytes_of(cluster);
  options.topology = machine.topology;
}

cost::Calibration resolve_calibration(const PlanningInputs& inputs) {
  const std::string& name = inputs.options.calibration;
  if (inputs.options.prices) return cost::calibration_of(*inputs.options.prices);
  if (name == kAnalytic) return analytic(inputs);
  std::vector<std::string> known = cost::shipped_names();
  if (std::ranges::count(known, name) == 0 && !is_there(name)) {
    known.push_back(kAnalytic);
    throw InputError(text("calibration '", name, "' is no shipped fit and no file: ", suggestion(name, known),
                          "; or give a calibration.json"));
  }
  cost::Calibration calibration = cost::find_calibration(name);
  const std::string& model = inputs.options.model;
  const std::string fault = model.empty() ? "" : cost::model_fault(calibration, model_to_plan(model));
  if (!fault.empty()) {
    throw InputError(text("calibration ", name, " is of another model than ", model, ": ", fault,
                          ": leave model out to take the calibration's, or choose calibration analytic"));
  }
  if (!inputs.options.cluster.empty()) move_to(inputs.cluster, calibration.options);
  return calibration;
}

void cut_stages(const std::vector<int64_t>& lengths, PlanningInputs& inputs) {
  if (inputs.options.stages == strategy::StageCut::kLayers) return;
  inputs.calibration.options = cost::cut_by_time(std::move(inputs.calibration.options), lengths);
}

void resolve_batches(PlanningInputs& inputs) {
  if (inputs.lengths.empty())
    throw InputError("no lengths are given: name a corpus or a file with one length a line");
  if (*std::ranges::max_element(inputs.lengths) < 2)
    throw InputError(
        "no document has 2 tokens or more, which a sequence needs to have a target: give others");
  PlanningOptions& options = inputs.options;
  if (options.context_length == 0) {
    options.context_length = std::max(2, *std::ranges::max_element(inputs.lengths));
  }
  if (options.context_length < 2) {
    throw InputError(text("context_length is ", options.context_length,
                          ": a sequence needs 2 tokens to have a target; give 2 or more"));
  }
  if (options.tokens_per_step < 0) {
    throw InputError(text("tokens_per_step is ", options.tokens_per_step,
                          ": give 1 or more, or 0 for all documents in one batch"));
  }
  if (options.tokens_per_step == 0) {
    for (const int64_t length : inputs.sequence_lengths()) options.tokens_per_step += length;
    options.tokens_per_step = std::max<int64_t>(options.tokens_per_step, 1);
  }
  inputs.sampler();
}

}  // namespace

std::vector<int64_t> PlanningInputs::sequence_lengths() const {
  constexpr int64_t kShortest = 2;
  std::vector<int64_t> sequences;
  for (const int64_t length : lengths) {
    if (length >= kShortest) sequences.push_back(std::min(length, options.context_length));
  }
  return sequences;
}

corpus::Sampler PlanningInputs::sampler() const {
  return corpus::Sampler({corpus::LengthSource{lengths}}, {.context_length = options.context_length,
                                                           .tokens_per_step = options.tokens_per_step,
                                                           .seed = static_cast<uint64_t>(options.seed)});
}

std::vector<int32_t> read_lengths(const std::vector<fs::path>& paths) {
  std::vector<int32_t> lengths;
  for (const fs::path& path : paths) {
    const std::vector<int32_t> own = corpus::read_lengths(path);
    if (own.empty()) throw InputError(text(path.string(), " holds no documents: give another"));
    lengths.insert(lengths.end(), own.begin(), own.end());
  }
  return lengths;
}

strategy::Cluster find_cluster(const std::string& name, int nodes) {
  const bool several = strategy::is_cluster_preset(name) && !is_there(name);
  if (is_preset(name) || several) return strategy::cluster_preset(name, nodes);
  if (!is_there(name)) {
    throw InputError(text("cluster '", name,
                          "' is no preset and no file: ", suggestion(name, strategy::cluster_preset_names()),
                          "; or give a JSON or TOML file"));
  }
  const std::string bytes = base::read_file(name);
  return strategy::cluster_from_json(
      name.ends_with(".toml") ? base::parse_toml_as_json(bytes, name) : base::parse_json(bytes, name), name);
}

plan::PlannerOptions planner_options(const PlanningInputs& inputs) {
  const PlanningOptions& asked = inputs.options;
  const auto seed = static_cast<uint64_t>(asked.seed);
  plan::PlannerOptions options{.world_size = asked.gpus,
                               .candidates = inputs.strategies,
                               .method = method_named(asked.method, seed),
                               .devices = inputs.devices(),
                               .context_length = asked.context_length,
                               .max_strategies = asked.max_strategies,
                               .max_cp = asked.max_cp,
                               .max_fsdp = asked.fsdp ? 0 : 1,
                               .exchanges = cost::exchange_set(asked.exchange)};
  if (inputs.strategies.size() != 1 && !inputs.lengths.empty())
    options.sample_batches = sample_batches(inputs.sequence_lengths(), asked.tokens_per_step, seed);
  return options;
}

PlanningInputs resolve_machine(const PlanningOptions& options) {
  PlanningInputs inputs{.options = options};
  inputs.cluster = resolve_cluster(inputs.options);
  inputs.strategies = read_strategies(options.strategies, inputs.options.gpus);
  inputs.calibration = resolve_calibration(inputs);
  constexpr int64_t kUsualTokens = 4096;
  cut_stages({kUsualTokens}, inputs);
  return inputs;
}

PlanningInputs resolve_planning(const PlanningOptions& options) {
  return resolve_planning(options, read_lengths(options.lengths));
}

PlanningInputs resolve_planning(const PlanningOptions& options, std::vector<int32_t> lengths) {
  PlanningInputs inputs = resolve_machine(options);
  inputs.lengths = std::move(lengths);
  resolve_batches(inputs);
  cut_stages(inputs.sequence_lengths(), inputs);
  return inputs;
}

Json to_json(const PlanningInputs& inputs) {
  const PlanningOptions& options = inputs.options;
  Json paths = Json::array();
  for (const fs::path& path : options.lengths) paths.push_back(path.string());
  int64_t tokens = 0;
  for (const int32_t length : inputs.lengths) tokens += length;
  const uint64_t hash = base::hash_bytes(inputs.lengths.data(), inputs.lengths.size() * sizeof(int32_t));
  return {{"gpus", options.gpus},
          {"cluster", to_json(inputs.cluster)},
          {"model", options.model},
          {"calibration",
           {{"name", options.calibration},
            {"hardware", inputs.calibration.hardware},
            {"source", inputs.calibration.source}}},
          {"lengths",
           {{"paths", paths},
            {"count", inputs.lengths.size()},
            {"tokens", tokens},
            {"hash", base::hash_text(hash)}}},
          {"context_length", options.context_length},
          {"tokens_per_step", options.tokens_per_step},
          {"seed", options.seed},
          {"stages", base::word_of(strategy::kStageCuts, options.stages)},
          {"exchange", base::word_of(strategy::kExchangeRules, options.exchange)}};
}

}  // namespace sluice::session
