// Runs every kind of node on one rank, for the length of one step.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "graph/step_graph.h"
#include "layers/carried_rows.h"
#include "layers/operation.h"
#include "ops/memory_account.h"
#include "runtime/communicators.h"
#include "runtime/executor.h"
#include "runtime/gathered_parameters.h"
#include "runtime/link_runner.h"
#include "runtime/offloaded_layer.h"
#include "runtime/optimizer.h"
#include "runtime/row_link.h"
#include "runtime/step_pull.h"
#include "runtime/step_tokens.h"

namespace sluice::runtime {

// This rank's sums over the earlier acts of a step. An act is one forward and backward of the model, or of a
// trunk, under its own plan. The last act updates the parameters.
struct EarlierActs {
  std::vector<char> summed;           // by bucket: the rank's owner slice has earlier acts' gradient sums
  std::vector<at::Tensor> gradients;  // by bucket: those sums, while an act accumulates in their place
  std::vector<double> sums;           // sums of targets, losses and the loss's notes
};

// By teacher, then by place in StepTokens, the head rows that the teacher's earlier act kept on this rank
// under the plan of the step.
using TeacherRows = std::vector<std::vector<layers::HeadRows>>;

// The engine's parts that a step uses; they outlive it.
struct StepResources {
  ParameterStore& store;
  Communicators& communicators;
  LinkRunner& link_inter;
  LinkRunner& link_intra;
  layers::LaneChannel* lanes;  // null when no candidate has pipelines of several lanes
  FsdpChannels& fsdp;
  const LinkWires& wires;
  layers::LayerContext context;          // its `parallel` and `lanes` are set by the step
  bool counts_coactivations = false;     // as in layers::ExpertLoad
  layers::GemmErrors* errors = nullptr;  // added to; null: not measured
  strategy::WireCodecs codecs;
  StepPull pull;
  const TeacherRows* teachers = nullptr;  // null: the targets are tokens
  EarlierActs* earlier = nullptr;         // null: the step has one act
  TrunkRows* rows = nullptr;              // null: the graph computes the whole model
  bool updates = true;                    // false: another act follows
};

// Sums over all ranks, known after ReduceScalars.
struct StepScalars {
  double gradient_squares = 0;
  double loss_sum = 0;
  int64_t targets = 0;
  std::vector<double> notes;  // the loss's notes; empty in evaluation
};

class StepRunner final : public NodeRunner {
 public:
  // `optimizer` null: evaluation. Opens the step in the parameter store.
  StepRunner(const graph::StepGraph& graph, int rank, const StepTokens& tokens,
             const StepResources& resources, const AdamW* optimizer);

  void run(const graph::Node& node) override;
  int64_t waited_ns() const override { return resources_.communicators.waits().sum(); }
  std::vector<comm::WaitClock*> wait_clocks() const override {
    return resources_.communicators.cell_clocks();
  }
  int awaited_rank(graph::Stream stream) const override {
    return resources_.communicators.awaited_rank(stream);
  }

  const StepScalars& scalars() const { return scalars_; }
  // In an evaluation: losses of this rank's rows with a target, laid out as StepTokens. Only the first TP
  // rank has them.
  std::vector<std::vector<double>> row_losses() const;
  // Likewise, for a head of numbers: all numbers of each row.
  std::vector<std::vector<double>> row_numbers() const;
  // Head rows of an evaluation that keeps them, on all TP ranks, by place in StepTokens.
  std::vector<layers::HeadRows> take_head_rows() { return std::move(own_head_rows_); }
  // Norm of the mean gradient before clipping.
  double gradient_norm() const;
  // Peak bytes of saved, recomputed and deferred tensors, rows between stages and, with FSDP, gathered
  // parameters and gradients.
  int64_t peak_activation_bytes() const { return activations_.peak_bytes(); }
  // For a step with FSDP on this rank; null otherwise.
  const GatheredParameters* gathered() const { return gathered_ ? &*gathered_ : nullptr; }
  // Peak of host memory that offloaded rows took.
  int64_t peak_host_bytes() const { return host_.peak_bytes(); }
  // Mean over experts that this rank's lane divides with others (layers::ExpertLoad); nullopt: the lane
  // divides none.
  std::optional<double> expert_load_imbalance() const {
    if (load_.count == 0) return std::nullopt;
    return load_.sum / static_cast<double>(load_.count);
  }
  const layers::ExpertLoad& expert_load() const { return load_; }
  // Bytes that this rank sent to other lanes.
  int64_t exchange_bytes() const {
    return resources_.lanes != nullptr ? resources_.lanes->sent_bytes() - exchange_bytes_before_ : 0;
  }

 private:
  // One micro-batch on its way through this rank's stage. Cells and transfers of one micro-batch depend on
  // each other, so never two threads use it at once.
  struct LanePart {
    layers::Flow flow;
    size_t place = 0;  // in StepTokens
    strategy::MemoryPolicy memory;
    // By operation of the stage.
    std::vector<layers::StatePtr> saved;
    std::vector<layers::StatePtr> deferred;
    // With FSDP and split backwards: gradients that B has made for W.
    std::vector<std::vector<at::Tensor>> early_gradients;
    std::vector<OffloadedLayer> away;
  };

  void open_stage(const StepTokens& tokens);
  void open_micro_batches(const StepTokens& tokens);
  // Layout of this lane's part of a micro-batch; if lanes share it, with the rows that the others hold.
  layers::RowLayout layout_of(const strategy::PipelineMicroBatch& unit) const;
  layers::MtpRows mtp_rows(const LanePartTokens& own, const LanePart& batch) const;
  // Rows of a pass on the lanes of this lane's expert group.
  layers::DispatchedRows travelling_rows(const strategy::Pass& pass) const;
  // This lane's part of the micro-batch of a cell or transfer; null: it has none of that pass.
  LanePart* micro_batch(const graph::Node& node) {
    const auto found = lane_parts_.find(node.at()->pass);
    return found == lane_parts_.end() ? nullptr : &found->second;
  }
  void pull(int round, bool in_node);
  void push(int round, bool in_node);
  void add_pulled(int round);
  void open_gathered();
  // The seed of one exchange of one step on one rank.
  uint64_t chance(int exchange) const;
  layers::FlatShards shards_of(at::Tensor ComputeShard::*member) const;
  // An operation's weights for one of its passes, coded ones expanded; their bytes count until given back.
  struct Expanded {
    layers::FlatShards weights;
    int64_t bytes = 0;
  };
  Expanded expand(cost::CellKind kind, int64_t position, const layers::FlatShards& weights);
  GatheredParameters::Operation shared_operation(cost::CellKind kind, int64_t position) const;
  // Calls compute(the lane's micro-batch, the operation) for an operation of a cell. With FSDP its parameters
  // are gathered for it and its gradients reduced. A lane without a micro-batch takes part too, for the lanes
  // of its expert group that have one.
  template <typename Compute>
  void operate(const graph::Node& node, int64_t position, const Compute& compute);
  template <typename Visit>
  void for_each_early_gradient(int64_t position, Visit visit) const;
  void keep_early_gradients(LanePart& batch, int64_t position);
  void add_early_gradients(LanePart& batch, int64_t position);
  size_t stage_index(int64_t position) const { return static_cast<size_t>(position - run_.begin); }

  void forward(const graph::Node& node);
  void drop_unused_gradient(LanePart& batch, int64_t position);
  void take_rows(LanePart& batch);
  void leave_rows(LanePart& batch);
  void leave_gradient(LanePart& batch);
  void drop_carried(LanePart& batch);
  void count_loss(LanePart& batch);
  void keep_head_rows(LanePart& batch);
  void backward(const graph::Node& node);
  void backward_operation(const graph::Node& node, int64_t position, LanePart& batch,
                          const layers::Operation& operation);
  void backward_weight(const graph::Node& node);
  void send_activation(const graph::Node& node);
  void send_gradient(const graph::Node& node);
  // The border in front of an operation, between this rank and a rank of a neighbouring stage.
  struct Border {
    int64_t position;
    bool sends;
    int peer;
    layers::Travels travels;
  };
  Border border_above(int below, int sender, layers::Travels travels) const;
  void pass(comm::Communicator& communicator, const Border& border, LanePart& batch,
            at::Tensor layers::Flow::*stream_SH);
  void offload(const graph::Node& node);
  void fetch(const graph::Node& node);
  void reduce_scalars();
  bool pushes(const model::Bucket& bucket) const;
  void keep_earlier();
  void join_earlier(std::vector<double>& own);
  int64_t row_bytes(const LanePart& batch) const;
  int64_t flowing_bytes(const LanePart& batch) const;

  const graph::StepGraph& graph_;
  int rank_;
  StepResources resources_;
  const AdamW* optimizer_;

  // This rank's place; pipeline −1 when it is idle.
  strategy::Place place_;
  const strategy::PipelinePlan* plan_ = nullptr;
  const strategy::Pipeline* pipeline_ = nullptr;  // the plan's
  base::Interval run_;                            // in the model program: the stage
  bool expands_ = false;                          // some of its buckets are coded
  // Operations of the run; empty with FSDP, or if matrices are expanded for each pass.
  std::vector<std::unique_ptr<layers::Operation>> operations_;
  std::optional<GatheredParameters> gathered_;      // with FSDP
  std::vector<std::vector<char>> contributes_;      // by pass, then member of the share group: it has tokens
  std::vector<layers::DispatchedRows> travelling_;  // by pass; empty if lanes gather all experts
  std::map<int, LanePart> lane_parts_;              // micro-batches of the graph on this lane, by pass
  int64_t exchange_bytes_before_ = 0;
  layers::ExpertLoad load_;

  LinkRunner::Memories pull_memories_;
  std::optional<DifferenceMemories> difference_memories_;
  LinkRunner::Memories push_memories_;
  // Left by the head on the device. In training: sums of micro-batches in order of forwards. In evaluation:
  // rows' losses by their place in StepTokens.
  std::vector<at::Tensor> own_losses_;
  std::vector<at::Tensor> own_numbers_;  // numbers of a head of numbers, in evaluation, as own_losses_
  std::vector<layers::HeadRows> own_head_rows_;
  at::Tensor kept_output_VH_;  // one copy for all of own_head_rows_
  int64_t own_targets_ = 0;
  StepScalars scalars_;
  ops::MemoryAccount activations_;  // on the device
  ops::MemoryAccount host_;         // offloaded
};

}  // namespace sluice::runtime
