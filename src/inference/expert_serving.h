// Mixtures of experts say few tokens a pass for so many parameters: either lanes divide the experts, each
// with texts of its own (expert parallelism), or attention and experts lie on different ranks, as many of
// each as take equally long, and micro-batches go to and fro (MegaScale-Infer, Zhu et al., 2025).
//
// From a cluster's rates alone, not from a calibration: ranks of neither kind have a whole block. Transfers
// are latency and bytes over bandwidth of the busiest adapter; how well messages of a size use a link is not
// known, nor imbalance between experts beyond cost::kExpertImbalancePercent.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/analytic.h"
#include "inference/serving.h"
#include "model/program.h"
#include "strategy/topology.h"

namespace sluice::inference {

struct ServingMachine {
  cost::Rates rates;
  int64_t device_bytes = 0;  // that a rank may use
  int64_t element_bytes = 2;
  strategy::Topology topology;  // of as many larger groups as the rates know links between
};

// Ranks that have attention (and all that is beside experts), and ranks that have experts: the same ones
// where lanes divide them.
struct ExpertLayout {
  bool disaggregated = false;
  int attention_tp = 1, attention_lanes = 1;  // each lane of TP ranks has texts of its own
  int expert_tp = 1, expert_lanes = 1;        // each an even part of a layer's experts
  int micro_batches = 1;
  int groups = 1;  // side by side
  int ranks() const {
    return groups * (attention_tp * attention_lanes + (disaggregated ? expert_tp * expert_lanes : 0));
  }
};

// A layer of one micro-batch, in the mean of a pass.
struct LayerTimes {
  int64_t attention_ns = 0;
  int64_t transfer_ns = 0;  // each way; 0 in a layer without experts
  int64_t experts_ns = 0;
};

struct ExpertServing {
  ExpertLayout layout;
  int64_t sequences = 0;           // of a lane's micro-batch; 0: not one in time, or in memory
  std::vector<LayerTimes> layers;  // by block
  int64_t ends_ns = 0;             // embedding, head and drawing of a micro-batch
  int64_t engine_step_ns = 0;      // between a text's tokens
  int64_t attention_bytes = 0;     // of an attention rank
  int64_t expert_bytes = 0;        // of an expert rank; lanes that divide experts have both
  int64_t all_sequences() const {
    return sequences * layout.micro_batches * layout.attention_lanes * layout.groups;
  }
  double tokens_per_s() const {
    return engine_step_ns == 0
               ? 0
               : 1e9 * static_cast<double>(all_sequences()) / static_cast<double>(engine_step_ns);
  }
};

class ExpertServer {
 public:
  // REQUIRES: a model with experts.
  ExpertServer(const model::Shape& shape, const ServingMachine& machine, const Demand& demand);

  // With the most texts that keep the time and fit. `pass_ns` as if each layer kept the slower ranks busy or
  // was waited for, whichever is longer (graph/ping_pong.h times it exactly).
  ExpertServing serve(const ExpertLayout& layout) const;
  // With so many texts a lane's micro-batch.
  ExpertServing with_sequences(const ExpertLayout& layout, int64_t texts) const;

  // Layouts of so many ranks, or of groups of a part of them each.
  std::vector<ExpertLayout> expert_parallel_layouts(int world_size) const;
  // As MegaScale-Infer searches (algorithm 1): TP degrees inside nodes, lanes that divide the experts,
  // attention lanes on the ranks that are left, up to four micro-batches.
  std::vector<ExpertLayout> disaggregated_layouts(int world_size) const;

 private:
  LayerTimes times_of(const model::Kind& kind, const ExpertLayout& layout, int64_t texts) const;
  int64_t transfer_ns(const ExpertLayout& layout, int64_t rows) const;

  model::Shape shape_;
  model::Program program_;
  ServingMachine machine_;
  Demand demand_;
};

}  // namespace sluice::inference
