// For tests: ranks as threads of one process over the fake transport, hand-made plans or a planner's, and
// training runs whose every number can be compared.
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
#include "model/test_shape.h"
#include "runtime/engine.h"
#include "runtime/test_owned_state.h"
#include "runtime/test_tokens.h"
#include "strategy/step_plan.h"

namespace sluice::runtime {

// A model small enough for thousands of steps: 4 layers, 4 heads, 2 key/value heads.
// Like it, with layers large enough that what travels of them, and their moments, may be coded, and ends too
// small for it (strategy::kLeastDifferences).
model::Shape coded_shape();
// Made-up times, ample memory unless it is given, and what layers weigh, in FP64 unless a precision is.
constexpr int64_t kAmpleBytes = int64_t{1} << 32;
cost::CostModel small_cost(const model::Shape& shape, int gpus_per_node, int64_t device_bytes = kAmpleBytes,
                           const Precision& precision = {.compute = comm::DType::kFloat64},
                           const strategy::WireCodecs& codecs = {});

// Sequences dealt to the strategy's pipelines in turn, each pipeline's cut into micro-batches of at most
// `max_tokens`. On lanes, half of those that are long enough become rings over any run of them, the others
// stay whole on any lane, in the last micro-batch there or in a new one.
strategy::StepPlan dealt_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                              const strategy::Strategy& strategy, int64_t max_tokens);

// Every sequence over all lanes of its pipeline, or as many as it has pairs of tokens.
strategy::StepPlan ringed_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens);

// On the first pipeline's lanes 0, 1 and 2: one, three and eight micro-batches, the first of which is a ring
// over all three. REQUIRES: at least ten sequences, one of them of six tokens or more.
strategy::StepPlan uneven_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens);

// Several sequences in every micro-batch, as many as `max_tokens` allows, on all lanes or on a random run of
// them.
strategy::StepPlan packed_plan(int64_t step, const std::vector<strategy::Sequence>& sequences,
                               const strategy::Strategy& strategy, int64_t max_tokens);

// How a micro-batch's lanes exchange: a ring, or heads within groups of so many lanes, as far as it divides
// the micro-batch's and the model has heads; 0: of all of them. Or, of lanes without such groups, as is said.
struct LaneExchange {
  int head_lanes = 1;
  strategy::Exchange exchange = strategy::Exchange::kRing;
};

// The same batches for every run.
std::vector<strategy::Sequence> random_batch(uint64_t seed, int64_t step, int64_t sequences, int64_t longest);

// 20, or as many as $SLUICE_TEST_STEPS says: `make test` looks at few, `make soak` at all of them.
int64_t usual_steps();

// Devices in place of GPUs, one a rank. Called by the ranks' threads.
class DeviceStandIn {
 public:
  virtual ~DeviceStandIn() = default;
  virtual c10::Device device(int rank) = 0;
  // Over a transport of host memory, of buffers on the rank's device.
  virtual std::unique_ptr<comm::Transport> transport(comm::Transport& host) = 0;
  virtual std::unique_ptr<LinkMover> link_mover(const c10::Device& device) = 0;
  virtual NodeWatch* watch(int rank) = 0;
};

struct RunRecord {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::vector<double> evaluated_losses;                   // of other batches, after every third step
  std::map<std::string, std::vector<double>> parameters;  // whole tensors, by name
  // Of all ranks, by step.
  std::vector<int64_t> pulled_bytes;
  std::vector<int64_t> pushed_bytes;
  std::vector<int64_t> exchange_bytes;
  std::vector<int64_t> expected_exchange_bytes;  // by the formula
  // What lanes that share parameters received of them and sent of their gradients, and what theory says.
  std::vector<int64_t> fsdp_bytes;
  std::vector<int64_t> expected_fsdp_bytes;
  std::vector<int64_t> step_ns;  // of rank 0
  // By step and rank.
  std::vector<std::vector<int64_t>> peak_bytes;
  std::vector<std::vector<int64_t>> predicted_peak_bytes;
  std::vector<std::vector<int64_t>> host_peak_bytes;
  OwnedState owned;  // behind the last step; in FP64 where nothing is coded
  // Of models of several trunks, what row links carried between ranks in the step, and what theory says.
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
  int64_t first_step = 0;
  const OwnedState* from = nullptr;  // what the first step finds; null: a new model
  // Of a step, each of part of its sequences, the shortest first, act i of step s under strategies[(s + i) mod
  // size].
  int acts = 1;
  // The model's trunks, front to back; empty: it is one. Trunk i has strategies of its own, of which step s uses
  // trunk_strategies[i][s mod size], and memory policies, as `policies` are.
  std::vector<base::Interval> trunks = {};
  std::vector<std::vector<std::string>> trunk_strategies = {};
  std::vector<std::vector<strategy::MemoryPolicy>> trunk_policies = {};
  int64_t sequences = 9;    // of a step
  int branches = 0;         // at most, of some sequences
  int64_t loss_one_in = 1;  // as of made_up_tokens
  comm::DType dtype = comm::DType::kFloat64;
  strategy::WireCodecs codecs;
  // Pipeline i's; those behind the last compute as the run does.
  std::vector<strategy::LowPrecisionGemms> low_precision = {};
  std::shared_ptr<const layers::NumberLoss> number_loss = {};  // of shapes whose head has numbers
  int64_t figures = 0;                                         // that it is given of a row
  double z_loss = 0;                                           // as of layers::with_z_loss
  // A teacher of this shape, drawn by another seed, runs in front of each step under its plan.
  std::optional<model::Shape> teacher = {};
  layers::Distillation distillation = {};
  double moe_aux_loss_coeff = 0;                                     // as of layers::LayerContext
  double moe_router_bias_update_rate = 0;                                  // as of AdamW
  std::optional<Muon> muon = {};                               // likewise
  base::MomentFormat moments = base::MomentFormat::kWide;
  Masters masters = Masters::kWide;
  int64_t max_tokens = 96;
  int64_t max_delay_ns = 0;  // of each transfer on the fake transport
  // Initial parameters are a unit in the last place more or less, or as they are, by this seed; 0: none is
  // changed.
  uint64_t nudge = 0;
  // Initial values of parameters, by name, in place of random ones.
  std::map<std::string, std::vector<float>> initial = {};
  model::Shape shape = model::shape_of_odd_sizes();
  model::KindTimes cut_times;         // by which stages are cut
  c10::Device device = c10::kCPU;     // a GPU is shared by all ranks
  DeviceStandIn* stand_in = nullptr;  // in place of `device`
  // Micro-batch (or ring) i runs under policies[i mod size]; empty: all keep everything.
  std::vector<strategy::MemoryPolicy> policies;
  // Micro-batch i of several lanes exchanges as exchanges[i mod size] says, whatever whole sequences lie
  // beside those that it shares.
  std::vector<LaneExchange> exchanges = {{}};
  // Where lanes divide experts these lie by chance, with so many seats more than even parts, anew in each
  // step; -1: as even parts.
  int redundant_experts = -1;
  // Called by every rank's thread behind each step of training.
  std::function<void(Engine& engine, const graph::StepGraph& graph, const StepResult& result)> behind_step =
      nullptr;
};
// Trains from the same initial weights on the same batches, all ranks in this process.
RunRecord run_in_process(const RunOptions& options);

}  // namespace sluice::runtime
