// A micro-batch: sequences that pass the stages of a pipeline together, on one lane or cut over several. This
// file alone derives from it each lane's pieces and the order of injection.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/interval.h"
#include "strategy/memory_policy.h"

namespace sluice::strategy {

// Token range [begin, end) of one sequence on one lane.
struct Piece {
  int32_t sequence = 0;  // index into StepPlan::sequences
  int64_t begin = 0;
  int64_t end = 0;
  int64_t tokens() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

// Context parallelism: how lanes that share sequences see each other's keys and values. Ring: blocks of them
// go round while each lane attends to the block before. Heads (Ulysses): before attention a lane gives away
// all heads but its own part; after it the lane gets its tokens back. Nested: head groups of neighbouring
// lanes, as those of a node, exchange heads; blocks of their keys and values go round between groups.
// Balanced (LightSeq): parts are contiguous, so later lanes have more to attend to, and earlier ones help
// them. Queries (TokenRing): keys and values stay, queries go round and outputs come back. The file
// row_schedule.h says which rows travel when.
enum class Exchange : uint8_t { kRing, kHeads, kNested, kBalanced, kQueries };
inline constexpr std::array kExchanges = {Exchange::kRing, Exchange::kHeads, Exchange::kNested,
                                          Exchange::kBalanced, Exchange::kQueries};
const char* name_of(Exchange exchange);  // "ring", "heads", "nested", "balanced", "queries"
// InputError listing the names if `name` is none of them.
Exchange parse_exchange(const std::string& name);
// Whether lanes exchange heads, all of them or in groups, before attention.
inline bool exchanges_heads(Exchange exchange) {
  return exchange == Exchange::kHeads || exchange == Exchange::kNested;
}
// Whether queries travel to the lanes that hold keys.
inline bool moves_queries(Exchange exchange) {
  return exchange == Exchange::kBalanced || exchange == Exchange::kQueries;
}

// The tokens of a sequence that a lane gets. Causal: of 2k even chunks on k lanes, lane j has chunks j and 2k
// − 1 − j, so all have equal parts of causal attention. Empty chunks of short sequences are left out. With
// branches, a chunk takes a part of the prefix and one of the branches, in proportion to their tokens; its
// size stays the same. A lane has its parts of the prefix first. Contiguous: lane j has the j-th of k even
// parts.
enum class Cutting : uint8_t { kCausal, kContiguous };
inline Cutting cutting_of(Exchange exchange) {
  return exchange == Exchange::kBalanced ? Cutting::kContiguous : Cutting::kCausal;
}

// A whole sequence as a micro-batch lists it.
struct MicroBatchSequence {
  int32_t sequence = 0;  // index into StepPlan::sequences
  int64_t length_tokens = 0;
  // With branches (Sequence::branches): the tokens of the prefix, and the mean over tokens of their branch's
  // length, Σ l² ÷ Σ l to nearest, from which the attention's cost follows. Without branches both are 0.
  int64_t prefix_tokens = 0;
  int64_t branch_tokens = 0;
  bool has_branches() const { return branch_tokens > 0; }
  bool operator==(const MicroBatchSequence&) const = default;
};

// Each of its lanes holds a part (LanePart). Each stage runs the micro-batch as one event of all lanes.
struct PipelineMicroBatch {
  int first_lane = 0;
  int lanes = 1;
  std::vector<MicroBatchSequence> sequences;  // several lanes: each is cut over all of them (lane_pieces)
  // Several lanes: by lane, whole sequences behind its parts of `sequences`; empty: no lane has any.
  std::vector<std::vector<MicroBatchSequence>> own = {};
  Exchange exchange = Exchange::kRing;  // between its lanes, if several
  int nested_lanes = 0;                 // kNested: lanes of a head group; else 0
  MemoryPolicy memory = {};             // the activations' policy
  int number = 0;                       // several lanes: its number in plan.json; no two have the same
  // Micro-batches of the same pass run as one event because their lanes share parameters (strategy/pass.h).
  // None: the micro-batch runs alone, as all do with an FSDP degree of 1.
  std::optional<int> pass = std::nullopt;

  int end_lane() const { return first_lane + lanes; }
  // The number of neighbouring lanes that exchange heads: all with kHeads, 1 without exchanged heads.
  int head_lanes() const;
  bool covers(int lane) const { return first_lane <= lane && lane < end_lane(); }
  // REQUIRES: covers(lane).
  std::vector<Piece> pieces_on(int lane) const;
  int64_t tokens_on(int lane) const;
  int64_t tokens() const;  // on its fullest lane
  bool operator==(const PipelineMicroBatch&) const = default;
};

std::vector<Piece> lane_pieces(const MicroBatchSequence& sequence, int lanes, int lane,
                               Cutting cutting = Cutting::kCausal);

// Chunk `chunk` of the 2k chunks of a sequence of `length_tokens` on k lanes.
base::Interval causal_chunk(int64_t length_tokens, int lanes, int chunk);

// By lane, the indices of the micro-batches on it, in their order.
std::vector<std::vector<int>> micro_batches_by_lane(std::span<const PipelineMicroBatch> micro_batches,
                                                    int lanes);

// The order of injection of micro-batches, given each lane's list: the first of every lane, then the second
// of every lane, and so on. A micro-batch of several lanes comes when its last lane reaches it. None if
// micro-batches cross: one lane has a before b, another b before a.
std::optional<std::vector<int>> injection_order(const std::vector<std::vector<int>>& lanes);

// The same micro-batches in the order of injection. `lanes` lists each lane's micro-batches by index; if only
// their number is given, each lane runs its micro-batches in the list's order. REQUIRES: none cross.
std::vector<PipelineMicroBatch> in_injection_order(std::vector<PipelineMicroBatch> micro_batches,
                                                   const std::vector<std::vector<int>>& lanes);
std::vector<PipelineMicroBatch> in_injection_order(std::vector<PipelineMicroBatch> micro_batches, int lanes);

}  // namespace sluice::strategy
