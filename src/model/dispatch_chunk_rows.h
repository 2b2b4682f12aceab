// In what portions rows travel to experts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::model {

// A lane's rows are cut into runs of so many; a wave is as many runs of all lanes as keep what any lane takes
// in, or sends, within `most`. A run of all lanes always fits, for a row goes to a lane once.
struct DispatchChunkRows {
  int64_t run = 0;
  int64_t most = 0;
};

// As many rows as keep products busy; of many lanes at least a run of each.
inline DispatchChunkRows dispatch_chunk_rows(int lanes) {
  constexpr int64_t kRun = 128, kOfLane = 1024, kMost = 8192;
  return {kRun, std::max(kRun * lanes, std::min(kOfLane * lanes, kMost))};
}

}  // namespace sluice::model
