// Estimated times in integers: fixed-point coefficients, 128-bit products, nanoseconds. Once a calibration is
// loaded no floating point is used, so every rank and every compiler computes the same plan. Memory is not
// estimated but proved (cost/memory_cost.h). The cost of FSDP stands in cost/fsdp_cost.h, published times in
// cost/published_table.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/gemm_format.h"
#include "base/interval.h"
#include "cost/cell_kind.h"
#include "cost/decode_cost.h"
#include "cost/exchange_set.h"
#include "cost/execution.h"
#include "cost/link_times.h"
#include "cost/published_table.h"
#include "cost/quadratic.h"
#include "model/model.h"
#include "model/program.h"
#include "strategy/memory_policy.h"
#include "strategy/strategy.h"
#include "strategy/topology.h"
#include "strategy/wire_codec.h"

namespace sluice::cost {

// Times of one operation. Coefficient a multiplies the squares that the operation's attention takes, windowed
// ones if it has a window. The embedding has no weight gradient of its own: its input gradient is that
// gradient. The head does everything in its forward: final norm, loss and all gradients.
struct OperationTimes {
  Quadratic forward;
  Quadratic backward_input;
  Quadratic backward_weight;
  bool operator==(const OperationTimes&) const = default;
};

// Costs of a kind of operation under one TP degree.
struct KindCost {
  OperationTimes times;
  int64_t saved_bytes_per_token = 0;     // kept from forward to backward
  int64_t deferred_bytes_per_token = 0;  // besides, until a deferred weight gradient
  DecodeCost decode = {};
  std::map<base::GemmFormat, OperationTimes> low_precision = {};  // for blocks, in known formats
  bool operator==(const KindCost&) const = default;
};

struct MemoryModel {
  int64_t device_bytes = 0;                // a rank's limit, margin already taken off
  int64_t element_bytes = 4;               // a compute parameter
  int64_t accumulator_bytes = 4;           // a gradient accumulator element
  int64_t owner_bytes_per_parameter = 16;  // master, two Adam states and gradient slice
  int64_t transient_bytes_per_token = 0;   // working memory on the largest micro-batch, no rings; 0: none
  int64_t logits_chunk_bytes = 0;
  // Scratch of a GPU's attention kernels while their backward runs on a rank with all heads: a constant, and
  // bytes for each token of the micro-batch.
  int64_t attention_bytes = 0;
  int64_t attention_bytes_per_token = 0;
  int64_t host_bytes = 0;  // a rank's limit of host memory; 0: not known, no limit
  // Parameters counted for a layer, and for either end of the model; 0: those of the model.
  int64_t layer_parameters = 0;
  int64_t end_parameters = 0;
  int64_t master_bytes = 0;  // a master parameter that the optimizer updates; 0: a float's, or a double's
  // Bytes of a master parameter as it is kept.
  int64_t kept_master_bytes() const {
    return master_bytes > 0 ? master_bytes : std::max<int64_t>(4, element_bytes);
  }
  // Bytes on the ranks that own so many parameters. Untrained parameters have neither Adam states nor
  // gradient. Words of codes take element_bytes each.
  int64_t owner_bytes(int64_t all, int64_t trained, int64_t coded = 0) const {
    const int64_t master = std::min(kept_master_bytes(), owner_bytes_per_parameter);
    return trained * owner_bytes_per_parameter + (all - trained - coded) * master + coded * element_bytes;
  }
  // Bytes of numbers that an update of whole matrices holds (link::MatrixUpdate::Held): iterations are in
  // bfloat16, or in double if masters are.
  int64_t matrix_update_bytes(int64_t masters, int64_t iterated, int64_t coming_home) const {
    const int64_t narrow = accumulator_bytes == 8 ? 8 : 2;
    return std::max(masters * accumulator_bytes + iterated * narrow, coming_home * accumulator_bytes);
  }
  // Narrows masters to bfloat16, or moments to 8 bits. False, with nothing changed, if they are so already or
  // the bytes were published.
  bool narrow_masters();
  bool code_moments();
  // Bytes that a pull codec adds. An owner keeps copies if masters have as many bits as compute parameters.
  // Differences take 16 bits and a part of a factor for each element that a rank owns or holds.
  int64_t pull_bytes(strategy::PullCodec codec, int64_t owned, int64_t held) const {
    if (codec == strategy::PullCodec::kNone) return 0;
    const int64_t copies = element_bytes >= 4 ? owned * element_bytes : 0;
    if (!strategy::is_difference(codec)) return copies;
    return copies + (owned + held) * 2 + (owned + held) * strategy::kFactorBytes / strategy::kCodecGroup;
  }
  bool operator==(const MemoryModel&) const = default;
};

// The conditions under which a cost model prices passes, as one value.
struct Conditions {
  static constexpr int64_t kWhole = 1'000'000;
  strategy::MemoryPolicy policy = {};  // for micro-batches that name none
  // A pipeline's ranks compute in so many hundredths of the time; transfers, copies and updates
  // take as long as before.
  int slowed_percent = 100;
  int64_t memory_bytes = 0;                                               // 0: the memory model's
  std::shared_ptr<const strategy::LowPrecisionGemms> low_precision = {};  // null: none
  // Sequences with branches are priced by their lengths alone: their attention takes so many millionths of
  // that of plain sequences. They work on copies, as lanes on a ring do.
  int64_t attended_ppm = kWhole;

  Conditions with(const strategy::MemoryPolicy& other) const {
    Conditions conditions = *this;
    conditions.policy = other;
    return conditions;
  }
  // On a pipeline's ranks: their slowdown, memory and low-precision GEMMs.
  Conditions on(const strategy::Pipeline& pipeline) const {
    return {policy, pipeline.priced_percent(), pipeline.device.memory_bytes, pipeline.device.low_precision,
            attended_ppm};
  }
};

// A model on a machine, under conditions. Cheap to copy; thread-safe. Filled from calibration.json
// (cost/calibration.h).
class CostModel {
 public:
  struct Options {
    model::Model model;
    // By TP degree, then in the order of model::Program::kinds().
    std::map<int, std::vector<KindCost>> kinds_by_tp;
    LinkTimes intra;                    // inside a node
    LinkTimes inter;                    // between nodes, a network adapter's
    std::vector<LinkTimes> beyond;      // between larger groups of nodes, smallest first
    LinkTimes host{0, 10'000'000'000};  // a rank's copies to or from host memory
    int64_t ring_step_ns = 0;           // host time of a ring step in a layer's forward pass
    int64_t update_ps_per_element = 0;  // optimizer step, picoseconds an owned element
    int64_t code_ps_per_element = 0;    // coding a number in 8 bits, and decoding one
    MemoryModel memory;
    strategy::WireCodecs codecs;  // how parameters and gradients travel
    // Strategies change from step to step, and no rank has the parameters of the step before.
    bool whole_pulls = false;
    strategy::Topology topology;  // has as many larger groups of nodes as `beyond`
    // A published table: its rows replace kinds_by_tp, and a scheme without a row cannot be planned.
    SchemeTable scheme_times;
    // How the program that is priced runs passes; calibration files do not hold it. Never null.
    std::shared_ptr<const Execution> execution = own_execution();
    // Measured time that a pass takes besides if its FSDP groups lie on several nodes (measured_passes.h).
    int64_t measured_pass_ns = 0;
    ExchangeSet exchanges;                     // planners choose from these
    model::KindTimes cut_times;                // by which stages are cut (cost/cut_stages.h)
    std::optional<base::Interval> trunk = {};  // the operations that are computed (model::Program::trunk)
    // For lanes that divide experts: the expert slots of a lane beyond its even part of the experts
    // (strategy/expert_placement.h); and, by the number of lanes, the load of the busiest lane in percent of
    // the mean. A number that is not listed has kExpertImbalancePercent.
    int redundant_experts = 0;
    std::map<int, int> expert_imbalance_percent = {};
    // Newton-Schulz iterations of each trained matrix in an update (Muon); 0: matrices are updated number by
    // number. Of the run, not of calibration files.
    int64_t newton_schulz_steps = 0;

    // The link between ranks that meet on this level of the topology.
    const LinkTimes& link(int level) const {
      return level == 0 ? intra : level == 1 ? inter : beyond[static_cast<size_t>(level - 2)];
    }
  };
  explicit CostModel(Options options);
  const Options& options() const { return figures_->options; }
  const model::Program& program() const { return figures_->program; }
  int64_t window() const { return figures_->window; }  // Work is counted with it

  // Whatever is priced beside the machine and the model. A derived model has all of it.
  const Conditions& conditions() const { return conditions_; }
  CostModel under(Conditions conditions) const {
    CostModel model = *this;
    model.conditions_ = std::move(conditions);
    return model;
  }
  CostModel under(const strategy::MemoryPolicy& policy) const { return under(conditions_.with(policy)); }
  CostModel on(const strategy::Pipeline& pipeline) const { return under(conditions_.on(pipeline)); }
  const strategy::MemoryPolicy& policy() const { return conditions_.policy; }
  // Null: all products have the run's own precision.
  const strategy::LowPrecisionGemms* low_precision_gemms() const { return conditions_.low_precision.get(); }
  // Whether the times of blocks with products in this format are known under the scheme's TP degree.
  bool knows(base::GemmFormat format, const strategy::Scheme& scheme) const;
  // The device memory that a rank may use.
  int64_t device_bytes() const {
    return conditions_.memory_bytes > 0 ? conditions_.memory_bytes : options().memory.device_bytes;
  }
  bool branches() const { return conditions_.attended_ppm != Conditions::kWhole; }
  // Whether the policy recomputes the block at `position`; how many of `blocks` it recomputes.
  bool recomputes(int64_t position) const { return policy().recomputes(position - program().blocks().begin); }
  int64_t recomputed_blocks(base::Interval blocks) const;
  // Another machine or model under the same conditions.
  CostModel with(Options options) const;
  // Whether input and weight gradient are cells of their own. Memory policies run them at once, because a
  // deferred weight gradient keeps what they want to free. EP and rings of latent keys do, too: a lane has
  // other lanes' rows only during the input gradient.
  bool splits_backward(const strategy::Scheme& scheme) const {
    const bool narrow_rings = figures_->latent && scheme.cp > 1;
    return scheme.pp > 1 && scheme.ep == 1 && !narrow_rings && !policy().recomputes() &&
           policy().offload_permille == 0;
  }

  // How many of the `of_all` parameters of a layer's experts a lane has expert slots for.
  int64_t in_expert_slots(const strategy::Scheme& scheme, int64_t of_all) const;
  int64_t expert_imbalance_percent(const strategy::Scheme& scheme) const;

  // Whether there are times for scheme.tp, or a row for (tp, pp), and both degrees cut the model. Every
  // function below that takes a scheme throws InputError naming it if the calibration has no figures for it.
  bool has_scheme(const strategy::Scheme& scheme) const;
  // The scheme's row; null without a table.
  const SchemeTimes* published(const strategy::Scheme& scheme) const;
  // The figures of an operation. REQUIRES: no table.
  const KindCost& kind_cost(const strategy::Scheme& scheme, int64_t position) const;

  // The schemes of one lane on at most `most_ranks` ranks that can be planned: the table's, otherwise powers
  // of two with TP inside a node. Ascending.
  std::vector<strategy::Scheme> schemes(int most_ranks) const;

  // Time of one cell on a run of the model program for pieces of `lengths`: the sum of its operations.
  // kBackward is exactly kBackwardInput + kBackwardWeight. A policy that recomputes adds recompute_times() to
  // kBackwardInput.
  int64_t cell_ns(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                  std::span<const int64_t> lengths) const {
    return cell_ns(scheme, kind, run, Work::of(lengths, window()));
  }
  int64_t cell_ns(const strategy::Scheme& scheme, CellKind kind, base::Interval run, const Work& work) const;
  // Coefficients a, b and c of that cell; kBackward's are sums, so its rounding may differ by a nanosecond.
  Quadratic cell_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;
  // The time in which a backward recomputes a run: the forward without attention, and without the share of
  // its products that only later operations need.
  Quadratic recompute_times(const strategy::Scheme& scheme, base::Interval run) const;
  // Forward plus backward of a whole stage: the published T(l).
  Quadratic stage_times(const strategy::Scheme& scheme, int stage) const;
  // The stage with the most time a token; the last one of equals.
  int slowest_stage(const strategy::Scheme& scheme) const;
  // The operations of a stage, and how many blocks are among them.
  base::Interval stage_run(const strategy::Scheme& scheme, int stage) const {
    return program().of_stage(scheme.tp, scheme.pp, stage);
  }
  int64_t stage_blocks(const strategy::Scheme& scheme, int stage) const {
    return program().blocks_in(stage_run(scheme, stage)).size();
  }
  // The first stage that a backward pass reaches; scheme.pp if none, because the head alone is trained.
  int first_backward_stage(const strategy::Scheme& scheme) const;

  // Whether the times of engine steps are known under the scheme's TP degree.
  bool decodes(const strategy::Scheme& scheme) const;
  // Time of the engine steps that `work` holds, on a run of the model program. REQUIRES: decodes().
  int64_t decode_ns(const strategy::Scheme& scheme, base::Interval run, const DecodeWork& work) const;

  // Ranks that meet on a level of the topology wait for the links of that level, even if part of a transfer
  // goes less far.
  //
  // Stage-to-stage transfer of `tokens` rows of activations, cut over tp senders in parallel. Between nodes
  // the senders on one adapter share its bandwidth, as in rings.
  int64_t transfer_ns(const strategy::Scheme& scheme, int64_t tokens, int level) const;
  int64_t transfer_bytes(const strategy::Scheme& scheme, int64_t tokens) const;  // by one sender

  // The ring's transfers in a cell whose lanes meet on this level. REQUIRES: kind != kBackward.
  RingTimes ring_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run, int level) const;
  // Bytes that go round a ring for one token of one layer, on one of tp ranks: its keys and values, or the
  // latent row that they are made from.
  int64_t ring_bytes_per_token(const strategy::Scheme& scheme) const;
  // Bytes of a recurrent layer's states that a lane sends for one piece of a sequence.
  int64_t state_bytes(const strategy::Scheme& scheme) const;

  // One world exchange whose busiest rank, or between nodes its busiest adapter, moves `bytes`.
  int64_t exchange_ns(int64_t busiest_bytes, int level) const;
  // Time of coding so many numbers and of decoding as many.
  int64_t code_ns(strategy::Codec codec, int64_t elements) const;
  int64_t update_ns(int64_t owned_elements) const;
  // So many multiply-adds at the rate of the forward of blocks, which is dearer than products alone by what
  // blocks do between them. 0 with a published table, which has no rates.
  int64_t products_ns(double multiply_adds) const;
  // Most bytes that a rank of any number of them holds in an update of whole matrices, beside its own part.
  int64_t matrix_update_bytes() const { return figures_->matrix_update_bytes; }

 private:
  int64_t keys_made_again(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;
  // Sums over the operations before a position, so that a run of them costs two look-ups.
  struct Sum {
    Wide a = 0;
    Wide b = 0;
    Wide c_ns = 0;
    Wide a_windowed = 0;
  };
  struct Sums {
    std::vector<Sum> forward, backward_input, backward_weight;
    // The part of b that is products of the experts that a token visits.
    std::vector<Wide> visited_forward, visited_input, visited_weight;
  };
  // Numbers of blocks that do not pass all their keys round a ring, and of blocks with experts.
  struct BlockCounts {
    int64_t windowed = 0;
    int64_t recurrent = 0;
    int64_t experts = 0;
  };
  // Figures that hold under all conditions.
  struct Figures {
    Options options;
    model::Program program;
    int64_t window = 0;               // the model's
    bool latent = false;              // whether keys are made from narrow rows
    std::vector<BlockCounts> before;  // by position: counts of the blocks before it
    int64_t matrix_update_bytes = 0;
    std::map<int, Sums> sums_by_tp;
  };
  static std::shared_ptr<const Figures> figures_of(Options options);
  // The members of a TP group that share an adapter.
  int64_t nic_sharers(int tp) const { return std::min(tp, options().topology.nic_ranks()); }
  BlockCounts counts_of(base::Interval run) const;
  Quadratic own_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;
  Quadratic narrowed_times(Quadratic times, const strategy::Scheme& scheme, CellKind kind,
                           base::Interval run) const;
  Quadratic priced_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;
  Quadratic divided_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;

  std::shared_ptr<const Figures> figures_;
  Conditions conditions_;
};

}  // namespace sluice::cost
