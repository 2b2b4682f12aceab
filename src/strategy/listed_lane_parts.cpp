#include "strategy/listed_lane_parts.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::text;

// Position of a listed lane part.
struct Spot {
  size_t lane = 0;
  size_t index = 0;
};

class MicroBatchReader {
 public:
  MicroBatchReader(const std::vector<std::vector<ListedLanePart>>& lanes,
                   const std::vector<Sequence>& sequences, size_t pipeline)
      : lanes_(lanes), sequences_(sequences), pipeline_(pipeline), by_lane_(lanes.size()) {}

  std::vector<PipelineMicroBatch> read() {
    std::map<int, std::vector<Spot>> rings;  // spots ascend by lane
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (size_t index = 0; index < lanes_[lane].size(); ++index) {
        const Spot spot{lane, index};
        check_pieces(spot);
        if (at(spot).micro_batch) rings[*at(spot).micro_batch].push_back(spot);
      }
    }
    for (const auto& [ring, spots] : rings) check_lanes(ring, spots);
    std::map<int, int> micro_batch_of_ring;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (size_t index = 0; index < lanes_[lane].size(); ++index) {
        const std::optional<int> ring = lanes_[lane][index].micro_batch;
        int micro_batch = static_cast<int>(micro_batches_.size());
        if (ring) micro_batch = micro_batch_of_ring.emplace(*ring, micro_batch).first->second;
        by_lane_[lane].push_back(micro_batch);
        if (micro_batch < static_cast<int>(micro_batches_.size())) continue;
        micro_batches_.push_back(ring ? micro_batch_of(*ring, rings.at(*ring))
                                      : micro_batch_of({lane, index}));
      }
    }
    if (!injection_order(by_lane_)) throw InputError(text("pipeline ", pipeline_, ": its rings cross"));
    return in_injection_order(std::move(micro_batches_), by_lane_);
  }

 private:
  const ListedLanePart& at(const Spot& spot) const { return lanes_[spot.lane][spot.index]; }
  std::string name_of(const Spot& spot) const {
    return text("micro-batch ", spot.index, " of lane ", spot.lane, " of pipeline ", pipeline_);
  }
  int64_t length_of(const Piece& scheduled) const {
    return sequences_[static_cast<size_t>(scheduled.sequence)].length_tokens;
  }
  bool is_whole(const Piece& scheduled) const { return scheduled.tokens() == length_of(scheduled); }
  MicroBatchSequence sequence_of(const Piece& scheduled) const {
    return micro_batch_sequence(scheduled.sequence, sequences_[static_cast<size_t>(scheduled.sequence)]);
  }

  void check_pieces(const Spot& spot) const {
    for (const Piece& scheduled : at(spot).pieces) {
      if (scheduled.sequence < 0 || static_cast<size_t>(scheduled.sequence) >= sequences_.size()) {
        throw InputError(text(name_of(spot), ": sequence ", scheduled.sequence, " is outside [0, ",
                              sequences_.size(), ")"));
      }
      if (scheduled.begin < 0 || scheduled.begin >= scheduled.end || scheduled.end > length_of(scheduled)) {
        throw InputError(text(name_of(spot), ": [", scheduled.begin, ", ", scheduled.end,
                              ") is no token range of sequence ", scheduled.sequence, " with ",
                              length_of(scheduled), " tokens"));
      }
      if (!at(spot).micro_batch && !is_whole(scheduled)) {
        throw InputError(text(name_of(spot), ": sequence ", scheduled.sequence, " is cut at [",
                              scheduled.begin, ", ", scheduled.end, ") but the micro-batch has no ring"));
      }
    }
  }

  void check_lanes(int ring, const std::vector<Spot>& spots) const {
    const std::string name = text("ring ", ring, " of pipeline ", pipeline_);
    if (spots.size() < 2)
      throw InputError(text(name, ": it has one micro-batch, on lane ", spots.front().lane));
    for (size_t i = 1; i < spots.size(); ++i) {
      const size_t lane = spots[i].lane, before = spots[i - 1].lane;
      if (lane == before)
        throw InputError(text(name, ": lane ", lane, " has more than one micro-batch of it"));
      if (lane != before + 1) throw InputError(text(name, ": it skips lane ", before + 1));
      const ListedLanePart &own = at(spots[i]), &first = at(spots.front());
      if (own.memory != first.memory) {
        throw InputError(text(name_of(spots[i]), ": its memory policy is '", to_text(own.memory),
                              "' but ring ", ring, " has '", to_text(first.memory), "' on its first lane"));
      }
      if (own.nested_lanes != first.nested_lanes) {
        throw InputError(text(name_of(spots[i]), ": its nested_lanes are ", own.nested_lanes, " but ring ",
                              ring, " has ", first.nested_lanes, " on its first lane"));
      }
      if (own.pass != first.pass) {
        const auto named = [](const std::optional<int>& pass) {
          return pass ? text("in pass ", *pass) : std::string("in no pass");
        };
        throw InputError(text(name_of(spots[i]), ": it is ", named(own.pass), " but ring ", ring, " is ",
                              named(first.pass), " on its first lane"));
      }
      if (own.exchange != first.exchange) {
        throw InputError(text(name_of(spots[i]), ": its exchange is '", strategy::name_of(own.exchange),
                              "' but ring ", ring, " has '", strategy::name_of(first.exchange),
                              "' on its first lane"));
      }
    }
  }

  PipelineMicroBatch micro_batch_of(const Spot& spot) const {
    PipelineMicroBatch micro_batch{.first_lane = static_cast<int>(spot.lane),
                                   .sequences = {},
                                   .memory = at(spot).memory,
                                   .pass = at(spot).pass};
    for (const Piece& scheduled : at(spot).pieces) micro_batch.sequences.push_back(sequence_of(scheduled));
    return micro_batch;
  }

  // The last part of a sequence is never empty, so the lane that holds it lists all shared sequences.
  PipelineMicroBatch micro_batch_of(int ring, const std::vector<Spot>& spots) const {
    PipelineMicroBatch micro_batch{.first_lane = static_cast<int>(spots.front().lane),
                                   .lanes = static_cast<int>(spots.size()),
                                   .sequences = {},
                                   .exchange = at(spots.front()).exchange,
                                   .nested_lanes = at(spots.front()).nested_lanes,
                                   .memory = at(spots.front()).memory,
                                   .number = ring,
                                   .pass = at(spots.front()).pass};
    const bool contiguous = cutting_of(micro_batch.exchange) == Cutting::kContiguous;
    for (const Piece& scheduled : at(contiguous ? spots.back() : spots.front()).pieces) {
      const bool again =
          !micro_batch.sequences.empty() && micro_batch.sequences.back().sequence == scheduled.sequence;
      if (!is_whole(scheduled) && !again) micro_batch.sequences.push_back(sequence_of(scheduled));
    }
    std::vector<std::vector<MicroBatchSequence>> own;
    for (size_t place = 0; place < spots.size(); ++place) {
      own.emplace_back();
      std::vector<Piece> shared;
      for (const Piece& scheduled : at(spots[place]).pieces) {
        if (is_whole(scheduled)) {
          own.back().push_back(sequence_of(scheduled));
        } else {
          shared.push_back(scheduled);
        }
      }
      if (shared != micro_batch.pieces_on(static_cast<int>(spots[place].lane))) {
        const std::string parts =
            contiguous ? text("part ", place) : text("chunks ", place, " and ", 2 * spots.size() - 1 - place);
        throw InputError(text(name_of(spots[place]), ": its pieces are not ", parts,
                              " of each sequence of ring ", ring, ", in the order of the ring's ",
                              contiguous ? "last" : "first", " lane, beside whole sequences"));
      }
    }
    if (std::ranges::any_of(own, [](const auto& lane) { return !lane.empty(); }))
      micro_batch.own = std::move(own);
    return micro_batch;
  }

  const std::vector<std::vector<ListedLanePart>>& lanes_;
  const std::vector<Sequence>& sequences_;
  size_t pipeline_;
  std::vector<PipelineMicroBatch> micro_batches_;
  std::vector<std::vector<int>> by_lane_;
};

}  // namespace

std::vector<PipelineMicroBatch> micro_batches_of(const std::vector<std::vector<ListedLanePart>>& lanes,
                                                 const std::vector<Sequence>& sequences, size_t pipeline) {
  return MicroBatchReader(lanes, sequences, pipeline).read();
}

}  // namespace sluice::strategy
