#include "link/route.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::link {
namespace {

using base::Interval;

struct Holder {
  int rank = 0;
  const base::IntervalSet* shard = nullptr;
  bool operator==(const Holder& other) const { return rank == other.rank && *shard == *other.shard; }
};

// The holders of each bucket, ascending.
std::vector<std::vector<Holder>> holders_by_bucket(const model::ParameterTable& table,
                                                   const ComputeLayout& layout, int world_size) {
  std::vector<std::vector<Holder>> holders(table.buckets.size());
  for (int rank = 0; rank < world_size; ++rank) {
    for (const Holding& holding : layout.holdings(rank)) {
      if (!holding.shard.empty()) {
        holders[static_cast<size_t>(holding.bucket)].push_back({rank, &holding.shard});
      }
    }
  }
  return holders;
}

// Holders of one slice on one node, ascending.
struct NodeHolders {
  int node = 0;
  std::vector<int> ranks;
};

// Ranks with equal shards.
struct Group {
  const base::IntervalSet* shard = nullptr;
  std::vector<int> ranks;
};

std::vector<Group> groups_of(const std::vector<Holder>& holders) {
  std::vector<Group> groups;
  for (const Holder& holder : holders) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& have) { return *have.shard == *holder.shard; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{holder.shard, {}});
    group->ranks.push_back(holder.rank);
  }
  return groups;
}

std::vector<NodeHolders> by_node(const std::vector<Group>& groups, const std::vector<size_t>& active,
                                 const strategy::Topology& topology) {
  std::vector<int> ranks;
  for (const size_t group : active)
    ranks.insert(ranks.end(), groups[group].ranks.begin(), groups[group].ranks.end());
  std::sort(ranks.begin(), ranks.end());
  std::vector<NodeHolders> nodes;
  for (const int rank : ranks) {
    const int node = topology.node_of(rank);
    if (nodes.empty() || nodes.back().node != node) nodes.push_back({node, {}});
    nodes.back().ranks.push_back(rank);
  }
  return nodes;
}

// Positions where the set of holding groups changes.
struct Change {
  int64_t position = 0;
  size_t group = 0;
  bool enters = false;
};

std::vector<Change> changes_of(const std::vector<Group>& groups) {
  std::vector<Change> changes;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const Interval& interval : groups[group].shard->intervals()) {
      changes.push_back({interval.begin, group, true});
      changes.push_back({interval.end, group, false});
    }
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.position < b.position; });
  return changes;
}

// Calls visit(slice, owner, nodes) for every mutual slice of a bucket, ascending: a sweep over the positions
// where holders change, cut further where the owner changes.
template <typename Visit>
void for_each_mutual_slice(int64_t bucket_size, const std::vector<Holder>& holders, int world_size,
                           const strategy::Topology& topology, const Visit& visit) {
  const std::vector<Group> groups = groups_of(holders);
  const std::vector<Change> changes = changes_of(groups);
  std::vector<size_t> active;
  int owner = 0;
  for (size_t next = 0; next < changes.size();) {
    const int64_t begin = changes[next].position;
    for (; next < changes.size() && changes[next].position == begin; ++next) {
      changes[next].enters ? active.push_back(changes[next].group)
                           : static_cast<void>(std::erase(active, changes[next].group));
    }
    if (next == changes.size()) break;
    const std::vector<NodeHolders> nodes = by_node(groups, active, topology);
    if (nodes.empty()) continue;
    for (Interval rest{begin, changes[next].position}; !rest.empty();) {
      while (owned_part(bucket_size, world_size, owner).end <= rest.begin) ++owner;
      const int64_t end = std::min(rest.end, owned_part(bucket_size, world_size, owner).end);
      visit(Interval{rest.begin, end}, owner, nodes);
      rest.begin = end;
    }
  }
}

// The part of a slice that holder `index` of a node receives from the owner.
Interval entry_part(Interval slice, size_t holders, size_t index) {
  const Interval part =
      base::even_part(slice.size(), static_cast<int64_t>(holders), static_cast<int64_t>(index));
  return {slice.begin + part.begin, slice.begin + part.end};
}

// Collects the transfers of one bucket: all, or those of one rank.
class Collector {
 public:
  Collector(int bucket, const strategy::Topology& topology, std::optional<int> only)
      : bucket_(bucket), topology_(&topology), only_(only) {}

  void add_slice(Interval slice, int owner, const std::vector<NodeHolders>& nodes) {
    const size_t first_inter = inter.size();
    const size_t first_intra = intra.size();
    const int owner_node = topology_->node_of(owner);
    for (const NodeHolders& holders : nodes) {
      if (only_ && *only_ != owner && topology_->node_of(*only_) != holders.node) continue;
      if (holders.node == owner_node) {
        for (const int holder : holders.ranks) add(intra, slice, owner, holder);
      } else {
        add_foreign(slice, owner, holders.ranks);
      }
    }
    sort_from(inter, first_inter);
    sort_from(intra, first_intra);
  }

  std::vector<Transfer> inter;
  std::vector<Transfer> intra;

 private:
  void add(std::vector<Transfer>& list, Interval slice, int source, int destination) const {
    if (only_ && *only_ != source && *only_ != destination) return;
    list.push_back({bucket_, slice, source, destination});
  }

  // The owner is on another node: each holder receives its part from there and passes it on.
  void add_foreign(Interval slice, int owner, const std::vector<int>& holders) {
    for (size_t index = 0; index < holders.size(); ++index) {
      const Interval part = entry_part(slice, holders.size(), index);
      if (part.empty()) continue;
      add(inter, part, owner, holders[index]);
      for (const int other : holders) {
        if (other != holders[index]) add(intra, part, holders[index], other);
      }
    }
  }

  // Slices come in ascending order, so only the transfers of one slice need sorting.
  static void sort_from(std::vector<Transfer>& list, size_t first) {
    std::sort(list.begin() + static_cast<std::ptrdiff_t>(first), list.end(),
              [](const Transfer& a, const Transfer& b) {
                return std::tie(a.slice.begin, a.source, a.destination) <
                       std::tie(b.slice.begin, b.source, b.destination);
              });
  }

  int bucket_;
  const strategy::Topology* topology_;
  std::optional<int> only_;
};

void append(std::vector<Transfer>& list, const std::vector<Transfer>& more, int bucket) {
  const size_t first = list.size();
  list.insert(list.end(), more.begin(), more.end());
  for (size_t i = first; i < list.size(); ++i) list[i].bucket = bucket;
}

// Layers held alike have the same transfers, so each distinct list of holders is processed once.
template <typename Value>
class Reused {
 public:
  // REQUIRES: `holders` outlives this object.
  template <typename Make>
  const Value& get(int64_t size, const std::vector<Holder>& holders, const Make& make) {
    for (const Entry& entry : entries_) {
      if (entry.size == size && *entry.holders == holders) return entry.value;
    }
    return entries_.emplace_back(Entry{size, &holders, make()}).value;
  }

 private:
  struct Entry {
    int64_t size = 0;
    const std::vector<Holder>* holders = nullptr;
    Value value;
  };
  std::deque<Entry> entries_;
};

Route collect(const model::ParameterTable& table, const ComputeLayout& layout, const Rounds& rounds,
              int world_size, const strategy::Topology& topology, std::optional<int> only) {
  const auto holders = holders_by_bucket(table, layout, world_size);
  Reused<Collector> reused;
  Route result{.world_size = world_size, .topology = topology, .rounds = {}};
  for (const std::vector<int>& buckets : rounds.buckets) {
    RouteRound& round = result.rounds.emplace_back();
    round.buckets = buckets;
    for (const int index : buckets) {
      const int64_t size = table.buckets[static_cast<size_t>(index)].size;
      const std::vector<Holder>& held = holders[static_cast<size_t>(index)];
      const Collector& transfers = reused.get(size, held, [&] {
        Collector fresh(index, topology, only);
        for_each_mutual_slice(size, held, world_size, topology,
                              [&](Interval slice, int owner, const std::vector<NodeHolders>& nodes) {
                                fresh.add_slice(slice, owner, nodes);
                              });
        return fresh;
      });
      append(round.inter, transfers.inter, index);
      append(round.intra, transfers.intra, index);
    }
  }
  return result;
}

Volume no_volume(int world_size) {
  return {std::vector<int64_t>(static_cast<size_t>(world_size)),
          std::vector<int64_t>(static_cast<size_t>(world_size))};
}

RoundVolume no_round_volume(int world_size, const strategy::Topology& topology) {
  const Volume none = no_volume(world_size);
  return {none, none, std::vector<Volume>(topology.group_ranks().size(), none)};
}

void add(Volume& total, const Volume& more) {
  for (size_t rank = 0; rank < total.sent.size(); ++rank) {
    total.sent[rank] += more.sent[rank];
    total.received[rank] += more.received[rank];
  }
}

// Adds up the transfers that Collector::add_slice lists.
void count_slice(RoundVolume& volume, const strategy::Topology& topology, Interval slice, int owner,
                 const std::vector<NodeHolders>& nodes) {
  const auto at = [](std::vector<int64_t>& counts, int rank) -> int64_t& {
    return counts[static_cast<size_t>(rank)];
  };
  std::vector<int64_t> parts;  // elements that each holder of a node receives
  for (const auto& [node, ranks] : nodes) {
    if (node == topology.node_of(owner)) {
      for (const int holder : ranks) {
        if (holder == owner) continue;
        at(volume.intra.sent, owner) += slice.size();
        at(volume.intra.received, holder) += slice.size();
      }
      continue;
    }
    at(volume.inter.sent, owner) += slice.size();
    if (parts.size() != ranks.size()) {
      parts.clear();
      for (size_t index = 0; index < ranks.size(); ++index)
        parts.push_back(entry_part(slice, ranks.size(), index).size());
    }
    const int level = topology.level_of(owner, ranks.front());  // the same for all ranks of a node
    for (size_t index = 0; index < ranks.size(); ++index) {
      const int64_t part = parts[index];
      at(volume.inter.received, ranks[index]) += part;
      for (int beyond = level - 2; beyond >= 0; --beyond) {
        Volume& leaves = volume.beyond[static_cast<size_t>(beyond)];
        at(leaves.sent, owner) += part;
        at(leaves.received, ranks[index]) += part;
      }
      at(volume.intra.sent, ranks[index]) += part * static_cast<int64_t>(ranks.size() - 1);
      at(volume.intra.received, ranks[index]) += slice.size() - part;
    }
  }
}

int64_t elements_of(const std::vector<PeerSlices::Slice>& slices) {
  int64_t total = 0;
  for (const PeerSlices::Slice& slice : slices) total += slice.slice.size();
  return total;
}

}  // namespace

Route route(const model::ParameterTable& table, const ComputeLayout& layout, const Rounds& rounds,
            int world_size, const strategy::Topology& topology) {
  return collect(table, layout, rounds, world_size, topology, std::nullopt);
}

Route route_of_rank(const model::ParameterTable& table, const ComputeLayout& layout, const Rounds& rounds,
                    int world_size, const strategy::Topology& topology, int rank) {
  return collect(table, layout, rounds, world_size, topology, rank);
}

Volume volume(const std::vector<Transfer>& transfers, int world_size) {
  Volume total = no_volume(world_size);
  for (const Transfer& transfer : transfers) {
    if (transfer.source == transfer.destination) continue;
    total.sent[static_cast<size_t>(transfer.source)] += transfer.slice.size();
    total.received[static_cast<size_t>(transfer.destination)] += transfer.slice.size();
  }
  return total;
}

std::vector<RoundVolume> round_volumes(const model::ParameterTable& table, const ComputeLayout& layout,
                                       const Rounds& rounds, int world_size,
                                       const strategy::Topology& topology, Moved moved) {
  const auto holders = holders_by_bucket(table, layout, world_size);
  Reused<RoundVolume> reused;
  std::vector<RoundVolume> result;
  for (const std::vector<int>& buckets : rounds.buckets) {
    RoundVolume& round = result.emplace_back(no_round_volume(world_size, topology));
    for (const int index : buckets) {
      if (moved == Moved::kTrained && !table.buckets[static_cast<size_t>(index)].trained) continue;
      const int64_t size = table.buckets[static_cast<size_t>(index)].size;
      const std::vector<Holder>& held = holders[static_cast<size_t>(index)];
      const RoundVolume& bucket = reused.get(size, held, [&] {
        RoundVolume fresh = no_round_volume(world_size, topology);
        for_each_mutual_slice(size, held, world_size, topology,
                              [&](Interval slice, int owner, const std::vector<NodeHolders>& nodes) {
                                count_slice(fresh, topology, slice, owner, nodes);
                              });
        return fresh;
      });
      add(round.inter, bucket.inter);
      add(round.intra, bucket.intra);
      for (size_t i = 0; i < round.beyond.size(); ++i) add(round.beyond[i], bucket.beyond[i]);
    }
  }
  return result;
}

int64_t pulled_elements(const model::ParameterTable& table, const ComputeLayout& layout, int world_size,
                        int rank) {
  const OwnerLayout owners{world_size};
  int64_t total = 0;
  for (const Holding& holding : layout.holdings(rank)) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(holding.bucket)];
    total += holding.shard.size() - holding.shard.intersect({owners.owned(bucket, rank)}).size();
  }
  return total;
}

int64_t PeerSlices::send_elements(int peer) const { return elements_of(send[static_cast<size_t>(peer)]); }

int64_t PeerSlices::receive_elements(int peer) const {
  return elements_of(receive[static_cast<size_t>(peer)]);
}

PeerSlices pull_slices(const std::vector<Transfer>& transfers, int world_size, int rank) {
  PeerSlices slices;
  slices.send.resize(static_cast<size_t>(world_size));
  slices.receive.resize(static_cast<size_t>(world_size));
  for (const auto& [bucket, slice, source, destination] : transfers) {
    if (source == rank) slices.send[static_cast<size_t>(destination)].push_back({bucket, slice});
    if (destination == rank) slices.receive[static_cast<size_t>(source)].push_back({bucket, slice});
  }
  return slices;
}

}  // namespace sluice::link
