// The lanes of a strip's pass that are free from some time on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/index.h"
#include "plan/lane_runs.h"

namespace sluice::plan {

struct Load;
using LoadIndex = base::Index<Load>;

// Runs of lanes inside nodes that are free from the start of the pass or above a load. A run is found by
// its number of lanes and its start in O(log(runs)); whole nodes in a row are found by a linear search.
class FreeLanes {
 public:
  struct Run {
    LaneRun lanes;
    int64_t floor_ns = 0;
    LoadIndex above;  // a load below, if any, which may grow until the lanes are taken
    bool whole = false;
  };
  struct Place {
    size_t run = 0;  // index of the first run, from its first lane on
    int64_t start_ns = 0;
  };

  // Starts anew with all lanes of `nodes`, in order, free from time 0.
  void reset(std::span<const LaneRun> nodes);
  // Appends a run.
  void add(const Run& run);
  const Run& run(size_t at) const { return runs_[at]; }
  size_t runs() const { return runs_.size(); }
  // Moves a run's start later, because the load below has grown.
  void raise(size_t at, int64_t floor_ns);

  // An upper bound on the number of neighbouring free lanes.
  int most_lanes() const;
  // `lanes` free lanes at `latest_ns`. `inside` a node: from the run with the fewest lanes
  // that suffice, among these the latest. Otherwise: on the first whole nodes in a row.
  std::optional<Place> find(int lanes, bool inside, int64_t latest_ns);
  // Takes these lanes. Returns the runs [first, end) that they were taken from.
  std::pair<size_t, size_t> take(size_t at, int lanes);

 private:
  struct Entry {
    int64_t floor_ns = 0;
    size_t run = 0;
    // Among equal floors the first run comes last.
    bool operator<(const Entry& other) const {
      return floor_ns != other.floor_ns ? floor_ns < other.floor_ns : run > other.run;
    }
  };

  void list(size_t at);
  void unlist(size_t at);
  std::optional<Place> find_whole(int lanes, int64_t latest_ns);

  std::vector<Run> runs_;
  std::vector<std::vector<Entry>> by_lanes_;  // runs by number of lanes, ascending
  size_t first_whole_ = 0;                    // no run before it is whole
  int whole_lanes_ = 0;                       // lanes of whole runs
};

}  // namespace sluice::plan
