// A step plan: the strategy and every lane's micro-batches for one iteration. It is the only thing that
// `plan` and `graph` share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "strategy/memory_policy.h"
#include "strategy/strategy.h"

namespace sluice::strategy {

// One document's sequence in this batch.
struct Sequence {
  int64_t document = 0;       // index into the corpus
  int64_t begin_token = 0;    // first token inside the document (split documents)
  int64_t length_tokens = 0;  // positions; targets are one fewer
  bool operator==(const Sequence&) const = default;
};

std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences);

// Token range [begin, end) of one sequence on one lane.
struct Piece {
  int32_t sequence = 0;  // index into StepPlan::sequences
  int64_t begin = 0;
  int64_t end = 0;
  int64_t tokens() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

// Pieces that pass through one lane's stages as a unit. Micro-batches of one pipeline with the same ring
// are tied: lane by lane they exchange keys and values of the sequences that they share, which are those of
// which they hold a part only.
struct MicroBatch {
  std::optional<int> ring;
  std::vector<Piece> pieces;
  MemoryPolicy memory;  // of the activations; the same on all lanes of a ring
  int64_t tokens() const;
  bool operator==(const MicroBatch&) const = default;
};

struct PipelinePlan {
  Pipeline pipeline;
  int64_t max_len_tokens = 0;                  // what one lane's micro-batch may hold
  std::vector<std::vector<MicroBatch>> lanes;  // pipeline.scheme.cp lists; may be empty
  bool operator==(const PipelinePlan&) const = default;
};

struct CandidateEstimate {
  std::string strategy;
  int64_t estimated_ns = 0;
};

struct StepPlan {
  int64_t step = 0;
  std::vector<Sequence> sequences;
  std::vector<PipelinePlan> pipelines;

  // What planning found; not part of the identity.
  int64_t estimated_ns = 0;
  int64_t lower_bound_ns = 0;
  std::string bounded_by;  // what proves the lower bound: one of plan::name_of's; not in plan.json
  int64_t planning_ns = 0;
  std::vector<CandidateEstimate> candidates;

  Strategy strategy() const;
  int64_t tokens() const;   // positions of all sequences
  int64_t targets() const;  // sum over sequences of length − 1
  // (estimated − lower bound) ÷ lower bound in parts per million; 0 without a bound.
  int64_t gap_ppm() const;

  // Whether the piece is all of its sequence.
  bool is_whole(const Piece& piece) const {
    return piece.tokens() == sequences[static_cast<size_t>(piece.sequence)].length_tokens;
  }
};

// Canonical bytes of step, sequences and pipelines, and their hash: equal on all ranks or an error.
std::string canonical_bytes(const StepPlan& plan);
uint64_t hash(const StepPlan& plan);

// plan.json ("sluice.plan/1") and back; planning_ns is measured and stays out. from_json throws InputError
// naming `name` and the fault, and accepts only plans that validate() accepts and whose hash and strategy
// text, where given, agree.
base::Json to_json(const StepPlan& plan);
StepPlan step_plan_from_json(const base::Json& json, int world_size, const std::string& name);

// InputError naming the fault unless
// - the strategy is valid and every pipeline has as many lists of micro-batches as lanes;
// - every token of every sequence lies in exactly one piece;
// - no micro-batch exceeds its pipeline's max_len_tokens;
// - a micro-batch without ring holds whole sequences, one piece each, and at least one;
// - each ring stands on a contiguous run of k >= 2 lanes, one micro-batch on each, which are, but for whole
//   sequences anywhere in them, those that ring_micro_batches cuts from the sequences of its first lane, in
//   the same order, none of them empty, under one memory policy.
void validate(const StepPlan& plan, int world_size);

// Balanced causal cutting: the micro-batches, lane by lane, of a ring of `lanes` lanes that shares the
// `shared` sequences (indices into `sequences`). Each sequence is cut into 2·lanes chunks; lane j holds
// chunk j and chunk 2·lanes−1−j, one piece each in this order, without the empty ones.
std::vector<MicroBatch> ring_micro_batches(const std::vector<Sequence>& sequences,
                                           const std::vector<int32_t>& shared, int lanes, int ring);

// What lane `lane` of them holds of one sequence.
std::vector<Piece> lane_pieces(int32_t sequence, int64_t length_tokens, int lanes, int lane);

// Chunk `chunk` of the 2k chunks of a sequence of `length_tokens` on k lanes.
base::Interval causal_chunk(int64_t length_tokens, int lanes, int chunk);

}  // namespace sluice::strategy
