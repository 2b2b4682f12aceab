#include "strategy/row_schedule.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using Rows = RowSchedule::Rows;

int modulo(int value, int of) { return ((value % of) + of) % of; }

// Numbers the lanes of a two-level ring: lane `slot` of node `node`, both modulo their numbers.
struct Grid {
  int nodes = 1;
  int slots = 1;
  int lane(int node, int slot) const { return modulo(node, nodes) * slots + modulo(slot, slots); }
};

void in_order(RowSchedule& schedule) {
  std::ranges::stable_sort(schedule.tasks, {}, &RowSchedule::Task::step);
  std::ranges::stable_sort(schedule.hops, {}, &RowSchedule::Hop::issued);
  std::ranges::stable_sort(schedule.returns, {}, &RowSchedule::Return::issued);
}

// Adds one round of a two-level ring: each lane meets the keys of all lanes of the node `round` nodes before
// its own.
void add_round(RowSchedule& schedule, const Grid& grid, int round) {
  const int first = round * grid.slots;
  for (int node = 0; node < grid.nodes; ++node) {
    for (int slot = 0; slot < grid.slots; ++slot) {
      const int own = grid.lane(node, slot);
      const auto keys_in = [&](int step) { return grid.lane(node - round, slot - step); };
      if (round + 1 < grid.nodes)
        schedule.hops.push_back(
            {first, first + grid.slots, Rows::kKeys, keys_in(0), own, grid.lane(node + 1, slot)});
      for (int step = 0; step < grid.slots; ++step) {
        const int now = first + step;
        const int keys = keys_in(step), next = grid.lane(node, slot + 1);
        const bool last = step + 1 == grid.slots;
        if (!last) schedule.hops.push_back({now, now + 1, Rows::kKeys, keys, own, next});
        if (keys == own) continue;
        schedule.tasks.push_back({now, own, own, keys});
        // The sums go round with the keys, from a node's last lane to where the keys came in.
        if (grid.slots > 1) schedule.returns.push_back({now, now + 1, Rows::kKeys, keys, own, next});
      }
      // The sums over the node's lanes of gradients of the keys that came in here go on to the next node.
      const int sums = first + (grid.slots > 1 ? grid.slots : 0);
      if (round > 0)
        schedule.returns.push_back(
            {sums, sums + grid.slots, Rows::kKeys, keys_in(0), own, grid.lane(node + 1, slot)});
    }
  }
}

}  // namespace

RowSchedule ring_schedule(int lanes, int in_node) {
  SLUICE_ASSERT(lanes >= 1 && in_node >= 1 && lanes % in_node == 0,
                base::text(lanes, " lanes, ", in_node, " of a node"));
  const Grid grid{.nodes = lanes / in_node, .slots = in_node};
  RowSchedule schedule{.lanes = lanes};
  for (int round = 0; round < grid.nodes; ++round) add_round(schedule, grid, round);
  in_order(schedule);
  schedule.steps = lanes;
  for (const RowSchedule::Return& of : schedule.returns) schedule.steps = std::max(schedule.steps, of.due);
  return schedule;
}

int neighbours_in_node(std::span<const int> node_of_lane) {
  int together = 0;
  for (size_t begin = 0, end = 0; begin < node_of_lane.size(); begin = end) {
    while (end < node_of_lane.size() && node_of_lane[end] == node_of_lane[begin]) ++end;
    together = std::gcd(together, static_cast<int>(end - begin));
  }
  return together;
}

RowSchedule balanced_schedule(int lanes) {
  SLUICE_ASSERT(lanes >= 1, base::text(lanes, " lanes"));
  RowSchedule schedule{.lanes = lanes, .steps = lanes / 2 + 1, .contiguous = true};
  for (int step = 1; step < schedule.steps; ++step) {
    for (int lane = 0; lane < lanes; ++lane) {
      if (lane >= step) {
        schedule.hops.push_back({step - 1, step, Rows::kKeys, lane - step, lane - step, lane});
        schedule.tasks.push_back({step, lane, lane, lane - step});
        schedule.returns.push_back({step, step + 1, Rows::kKeys, lane - step, lane, lane - step});
      } else if (2 * step != lanes) {
        const int helped = lane + lanes - step;
        schedule.hops.push_back({step - 1, step, Rows::kQueries, helped, helped, lane});
        schedule.tasks.push_back({step, lane, helped, lane});
        schedule.returns.push_back({step, step + 1, Rows::kQueries, helped, lane, helped});
      }
    }
  }
  return schedule;
}

RowSchedule query_schedule(int lanes) {
  SLUICE_ASSERT(lanes >= 1, base::text(lanes, " lanes"));
  RowSchedule schedule{.lanes = lanes, .steps = lanes};
  for (int step = 1; step < lanes; ++step) {
    for (int lane = 0; lane < lanes; ++lane) {
      const int queries = modulo(lane - step, lanes);
      schedule.hops.push_back({step - 1, step, Rows::kQueries, queries, modulo(lane - 1, lanes), lane});
      schedule.tasks.push_back({step, lane, queries, lane});
      schedule.returns.push_back({step, step + 1, Rows::kQueries, queries, lane, queries});
    }
  }
  return schedule;
}

int members_in_node(int members, int member_lanes, int together) {
  return std::gcd(members, std::max(1, together / member_lanes));
}

const RowSchedule& schedule_of(Exchange exchange, int members, int in_node) {
  static std::mutex mutex;
  static std::map<std::tuple<Exchange, int, int>, RowSchedule> made;
  const std::lock_guard lock(mutex);
  const auto [known, is_new] = made.try_emplace({exchange, members, in_node});
  if (!is_new) return known->second;
  switch (exchange) {
    case Exchange::kBalanced: known->second = balanced_schedule(members); break;
    case Exchange::kQueries: known->second = query_schedule(members); break;
    default: known->second = ring_schedule(members, in_node);
  }
  return known->second;
}

RowSchedule direct_schedule(int lanes, const std::vector<int>& behind) {
  RowSchedule schedule{.lanes = lanes, .steps = static_cast<int>(behind.size()) + 1};
  for (int step = 1; step < schedule.steps; ++step) {
    for (int lane = 0; lane < lanes; ++lane) {
      const int keys = modulo(lane - behind[static_cast<size_t>(step - 1)], lanes);
      schedule.hops.push_back({step - 1, step, Rows::kKeys, keys, keys, lane});
      schedule.tasks.push_back({step, lane, lane, keys});
      schedule.returns.push_back({step, step + 1, Rows::kKeys, keys, lane, keys});
    }
  }
  return schedule;
}

}  // namespace sluice::strategy
