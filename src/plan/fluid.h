// The time of a batch on a mix of pipelines if sequences were divisible: an estimate in
// microseconds of computing, for searches that look at thousands of strategies. It proves nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/mix.h"

namespace sluice::plan {

// The most work, as busy time of the slowest stage, that one pipeline of a scheme finishes by a time.
// With V micro-batches, W work in all and a constant c each, stages take W + c·V, and fill and drain
// h·(W/V + c). V is the best of those that hold the tokens. With split weight gradients h is about
// half of PP − 1. Lanes work side by side: work is the mean over lanes, V the micro-batches of each.
class Capacity {
 public:
  // full_ns: work of a full micro-batch of typical sequences. gathers_ns:
  // the time that such a micro-batch waits for shared parameters.
  Capacity(const SchemeCost& scheme, int64_t full_ns, int64_t gathers_ns = 0);
  int64_t work_ns(int64_t time_ns) const;

 private:
  int64_t constant_ns_ = 0;
  int64_t full_ns_ = 1;
  int64_t bubble_ = 0;  // h, in parts of kParts
};

class FluidTimes {
 public:
  // Sequences of a batch whose lengths differ by less than an eighth and that the same schemes hold.
  struct LengthClass {
    int64_t longest = 0;
    int64_t sequences = 0;
    int64_t tokens = 0;
  };

  // Sequences of similar length form one class, so the computing time
  // does not depend on their number. REQUIRES: at least one scheme.
  FluidTimes(std::span<const SchemeCost> schemes, const std::vector<std::vector<int64_t>>& batches);

  size_t batches() const { return batches_.size(); }
  // Rounded to a geometric scale of 0.3 %. cost::kLongestNs if a sequence fits no pipeline
  // or the time exceeds `limit_ns`. Quickest if the result is near `about_ns`.
  int64_t estimate_ns(size_t batch, const Mix& mix, int64_t limit_ns = cost::kLongestNs,
                      int64_t about_ns = 0) const;

  // The time in which `ranks` would finish the batch if pipelines were divisible too, and the
  // thousandths of pipelines by scheme that do so. By a time T a class of work w costs scheme k
  // N_k·w/cap_k(T) ranks. Each class takes the cheapest allowed scheme that holds it and passes it
  // through all stages by T. T is bisected until the costs fill the ranks. Nothing if no time suffices.
  struct Ideal {
    int64_t time_ns = 0;
    std::vector<int64_t> milli_pipelines;  // by scheme
  };
  std::optional<Ideal> ideal(size_t batch, int ranks, std::span<const size_t> allowed) const;

  // Schemes that near the ideal time cost some class little more than the cheapest does, ascending.
  std::vector<size_t> useful(size_t batch, int ranks) const;

 private:
  // A way to run a class over some lanes: its longest sequence takes path_ns and each is work_ns of work.
  struct Way {
    int64_t path_ns = 0;
    int64_t work_ns = 0;
    int64_t bubble_ns = 0;  // left by the longest sequence on stages; no other can fill it
  };
  static Way way_of(const SchemeCost& scheme, int stage, const LengthClass& cls,
                    const SchemeCost::OnLanes& on);
  // A scheme's ways for each class of a batch, the longest class first.
  struct OnScheme {
    size_t first = 0;            // the first class that the scheme holds
    std::vector<Way> ways;       // by class, each with less path and more work than the one before
    std::vector<size_t> begins;  // each class's first way, and the end
    // The first way by which a class passes in time, if any.
    const Way* way(size_t cls, int64_t limit_ns) const {
      for (size_t way = begins[cls]; way < begins[cls + 1]; ++way) {
        if (ways[way].path_ns <= limit_ns) return &ways[way];
      }
      return nullptr;
    }
    void add_way(Way way);
  };
  // A pipeline's costs for one class by some time, and how many of its sequences have room. The first
  // sequence leaves bubbles, so it costs more than the others. work_ns is 0 where they pass too late.
  struct Slot {
    int64_t work_ns = 0;
    int64_t first_ns = 0;
    int64_t sequences = 0;
  };
  struct Batch {
    std::vector<int64_t> sequences;  // by class, the longest first
    std::vector<OnScheme> on;        // by scheme
    // By scheme, then time: a slot per class, filled on first use.
    mutable std::vector<std::unique_ptr<Slot[]>> slots;
  };
  const Slot* slots(const Batch& batch, size_t scheme, int place) const;
  // The time at a place of the geometric scale.
  int64_t time_ns(int place) const { return times_[static_cast<size_t>(place)]; }
  int place_of(int64_t time_ns) const;  // the first that is no less, or the end
  int64_t capacity_ns(size_t scheme, int place) const {
    return capacity_[scheme * times_.size() + static_cast<size_t>(place)];
  }
  // Thousandths of the pipelines' room that the batch uses; nothing if the room is too little.
  std::optional<int64_t> used_milli(const Batch& batch, const Mix& mix, std::span<const size_t> order,
                                    int place) const;
  // Thousandths of ranks that a class costs on a scheme; cost::kLongestNs if the class cannot be in time.
  int64_t milli_ranks(const Batch& batch, size_t cls, size_t scheme, int place) const;
  std::optional<std::vector<int64_t>> shares(const Batch& batch, int ranks, std::span<const size_t> allowed,
                                             int place) const;

  std::span<const SchemeCost> schemes_;
  std::vector<Batch> batches_;
  std::vector<size_t> by_growth_;   // scheme indices; times that grow least with length first
  std::vector<size_t> by_longest_;  // scheme indices; those that hold the longest first
  std::vector<int64_t> times_;
  std::vector<int64_t> capacity_;  // by scheme, then time
};

}  // namespace sluice::plan
