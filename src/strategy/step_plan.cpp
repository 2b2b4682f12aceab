#include "strategy/step_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

void add_micro_batch(base::CanonicalBytes& bytes, const MicroBatch& micro_batch) {
  bytes.add(int64_t{micro_batch.ring.value_or(-1)}).add(static_cast<int64_t>(micro_batch.pieces.size()));
  for (const Piece& piece : micro_batch.pieces) {
    bytes.add(int64_t{piece.sequence}).add(piece.begin).add(piece.end);
  }
  const MemoryPolicy& memory = micro_batch.memory;
  bytes.add(int64_t{memory.offload_permille} * 2 + (memory.recompute ? 1 : 0));
}

void add_pipeline(base::CanonicalBytes& bytes, const PipelinePlan& plan) {
  const Scheme& scheme = plan.pipeline.scheme;
  bytes.add(int64_t{scheme.tp}).add(int64_t{scheme.pp}).add(int64_t{scheme.cp});
  bytes.add(static_cast<int64_t>(plan.pipeline.ranks.size()));
  for (const int rank : plan.pipeline.ranks) bytes.add(int64_t{rank});
  bytes.add(plan.max_len_tokens).add(static_cast<int64_t>(plan.lanes.size()));
  for (const std::vector<MicroBatch>& lane : plan.lanes) {
    bytes.add(static_cast<int64_t>(lane.size()));
    for (const MicroBatch& micro_batch : lane) add_micro_batch(bytes, micro_batch);
  }
}

}  // namespace

std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences) {
  std::vector<int64_t> lengths;
  for (const Sequence& sequence : sequences) lengths.push_back(sequence.length_tokens);
  return lengths;
}

int64_t MicroBatch::tokens() const {
  int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.tokens();
  return total;
}

Strategy StepPlan::strategy() const {
  Strategy result;
  for (const PipelinePlan& plan : pipelines) result.pipelines.push_back(plan.pipeline);
  return result;
}

int64_t StepPlan::tokens() const {
  int64_t total = 0;
  for (const Sequence& sequence : sequences) total += sequence.length_tokens;
  return total;
}

int64_t StepPlan::targets() const { return tokens() - static_cast<int64_t>(sequences.size()); }

int64_t StepPlan::gap_ppm() const {
  if (lower_bound_ns <= 0) return 0;
  const __int128 gap = (static_cast<__int128>(estimated_ns) - lower_bound_ns) * 1'000'000 / lower_bound_ns;
  return static_cast<int64_t>(std::min<__int128>(gap, std::numeric_limits<int64_t>::max()));
}

std::string canonical_bytes(const StepPlan& plan) {
  base::CanonicalBytes bytes;
  bytes.add("sluice.plan/1").add(plan.step).add(static_cast<int64_t>(plan.sequences.size()));
  for (const Sequence& sequence : plan.sequences) {
    bytes.add(sequence.document).add(sequence.begin_token).add(sequence.length_tokens);
  }
  bytes.add(static_cast<int64_t>(plan.pipelines.size()));
  for (const PipelinePlan& pipeline : plan.pipelines) add_pipeline(bytes, pipeline);
  return bytes.bytes();
}

uint64_t hash(const StepPlan& plan) { return base::hash_bytes(canonical_bytes(plan)); }

base::Interval causal_chunk(int64_t length_tokens, int lanes, int chunk) {
  SLUICE_ASSERT(lanes >= 1 && chunk >= 0 && chunk < 2 * lanes,
                base::text("chunk ", chunk, " on ", lanes, " lanes"));
  return base::even_part(length_tokens, int64_t{2} * lanes, chunk);
}

std::vector<Piece> lane_pieces(int32_t sequence, int64_t length_tokens, int lanes, int lane) {
  std::vector<Piece> pieces;
  for (const int chunk : {lane, 2 * lanes - 1 - lane}) {
    const base::Interval tokens = causal_chunk(length_tokens, lanes, chunk);
    if (!tokens.empty()) pieces.push_back({sequence, tokens.begin, tokens.end});
  }
  return pieces;
}

std::vector<MicroBatch> ring_micro_batches(const std::vector<Sequence>& sequences,
                                           const std::vector<int32_t>& shared, int lanes, int ring) {
  std::vector<MicroBatch> result(static_cast<size_t>(lanes), MicroBatch{.ring = ring});
  for (int lane = 0; lane < lanes; ++lane) {
    for (const int32_t sequence : shared) {
      const int64_t length = sequences.at(static_cast<size_t>(sequence)).length_tokens;
      const std::vector<Piece> added = lane_pieces(sequence, length, lanes, lane);
      std::vector<Piece>& pieces = result[static_cast<size_t>(lane)].pieces;
      pieces.insert(pieces.end(), added.begin(), added.end());
    }
  }
  return result;
}

}  // namespace sluice::strategy
