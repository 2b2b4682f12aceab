// How long things take, in integers: fixed-point coefficients, 128-bit products, nanoseconds. Once a
// calibration is loaded no floating point is used, so every rank and every compiler computes the same plan.
// Times are estimates; what memory holds is proved (cost/memory_cost.h), what lanes that share parameters pay
// stands in cost/fsdp_cost.h, what others published in cost/published_table.h.
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
#include "cost/link_times.h"
#include "cost/published_table.h"
#include "cost/quadratic.h"
#include "model/program.h"
#include "model/shape.h"
#include "strategy/memory_policy.h"
#include "strategy/strategy.h"
#include "strategy/topology.h"
#include "strategy/wire_codec.h"

namespace sluice::cost {

// Times of one operation; in all of them a counts the squares that the operation's attention takes, windowed
// ones where it has a window. The embedding has no weight gradient of its own, because its input gradient is
// that; the head does everything in its forward: final norm, loss and all gradients.
struct OperationTimes {
  Quadratic forward;
  Quadratic backward_input;
  Quadratic backward_weight;
  bool operator==(const OperationTimes&) const = default;
};

// What is known of a kind of operation under one TP degree.
struct KindCost {
  OperationTimes times;
  int64_t saved_bytes_per_token = 0;     // kept from forward to backward
  int64_t deferred_bytes_per_token = 0;  // beyond those, until a deferred weight gradient
  DecodeCost decode = {};
  std::map<base::GemmFormat, OperationTimes> low_precision = {};  // of blocks, where that is known
  bool operator==(const KindCost&) const = default;
};

// Whether the weight gradient is a cell of its own, or (as in plain 1F1B) part of the backward cell, which is
// kBackwardInput then: kBackwardWeight takes no time and holds nothing.
enum class BackwardCells : uint8_t { kSplit, kOne };

// What other programs do with parameters that lanes share (ZeRO, FSDP), in which ours has no part.
struct FsdpTraits {
  // Gradients go round all lanes, each adding its own, as gathers do: between nodes they cross each adapter
  // once, but the order of sums is that of the ring.
  bool sums_in_ring = false;
  // Parameters are gathered once a step, outside passes, and stay whole (ZeRO-2).
  bool keeps_gathered = false;
  // What lanes do not divide by experts each holds whole, and sums its gradients once, behind all passes
  // (data parallelism with optimiser states cut by ZeRO-1).
  bool holds_whole = false;
  // All that is made of rows that travelled to experts stays until the backward: the rows come once.
  bool keeps_dispatched = false;
  // Rows travel to experts and back before and behind their products, not beside other waves'.
  bool dispatch_waits = false;
  // What a pass takes besides where its share groups lie on several nodes, as measured by somebody.
  int64_t pass_ns = 0;
  bool operator==(const FsdpTraits&) const = default;
};

struct MemoryModel {
  int64_t device_bytes = 0;                // what a rank may use, margin already taken off
  int64_t element_bytes = 4;               // of a compute parameter
  int64_t accumulator_bytes = 4;           // of a gradient accumulator element
  int64_t owner_bytes_per_parameter = 16;  // master, two Adam states and gradient slice
  int64_t transient_bytes_per_token = 0;   // at work on the largest micro-batch, without rings; 0: none
  int64_t logits_chunk_bytes = 0;
  // Of a GPU's kernels for attention, while its backward runs on a rank with all heads: whatever the
  // micro-batch, and for each of its tokens.
  int64_t attention_bytes = 0;
  int64_t attention_bytes_per_token = 0;
  int64_t host_bytes = 0;  // what a rank may use of host memory; 0: not known, and not minded
  // Parameters that a layer, and either end of the model, count for; 0: those of the shape.
  int64_t layer_parameters = 0;
  int64_t end_parameters = 0;
  int64_t master_bytes = 0;  // of a parameter that the optimiser updates; 0: those of a float, or of double
  // As wide as they are kept.
  int64_t kept_master_bytes() const {
    return master_bytes > 0 ? master_bytes : std::max<int64_t>(4, element_bytes);
  }
  // On the ranks that own so many parameters. Those that are not trained have neither Adam states nor
  // gradient. Words of codes are no wider than ranks compute.
  int64_t owner_bytes(int64_t all, int64_t trained, int64_t coded = 0) const {
    const int64_t master = std::min(kept_master_bytes(), owner_bytes_per_parameter);
    return trained * owner_bytes_per_parameter + (all - trained - coded) * master + coded * element_bytes;
  }
  // Masters in bfloat16, moments in 8 bits. False, with nothing changed, where they are so already, or bytes
  // were published.
  bool narrow_masters();
  bool code_moments();
  // Of codecs: an owner's copies apart from masters that have as many bits; and, an element of what it owns
  // and of what a rank holds, 16 bits of a difference and its part of a factor.
  int64_t pull_bytes(strategy::PullCodec codec, int64_t owned, int64_t held) const {
    if (codec == strategy::PullCodec::kNone) return 0;
    const int64_t copies = element_bytes >= 4 ? owned * element_bytes : 0;
    if (!strategy::is_difference(codec)) return copies;
    return copies + (owned + held) * 2 + (owned + held) * strategy::kFactorBytes / strategy::kCodecGroup;
  }
  bool operator==(const MemoryModel&) const = default;
};

// A model on a machine, under a memory policy. Cheap to copy; thread-safe. Filled from calibration.json
// (cost/calibration.h).
class CostModel {
 public:
  struct Options {
    model::Shape shape;
    // By TP degree, then in the order of model::Program::kinds().
    std::map<int, std::vector<KindCost>> kinds_by_tp;
    LinkTimes intra;                    // inside a node
    LinkTimes inter;                    // between nodes, of one network adapter
    std::vector<LinkTimes> beyond;      // likewise between larger groups of nodes, by size of these
    LinkTimes host{0, 10'000'000'000};  // a rank's copies to or from host memory
    int64_t ring_step_ns = 0;           // what the host needs for a ring's step in a layer's forward pass
    int64_t update_ps_per_element = 0;  // optimiser step, picoseconds an owned element
    int64_t code_ps_per_element = 0;    // a number written in 8 bits, and one read
    MemoryModel memory;
    strategy::WireCodecs codecs;  // how parameters and gradients travel
    // Steps change their strategy, and nobody has the parameters of the step before.
    bool whole_pulls = false;
    strategy::Topology topology;  // of as many larger groups as there are links between such
    // Where it has rows, they take the place of the map above and a scheme without a row cannot be planned.
    SchemeTable scheme_times;
    // How systems differ that are compared with this one; calibration files do not say it.
    BackwardCells backward_cells = BackwardCells::kSplit;
    FsdpTraits fsdp_traits;
    ExchangeSet exchanges;       // that planners choose from
    model::KindTimes cut_times;  // by which stages are cut (cost/cut_stages.h)
    std::optional<base::Interval> trunk = {};  // the operations that are computed (model::Program::trunk)
    // Where lanes divide experts: seats of a lane beyond its even part of them (strategy/expert_placement.h);
    // and by how many lanes these are, what the busiest one's experts take, in hundredths of the mean one's.
    // Others take kExpertImbalancePercent.
    int redundant_experts = 0;
    std::map<int, int> expert_imbalance_percent = {};
    // The backward pass runs the layers' forward pass again, with its exchange. What is kept between the
    // passes stands in the bytes above.
    bool repeat_forward = false;

    // That ranks meet over on a level of the topology.
    const LinkTimes& link(int level) const {
      return level == 0 ? intra : level == 1 ? inter : beyond[static_cast<size_t>(level - 2)];
    }
  };
  explicit CostModel(Options options);
  const Options& options() const { return figures_->options; }
  const model::Program& program() const { return figures_->program; }
  int64_t window() const { return options().shape.window; }  // what Work is counted with

  // The same machine and model under another policy: that of micro-batches which name none.
  CostModel under(const strategy::MemoryPolicy& policy) const {
    CostModel model = *this;
    model.policy_ = policy;
    return model;
  }
  const strategy::MemoryPolicy& policy() const { return policy_; }
  // The same on ranks that take so many hundredths of the time for what they compute; transfers, copies and
  // updates take as long.
  CostModel slowed(int pace_percent) const {
    CostModel model = *this;
    model.pace_percent_ = pace_percent;
    return model;
  }
  // The same where a pipeline lies: at its pace, in its memory, with its products.
  CostModel on(const strategy::Pipeline& pipeline) const {
    CostModel model = slowed(pipeline.priced_percent());
    model.memory_bytes_ = pipeline.device.memory_bytes;
    model.narrow_ = pipeline.device.low_precision;
    return model;
  }
  // Null: all products as the run computes.
  const strategy::LowPrecisionGemms* low_precision_gemms() const { return narrow_.get(); }
  // Whether it is known what the blocks take with products in the format, under the scheme's TP degree.
  bool knows(base::GemmFormat format, const strategy::Scheme& scheme) const;
  // What a rank may use.
  int64_t device_bytes() const { return memory_bytes_ > 0 ? memory_bytes_ : options().memory.device_bytes; }
  // The same of sequences with branches, priced by their lengths alone: they attend to so many millionths of
  // what others of their lengths do, and work on copies, as lanes on a ring do.
  CostModel branching(int64_t attended_ppm) const {
    CostModel model = *this;
    model.attended_ppm_ = attended_ppm;
    return model;
  }
  bool branches() const { return attended_ppm_ != kWhole; }
  // Whether the policy recomputes the block at that position, and how many of some blocks.
  bool recomputes(int64_t position) const { return policy_.recomputes(position - program().blocks().begin); }
  int64_t recomputed_blocks(base::Interval blocks) const;
  // Another machine or model under the same policy.
  CostModel with(Options options) const;
  // Whether input and weight gradient are cells of their own. What a deferred weight gradient holds is what a
  // policy wants to be rid of: with one, they are done at once; and where lanes have others' rows at hand, of
  // experts or narrow keys, only in the input gradient.
  bool splits_backward(const strategy::Scheme& scheme) const {
    const bool narrow_rings = options().shape.latent.kv_rank > 0 && scheme.cp > 1;
    return scheme.pp > 1 && scheme.ep == 1 && !narrow_rings && !policy_.recomputes() &&
           policy_.offload_permille == 0;
  }

  // Of parameters of all of a layer's experts, how many a lane has seats for.
  int64_t in_expert_slots(const strategy::Scheme& scheme, int64_t of_all) const;
  int64_t expert_imbalance_percent(const strategy::Scheme& scheme) const;

  // Whether there are times for scheme.tp, or a row for (tp, pp), and both degrees cut the model. Everything
  // below that takes a scheme throws InputError naming it when the calibration has no figures for it.
  bool has_scheme(const strategy::Scheme& scheme) const;
  // Its row, null without a table.
  const SchemeTimes* published(const strategy::Scheme& scheme) const;
  // The figures of an operation. REQUIRES: no table.
  const KindCost& kind_cost(const strategy::Scheme& scheme, int64_t position) const;

  // The schemes of one lane on at most so many ranks that can be planned: the table's, otherwise powers of
  // two with TP inside a node. Ascending.
  std::vector<strategy::Scheme> schemes(int most_ranks) const;

  // One cell on a run of the model program for pieces of `lengths`: the sum of its operations. kBackward is
  // exactly kBackwardInput + kBackwardWeight. A policy that recomputes adds to kBackwardInput what
  // recompute_times says.
  int64_t cell_ns(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                  std::span<const int64_t> lengths) const {
    return cell_ns(scheme, kind, run, Work::of(lengths, window()));
  }
  int64_t cell_ns(const strategy::Scheme& scheme, CellKind kind, base::Interval run, const Work& work) const;
  // a, b and c of such a cell; kBackward's are the sums, so its rounding may differ by a nanosecond.
  Quadratic cell_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;
  // What a backward makes again of a run: the forward without attention, and without the share of its
  // products that only later operations need.
  Quadratic recompute_times(const strategy::Scheme& scheme, base::Interval run) const;
  // Forward plus backward on the whole of a stage: the published T(l).
  Quadratic stage_times(const strategy::Scheme& scheme, int stage) const;
  // The last stage of those with the most time a token.
  int slowest_stage(const strategy::Scheme& scheme) const;
  // The operations of a stage, and how many blocks are among them.
  base::Interval stage_run(const strategy::Scheme& scheme, int stage) const {
    return program().of_stage(scheme.tp, scheme.pp, stage);
  }
  int64_t stage_blocks(const strategy::Scheme& scheme, int stage) const {
    return program().blocks_in(stage_run(scheme, stage)).size();
  }
  // The first stage that a backward pass reaches; scheme.pp: none, for the head alone is trained.
  int first_backward_stage(const strategy::Scheme& scheme) const;

  // Whether it is known what passes take that say something, under the scheme's TP degree.
  bool decodes(const strategy::Scheme& scheme) const;
  // One such pass on a run of the model program, or several of them. REQUIRES: decodes().
  int64_t decode_ns(const strategy::Scheme& scheme, base::Interval run, const DecodeWork& work) const;

  // Whoever meets on a level of the topology waits for the links of that level, whatever part of it goes less
  // far.
  //
  // Stage-to-stage transfer of `tokens` rows of activations, cut over tp senders in parallel. Between nodes
  // those on one adapter share it, as they do in rings.
  int64_t transfer_ns(const strategy::Scheme& scheme, int64_t tokens, int level) const;
  int64_t transfer_bytes(const strategy::Scheme& scheme, int64_t tokens) const;  // by one sender

  // The ring's transfers in such a cell, of lanes that meet on this level. REQUIRES: kind != kBackward.
  RingTimes ring_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run, int level) const;
  // What goes round of a token in one layer, on one of tp ranks: its keys and values, or the narrow row that
  // they are made of.
  int64_t ring_bytes_per_token(const strategy::Scheme& scheme) const;
  // What a lane sends of a recurrent layer's states for one piece of a sequence.
  int64_t state_bytes(const strategy::Scheme& scheme) const;

  // One world exchange whose busiest rank, or between nodes its busiest adapter, moves `bytes`.
  int64_t exchange_ns(int64_t busiest_bytes, int level) const;
  // So many numbers coded, and as many made numbers again.
  int64_t code_ns(strategy::Codec codec, int64_t elements) const;
  int64_t update_ns(int64_t owned_elements) const;

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
    // Of the experts that a token visits, what their products have of b.
    std::vector<Wide> visited_forward, visited_input, visited_weight;
  };
  // Of blocks that don't pass all their keys round a ring, and of those with experts.
  struct BlockCounts {
    int64_t windowed = 0;
    int64_t recurrent = 0;
    int64_t experts = 0;
  };
  // What holds under every policy.
  struct Figures {
    Options options;
    model::Program program;
    std::vector<BlockCounts> before;  // by position: of the blocks before it
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
  strategy::MemoryPolicy policy_;
  std::shared_ptr<const strategy::LowPrecisionGemms> narrow_;
  int64_t memory_bytes_ = 0;  // of a rank; 0: the options'
  int pace_percent_ = 100;
  static constexpr int64_t kWhole = 1'000'000;
  int64_t attended_ppm_ = kWhole;
};

}  // namespace sluice::cost
