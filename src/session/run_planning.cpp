#include "session/run_planning.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/moment_format.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/cut_stages.h"
#include "cost/exchange.h"
#include "cost/loss_share.h"
#include "cost/shipped.h"
#include "model/program.h"
#include "session/low_precision_gemms.h"
#include "session/methods.h"
#include "session/planning_inputs.h"
#include "session/sampling.h"
#include "session/strategy_file.h"

namespace sluice::session {

namespace {

using base::InputError;
using base::text;

constexpr double kGiB = 1 << 30;

void check_against_model(const strategy::Strategy& candidate, const model::Model& model) {
  for (const strategy::Pipeline& pipeline : candidate.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    const std::string fault = model::cut_fault(model, scheme.tp, scheme.pp, scheme.ep);
    if (!fault.empty()) throw InputError(text("strategy ", strategy::to_text(candidate), ": ", fault));
  }
}

// Configured shares apply to all micro-batches; "auto" applies to those that need savings.
strategy::MemoryPolicy first_policy(const config::MemoryConfig& memory) {
  const auto permille = [](const std::optional<double>& share) {
    return static_cast<int>(std::lround(share.value_or(0) * strategy::MemoryPolicy::kAll));
  };
  return {.recompute_permille = permille(memory.recompute), .offload_permille = permille(memory.offload)};
}

// Memory policies in the order of trying. If recomputing is left to the planner, full recomputation comes
// second: it serves if a plan's memory turns out larger than estimated.
std::vector<strategy::MemoryPolicy> memory_policies(const config::MemoryConfig& memory) {
  std::vector<strategy::MemoryPolicy> policies{first_policy(memory)};
  if (memory.recompute) return policies;
  policies.push_back(policies.front());
  policies.back().recompute_permille = strategy::MemoryPolicy::kAll;
  return policies;
}

strategy::Cluster cluster_of(const config::RunConfig& config, int ranks) {
  strategy::Cluster cluster = find_cluster(config.cluster.preset, config.cluster.nodes);
  if (is_local(config.cluster)) cluster.gpus_per_node = cluster.nics_per_node = config.parallel.gpus_per_node;
  if (ranks > cluster.gpus() && !cluster.kinds.empty()) {
    throw InputError(text("the cluster ", cluster.name, " has ", cluster.gpus(), " devices, but ", ranks,
                          " ranks are wanted: lower them, or name more nodes"));
  }
  if (ranks > 0 && cluster.kinds.empty())
    cluster.nodes = (ranks + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
  const config::MemoryConfig& memory = config.memory;
  if (memory.device_gib > 0) {
    const double margin = config::margin_bytes(memory, memory.device_gib * kGiB, !is_local(config.cluster));
    cluster.device_memory_bytes = static_cast<int64_t>(memory.device_gib * kGiB - margin);
    if (cluster.device_memory_bytes < 1) {
      throw InputError(text("[config] memory.margin_gib is ", margin / kGiB,
                            ", which leaves nothing of memory.device_gib ", memory.device_gib, ": lower it"));
    }
  } else {
    cluster.device_memory_bytes = cluster.device_memory_bytes / 10 * kUsableTenths;
  }
  return cluster;
}

cost::AnalyticMemory memory_of(const config::RunConfig& config, const strategy::Cluster& cluster) {
  const bool wide = config.train.dtype == config::ComputeType::kFloat64;
  const int64_t narrow = config.train.master_dtype == config::MasterType::kBFloat16 ? 2 : 0;
  const int64_t states = wide ? 8 : 4;
  return {.device_bytes = cluster.device_memory_bytes,
          .element_bytes = wide                                                   ? 8
                           : config.train.dtype == config::ComputeType::kBFloat16 ? 2
                                                                                  : 4,
          .accumulator_bytes = wide ? 8 : 4,
          .owner_bytes_per_parameter = base::owner_bytes_per_parameter(config.optimizer.moments(), states,
                                                                       narrow > 0 ? narrow : states),
          .host_bytes = cost::host_bytes_of(cluster),
          .master_bytes = narrow};
}

cost::Calibration calibration_of(const config::RunConfig& config, const std::string& name,
                                 const RunMachine& machine) {
  const strategy::Cluster& cluster = machine.cluster;
  if (name == "auto" || name == "analytic") {
    const std::vector<int> degrees =
        tensor_parallel_degrees(*config.model.resolved, configured_strategies(config, machine.world_size),
                                std::min(machine.world_size, cluster.gpus_per_node));
    return {cluster.name, cost::analytic_source(*config.model.resolved, "the cluster"),
            cost::analytic_options(*config.model.resolved, cost::rates_of(cluster),
                                   memory_of(config, cluster), degrees, cluster.topology())};
  }
  cost::Calibration calibration = cost::find_calibration(name);
  if (const std::string fault = cost::model_fault(calibration, *config.model.resolved); !fault.empty()) {
    throw InputError(text("calibration ", name, " is of another model than the configuration's: ", fault,
                          ": give one of this model, or \"analytic\""));
  }
  calibration.options.model = *config.model.resolved;
  if (cluster.groups.empty()) {
    cost::move_to_nodes_of(cluster.gpus_per_node, calibration.options);
  } else {
    cost::take_levels(
        cost::analytic_options(*config.model.resolved, cost::rates_of(cluster), {}, {}, cluster.topology()),
        calibration.options);
  }
  if (config.memory.device_gib > 0) calibration.options.memory.device_bytes = cluster.device_memory_bytes;
  return calibration;
}

MethodPtr method_of(const config::RunConfig& config) {
  return method_named(config.parallel.method, static_cast<uint64_t>(config.data.seed));
}

}  // namespace

std::vector<strategy::Strategy> configured_strategies(const config::RunConfig& config, int world_size) {
  std::vector<strategy::Strategy> candidates = read_strategies(config.parallel.strategies, world_size);
  for (const strategy::Strategy& candidate : candidates)
    check_against_model(candidate, *config.model.resolved);
  check_lanes(candidates, *method_of(config));
  return candidates;
}

std::vector<int> tensor_parallel_degrees(const config::RunConfig& config, int world_size) {
  const std::vector<strategy::Strategy> configured = configured_strategies(config, world_size);
  return tensor_parallel_degrees(*config.model.resolved, configured, configured.empty() ? world_size : 0);
}

plan::PlannerOptions planner_options(const config::RunConfig& config, int world_size) {
  const config::ParallelConfig& parallel = config.parallel;
  plan::PlannerOptions options{
      .world_size = world_size,
      .candidates = configured_strategies(config, world_size),
      .method = method_of(config),
      .selection = parallel.select.rule,
      .fixed_candidate = parallel.select.candidate,
      .policies = memory_policies(config.memory),
      .max_fsdp = parallel.fsdp ? 0 : 1,
      .saves = {.recompute = !config.memory.recompute, .offload = !config.memory.offload},
      .offload_saves_lanes = !is_local(config.cluster),
      .exchanges = cost::exchange_set(parallel.exchange)};
  options.max_cp = options.method->plans_lanes() ? parallel.max_cp : 1;
  return options;
}

cost::CostModel cost_of_data(const config::RunConfig& config, const Data& data, const cost::CostModel& cost) {
  cost::CostModel::Options options = cost::with_loss_share(cost.options(), data.loss_ppm());
  options.redundant_experts = config.parallel.redundant_experts;
  if (config.parallel.stages == strategy::StageCut::kTime) {
    const std::vector<int64_t> lengths = data.sequence_lengths();
    if (!lengths.empty()) options = cost::cut_by_time(std::move(options), lengths);
  }
  return cost::CostModel(std::move(options));
}

plan::PlannerOptions planner_options(const config::RunConfig& config, const Data& data,
                                     const cost::CostModel& machine, int world_size,
                                     std::vector<strategy::Device> devices) {
  plan::PlannerOptions options = planner_options(config, world_size);
  options.devices =
      with_low_precision(config, data.sequence_lengths(), world_size, std::move(devices), machine);
  options.context_length = data.longest_sequence();
  if (options.candidates.size() != 1)
    options.sample_batches = data.sample_batches(static_cast<uint64_t>(config.data.seed));
  return options;
}

namespace {

// InputError if a device that rounds has no such products: all devices, or those slower than others. Local
// devices are CPUs, which compute any format as floats.
void require_products(const config::RunConfig& config, const strategy::Cluster& cluster) {
  const config::ParallelConfig& parallel = config.parallel;
  if (parallel.low_precision_gemms != base::GemmFormat::kFloat8 || is_local(config.cluster)) return;
  const bool all = parallel.rounds_all_layers();
  std::string without = all && !cluster.supports_float8 ? cluster.name : "";
  for (const strategy::NodeKind& kind : cluster.kinds) {
    if (!kind.supports_float8 && (all || kind.flops_per_ns < cluster.flops_per_ns)) without = kind.name;
  }
  if (without.empty()) return;
  throw base::InputError(
      text("train.gemm_dtype is float8, of which ", without,
           " has no products: choose none, int8 or bfloat16, or say supports_float8 = true in ",
           "the cluster's file"));
}

}  // namespace

RunMachine machine_of(const config::RunConfig& config, const RunMachineOptions& options) {
  const bool sized_by_strategies = options.ranks == 0 && is_local(config.cluster);
  const int ranks = sized_by_strategies ? ranks_needed(config.parallel.strategies) : options.ranks;
  RunMachine machine{.cluster = cluster_of(config, ranks)};
  machine.world_size = ranks > 0 ? ranks : machine.cluster.gpus();
  machine.calibration = calibration_of(
      config, options.calibration.empty() ? config.parallel.calibration : options.calibration, machine);
  machine.calibration.options.codecs = config::wire_codecs(config);
  machine.calibration.options.newton_schulz_steps = config.optimizer.matrix_steps();
  machine.calibration.options.whole_pulls = config.parallel.strategies.size() != 1;
  machine.devices = strategy::devices_of(machine.cluster, machine.world_size, kUsableTenths);
  require_products(config, machine.cluster);
  if (config.memory.device_gib > 0) {
    for (strategy::Device& device : machine.devices)
      device.memory_bytes = machine.cluster.device_memory_bytes;
  }
  return machine;
}

bool is_local(const config::ClusterConfig& cluster) { return cluster.preset == "local"; }

}  // namespace sluice::session
