// One rank's half of training: its parameters, communicators and executor. The engine runs step graphs. It
// knows nothing of files, corpora or planning.
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
  std::vector<double> notes;   // likewise, in training: the loss's other sums (layers/loss.h)
  int64_t targets = 0;         // number of those target tokens
  double gradient_norm = 0;    // norm of the mean loss's gradient, before clipping; 0 for evaluation
  int64_t pulled_bytes = 0;    // received by this rank
  int64_t pushed_bytes = 0;    // sent by this rank
  int64_t exchange_bytes = 0;  // sent by this rank to other lanes
  std::optional<double> expert_load_imbalance;  // StepRunner
  layers::ExpertLoad experts;                   // for rows of this rank's lane, if lanes divide experts
  layers::GemmErrors errors;                    // for this rank's layers, if they were asked for
  int64_t fsdp_bytes = 0;       // FSDP: bytes of parameters received and of gradients sent by this rank
  int64_t fsdp_exposed_ns = 0;  // how long this rank's cells waited for FSDP transfers
  int64_t host_peak_bytes = 0;  // peak of this rank's offloaded activations in host memory
  // Peak of tensor bytes on this rank's device, where tensors are counted (ops/tensor_memory.h). Elsewhere
  // the sum of parameters, accumulators, owner slices and the peak of kept activations.
  int64_t peak_bytes = 0;
  ops::AllocatorUse allocator;  // its retries are this step's alone
  StepTiming timing;
  OwnWork own;
  Waits waits;  // the compute stream's: between nodes, and inside nodes for other ranks

  double mean_loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0.0; }
};

// Results of an evaluation for this rank's rows with a target, by micro-batch as in its tokens. They are
// empty on all TP ranks but the first.
struct RowFigures {
  std::vector<std::vector<double>> losses;
  std::vector<std::vector<double>> numbers;  // for a head of numbers: all numbers of each row
  // If the engine keeps head rows: on all ranks of a last stage, valid for as long as a reference exists.
  std::vector<layers::HeadRows> head_rows = {};
};

struct EngineOptions {
  Precision precision;
  strategy::WireCodecs codecs;
  c10::Device device = c10::kCPU;
  int64_t context_length = 2048;   // longest sequence in tokens: length of the rotary tables
  int64_t logits_chunk_bytes = 0;  // 0: as suits the device (layers/head.h)
  std::shared_ptr<const layers::Loss> loss = layers::cross_entropy();  // in training
  std::shared_ptr<const layers::NumberLoss> number_loss = {};          // for heads of numbers
  double moe_aux_loss_coeff = 0;                                       // as of layers::LayerContext
  double mtp_loss_weight = 0;                                          // likewise
  double temperature = 1;                                              // divisor of logits
  std::optional<layers::Distillation> distillation = {};               // as of layers::LayerContext
  bool keeps_head_rows = false;  // likewise: this engine's evaluations are one of the teachers'
  // Communicators of another engine over the same transport and candidates, which never runs at the same
  // time. null: this engine makes its own.
  std::shared_ptr<Communicators> communicators = nullptr;
  bool counts_coactivations = false;  // count which experts rows visit together (layers::ExpertLoad)
  base::MomentFormat moments = base::MomentFormat::kWide;  // format of AdamW's moments
  bool trains = true;  // false: no memory is allocated for training, and train() may not be called
  // Carries scalars in host memory if `transport` moves GPU memory; null: `transport` carries them itself.
  comm::Transport* host_transport = nullptr;
  MakeLinkMover link_mover = make_link_mover;  // moves data of pull and push on the device
};

class Engine {
 public:
  using Options = EngineOptions;
  // Collective over the ranks of `transport`. `table` and the transports must outlive the engine. Every
  // strategy that it will run must be among `candidates`.
  Engine(const model::ParameterTable& table, const std::vector<strategy::Strategy>& candidates,
         comm::Transport& transport, std::unique_ptr<Executor> executor, const Options& options);
  ~Engine();

  ParameterStore& store() { return store_; }
  int rank() const { return rank_; }
  const std::shared_ptr<Communicators>& communicators() const { return communicators_; }

  // Collective: runs one step of the graph and updates the parameters. REQUIRES: the graph was built for
  // training, and `tokens` are this rank's. `teachers`: for distillation, kept by the teachers' engines in
  // evaluations of the same plan and tokens. `rows`: for a graph that computes a trunk.
  StepResult train(const graph::StepGraph& graph, const StepTokens& tokens, const AdamW& optimizer,
                   const TeacherRows* teachers = nullptr, TrunkRows* rows = nullptr);
  // Collective: runs one act of a step whose last act is train(). Its gradients, loss and targets are added
  // to those of train(). Its plan may differ from train()'s. No parameter is updated.
  StepResult accumulate(const graph::StepGraph& graph, const StepTokens& tokens,
                        const TeacherRows* teachers = nullptr, TrunkRows* rows = nullptr);
  // The next training step also reports which error products in this format would add (StepResult::errors).
  void measure_low_precision_gemms(base::GemmFormat format) { asked_ = format; }
  // Collective: forward only. REQUIRES: the graph was built for evaluation.
  StepResult evaluate(const graph::StepGraph& graph, const StepTokens& tokens, RowFigures* rows = nullptr,
                      TrunkRows* trunk_rows = nullptr);
  // Collective, between two acts: sends rows of one act to the other and frees the first act's parameters.
  ActRows carry(const RowLink& link, const ActRows& rows);

  // This rank's part of the model.
  struct ModelPart {
    layers::LayerContext context;  // with its TP group
    layers::FlatShards weights;
    // The ranks of its lane and TP index, by stage, members of the communicator between them.
    std::vector<int> stage_ranks;
    int stage = 0;
    comm::Communicator* between_stages = nullptr;
    // The ranks of its stage and TP index, by lane; members of the communicator of context.lanes.
    std::vector<int> lane_ranks = {};
    int lane = 0;
  };
  // Collective: holds parameters as a step of `strategy` would, whose links these are. They stay until
  // release() or the next step. An idle rank gets an empty part. With FSDP each lane holds all parameters
  // except experts of other lanes. REQUIRES: the strategy is among the candidates.
  ModelPart hold(const strategy::Strategy& strategy, const std::shared_ptr<const graph::LinkPlan>& links);
  // Frees the held parameters and their memory: a step may hold far less.
  void release() {
    store_.close_step();
    held_ = {};
    release_buffers_of_others(nullptr);
  }

 private:
  enum class Updates : uint8_t { kNow, kInALaterAct };
  StepResult run(const graph::StepGraph& graph, const StepTokens& tokens, const AdamW* optimizer,
                 RowFigures* rows, const TeacherRows* teachers, TrunkRows* trunk_rows,
                 Updates updates = Updates::kNow);
  const LinkWires& wires_of(const std::shared_ptr<const graph::LinkPlan>& links);
  void make_room_for_links(const LinkWires& wires);
  void release_buffers_of_others(const std::shared_ptr<const graph::LinkPlan>& links);
  // How much of the parameters a step of these links finds in place; its pull brings the rest.
  StepPull pull_of(const std::shared_ptr<const graph::LinkPlan>& links);

  static constexpr size_t kMostWires = 64;  // number of strategies whose exchanges are kept

  const model::ParameterTable& table_;
  int rank_;
  comm::Transport& transport_;
  Options options_;
  ParameterStore store_;
  std::shared_ptr<Communicators> communicators_;
  LinkRunner link_inter_;
  LinkRunner link_intra_;
  std::shared_ptr<const graph::LinkPlan> buffered_;  // the runners' buffers fit the exchanges of these links
  std::optional<layers::LaneChannel> lanes_;         // keeps its stream from step to step
  FsdpChannels shares_;                              // likewise
  std::unique_ptr<Executor> executor_;
  layers::LayerContext context_;  // for one rank; each step sets the TP group
  std::map<std::shared_ptr<const graph::LinkPlan>, LinkWires> wires_;
  // The links of the compute shards in the store, their version of the owners' copies, and coded parameters.
  struct Held {
    std::shared_ptr<const graph::LinkPlan> links;
    int64_t version = -1;
    std::vector<CodedNumbers> differences = {};
    std::vector<at::Tensor> whole = {};  // by bucket, for hold() where lanes share parameters
  };
  Held held_;
  std::optional<EarlierActs> earlier_;  // sums of the current step's earlier acts
  base::GemmFormat asked_ = base::GemmFormat::kAsComputed;
};

}  // namespace sluice::runtime
