// The strip: a pipeline's lanes over the time of a step.
// Sequences are placed on it, longest first, for a trial end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "plan/free_lanes.h"
#include "plan/packing.h"
#include "plan/width_times.h"

namespace sluice::plan {

// One trial: limits for filling a strip.
struct Trial {
  // Times that the forwards and backwards of each pass may take. Passes run one after the other.
  std::vector<SchemeCost::Halves> passes;
  // Whether forwards and backwards are limited separately, as where
  // lanes wait for each other between them, or only their sum.
  bool apart = false;
  int least_lanes = 1;  // for every sequence with enough tokens for so many
  // The part of its pass that a sequence on several lanes may take; one that takes more gets more lanes.
  int64_t most_milli = 1000;
  // Whether lanes begin another load where one of several lanes has ended; sequences then go to the load
  // with most time left. Else a load's time is for sequences that join, which go to the load with least.
  bool stacks = false;
  // Whether lanes of several nodes run one sequence cut over all of them and, beside it, whole
  // sequences on single lanes. Otherwise sequences that join such a load are cut like the first.
  bool keeps_whole = false;
  // Whether sequences begin loads while lanes are free and then go to the load with most
  // time left. Every load then has short sequences, which local search moves (plan/level.h).
  bool spreads = false;
  // Tokens of a micro-batch on each lane. A sequence cut as far as possible may fill the lanes' capacity.
  int64_t most_tokens = std::numeric_limits<int64_t>::max();

  bool to_most_left() const { return stacks || spreads; }
};

struct LanePart;
using LanePartIndex = base::Index<LanePart>;

// The micro-batches that neighbouring lanes run one after the other: whole sequences on one lane,
// sequences that are each cut over all lanes on several. Each lane of a divided load is a load,
// too, with its part and whole sequences beside it; these loads follow the divided one in the list.
struct Load {
  LaneRun lanes;
  int width = 0;  // as in WidthTimes
  int pass = 0;
  bool divided = false;
  LoadIndex part_of;            // the load that was divided, if any
  SchemeCost::Halves exchange;  // on a divided load's lane: the exposed exchange of the part
  int64_t start_ns = 0;         // in its pass
  SchemeCost::Halves takes;
  int64_t most_tokens = 0;  // limit of a micro-batch, on each lane
  int64_t room_tokens = 0;  // left on each lane of its emptiest micro-batch
  LanePartIndex first_micro_batch;
  // The free lanes above it in its pass: a range of FreeLanes' runs.
  size_t free_begin = 0;
  size_t free_end = 0;
  // An upper bound on the tokens that sequences may still add to it; 0 unless it is open (Strip::fill).
  int64_t usable_tokens = 0;
  int64_t end_ns() const { return start_ns + takes.both_ns(); }
};

struct LanePart {
  cost::Work work;  // on each lane
  SchemeCost::Halves takes;
  LanePartIndex next;  // in the same load, if any
};

// All sequences on their lanes, as indices into vectors.
struct Filling {
  std::vector<Load> loads;  // a lane's loads in the order in which it runs them
  std::vector<LanePart> micro_batches;
  std::vector<LanePartIndex> micro_batch_of;  // by place in the packing

  // The sum over passes of the longest load, or, if `apart`, of the longest forward and longest backward.
  int64_t end_ns(bool apart) const;
  SchemeCost::Halves halves() const;                // sums over passes of the longest forward and backward
  std::vector<SchemeCost::Halves> longest() const;  // by pass, over its loads
};

class Strip {
 public:
  // The packing must outlive the strip.
  explicit Strip(const Packing& packing);

  // Whether all sequences of the packing end in time. Fails early if the time left is less
  // than the work of the rest. In passes of one micro-batch per load, it also fails if
  // free lanes and loads open to the shortest sequence lack time or room for the rest's
  // tokens. Each sequence joins a load with room or begins one on the fewest lanes that
  // end in time, inside a node if it fits one, else on whole nodes. As a last resort a
  // full load gets another micro-batch, but not where lanes share parameters or stages are
  // several. About O(sequences · log(loads) + loads · nodes), plus keeping loads in order.
  bool fill(const Trial& trial);
  WidthTimes& times() { return times_; }
  // The result of the last trial.
  const Filling& filling() const { return filling_; }
  // In the order of injection, with the passes that tie lanes of share groups together.
  std::vector<strategy::PipelineMicroBatch> pipeline_micro_batches(const Filling& filling) const;

 private:
  // A load that may take more: the time left after it, and its room_tokens.
  struct Open {
    int64_t left_ns = 0;
    LoadIndex load;
    int32_t room_tokens = 0;  // saturates
    auto operator<=>(const Open&) const = default;
  };
  struct OpenPass {
    SchemeCost::Halves most;
    FreeLanes free;
    int64_t usable_tokens = 0;  // per free lane
  };
  struct Place {
    int pass = 0;
    int width = 0;
    FreeLanes::Place of;
  };
  enum class Room { kInMicroBatch, kAny };
  static constexpr int kRateBits = 40;

  // Whether a load is one micro-batch, because lanes wait for each other after it or the order counts.
  bool in_passes() const {
    const strategy::Scheme& scheme = packing_.scheme.scheme();
    return scheme.fsdp > 1 || scheme.pp > 1;
  }
  int64_t capacity() const { return std::min(trial_->most_tokens, packing_.scheme.lane_max_len_tokens()); }
  Load& load(LoadIndex index) { return filling_.loads[index]; }
  LanePart& micro_batch(LanePartIndex index) { return filling_.micro_batches[index]; }
  OpenPass& pass_of(const Load& load) { return passes_[static_cast<size_t>(load.pass)]; }
  bool in_time(const SchemeCost::Halves& takes, int64_t start_ns, const SchemeCost::Halves& most) const;
  bool put(int place);
  bool join(int place, int first_width, int end_width, Room room);
  bool extend(int place, LoadIndex load);
  LanePartIndex fullest_with_room(const Load& load, int64_t tokens);
  void note_room(Load& load);
  bool begin(int place);
  int first_width(int place, const SchemeCost::Halves& most);
  bool allows(int place, int width, const SchemeCost::Halves& most);
  std::optional<FreeLanes::Place> find(const SchemeCost::Halves& takes, int lanes, OpenPass& pass);
  LaneRun take(const Place& at);
  LoadIndex add_load(const Load& load);
  LanePartIndex add_micro_batch(const LanePart& part);
  void divide(LoadIndex load);
  void lay_free_above(LoadIndex load);
  Open opened(const Load& load, LoadIndex index);
  void open(LoadIndex load);
  void close(LoadIndex load);
  // Checks time and tokens left; false proves that the rest does not fit.
  bool may_hold_rest(int place) const;
  cost::Wide tokens_in(cost::Wide ns) const { return (ns * tokens_per_ns_ >> kRateBits) + 1; }
  int64_t usable_tokens(int64_t left_ns, int64_t room_tokens) const;
  void count_rest_tokens();
  using Places = std::vector<std::vector<int>>;  // by micro-batch
  std::vector<strategy::MicroBatchSequence> sequences_of(const std::vector<int>& places) const;
  void add_micro_batches(const Filling& filling, LoadIndex load, const Places& places,
                         std::optional<int> pass,
                         std::vector<strategy::PipelineMicroBatch>& micro_batches) const;

  const Packing& packing_;
  WidthTimes times_;
  const int64_t constant_ns_;  // of a micro-batch
  const Trial* trial_ = nullptr;
  std::vector<OpenPass> passes_;
  std::vector<int> free_passes_;         // ascending: those that have free lanes or may get some again
  std::vector<std::vector<Open>> open_;  // over all passes, by width; ascending
  int open_end_ = 0;                     // one more than the widest so far
  Filling filling_;
  std::vector<int64_t> rest_ns_;              // by place: the work of it and of all after it
  int64_t left_ns_ = 0;                       // over all lanes and passes
  std::vector<int64_t> rest_tokens_;          // by place, as rest_ns_, without those that exceed the capacity
  int64_t rest_capacity_ = -1;                // the capacity that rest_tokens_ counts for
  int64_t usable_tokens_ = 0;                 // over open loads and free lanes
  int64_t tokens_per_ns_ = int64_t{1} << 56;  // an upper bound on one lane; fixed point of kRateBits
  std::vector<std::pair<int64_t, LoadIndex>> joins_;  // for join(): by time left, and the load
};

}  // namespace sluice::plan
