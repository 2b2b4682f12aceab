// The strip: a pipeline's lanes over the time of a step. Sequences are put on it, the longest first, for a
// trial end.
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

// What a strip is filled for.
struct Trial {
  // Of passes that run one behind the other, how long the forwards and the backwards of each may take.
  std::vector<SchemeCost::Halves> passes;
  // Whether forwards and backwards end in time each for themselves, as they do where lanes wait for each
  // other between them, or together.
  bool apart = false;
  int least_lanes = 1;  // of every sequence that has tokens for so many
  // What a sequence on several lanes may take of its pass; one that would take more has more lanes.
  int64_t most_milli = 1000;
  // Whether lanes begin another load where one of several lanes has ended, and sequences go to the load with
  // most time left; else what one leaves is for those that join it, and they go to the one with least.
  bool stacks = false;
  // Whether lanes of several nodes have one sequence that is cut over them, and beside it whole ones, each on
  // one of these lanes; else what joins it is cut like it.
  bool keeps_whole = false;
  // Whether sequences begin loads while lanes are free, then go to the load with most time left: so that
  // every load has short ones, which local search moves (plan/level.h).
  bool spreads = false;
  // What a micro-batch may have on each lane; of a sequence that is cut as far as may be, what lanes hold.
  int64_t most_tokens = std::numeric_limits<int64_t>::max();

  bool to_most_left() const { return stacks || spreads; }
};

// What neighbouring lanes run one behind the other: micro-batches of whole sequences on one, of sequences
// that are each cut over all of them on several. Of one that is divided each lane is a load too, which has
// its part and whole sequences beside: these loads follow it in the list.
struct Load {
  LaneRun lanes;
  int width = 0;  // as WidthTimes has it
  int pass = 0;
  bool divided = false;
  int part_of = -1;             // the load that was divided
  SchemeCost::Halves exchange;  // then: what that exposes
  int64_t start_ns = 0;         // in its pass
  SchemeCost::Halves takes;
  int64_t most_tokens = 0;  // of a micro-batch, on each lane
  int64_t room_tokens = 0;  // there, in its emptiest micro-batch
  int first_micro_batch = 0;
  // What is free above it, in its pass: FreeLanes' runs.
  size_t free_begin = 0;
  size_t free_end = 0;
  // That sequences may still fill on it, at most; 0 unless it is open (Strip::fill).
  int64_t usable_tokens = 0;
  int64_t end_ns() const { return start_ns + takes.both_ns(); }
};

struct LanePart {
  cost::Work work;  // of each lane
  SchemeCost::Halves takes;
  int next = -1;  // of the same load
};

// All sequences on their lanes: indices in the vectors.
struct Filling {
  std::vector<Load> loads;  // those of a lane in the order in which it runs them
  std::vector<LanePart> micro_batches;
  std::vector<int> micro_batch_of;  // by place of the packing

  // Of all passes: of each its longest load, or, apart, its longest forward and its longest backward.
  int64_t end_ns(bool apart) const;
  SchemeCost::Halves halves() const;                // their longest forwards, and their longest backwards
  std::vector<SchemeCost::Halves> longest() const;  // by pass, of its loads
};

class Strip {
 public:
  // What it is made from must outlive it.
  explicit Strip(const Packing& packing);

  // Whether the packing's sequences all end in time. No sooner than there is time left for the work of all
  // that are left; where a load is one micro-batch, than free lanes and loads that may still take the
  // shortest sequence have time and room for their tokens. Each joins one of the loads with room, or begins
  // one on the fewest lanes that end in time, inside a node where it fits one, else on whole nodes; a load
  // that has no room gets another micro-batch where nothing else is left, but where lanes share parameters or
  // there are several stages it has one. O(sequences · log(loads) + loads · nodes), about, and loads to keep
  // in order.
  bool fill(const Trial& trial);
  WidthTimes& times() { return times_; }
  // Of the last trial that was filled.
  const Filling& filling() const { return filling_; }
  // In the order of injection, with the passes that share groups tie them to.
  std::vector<strategy::PipelineMicroBatch> pipeline_micro_batches(const Filling& filling) const;

 private:
  // A load that may take more: the time left behind it, and room as Load has it.
  struct Open {
    int64_t left_ns = 0;
    int load = 0;
    int32_t room_tokens = 0;  // or as many as it counts
    auto operator<=>(const Open&) const = default;
  };
  struct OpenPass {
    SchemeCost::Halves most;
    FreeLanes free;
    int64_t usable_tokens = 0;  // of a free lane
  };
  struct Place {
    int pass = 0;
    int width = 0;
    FreeLanes::Place of;
  };
  enum class Room { kInMicroBatch, kAny };
  static constexpr int kRateBits = 40;

  // Whether a load is one micro-batch, for lanes wait for each other behind it or the order counts.
  bool in_passes() const {
    const strategy::Scheme& scheme = packing_.scheme.scheme();
    return scheme.fsdp > 1 || scheme.pp > 1;
  }
  int64_t capacity() const { return std::min(trial_->most_tokens, packing_.scheme.lane_max_len_tokens()); }
  Load& load(int index) { return filling_.loads[static_cast<size_t>(index)]; }
  LanePart& micro_batch(int index) { return filling_.micro_batches[static_cast<size_t>(index)]; }
  OpenPass& pass_of(const Load& load) { return passes_[static_cast<size_t>(load.pass)]; }
  bool in_time(const SchemeCost::Halves& takes, int64_t start_ns, const SchemeCost::Halves& most) const;
  bool put(int place);
  bool join(int place, int first_width, int end_width, Room room);
  bool extend(int place, int load);
  int fullest_with_room(const Load& load, int64_t tokens);
  void note_room(Load& load);
  bool begin(int place);
  int first_width(int place, const SchemeCost::Halves& most);
  bool allows(int place, int width, const SchemeCost::Halves& most);
  std::optional<FreeLanes::Place> find(const SchemeCost::Halves& takes, int lanes, OpenPass& pass);
  LaneRun take(const Place& at);
  void divide(int load);
  void lay_free_above(int load);
  Open opened(const Load& load, int index);
  void open(int load);
  void close(int load);
  // All that is left, by time and by tokens: false proves that not.
  bool may_hold_rest(int place) const;
  cost::Wide tokens_in(cost::Wide ns) const { return (ns * tokens_per_ns_ >> kRateBits) + 1; }
  int64_t usable_tokens(int64_t left_ns, int64_t room_tokens) const;
  void count_rest_tokens();
  using Places = std::vector<std::vector<int>>;  // by micro-batch
  std::vector<strategy::MicroBatchSequence> sequences_of(const std::vector<int>& places) const;
  void add_micro_batches(const Filling& filling, size_t load, const Places& places, std::optional<int> pass,
                         std::vector<strategy::PipelineMicroBatch>& micro_batches) const;

  const Packing& packing_;
  WidthTimes times_;
  const Trial* trial_ = nullptr;
  std::vector<OpenPass> passes_;
  std::vector<std::vector<Open>> open_;  // of all passes, by width; ascending
  int open_end_ = 0;                     // behind the widest that ever was
  Filling filling_;
  std::vector<int64_t> rest_ns_;              // by place: the work of it and of all behind it
  int64_t left_ns_ = 0;                       // of all lanes and passes
  std::vector<int64_t> rest_tokens_;          // by place, as rest_ns_, but for those that exceed the capacity
  int64_t rest_capacity_ = -1;                // for which these were counted
  int64_t usable_tokens_ = 0;                 // of open loads and free lanes
  int64_t tokens_per_ns_ = int64_t{1} << 56;  // at most, on one lane; fixed point of kRateBits
  std::vector<std::pair<int64_t, int>> joins_;  // of join: by time left, and the load
};

}  // namespace sluice::plan
