// How long a batch takes on a mix of pipelines if sequences were divisible: an estimate in microseconds of
// computing, for searches that look at thousands of strategies. It proves nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/mix.h"

namespace sluice::plan {

// The most work, busy time of its slowest stage, that one pipeline of a scheme finishes by a time. With V
// micro-batches of W work in all and a constant c each, stages take W + c·V, and fill and drain h·(W/V + c);
// V is the best of those that hold the tokens. With weight gradients split off h is about half of PP − 1.
// Lanes work side by side: work is the mean over them, V the micro-batches of each.
class Capacity {
 public:
  // full_ns: work of a full micro-batch of typical sequences; gathers_ns: what it waits for shared
  // parameters.
  Capacity(const SchemeCost& scheme, int64_t full_ns, int64_t gathers_ns = 0);
  int64_t work_ns(int64_t time_ns) const;

 private:
  int64_t constant_ns_ = 0;
  int64_t full_ns_ = 1;
  int64_t bubble_ = 0;  // h, in parts of kParts
};

class FluidTimes {
 public:
  static constexpr int64_t kNever = cost::kLongestNs;

  // Sequences of a batch that differ by less than an eighth, and that the same schemes hold.
  struct LengthClass {
    int64_t longest = 0;
    int64_t sequences = 0;
    int64_t tokens = 0;
  };

  // Sequences of like lengths are one class, so that time does not depend on how many there are. REQUIRES: a
  // scheme.
  FluidTimes(std::span<const SchemeCost> schemes, const std::vector<std::vector<int64_t>>& batches);

  size_t batches() const { return batches_.size(); }
  // On a geometric scale of 0.3 %; kNever when some sequence fits no pipeline or it takes longer than
  // `limit_ns`. Quickest where it is near `about_ns`.
  int64_t estimate_ns(size_t batch, const Mix& mix, int64_t limit_ns = kNever, int64_t about_ns = 0) const;

  // The time in which `ranks` would finish the batch if pipelines were divisible too, and thousandths of
  // pipelines by scheme that do so: by a time T a class of work w costs scheme k N_k·w/cap_k(T) ranks; each
  // takes the cheapest of the allowed schemes that hold it and pass it through all stages by T; T is bisected
  // until the costs fill the ranks. Nothing when no time suffices.
  struct Ideal {
    int64_t time_ns = 0;
    std::vector<int64_t> milli_pipelines;  // by scheme
  };
  std::optional<Ideal> ideal(size_t batch, int ranks, std::span<const size_t> allowed) const;

  // Schemes that near the ideal time cost some class little more than the cheapest does, ascending.
  std::vector<size_t> useful(size_t batch, int ranks) const;

 private:
  // Over so many lanes, the longest sequence of a class takes path_ns and each is work_ns.
  struct Way {
    int64_t path_ns = 0;
    int64_t work_ns = 0;
    int64_t bubble_ns = 0;  // that the longest leaves on stages and no other can fill
  };
  static Way way_of(const SchemeCost& scheme, int stage, const LengthClass& cls,
                    const SchemeCost::OnLanes& on);
  // By class of a batch, the longest first.
  struct OnScheme {
    size_t first = 0;            // class that the scheme holds
    std::vector<Way> ways;       // by class, each with less path and more work than the one before
    std::vector<size_t> begins;  // of a class's ways, and the end
    // The first by which a class passes in time, if any.
    const Way* way(size_t cls, int64_t limit_ns) const {
      for (size_t way = begins[cls]; way < begins[cls + 1]; ++way) {
        if (ways[way].path_ns <= limit_ns) return &ways[way];
      }
      return nullptr;
    }
    void add_way(Way way);
  };
  // What sequences of a class take of a pipeline by some time, the first of all, which leaves bubbles, more
  // than others, and how many of them have room there; no work where they pass too late.
  struct Slot {
    int64_t work_ns = 0;
    int64_t first_ns = 0;
    int64_t sequences = 0;
  };
  struct Batch {
    std::vector<int64_t> sequences;  // by class, the longest first
    std::vector<OnScheme> on;        // by scheme
    // By scheme, then time: by class, once it was asked for.
    mutable std::vector<std::unique_ptr<Slot[]>> slots;
  };
  const Slot* slots(const Batch& batch, size_t scheme, int place) const;
  // Place on the scale of times.
  int64_t time_ns(int place) const { return times_[static_cast<size_t>(place)]; }
  int place_of(int64_t time_ns) const;  // the first that is no less, or the end
  int64_t capacity_ns(size_t scheme, int place) const {
    return capacity_[scheme * times_.size() + static_cast<size_t>(place)];
  }
  // Thousandths of the pipelines' room that are used; nothing when there is too little.
  std::optional<int64_t> used_milli(const Batch& batch, const Mix& mix, std::span<const size_t> order,
                                    int place) const;
  // What a class costs on a scheme; kNever where it cannot be in time.
  int64_t milli_ranks(const Batch& batch, size_t cls, size_t scheme, int place) const;
  std::optional<std::vector<int64_t>> shares(const Batch& batch, int ranks, std::span<const size_t> allowed,
                                             int place) const;

  std::span<const SchemeCost> schemes_;
  std::vector<Batch> batches_;
  std::vector<size_t> by_growth_;   // schemes, those first whose times grow least with length
  std::vector<size_t> by_longest_;  // schemes, those first that hold most
  std::vector<int64_t> times_;
  std::vector<int64_t> capacity_;  // by scheme, then time
};

}  // namespace sluice::plan
