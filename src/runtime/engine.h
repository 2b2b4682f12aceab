// One rank's half of training: parameters, communicators and executor. Runs step graphs; knows nothing of
// files, corpora or planning.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport.h"
#include "graph/step_graph.h"
#include "layers/context.h"
#include "layers/loss.h"
#include "layers/parameters.h"
#include "model/parameters.h"
#include "ops/tensor_memory.h"
#include "runtime/communicators.h"
#include "runtime/executor.h"
#include "runtime/fsdp_channel.h"
#include "runtime/link_runner.h"
#include "runtime/optimizer.h"
#include "runtime/own_work.h"
#include "runtime/parameter_store.h"
#include "runtime/row_link.h"
#include "runtime/step_pull.h"
#include "runtime/step_runner.h"
#include "runtime/step_tokens.h"
#include "strategy/strategy.h"

namespace sluice::runtime {

struct StepResult {
  double loss_sum = 0;         // over all target tokens of all ranks
  std::vector<double> notes;   // likewise, of training: what its loss sums beside itself (layers/loss.h)
  int64_t targets = 0;         // their number
  double gradient_norm = 0;    // of the mean loss, before clipping; 0 for evaluation
  int64_t pulled_bytes = 0;    // received by this rank
  int64_t pushed_bytes = 0;    // sent by this rank
  int64_t exchange_bytes = 0;  // sent by this rank to other lanes
  std::optional<double> expert_load_imbalance;  // StepRunner
  layers::ExpertLoad experts;                   // of rows of this rank's lane, where lanes divide experts
  layers::GemmErrors errors;                    // of this rank's layers, where they were asked about
  int64_t fsdp_bytes = 0;       // of what lanes share: parameters that this rank received, gradients it sent
  int64_t fsdp_exposed_ns = 0;  // that its cells waited for either
  int64_t host_peak_bytes = 0;  // offloaded activations of this rank
  // Of this rank's device, in tensors, where they are counted (ops/tensor_memory.h); elsewhere parameters,
  // accumulators, owner slices and what is kept of activations.
  int64_t peak_bytes = 0;
  ops::AllocatorUse allocator;  // this step's part of the retries
  StepTiming timing;
  OwnWork own;
  Waits waits;  // of the compute stream: between nodes, and for other ranks inside of them

  double mean_loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0.0; }
};

// What an evaluation leaves of this rank's rows with a target, by micro-batch as in its tokens; empty on
// all but the first of TP ranks.
struct RowFigures {
  std::vector<std::vector<double>> losses;
  std::vector<std::vector<double>> numbers;  // of a head of numbers, all of each row
  // Where the engine keeps them, on all ranks of a last stage, for as long as somebody has them.
  std::vector<layers::HeadRows> head_rows = {};
};

struct EngineOptions {
  Precision precision;
  strategy::WireCodecs codecs;
  c10::Device device = c10::kCPU;
  int64_t context_length = 2048;   // longest sequence: length of the rotary tables
  int64_t logits_chunk_bytes = 0;  // 0: what suits the device (layers/head.h)
  std::shared_ptr<const layers::Loss> loss = layers::cross_entropy();  // of training
  std::shared_ptr<const layers::NumberLoss> number_loss = {};          // of heads of numbers
  double moe_aux_loss_coeff = 0;                                       // as of layers::LayerContext
  double temperature = 1;                                              // that logits are divided by
  std::optional<layers::Distillation> distillation = {};               // as of layers::LayerContext
  bool keeps_head_rows = false;  // likewise: evaluations are those of a teacher
  // Those of another engine over the same transport and candidates, which never runs at the same time; null:
  // its own are made.
  std::shared_ptr<Communicators> communicators = nullptr;
  bool counts_coactivations = false;  // which experts rows visit together (layers::ExpertLoad)
  base::MomentFormat moments = base::MomentFormat::kWide;  // of AdamW
  bool trains = true;  // else there is no room for it, and train() may not be called
  // Carries scalars in host memory when the engine's transport moves GPU memory; null: that one does.
  comm::Transport* host_transport = nullptr;
  MakeLinkMover link_mover = make_link_mover;  // of pull and push on the device
};

class Engine {
 public:
  using Options = EngineOptions;
  // Collective over the ranks of `transport`. `table` and the transports must outlive the engine; every
  // strategy it will run must be among `candidates`.
  Engine(const model::ParameterTable& table, const std::vector<strategy::Strategy>& candidates,
         comm::Transport& transport, std::unique_ptr<Executor> executor, const Options& options);
  ~Engine();

  ParameterStore& store() { return store_; }
  int rank() const { return rank_; }
  const std::shared_ptr<Communicators>& communicators() const { return communicators_; }

  // Collective: runs one step of the graph and updates the parameters.
  // REQUIRES: the graph was built for training, `tokens` are this rank's.
  // `teacher`: what its engine's evaluation of the same plan and tokens left, if there is a distillation.
  // `rows`: of a graph that computes a trunk.
  StepResult train(const graph::StepGraph& graph, const StepTokens& tokens, const AdamW& optimizer,
                   const std::vector<layers::HeadRows>* teacher = nullptr, TrunkRows* rows = nullptr);
  // Collective: an act of a step whose last one is train(): what it adds to gradients, loss and targets
  // counts there. Its plan may be another. Nothing is updated.
  StepResult accumulate(const graph::StepGraph& graph, const StepTokens& tokens,
                        const std::vector<layers::HeadRows>* teacher = nullptr, TrunkRows* rows = nullptr);
  // The next step of training also says what products in this format would add (StepResult::errors).
  void measure_low_precision_gemms(base::GemmFormat format) { asked_ = format; }
  // Collective: forward only. REQUIRES: the graph was built for evaluation.
  StepResult evaluate(const graph::StepGraph& graph, const StepTokens& tokens, RowFigures* rows = nullptr,
                      TrunkRows* trunk_rows = nullptr);
  // Collective, between two acts: brings rows from the one to the other, and lets go of the one's parameters.
  ActRows carry(const RowLink& link, const ActRows& rows);

  // This rank's part of the model.
  struct ModelPart {
    layers::LayerContext context;  // with its TP group
    layers::FlatShards weights;
    // The ranks of its lane and TP index, by stage, members of the communicator between them.
    std::vector<int> stage_ranks;
    int stage = 0;
    comm::Communicator* between_stages = nullptr;
    // Those of its stage and TP index, by lane, members of the communicator of context.lanes.
    std::vector<int> lane_ranks = {};
    int lane = 0;
  };
  // Collective: as a step of the strategy, whose links these are, would compute with it. It stays until
  // release(), or the next step; a rank that is idle has none of it. Where lanes share parameters each has all of
  // them but the experts that others have. REQUIRES: one of the candidates.
  ModelPart hold(const strategy::Strategy& strategy, const std::shared_ptr<const graph::LinkPlan>& links);
  // Lets go of them and their memory: a step may hold far less.
  void release() {
    store_.close_step();
    held_ = {};
    release_buffers_of_others(nullptr);
  }

 private:
  enum class Updates : uint8_t { kNow, kInALaterAct };
  StepResult run(const graph::StepGraph& graph, const StepTokens& tokens, const AdamW* optimizer,
                 RowFigures* rows, const std::vector<layers::HeadRows>* teacher, TrunkRows* trunk_rows,
                 Updates updates = Updates::kNow);
  const LinkWires& wires_of(const std::shared_ptr<const graph::LinkPlan>& links);
  void make_room_for_links(const LinkWires& wires);
  void release_buffers_of_others(const std::shared_ptr<const graph::LinkPlan>& links);
  // What a step of these links finds of parameters; it brings the rest.
  StepPull pull_of(const std::shared_ptr<const graph::LinkPlan>& links);

  static constexpr size_t kMostWires = 64;  // strategies whose exchanges are kept

  const model::ParameterTable& table_;
  int rank_;
  comm::Transport& transport_;
  Options options_;
  ParameterStore store_;
  std::shared_ptr<Communicators> communicators_;
  LinkRunner link_inter_;
  LinkRunner link_intra_;
  std::shared_ptr<const graph::LinkPlan> buffered_;  // whose exchanges the runners' buffers are for
  std::optional<layers::LaneChannel> lanes_;         // keeps its stream from step to step
  FsdpChannels shares_;                              // likewise
  std::unique_ptr<Executor> executor_;
  layers::LayerContext context_;  // of one rank; a step sets the TP group
  std::map<std::shared_ptr<const graph::LinkPlan>, LinkWires> wires_;
  // Whose compute shards the store has, of which version of the owners' copies; and what is coded of them.
  struct Held {
    std::shared_ptr<const graph::LinkPlan> links;
    int64_t version = -1;
    std::vector<CodedNumbers> differences = {};
    std::vector<at::Tensor> whole = {};  // by bucket, for hold() where lanes share parameters
  };
  Held held_;
  std::optional<EarlierActs> earlier_;  // of the step under way
  base::GemmFormat asked_ = base::GemmFormat::kAsComputed;
};

}  // namespace sluice::runtime
