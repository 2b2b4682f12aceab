// A step plan: the strategy and every pipeline's micro-batches for one iteration. It is the only thing that
// `plan` and `graph` share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "strategy/pipeline_micro_batch.h"
#include "strategy/strategy.h"

namespace sluice::strategy {

// One document's sequence in this batch.
struct Sequence {
  int64_t document = 0;       // index into the corpus
  int64_t begin_token = 0;    // first token inside the document (split documents)
  int64_t length_tokens = 0;  // positions; targets are one fewer
  // Targets that have a loss; none where it isn't known: perhaps all. What a plan is proved with; no part of
  // its identity.
  std::optional<int64_t> loss_tokens = {};
  // Texts that go on from its first tokens, their shared prefix: how long each is behind that. They lie end
  // to end and see the prefix and themselves, not each other. None: it is one text.
  std::vector<int64_t> branches = {};
  int64_t prefix_tokens() const;  // all of one text
  bool operator==(const Sequence&) const = default;
};

// InputError naming the sequence with that index unless its branches have tokens each, and leave it some.
void validate_branches(const Sequence& sequence, size_t index);

// As micro-batches have it, the one with that index. REQUIRES: its branches are valid.
MicroBatchSequence micro_batch_sequence(int32_t index, const Sequence& sequence);

std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences);

struct PipelinePlan {
  Pipeline pipeline;
  int64_t max_len_tokens = 0;  // what one lane's micro-batch may hold
  std::vector<PipelineMicroBatch>
      micro_batches;  // in the order of injection; each lane runs those that lie on it in this order
  std::vector<int64_t> stage_layers = {};  // first to last, of several stages; empty: not said
  bool operator==(const PipelinePlan&) const = default;
};

// "9, 9, 8": layers by stage.
std::string stages_text(const std::vector<int64_t>& stage_layers);

// What one lane has of a micro-batch: `micro_batch` is its index in PipelinePlan::micro-batches.
struct LanePart {
  int micro_batch = 0;
  std::vector<Piece> pieces;
  int64_t tokens() const;
};

// By lane, its micro-batches in the order in which it runs them.
std::vector<std::vector<LanePart>> lane_parts(const PipelinePlan& plan);

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
  int64_t targets() const;  // of every text a position less than it has
  // (estimated − lower bound) ÷ lower bound in parts per million; 0 without a bound.
  int64_t gap_ppm() const;

  // Whether the piece is all of its sequence.
  bool is_whole(const Piece& scheduled) const {
    return scheduled.tokens() == sequences[static_cast<size_t>(scheduled.sequence)].length_tokens;
  }
};

// Canonical bytes of step, sequences and pipelines, and their hash: equal on all ranks or an error.
std::string canonical_bytes(const StepPlan& plan);
uint64_t hash(const StepPlan& plan);

// plan.json ("sluice.plan/2"; version 1 is read) and back: it lists every lane's parts with all their pieces,
// so that readers need to know nothing of micro-batches. planning_ns is measured and stays out. from_json
// throws InputError naming `name` and the fault, and accepts only lane parts that micro-batches make, in
// plans that validate() accepts and whose hash and strategy text, where given, agree.
base::Json to_json(const StepPlan& plan);
StepPlan step_plan_from_json(const base::Json& json, int world_size, const std::string& name);

// InputError naming the fault unless
// - the strategy is valid;
// - the layers of stages, where they are said, are as many numbers above 0 as there are stages;
// - the branches of sequences are valid;
// - every sequence is in exactly one micro-batch, as long as it is, with its branches;
// - every micro-batch lies on lanes of its pipeline, in the order of injection, and gives each of them
// tokens, but
//   no more than the pipeline's max_len_tokens;
// - micro-batches of several lanes have different numbers >= 0, share some sequence, and have as many lists
// of whole
//   sequences as lanes, or none; nested runs divide their lanes;
// - where lanes share parameters micro-batches are in passes (strategy/pass.h), elsewhere in none.
// Whether the model has heads enough is for those to say who know it: cost::exchange_fault.
void validate(const StepPlan& plan, int world_size);

}  // namespace sluice::strategy
