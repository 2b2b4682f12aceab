// The conditions that ranks' threads wait for, and whether any of them can go on.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

namespace sluice::nccl_stand_in {

struct HostWait {
  std::string what;
  std::function<bool()> over;
  bool asks = false;  // again and again, in place of a wait inside the network
};

// Not thread-safe.
class HostWaits {
 public:
  void enter(int rank) { ranks_.insert(rank); }
  void leave(int rank) {
    ranks_.erase(rank);
    by_rank_.erase(rank);
  }
  void begin(int rank, const HostWait& wait) { by_rank_[rank] = wait; }
  void end(int rank) { by_rank_.erase(rank); }
  // Ends a wait that only asks.
  void end_asking(int rank) {
    const auto found = by_rank_.find(rank);
    if (found != by_rank_.end() && found->second.asks) by_rank_.erase(found);
  }
  // By rank; empty unless every rank waits and none can go on.
  std::map<int, std::string> stuck() const {
    std::map<int, std::string> waits;
    for (const auto& [rank, wait] : by_rank_) {
      if (wait.over()) return {};
      waits[rank] = wait.what;
    }
    return waits.size() < ranks_.size() ? std::map<int, std::string>() : waits;
  }

 private:
  std::set<int> ranks_;
  std::map<int, HostWait> by_rank_;
};

}  // namespace sluice::nccl_stand_in
