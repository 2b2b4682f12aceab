// Times of sequences on each number of lanes, one micro-batch each:
// computed on first use, and once for sequences of equal length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/scheme_cost.h"

namespace sluice::plan {

class WidthTimes {
 public:
  // `lengths` descend; `widths`, numbers of lanes, ascend. `scheme` must outlive this.
  WidthTimes(const SchemeCost& scheme, std::span<const int64_t> lengths, const std::vector<int>& widths);

  int widths() const { return static_cast<int>(widths_.size()); }
  int lanes(int width) const { return widths_[static_cast<size_t>(width)].lanes(); }
  int width_of(int64_t lanes) const;  // the first with so many lanes or more; widths() if none has
  int places() const { return static_cast<int>(length_of_.size()); }

  // The work of the whole sequence alone, without a micro-batch's constant.
  int64_t work_ns(int place) const { return of(place).work_ns; }
  // The widths [first, end), as indices, with enough lanes to hold it and at most half as many as its tokens.
  int first_width(int place) const { return of(place).first_width; }
  int end_width(int place) const { return of(place).end_width; }
  // The time of a micro-batch with `work` on each lane.
  SchemeCost::Halves takes(const cost::Work& work, int width);
  // SchemeCost::OnLanes::most_tokens.
  int64_t most_tokens(const cost::Work& shared, int width) const {
    return widths_[static_cast<size_t>(width)].most_tokens(shared);
  }
  // The fullest lane's part, and its time as a micro-batch of its own.
  const cost::Work& share(int place, int width) { return on(place, width).share; }
  const SchemeCost::Halves& alone(int place, int width) { return on(place, width).alone; }

 private:
  struct OnLanes {
    bool known = false;
    cost::Work share;
    SchemeCost::Halves alone;
  };
  struct Length {
    int64_t tokens = 0;
    int64_t work_ns = 0;
    int first_width = 0;
    int end_width = 0;
    std::vector<OnLanes> on_lanes = {};  // by width, up to the widest used so far
  };
  const Length& of(int place) const {
    return lengths_[static_cast<size_t>(length_of_[static_cast<size_t>(place)])];
  }
  const OnLanes& on(int place, int width) {
    Length& length = lengths_[static_cast<size_t>(length_of_[static_cast<size_t>(place)])];
    const auto at = static_cast<size_t>(width);
    const bool known = at < length.on_lanes.size() && length.on_lanes[at].known;
    return known ? length.on_lanes[at] : priced(length, width);
  }
  const OnLanes& priced(Length& length, int width);

  // A cache: pricing an exchange takes long, and a search repeats the same work again and again.
  struct Priced {
    cost::Work work;
    int width = -1;
    SchemeCost::Halves takes;
    bool is(const cost::Work& other, int other_width) const {
      return width == other_width && work.tokens == other.tokens && work.squares == other.squares &&
             work.windowed == other.windowed;
    }
  };
  const SchemeCost& scheme_;
  std::vector<SchemeCost::OnLanes> widths_;
  std::vector<Length> lengths_;  // the different lengths
  std::vector<int> length_of_;   // by place
  std::vector<Priced> priced_;   // hash table; a newer entry replaces an older one with the same hash
};

}  // namespace sluice::plan
