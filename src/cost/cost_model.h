// How long things take and how much memory they need, in integers: fixed-point coefficients, 128-bit
// products, nanoseconds. Once a calibration is loaded no floating point is used, so every rank and every
// compiler computes the same plan.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "model/shape.h"
#include "strategy/scheme.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// What a cell does with a micro-batch on one stage. kBackward is input and weight gradient in one.
enum class CellKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };
const char* name_of(CellKind kind);

// a·l² + b·l nanoseconds for a sequence (or piece) of l tokens and c once a micro-batch; a and b are fixed
// point with kFractionBits fractional bits.
struct Quadratic {
  static constexpr int kFractionBits = 32;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c_ns = 0;

  static Quadratic from_ns(double a_ns, double b_ns, double c_ns);
  // REQUIRES: 0 <= length < 2^31. Rounded to nearest, c included once.
  int64_t of_sequences(std::span<const int64_t> lengths) const;
  int64_t of_sequence_fixed(int64_t length) const;  // without c, still fixed point
};

// Times of one layer, and of the ends of the model, under one TP degree and lane count.
struct LayerTimes {
  Quadratic forward;
  Quadratic backward_input;
  Quadratic backward_weight;
};
struct EndTimes {
  Quadratic embedding_forward;
  Quadratic embedding_backward;
  Quadratic head;  // final norm, loss and all head gradients: they run inside the last stage's forward
};

// Moving bytes: latency plus bytes over bandwidth (bytes per second).
struct LinkTimes {
  int64_t latency_ns = 0;
  int64_t bytes_per_s = 1;
  int64_t of_bytes(int64_t bytes) const;
};

struct MemoryModel {
  int64_t device_bytes = 0;              // what a rank may use, margin already taken off
  int64_t element_bytes = 4;             // of a compute parameter
  int64_t accumulator_bytes = 4;         // of a gradient accumulator element
  int64_t owner_bytes_per_parameter = 16;  // master, two Adam states and gradient slice
  int64_t transient_bytes_per_token = 0;   // of the largest micro-batch
  int64_t logits_chunk_bytes = 0;
};

// A model on a machine. Filled from calibration.json (cost/calibration.h).
class CostModel {
 public:
  struct Options {
    model::Shape shape;
    std::map<int, LayerTimes> layer_by_tp;
    std::map<int, EndTimes> ends_by_tp;
    std::map<int, int64_t> saved_bytes_per_token_layer_by_tp;     // kept from forward to backward
    std::map<int, int64_t> deferred_bytes_per_token_layer_by_tp;  // held for a deferred weight gradient
    LinkTimes intra;            // inside a node
    LinkTimes inter;            // between nodes
    int64_t update_ps_per_element = 0;  // optimiser step, picoseconds an owned element
    MemoryModel memory;
    int gpus_per_node = 8;
  };
  explicit CostModel(Options options) : options_(std::move(options)) {}
  const Options& options() const { return options_; }

  // One cell on `layers` of the model (global indices) for pieces of `lengths`; the first part of stage 0
  // adds the embedding, the last part of the last stage the head. InputError when the calibration has no
  // times for scheme.tp.
  struct CellPart {
    int64_t layers = 0;
    enum class End : uint8_t { kNone, kEmbedding, kHead, kBoth } end = End::kNone;
  };
  int64_t cell_ns(const strategy::Scheme& scheme, CellKind kind, CellPart part,
                  std::span<const int64_t> lengths) const;

  // Stage-to-stage transfer of `tokens` rows of activations, cut over tp senders in parallel.
  int64_t transfer_ns(const strategy::Scheme& scheme, int64_t tokens, bool same_node) const;
  int64_t transfer_bytes(const strategy::Scheme& scheme, int64_t tokens) const;  // by one sender

  // One world exchange whose busiest rank moves `bytes`.
  int64_t exchange_ns(int64_t busiest_bytes, bool same_node) const;
  int64_t update_ns(int64_t owned_elements) const;

  // Bytes a rank of the scheme's fullest stage needs whatever the batch; tokens that fit beside them,
  // counting deferred weight gradients (the lane's credit), and the longest micro-batch. 0: does not fit.
  int64_t fixed_bytes(const strategy::Scheme& scheme, int world_size) const;
  int64_t credit_tokens(const strategy::Scheme& scheme, int world_size) const;
  int64_t max_len_tokens(const strategy::Scheme& scheme, int world_size) const;

 private:
  Options options_;
};

}  // namespace sluice::cost
