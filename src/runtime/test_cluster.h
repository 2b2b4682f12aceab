// For tests: ranks as threads of one process over the fake transport, plans made by hand or by a planner, and
// training runs in which every number can be compared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "layers/loss.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "runtime/engine.h"
#include "runtime/test_owned_state.h"
#include "runtime/test_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::runtime {

// A model small enough for thousands of steps: two layers of the kind of model::outline_of_odd_sizes(), but
// large enough that their transfers and moments may be coded. The model's ends are too small for codecs
// (strategy::kLeastDifferences).
model::Outline coded_outline();
// Costs of the model with made-up times. Ample memory and FP64 unless others are given.
constexpr int64_t kAmpleBytes = int64_t{1} << 32;
cost::CostModel small_cost(const model::Model& model, int gpus_per_node, int64_t device_bytes = kAmpleBytes,
                           const Precision& precision = {.compute = comm::DType::kFloat64},
                           const strategy::WireCodecs& codecs = {});

// Deals sequences to the strategy's pipelines in turn and cuts each pipeline's into micro-batches of at most
// `max_tokens`. With several lanes, half of the sequences that are long enough become rings over some run of
// lanes. The others stay whole on one lane, in its last micro-batch or a new one.
strategy::StepPlan dealt_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                              const strategy::Strategy& strategy, int64_t max_tokens);

// Puts every sequence on all lanes of its pipeline, or on as many as it has pairs of tokens.
strategy::StepPlan ringed_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens);

// Gives lanes 0, 1 and 2 of the first pipeline one, three and eight micro-batches, the first of which is a
// ring over all three. REQUIRES: at least ten sequences, one of them of six tokens or more.
strategy::StepPlan uneven_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens);

// Puts several sequences in every micro-batch, as many as `max_tokens` allows, on all lanes or on a random
// run of them.
strategy::StepPlan packed_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens);

// How a micro-batch's lanes exchange: a ring, or heads within groups of `head_lanes`, as far as that divides
// its lanes and the model has heads; 0: all lanes. Lanes without such groups use `exchange`.
struct LaneExchange {
  int head_lanes = 1;
  strategy::Exchange exchange = strategy::Exchange::kRing;
};

// A random batch, the same for every run.
std::vector<strategy::Sequence> random_batch(uint64_t seed, int64_t step, int64_t sequences, int64_t longest);

// 20, or $SLUICE_TEST_STEPS: `make test` runs few steps, `make soak` all of them.
int64_t usual_steps();

// Devices that replace GPUs, one for each rank. Called by the ranks' threads.
class DeviceStandIn {
 public:
  virtual ~DeviceStandIn() = default;
  virtual c10::Device device(int rank) = 0;
  // A transport of buffers on the rank's device, over a transport of host memory.
  virtual std::unique_ptr<comm::Transport> transport(comm::Transport& host) = 0;
  virtual std::unique_ptr<LinkMover> link_mover(const c10::Device& device) = 0;
  virtual NodeWatch* watch(int rank) = 0;
};

struct RunRecord {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::vector<double> mtp_losses;                         // of a model with an MTP layer
  std::vector<double> evaluated_losses;                   // on other batches, after every third step
  std::map<std::string, std::vector<double>> parameters;  // whole tensors, by name
  // Sums over all ranks, by step.
  std::vector<int64_t> pulled_bytes;
  std::vector<int64_t> pushed_bytes;
  std::vector<int64_t> exchange_bytes;
  std::vector<int64_t> expected_exchange_bytes;  // by the formula
  // Bytes of FSDP all-gathers received and reduce-scatters sent, measured and by theory.
  std::vector<int64_t> fsdp_bytes;
  std::vector<int64_t> expected_fsdp_bytes;
  std::vector<int64_t> step_ns;  // on rank 0
  // By step and rank.
  std::vector<std::vector<int64_t>> peak_bytes;
  std::vector<std::vector<int64_t>> predicted_peak_bytes;
  std::vector<std::vector<int64_t>> host_peak_bytes;
  OwnedState owned;  // after the last step; in FP64 where nothing is coded
  // Bytes of row links between ranks in the step, for models of several trunks: measured, by theory.
  std::vector<int64_t> row_bytes;
  std::vector<int64_t> expected_row_bytes;
};

struct RunOptions {
  int world_size = 1;
  int gpus_per_node = 8;
  std::vector<std::string> strategies{"<1,1,1>"};  // step s uses strategies[s mod size]
  // Called on all ranks' threads at once, with the step's strategy and max_tokens.
  std::function<strategy::StepPlan(int64_t step, const std::vector<strategy::Sequence>&,
                                   const strategy::Strategy&, int64_t max_tokens)>
      plan = dealt_plan;
  int64_t device_bytes = kAmpleBytes;
  int64_t steps = usual_steps();
  bool evaluates = true;  // every third step
  int64_t first_step = 0;
  const OwnedState* from = nullptr;  // state before the first step; null: a new model
  // Acts of a step, each with part of its sequences, shortest first; act i of step s runs under strategies[(s
  // + i) mod size].
  int acts = 1;
  // The model's trunks, front to back; empty: one trunk. Trunk i has its own strategies, and step s uses
  // trunk_strategies[i][s mod size]. It also has its own memory policies, used as `policies` are.
  std::vector<base::Interval> trunks = {};
  std::vector<std::vector<std::string>> trunk_strategies = {};
  std::vector<std::vector<strategy::MemoryPolicy>> trunk_policies = {};
  int64_t sequences = 9;    // in a step
  int branches = 0;         // at most, for some of the sequences
  int64_t loss_one_in = 1;  // as in made_up_tokens
  comm::DType dtype = comm::DType::kFloat64;
  strategy::WireCodecs codecs;
  // Formats by pipeline; pipelines without an entry compute as the run does.
  std::vector<strategy::LowPrecisionGemms> low_precision = {};
  std::shared_ptr<const layers::NumberLoss> number_loss = {};  // for shapes whose head has numbers
  int64_t figures = 0;                                         // its inputs for each row
  double z_loss = 0;                                           // as in layers::with_z_loss
  // Teachers of these outlines, drawn with another seed, run before each step under its plan.
  std::vector<model::Outline> teachers = {};
  layers::Distillation distillation = {};
  double moe_aux_loss_coeff = 0;           // as in layers::LayerContext
  double mtp_loss_weight = 0;              // likewise
  double moe_router_bias_update_rate = 0;  // as in AdamW
  std::optional<Muon> muon = {};           // likewise
  base::MomentFormat moments = base::MomentFormat::kWide;
  Masters masters = Masters::kWide;
  int64_t max_tokens = 96;
  int64_t max_delay_ns = 0;  // for each transfer on the fake transport
  // 0: initial parameters are unchanged. Otherwise the seed that moves each by a unit in the last place, up
  // or down, or leaves it.
  uint64_t nudge = 0;
  // Initial values of parameters, by name, instead of random ones.
  std::map<std::string, std::vector<float>> initial = {};
  model::Outline model = model::outline_of_odd_sizes();
  model::KindTimes cut_times;         // times by which stages are cut
  c10::Device device = c10::kCPU;     // a GPU is shared by all ranks
  DeviceStandIn* stand_in = nullptr;  // instead of `device`
  // Micro-batch (or ring) i runs under policies[i mod size]; empty: all activations are kept.
  std::vector<strategy::MemoryPolicy> policies;
  // Micro-batch i of several lanes exchanges as exchanges[i mod size] says, whichever whole sequences lie
  // beside its shared ones.
  std::vector<LaneExchange> exchanges = {{}};
  // If lanes divide experts: each step places them at random, with `redundant_experts` more slots on each
  // lane than even parts have. -1: even parts.
  int redundant_experts = -1;
  // Called by every rank's thread after each training step.
  std::function<void(Engine& engine, const graph::StepGraph& graph, const StepResult& result)> behind_step =
      nullptr;
};
// Trains from the same initial weights on the same batches, with all ranks in this process.
RunRecord run_in_process(const RunOptions& options);

}  // namespace sluice::runtime
