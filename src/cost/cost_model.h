// How long things take and how much memory they need, in integers: fixed-point coefficients, 128-bit
// products, nanoseconds. Once a calibration is loaded no floating point is used, so every rank and every
// compiler computes the same plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/interval.h"
#include "cost/exchange_set.h"
#include "cost/pass_times.h"
#include "model/program.h"
#include "model/shape.h"
#include "strategy/memory_policy.h"
#include "strategy/scheme.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// Wide enough for the sum of coefficient times squared length over any batch.
using Wide = __int128;

// What the lengths of a micro-batch come to: all that its time depends on. Sums of Work are exact, so a
// plan can be scored while sequences move between micro-batches.
struct Work {
  int64_t tokens = 0;
  int64_t windowed = 0;  // sum of windowed_square(length, the model's window); 0 without one
  Wide squares = 0;      // sum of squared lengths

  static Work of(std::span<const int64_t> lengths, int64_t window = 0);
  // One lane's part of a sequence of `length` tokens that is cut evenly over `lanes` of them: its own tokens,
  // and a lane's share of the squares, rounded up so that no lane's is lost.
  static Work of_lane(int64_t piece_tokens, int64_t length, int lanes, int64_t window = 0);
  Work& operator+=(const Work& other);
  Work& operator-=(const Work& other);
};

// What attention through a window takes as attention to all that came before takes l²: the square up to the
// window, beyond it 2·window·l − window², as of pairs of a token with one that it sees.
int64_t windowed_square(int64_t length, int64_t window);

// What a cell does with a micro-batch on one stage. kBackward is input and weight gradient in one.
enum class CellKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };
const char* name_of(CellKind kind);

// a·l² + b·l nanoseconds for a sequence (or piece) of l tokens and c once a micro-batch, and a_windowed for
// each of its windowed_square; all but c are fixed point with kFractionBits fractional bits.
struct Quadratic {
  static constexpr int kFractionBits = 32;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c_ns = 0;
  int64_t a_windowed = 0;

  // REQUIRES: finite values that are not negative; a and b below 2^31.
  static Quadratic from_ns(double a_ns, double b_ns, double c_ns);
  // REQUIRES: 0 <= length < 2^31. Rounded to nearest, c included once.
  int64_t of_sequences(std::span<const int64_t> lengths, int64_t window = 0) const {
    return of_work(Work::of(lengths, window));
  }
  int64_t of_work(const Work& work) const;
  Wide of_work_fixed(const Work& work) const;  // without c, still fixed point
  Quadratic& operator+=(const Quadratic& other);
  Quadratic times(int64_t count) const;
  Quadratic share(int64_t part, int64_t whole) const;  // part ÷ whole of each coefficient, to nearest
  Quadratic through_window() const { return {0, b, c_ns, a}; }  // whose a counts windowed squares
  bool operator==(const Quadratic&) const = default;
};

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
  bool operator==(const KindCost&) const = default;
};

// Moving bytes: latency plus bytes over bandwidth (bytes per second).
struct LinkTimes {
  int64_t latency_ns = 0;
  int64_t bytes_per_s = 1;
  int64_t of_bytes(int64_t bytes) const;
  bool operator==(const LinkTimes&) const = default;
};

// What ring attention adds to a cell of a micro-batch that is tied over k lanes (causal cutting gives every
// lane the same attention in every step). In each of k − 1 steps a lane passes a block of keys and values on
// to its neighbour while it attends to the block before; the backward pass moves their gradients as well.
// Layer by layer the longer of the two counts, so beside its work the cell takes
//   (k − 1) · max(0, layers · step − attention ÷ k).
// Layers with a window pass on only what their tokens see of the lanes before and behind: about a window for
// each of a lane's two chunks of a sequence, at most what the others pass on, in no more than twice as many
// steps as a window spans chunks.
struct RingTimes {
  LinkTimes link;               // between neighbouring lanes
  int64_t layers = 0;           // 0: nothing moves
  int64_t bytes_per_token = 0;  // that a lane passes on in a step of a layer
  int64_t a = 0;                // of attention in these layers: Quadratic::a
  int64_t windowed_layers = 0;  // beside them
  int64_t window = 0;
  int64_t a_windowed = 0;  // of attention in those

  // `shared`: the lane's work of the sequences that it shares. REQUIRES: lanes >= 1.
  int64_t exposed_ns(const Work& shared, int lanes) const;
  int64_t all_layers() const { return layers + windowed_layers; }
  bool operator==(const RingTimes&) const = default;

 private:
  int64_t exposed_in_windows_ns(const Work& shared, int lanes) const;
};

// Whether the weight gradient is a cell of its own, or (as in plain 1F1B) part of the backward cell, which is
// kBackwardInput then: kBackwardWeight takes no time and holds nothing.
enum class BackwardCells : uint8_t { kSplit, kOne };

// What other programs do with parameters that lanes share (ZeRO, FSDP), in which ours has no part.
struct ShareTraits {
  // Gradients go round all lanes, each adding its own, as gathers do: between nodes they cross each adapter
  // once, but the order of sums is that of the ring.
  bool sums_in_ring = false;
  // Parameters are gathered once a step, outside passes, and stay whole (ZeRO-2).
  bool keeps_gathered = false;
  // What a pass takes besides where its share groups lie on several nodes, as measured by somebody.
  int64_t pass_ns = 0;
  bool operator==(const ShareTraits&) const = default;
};

// One row of a published table: T(l) of any one of pp equal stages on tp ranks, forward and backward
// together, embedding and head inside.
struct SchemeTimes {
  Quadratic stage;
  int64_t saved_bytes_per_token = 0;  // of a stage, from forward to backward
  int64_t util_len_tokens = 0;
  bool derived = false;  // from other rows (cost/derived_rows.h), not published
  bool operator==(const SchemeTimes&) const = default;
};

struct MemoryModel {
  int64_t device_bytes = 0;       // what a rank may use, margin already taken off
  int64_t element_bytes = 4;      // of a compute parameter
  int64_t accumulator_bytes = 4;  // of a gradient accumulator element
  // Of one on its way to the lane that sums it, where lanes share parameters; 0: accumulator_bytes.
  int64_t reduce_bytes = 0;
  int64_t owner_bytes_per_parameter = 16;  // master, two Adam states and gradient slice
  int64_t transient_bytes_per_token = 0;   // at work on the largest micro-batch, without rings; 0: none
  int64_t logits_chunk_bytes = 0;
  int64_t host_bytes = 0;  // what a rank may use of host memory; 0: not known, and not minded
  // Parameters that a layer, and either end of the model, count for; 0: those of the shape.
  int64_t layer_parameters = 0;
  int64_t end_parameters = 0;
  int64_t reduced_bytes() const { return reduce_bytes > 0 ? reduce_bytes : accumulator_bytes; }
  bool operator==(const MemoryModel&) const = default;
};

// Where lanes share parameters: whether a cell of this kind gathers an operation's parameters, and whether it
// sums its gradients. The embedding's input gradient needs no parameters and weight gradients need none; the
// head's gradients are made in its forward. The model's last block stays at hand from a forward to its
// backward, which follows at once.
bool gathers(const model::Program& program, CellKind kind, int64_t position);
bool sums_gradients(const model::Program& program, CellKind kind, int64_t position);
bool stays_at_hand(const model::Program& program, int64_t position);

// A stage's last layers, whose activations are needed first again and never leave the device.
inline constexpr int kLayersThatStay = 2;

// A model on a machine. Filled from calibration.json (cost/calibration.h).
class CostModel {
 public:
  struct Options {
    model::Shape shape;
    // By TP degree, then in the order of model::Program::kinds().
    std::map<int, std::vector<KindCost>> kinds_by_tp;
    LinkTimes intra;                    // inside a node
    LinkTimes inter;                    // between nodes, of one network adapter
    LinkTimes host{0, 10'000'000'000};  // a rank's copies to or from host memory
    int64_t update_ps_per_element = 0;  // optimiser step, picoseconds an owned element
    MemoryModel memory;
    int gpus_per_node = 8;
    int gpus_per_nic = 1;  // neighbouring ones that share a network adapter; divides gpus_per_node
    // By (tp, pp), each pp dividing the layers. Where it has rows, they take the place of the map above and a
    // scheme without a row cannot be planned. A third of T(l) is forward, a third input gradient and a third
    // weight gradient; a part of a stage takes its layers' share of it.
    std::map<std::pair<int, int>, SchemeTimes> scheme_times;
    // How systems differ that are compared with this one; calibration files do not say it.
    BackwardCells backward_cells = BackwardCells::kSplit;
    ShareTraits share_traits;
    ExchangeSet exchanges;  // that planners choose from
    // The backward pass runs the layers' forward pass again, with its exchange. What is kept between the
    // passes stands in the bytes above.
    bool repeat_forward = false;
    // Under which times and activations are counted: that of micro-batches which name none.
    strategy::MemoryPolicy policy;
  };
  explicit CostModel(Options options);
  const Options& options() const { return options_; }
  const model::Program& program() const { return tables_->program; }
  int64_t window() const { return options_.shape.window; }  // what Work is counted with

  // The same machine and model under another policy.
  CostModel under(const strategy::MemoryPolicy& policy) const;
  const strategy::MemoryPolicy& policy() const { return options_.policy; }
  // Whether input and weight gradient are cells of their own. What a deferred weight gradient holds is what a
  // policy wants to be rid of: with one, they are done at once.
  bool splits_backward(const strategy::Scheme& scheme) const {
    return scheme.pp > 1 && options_.policy.keeps_all();
  }

  // Whether there are times for scheme.tp, or a row for (tp, pp), and both degrees cut the model. Everything
  // below that takes a scheme throws InputError naming it when the calibration has no figures for it.
  bool has_scheme(const strategy::Scheme& scheme) const;
  // Whether its times come from a row that nobody published (cost/derived_rows.h).
  bool is_derived(const strategy::Scheme& scheme) const;

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
    return program().of_stage(scheme.pp, stage);
  }
  int64_t stage_blocks(const strategy::Scheme& scheme, int stage) const {
    return program().blocks_in(stage_run(scheme, stage)).size();
  }

  // Stage-to-stage transfer of `tokens` rows of activations, cut over tp senders in parallel. Between nodes
  // those on one adapter share it, as they do in rings.
  int64_t transfer_ns(const strategy::Scheme& scheme, int64_t tokens, bool same_node) const;
  int64_t transfer_bytes(const strategy::Scheme& scheme, int64_t tokens) const;  // by one sender

  // The ring's transfers in such a cell; `same_node`: its lanes lie in one. REQUIRES: kind != kBackward.
  RingTimes ring_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                       bool same_node) const;
  // Keys and values of a token in one layer, on one of tp ranks.
  int64_t ring_bytes_per_token(const strategy::Scheme& scheme) const;

  // What it takes the lanes of a share group to gather an operation's parameters, and to sum its gradients:
  // each lane sends its part of them to the lane that holds it (cost_model_share.cpp).
  struct ShareTimes {
    int64_t gather_ns = 0;
    int64_t scatter_ns = 0;
    bool operator==(const ShareTimes&) const = default;
  };
  // By kind of the program; zero with a share of 1. Each node that a group lies on has at least
  // `lanes_in_node` of its lanes. REQUIRES: 1 <= lanes_in_node <= share.
  std::vector<ShareTimes> share_times(const strategy::Scheme& scheme, int lanes_in_node) const;
  // The operations of a cell of a pass on `run` that takes the slowest of its lanes, which has `work`,
  // `compute_ns` without what lanes share; the cell takes pass_ns of them. In its order, those that follow
  // each other and are alike as one.
  std::vector<SharedOperations> pass_operations(CellKind kind, base::Interval run,
                                                const strategy::Scheme& scheme,
                                                const std::vector<ShareTimes>& share, const Work& work,
                                                int64_t compute_ns) const;
  int64_t pass_cell_ns(CellKind kind, base::Interval run, const strategy::Scheme& scheme,
                       const std::vector<ShareTimes>& share, const Work& work, int64_t compute_ns) const {
    return pass_ns(pass_operations(kind, run, scheme, share, work, compute_ns));
  }
  // What such a cell has of gathered parameters and of gradients that are being summed, at most: parameters
  // of two neighbouring operations and of a block that is kept, gradients of two, those of one also as they
  // travel, and what a rank receives of the sums.
  int64_t window_bytes(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;

  // One world exchange whose busiest rank, or between nodes its busiest adapter, moves `bytes`.
  int64_t exchange_ns(int64_t busiest_bytes, bool same_node) const;
  int64_t update_ns(int64_t owned_elements) const;

  // Bytes a rank of the scheme's fullest stage needs whatever the batch: what it holds of compute shards and
  // gradient accumulators, owner slices, a chunk of logits, and where lanes share parameters the largest
  // window.
  int64_t fixed_bytes(const strategy::Scheme& scheme, int world_size) const;
  // A lane's credit and the longest micro-batch: the tokens whose kept bytes, deferred weight gradients
  // (where backward is split), row of the stage's boundary and transients (of the longest micro-batch, once)
  // fit beside fixed_bytes, and whose offloaded bytes fit the host. 0: does not fit. With a table the longest
  // micro-batch is the published one: pp of it fit.
  int64_t credit_tokens(const strategy::Scheme& scheme, int world_size) const;
  int64_t max_len_tokens(const strategy::Scheme& scheme, int world_size) const;
  // What a micro-batch of `tokens` under `policy` takes of that credit, rounded up, and at most all of it.
  int64_t credit_of(const strategy::Scheme& scheme, int world_size, const strategy::MemoryPolicy& policy,
                    int64_t tokens) const;
  // Activation bytes a token of an operation: made by the forward, kept of those until the backward (in
  // whichever memory), and held beyond the made ones until a deferred W.
  int64_t saved_bytes_per_token(const strategy::Scheme& scheme, int64_t position) const;
  int64_t kept_bytes_per_token(const strategy::Scheme& scheme, int64_t position) const;
  int64_t deferred_bytes_per_token(const strategy::Scheme& scheme, int64_t position) const;
  // What a token takes of the device from forward to backward, on the fullest stage.
  int64_t held_bytes_per_token(const strategy::Scheme& scheme) const;
  // What a backward of the run has made again at any time, a token.
  int64_t recomputed_bytes_per_token(const strategy::Scheme& scheme, base::Interval run) const;
  // What a cell of a micro-batch on `lanes` lanes has at work beside all of the above, at most: of a block,
  // or with the head a chunk of logits.
  int64_t working_bytes(const strategy::Scheme& scheme, CellKind kind, base::Interval run, int64_t tokens,
                        int lanes) const;
  // The row of activations or gradients at a stage's boundary, a token.
  int64_t boundary_bytes_per_token(const strategy::Scheme& scheme) const;
  // What a block of a micro-batch moves to host memory and back: a share of its kept bytes. Of a stage's
  // blocks all but the last two do.
  int64_t offloaded_bytes(const strategy::Scheme& scheme, int64_t position, int64_t tokens) const;
  // The shortest micro-batch that keeps its ranks busy: the table's, otherwise where tokens take 85 % of the
  // time of the slowest stage and its constant takes the rest.
  int64_t util_len_tokens(const strategy::Scheme& scheme) const;

 private:
  // Sums over the operations before a position, so that a run of them costs two look-ups.
  struct Sum {
    Wide a = 0;
    Wide b = 0;
    Wide c_ns = 0;
    Wide a_windowed = 0;
  };
  struct Sums {
    std::vector<Sum> forward, backward_input, backward_weight;
  };
  // What the model says under every policy.
  struct Tables {
    model::Program program;
    std::vector<int64_t> windowed_before;  // by position: blocks with a window before it
    std::map<int, Sums> sums_by_tp;
  };
  static std::shared_ptr<const Tables> tables_of(const Options& options);
  CostModel(Options options, std::shared_ptr<const Tables> tables);

  // The members of a TP group that share an adapter.
  int64_t nic_sharers(int tp) const { return std::min(tp, options_.gpus_per_nic); }
  int64_t windowed_blocks(base::Interval run) const;
  Quadratic own_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const;
  const SchemeTimes* row(const strategy::Scheme& scheme) const;  // null without a table
  Quadratic row_times(const SchemeTimes& row, int pp, CellKind kind, int64_t blocks) const;
  const KindCost& kind_cost(int tp, int64_t position, const char* what) const;
  model::TokenBytes token_bytes(const strategy::Scheme& scheme, int64_t position) const;
  // The first stages, among which is the one that holds most of a micro-batch.
  int stages_to_compare(const strategy::Scheme& scheme) const;
  // The blocks of a run, without those that are of the kind of the one before.
  template <typename Visit>
  void for_each_kind_of_block(base::Interval run, Visit visit) const;
  int64_t held_bytes_of_stage(const strategy::Scheme& scheme, int stage) const;
  int64_t stage_bytes(const strategy::Scheme& scheme, int stage, int world_size) const;
  int64_t host_bytes_per_token(const strategy::Scheme& scheme) const;  // fullest stage
  int64_t ring_bytes_at_work(const model::TokenBytes& bytes) const;    // a token's, beside other backwards'
  int64_t head_working_bytes(const strategy::Scheme& scheme, int64_t tokens) const;
  int64_t transient_bytes_per_token(const strategy::Scheme& scheme) const;  // that credits leave room for

  Options options_;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace sluice::cost
