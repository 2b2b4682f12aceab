// Layouts for serving mixtures of experts, whose engine steps have few tokens per parameter. Either
// lanes divide the experts, each with its own sequences (expert parallelism). Or attention and experts
// lie on different ranks, in numbers that balance their times (MegaScale-Infer, Zhu et al., 2025).
//
// Times come from a cluster's rates alone, not from a calibration, because no rank has a whole block.
// Transfers take latency plus bytes over the busiest adapter's bandwidth. Unknown, so left out: the
// efficiency of message sizes, and imbalance between experts beyond cost::kExpertImbalancePercent.
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
  int64_t device_bytes = 0;  // usable by one rank
  int64_t element_bytes = 2;
  strategy::Topology topology;  // with one level of groups for each link in the rates
};

// Ranks with attention (and everything else but experts), and ranks
// with experts. They are the same ranks if lanes divide the experts.
struct ExpertLayout {
  bool disaggregated = false;
  int attention_tp = 1, attention_lanes = 1;  // each lane of TP ranks has its own sequences
  int expert_tp = 1, expert_lanes = 1;        // each lane has an even part of a layer's experts
  int micro_batches = 1;
  int groups = 1;  // copies of the layout, side by side
  int ranks() const {
    return groups * (attention_tp * attention_lanes + (disaggregated ? expert_tp * expert_lanes : 0));
  }
};

// One layer's times for a micro-batch, averaged over an engine step.
struct LayerTimes {
  int64_t attention_ns = 0;
  int64_t transfer_ns = 0;  // each way; 0 in a layer without experts
  int64_t experts_ns = 0;
};

struct ExpertServing {
  ExpertLayout layout;
  int64_t sequences = 0;           // in a lane's micro-batch; 0: no sequence meets time and memory
  std::vector<LayerTimes> layers;  // by block
  int64_t ends_ns = 0;             // embedding, head and sampling of a micro-batch
  int64_t engine_step_ns = 0;      // between two tokens of a sequence
  int64_t attention_bytes = 0;     // on an attention rank
  int64_t expert_bytes = 0;        // on an expert rank; lanes that divide experts have both
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
  ExpertServer(const model::Model& model, const ServingMachine& machine, const Demand& demand);

  // Serves the most sequences that meet TPOT and memory. `engine_step_ns` assumes that each layer keeps
  // the slower ranks busy or waits for its round trip, whichever is longer (exact: graph/ping_pong.h).
  ExpertServing serve(const ExpertLayout& layout) const;
  // The same with so many sequences (`texts`) in a lane's micro-batch.
  ExpertServing with_sequences(const ExpertLayout& layout, int64_t texts) const;

  // Layouts of `world_size` ranks, and of several equal groups of them.
  std::vector<ExpertLayout> expert_parallel_layouts(int world_size) const;
  // The search space of MegaScale-Infer (algorithm 1): TP degrees inside nodes, lanes that
  // divide the experts, attention lanes on the remaining ranks, and up to four micro-batches.
  std::vector<ExpertLayout> disaggregated_layouts(int world_size) const;

 private:
  LayerTimes times_of(const model::Kind& kind, const ExpertLayout& layout, int64_t texts) const;
  int64_t transfer_ns(const ExpertLayout& layout, int64_t rows) const;

  model::Model model_;
  model::Program program_;
  ServingMachine machine_;
  Demand demand_;
};

}  // namespace sluice::inference
