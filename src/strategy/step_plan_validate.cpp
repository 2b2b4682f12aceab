// What makes a step plan valid: tokens, sizes, rings.
#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "strategy/step_plan.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::text;

// Sums of that many tokens over any number of sequences that fits memory stay inside 64 bits.
constexpr int64_t kMaxLengthTokens = int64_t{1} << 32;

// Where a micro-batch stands, for messages.
struct Spot {
  size_t pipeline = 0;
  size_t lane = 0;
  size_t index = 0;
  std::string text() const {
    return base::text("micro-batch ", index, " of lane ", lane, " of pipeline ", pipeline);
  }
};

template <typename Visit>
void for_each_micro_batch(const StepPlan& plan, const Visit& visit) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const auto& lanes = plan.pipelines[p].lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      for (size_t i = 0; i < lanes[lane].size(); ++i) visit(Spot{p, lane, i}, lanes[lane][i]);
    }
  }
}

void validate_sequences(const StepPlan& plan) {
  if (plan.step < 0) throw InputError(text("step ", plan.step, " is negative"));
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const Sequence& sequence = plan.sequences[s];
    if (sequence.document < 0)
      throw InputError(text("sequence ", s, ": document ", sequence.document, " is negative"));
    if (sequence.begin_token < 0)
      throw InputError(text("sequence ", s, ": begin ", sequence.begin_token, " is negative"));
    if (sequence.length_tokens < 1 || sequence.length_tokens > kMaxLengthTokens) {
      throw InputError(text("sequence ", s, ": length ", sequence.length_tokens, " is outside [1, ",
                            kMaxLengthTokens, "]"));
    }
  }
}

void validate_lane_counts(const StepPlan& plan) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const PipelinePlan& pipeline = plan.pipelines[p];
    if (pipeline.lanes.size() != static_cast<size_t>(pipeline.pipeline.scheme.cp)) {
      throw InputError(text("pipeline ", p, " ", to_text(pipeline.pipeline.scheme), ": it has ",
                            pipeline.lanes.size(), " lists of micro-batches but ",
                            pipeline.pipeline.scheme.cp, " lanes"));
    }
  }
}

void validate_pieces(const StepPlan& plan) {
  for_each_micro_batch(plan, [&](const Spot& spot, const MicroBatch& micro_batch) {
    for (const Piece& piece : micro_batch.pieces) {
      if (piece.sequence < 0 || static_cast<size_t>(piece.sequence) >= plan.sequences.size()) {
        throw InputError(
            text(spot.text(), ": sequence ", piece.sequence, " is outside [0, ", plan.sequences.size(), ")"));
      }
      const int64_t length = plan.sequences[static_cast<size_t>(piece.sequence)].length_tokens;
      if (piece.begin < 0 || piece.begin >= piece.end || piece.end > length) {
        throw InputError(text(spot.text(), ": [", piece.begin, ", ", piece.end,
                              ") is no token range of sequence ", piece.sequence, " with ", length,
                              " tokens"));
      }
    }
  });
}

// Every token in exactly one piece.
void validate_coverage(const StepPlan& plan) {
  std::vector<std::vector<base::Interval>> pieces(plan.sequences.size());
  for_each_micro_batch(plan, [&](const Spot&, const MicroBatch& micro_batch) {
    for (const Piece& piece : micro_batch.pieces) {
      pieces[static_cast<size_t>(piece.sequence)].push_back({piece.begin, piece.end});
    }
  });
  for (size_t s = 0; s < pieces.size(); ++s) {
    std::sort(pieces[s].begin(), pieces[s].end(),
              [](const base::Interval& a, const base::Interval& b) { return a.begin < b.begin; });
    const int64_t length = plan.sequences[s].length_tokens;
    pieces[s].push_back({length, length});
    int64_t covered = 0;
    for (const base::Interval& piece : pieces[s]) {
      if (piece.begin > covered) {
        throw InputError(text("sequence ", s, ": tokens [", covered, ", ", piece.begin, ") are in no piece"));
      }
      if (piece.begin < covered) {
        throw InputError(text("sequence ", s, ": tokens [", piece.begin, ", ", std::min(piece.end, covered),
                              ") are in two pieces"));
      }
      covered = piece.end;
    }
  }
}

void validate_sizes(const StepPlan& plan) {
  for_each_micro_batch(plan, [&](const Spot& spot, const MicroBatch& micro_batch) {
    const int64_t max_len = plan.pipelines[spot.pipeline].max_len_tokens;
    if (micro_batch.tokens() > max_len) {
      throw InputError(
          text(spot.text(), ": ", micro_batch.tokens(), " tokens are more than max_len ", max_len));
    }
  });
}

void validate_memory(const StepPlan& plan) {
  for_each_micro_batch(plan, [&](const Spot& spot, const MicroBatch& micro_batch) {
    try {
      validate(micro_batch.memory);
    } catch (const InputError& error) {
      throw InputError(text(spot.text(), ": ", error.what()));
    }
  });
}

void validate_whole_sequences(const StepPlan& plan) {
  for_each_micro_batch(plan, [&](const Spot& spot, const MicroBatch& micro_batch) {
    if (micro_batch.ring) return;
    if (micro_batch.pieces.empty()) throw InputError(text(spot.text(), ": it is empty"));
    for (const Piece& piece : micro_batch.pieces) {
      if (!plan.is_whole(piece)) {
        throw InputError(text(spot.text(), ": sequence ", piece.sequence, " is cut at [", piece.begin, ", ",
                              piece.end, ") but the micro-batch has no ring"));
      }
    }
  });
}

using RingSpots = std::vector<Spot>;  // ascending by lane

void validate_ring_lanes(const RingSpots& spots, int ring) {
  const std::string name = text("ring ", ring, " of pipeline ", spots.front().pipeline);
  if (ring < 0) throw InputError(text(name, ": a ring's number is at least 0"));
  if (spots.size() < 2)
    throw InputError(text(name, ": it has one micro-batch, on lane ", spots.front().lane));
  for (size_t i = 1; i < spots.size(); ++i) {
    if (spots[i].lane == spots[i - 1].lane) {
      throw InputError(text(name, ": lane ", spots[i].lane, " has more than one micro-batch of it"));
    }
    if (spots[i].lane != spots[i - 1].lane + 1) {
      throw InputError(text(name, ": it skips lane ", spots[i - 1].lane + 1));
    }
  }
}

void validate_ring_cut(const StepPlan& plan, const RingSpots& spots, int ring) {
  const auto& lanes = plan.pipelines[spots.front().pipeline].lanes;
  const auto shared_part = [&](const Spot& spot) {
    MicroBatch part = lanes[spot.lane][spot.index];
    std::erase_if(part.pieces, [&](const Piece& piece) { return plan.is_whole(piece); });
    return part;
  };
  // The last chunk is never empty, so the first lane holds a piece of every sequence.
  std::vector<int32_t> shared;
  for (const Piece& piece : shared_part(spots.front()).pieces) {
    if (shared.empty() || shared.back() != piece.sequence) shared.push_back(piece.sequence);
  }
  if (shared.empty()) throw InputError(text("ring ", ring, ": it shares no sequence"));
  const auto expected = ring_micro_batches(plan.sequences, shared, static_cast<int>(spots.size()), ring);
  const auto policy = [&](const Spot& spot) { return lanes[spot.lane][spot.index].memory; };
  const MemoryPolicy memory = policy(spots.front());
  for (size_t i = 0; i < spots.size(); ++i) {
    if (expected[i].pieces.empty()) {
      throw InputError(text(spots[i].text(), ": ring ", ring, " leaves it without tokens: a ring over ",
                            spots.size(), " lanes needs a sequence of ", 2 * spots.size(), " tokens"));
    }
    if (policy(spots[i]) != memory) {
      throw InputError(text(spots[i].text(), ": its memory policy is '", to_text(policy(spots[i])),
                            "' but ring ", ring, " has '", to_text(memory), "' on its first lane"));
    }
    if (shared_part(spots[i]).pieces != expected[i].pieces) {
      throw InputError(text(spots[i].text(), ": its pieces are not chunks ", i, " and ",
                            2 * spots.size() - 1 - i, " of each sequence of ring ", ring,
                            ", in the order of the ring's first lane, beside whole sequences"));
    }
  }
}

void validate_rings(const StepPlan& plan) {
  std::map<std::pair<size_t, int>, RingSpots> rings;
  for_each_micro_batch(plan, [&](const Spot& spot, const MicroBatch& micro_batch) {
    if (micro_batch.ring) rings[{spot.pipeline, *micro_batch.ring}].push_back(spot);
  });
  for (const auto& [key, spots] : rings) {
    validate_ring_lanes(spots, key.second);
    validate_ring_cut(plan, spots, key.second);
  }
}

}  // namespace

void validate(const StepPlan& plan, int world_size) {
  validate(plan.strategy(), world_size);
  validate_sequences(plan);
  validate_lane_counts(plan);
  validate_pieces(plan);
  validate_coverage(plan);
  validate_sizes(plan);
  validate_memory(plan);
  validate_whole_sequences(plan);
  validate_rings(plan);
}

}  // namespace sluice::strategy
