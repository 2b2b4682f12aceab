// The lanes of a strip's pass on which nothing lies from a time on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/lane_runs.h"

namespace sluice::plan {

// Runs of lanes inside nodes, from the start of the pass on or above a load. They are found by how many lanes
// and how late they are, in O(log(runs)); whole nodes that follow each other by looking.
class FreeLanes {
 public:
  struct Run {
    LaneRun lanes;
    int64_t floor_ns = 0;
    int above = -1;  // a load, which may grow until they are taken
    bool whole = false;
  };
  struct Place {
    size_t run = 0;  // the first, from its first lane on
    int64_t start_ns = 0;
  };

  // All lanes of `nodes`, in order, from the start on.
  void reset(std::span<const LaneRun> nodes);
  // Behind all that are there.
  void add(const Run& run);
  const Run& run(size_t at) const { return runs_[at]; }
  size_t runs() const { return runs_.size(); }
  // Its load grew.
  void raise(size_t at, int64_t floor_ns);

  // No more neighbouring lanes than that are free.
  int most_lanes() const;
  // So many that are free at `latest_ns`: where `inside` a node, of the run that has fewest, of these the
  // latest; else on the first whole nodes that follow each other.
  std::optional<Place> find(int lanes, bool inside, int64_t latest_ns);
  // Takes them from there. Returns the runs, [first, end), that had them.
  std::pair<size_t, size_t> take(size_t at, int lanes);

 private:
  struct Entry {
    int64_t floor_ns = 0;
    size_t run = 0;
    // Of equal ones the first run comes last.
    bool operator<(const Entry& other) const {
      return floor_ns != other.floor_ns ? floor_ns < other.floor_ns : run > other.run;
    }
  };

  void list(size_t at);
  void unlist(size_t at);
  std::optional<Place> find_whole(int lanes, int64_t latest_ns);

  std::vector<Run> runs_;
  std::vector<std::vector<Entry>> by_lanes_;  // those with so many, ascending
  size_t first_whole_ = 0;                    // none before it is whole
  int whole_lanes_ = 0;                       // of those that are
};

}  // namespace sluice::plan
