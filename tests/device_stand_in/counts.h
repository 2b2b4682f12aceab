// What nodes of a step graph ask of a device.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "runtime/node_watch.h"

namespace sluice::stand_in {

// Of nodes of one kind.
struct Count {
  int64_t nodes = 0;
  int64_t launches = 0;
  std::map<std::string, int64_t> host_waits;  // by what made the host wait

  int64_t waits() const {
    int64_t sum = 0;
    for (const auto& [by, count] : host_waits) sum += count;
    return sum;
  }
};

// By kind of node, as far as the watch knows which one is being issued. Not thread-safe.
class Counts {
 public:
  void add_launch(const runtime::NodeWatch& watch) {
    for (const runtime::BusyStream& busy : watch.issued()) {
      if (busy.serial == 0) continue;
      Count& count = by_kind_[graph::name_of(busy.kind)];
      ++count.launches;
      if (seen_.insert(busy.serial).second) ++count.nodes;
    }
  }
  void add_wait(const runtime::NodeWatch& watch, const std::string& by) {
    for (const runtime::BusyStream& busy : watch.issued()) {
      if (busy.serial != 0) ++by_kind_[graph::name_of(busy.kind)].host_waits[by];
    }
  }
  const std::map<std::string, Count>& by_kind() const { return by_kind_; }

 private:
  std::map<std::string, Count> by_kind_;
  std::set<int64_t> seen_;  // serials of nodes
};

}  // namespace sluice::stand_in
