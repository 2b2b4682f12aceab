// A step plan: the strategy and every pipeline's micro-batches for one iteration. It is the only thing that
// `plan` and `graph` share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "strategy/pipeline_micro_batch.h"
#include "strategy/planning_words.h"
#include "strategy/strategy.h"

namespace sluice::strategy {

// One document's sequence in this batch.
struct Sequence {
  int64_t document = 0;       // index into the corpus
  int64_t begin_token = 0;    // first token inside the document (split documents)
  int64_t length_tokens = 0;  // positions; there is one target fewer
  // Targets that have a loss; none: unknown, perhaps all. Serves to prove plans and is no part of the plan's
  // identity.
  std::optional<int64_t> loss_tokens = {};
  // Lengths of branches: continuations of a shared prefix, the sequence's first tokens. Branches lie end to
  // end; each sees the prefix and itself, not the others. Empty: no branches.
  std::vector<int64_t> branches = {};
  int64_t prefix_tokens() const;  // length_tokens without branches
  bool operator==(const Sequence&) const = default;
};

// InputError naming the sequence by `index` unless every branch and the prefix have at least one token.
void validate_branches(const Sequence& sequence, size_t index);

// The sequence as micro-batches list it, with this index. REQUIRES: its branches are valid.
MicroBatchSequence micro_batch_sequence(int32_t index, const Sequence& sequence);

std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences);

struct PipelinePlan {
  Pipeline pipeline;
  int64_t max_len_tokens = 0;  // the most that one lane's micro-batch may hold
  std::vector<PipelineMicroBatch>
      micro_batches;                       // in the order of injection; each lane runs its own in this order
  std::vector<int64_t> stage_layers = {};  // by stage, of several stages; empty: not given
  bool operator==(const PipelinePlan&) const = default;
};

// "9, 9, 8": layers by stage.
std::string stages_text(const std::vector<int64_t>& stage_layers);

// One lane's part of a micro-batch; `micro_batch` is its index in PipelinePlan::micro_batches.
struct LanePart {
  int micro_batch = 0;
  std::vector<Piece> pieces;
  int64_t tokens() const;
};

// By lane, its parts in the order in which it runs them.
std::vector<std::vector<LanePart>> lane_parts(const PipelinePlan& plan);

struct CandidateEstimate {
  std::string strategy;
  int64_t estimated_ns = 0;
};

struct StepPlan {
  int64_t step = 0;
  std::vector<Sequence> sequences;
  std::vector<PipelinePlan> pipelines;

  // Results of planning; not part of the identity.
  int64_t estimated_ns = 0;
  int64_t lower_bound_ns = 0;
  std::optional<Proof> bounded_by;  // not in plan.json
  int64_t planning_ns = 0;
  std::vector<CandidateEstimate> candidates;

  Strategy strategy() const;
  int64_t tokens() const;   // positions in all sequences
  int64_t targets() const;  // one fewer than positions in each sequence or branch
  // (estimated − lower bound) ÷ lower bound in parts per million; 0 without a bound.
  int64_t gap_ppm() const;

  // Whether the piece is all of its sequence.
  bool is_whole(const Piece& scheduled) const {
    return scheduled.tokens() == sequences[static_cast<size_t>(scheduled.sequence)].length_tokens;
  }
};

// Canonical bytes of step, sequences and pipelines, and their hash; ranks' hashes must be equal.
std::string canonical_bytes(const StepPlan& plan);
uint64_t hash(const StepPlan& plan);

// Writes plan.json ("sluice.plan/2") and reads it and version 1. It lists every lane's parts with all pieces,
// so readers need not know micro-batches. planning_ns is measured and left out. from_json throws InputError
// naming `name` and the fault. It accepts only lane parts that make micro-batches, in plans that validate()
// accepts and whose hash and strategy text, if given, agree.
base::Json to_json(const StepPlan& plan);
StepPlan step_plan_from_json(const base::Json& json, int world_size, const std::string& name);

// InputError naming the fault unless the plan meets these rules:
// The strategy is valid.
// The layers of stages, if given, are as many numbers above 0 as there are stages.
// The branches of sequences are valid.
// Every sequence is in exactly one micro-batch, with its length and its branches.
// Every micro-batch lies on lanes of its pipeline, in the order of injection.
// It gives each of its lanes
// at least one token and at most the pipeline's max_len_tokens.
// Micro-batches of several lanes have different numbers >= 0 and share a sequence.
// They have one list of whole sequences per lane, or none.
// The head groups of nested exchanges divide their lanes.
// With an FSDP degree above 1 micro-batches are in passes (strategy/pass.h), otherwise in none.
// Numbers of heads are not checked here; cost::exchange_fault checks them, knowing the model.
void validate(const StepPlan& plan, int world_size);

}  // namespace sluice::strategy
