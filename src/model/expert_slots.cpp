#include "model/expert_slots.h"

#include <algorithm>
#include <numeric>

namespace sluice::model {
namespace {

// How often the visits of experts with several slots are divided anew, given the loads from other experts.
constexpr int kRounds = 3;

}  // namespace

std::vector<int64_t> assignments_by_slot(std::span<const int64_t> visits, std::span<const int> seats,
                                         int lanes) {
  const size_t own = seats.size() / static_cast<size_t>(lanes);
  std::vector<std::vector<size_t>> seats_of(visits.size());
  for (size_t seat = 0; seat < seats.size(); ++seat)
    seats_of[static_cast<size_t>(seats[seat])].push_back(seat);
  std::vector<int64_t> dealt(seats.size(), 0), of_lane(static_cast<size_t>(lanes), 0);
  std::vector<size_t> several;
  for (size_t expert = 0; expert < visits.size(); ++expert) {
    if (seats_of[expert].size() > 1) {
      several.push_back(expert);
    } else if (!seats_of[expert].empty()) {
      dealt[seats_of[expert].front()] = visits[expert];
      of_lane[seats_of[expert].front() / own] += visits[expert];
    }
  }
  std::ranges::stable_sort(several, std::ranges::greater(), [&](size_t expert) { return visits[expert]; });
  // Fills the emptiest lanes up to one level.
  const auto deal = [&](size_t expert) {
    std::vector<size_t>& at = seats_of[expert];
    for (const size_t seat : at) of_lane[seat / own] -= dealt[seat];
    std::ranges::stable_sort(at, {}, [&](size_t seat) { return of_lane[seat / own]; });
    int64_t left = visits[expert], filled = 0;
    size_t count = 0;  // number of lanes that are filled
    for (; count < at.size(); ++count) {
      const int64_t level = of_lane[at[count] / own];
      if (count > 0 && level * static_cast<int64_t>(count) - filled >= left) break;
      filled += level;
    }
    const int64_t level = (left + filled) / static_cast<int64_t>(count);
    int64_t beyond = (left + filled) % static_cast<int64_t>(count);
    for (size_t i = 0; i < at.size(); ++i) {
      int64_t& lane = of_lane[at[i] / own];
      dealt[at[i]] = i < count ? level - lane + (beyond-- > 0 ? 1 : 0) : 0;
      lane += dealt[at[i]];
    }
  };
  for (int round = 0; round < kRounds; ++round) std::ranges::for_each(several, deal);
  return dealt;
}

double expert_load_imbalance(std::span<const int64_t> visits, std::span<const int> seats, int lanes) {
  const int64_t all = std::accumulate(visits.begin(), visits.end(), int64_t{0});
  if (all == 0) return 1;
  const std::vector<int64_t> dealt = assignments_by_slot(visits, seats, lanes);
  const auto own = static_cast<ptrdiff_t>(seats.size()) / lanes;
  int64_t most = 0;
  for (auto lane = dealt.begin(); lane != dealt.end(); lane += own)
    most = std::max(most, std::accumulate(lane, lane + own, int64_t{0}));
  return static_cast<double>(most * lanes) / static_cast<double>(all);
}

std::vector<int> even_expert_slots(int64_t experts) {
  std::vector<int> seats(static_cast<size_t>(experts));
  std::iota(seats.begin(), seats.end(), 0);
  return seats;
}

}  // namespace sluice::model
