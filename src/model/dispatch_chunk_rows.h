// The portions in which rows travel to experts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::model {

// A lane's rows are cut into runs of `run` rows. A wave has as many runs of all lanes as possible while no
// lane receives or sends more than `most` rows. One run of every lane fits, for a row visits a lane once.
struct DispatchChunkRows {
  int64_t run = 0;
  int64_t most = 0;
};

// `most` is enough rows to keep products busy, and at least one run of every lane.
inline DispatchChunkRows dispatch_chunk_rows(int lanes) {
  constexpr int64_t kRun = 128, kOfLane = 1024, kMost = 8192;
  return {kRun, std::max(kRun * lanes, std::min(kOfLane * lanes, kMost))};
}

}  // namespace sluice::model
