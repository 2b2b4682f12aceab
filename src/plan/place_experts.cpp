#include "plan/place_experts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/expert_slots.h"

namespace sluice::plan {
namespace {

// One layer's expert slots while lanes get them.
class Seating {
 public:
  Seating(const ExpertUse& use, size_t lanes, size_t spare)
      : use_(use),
        experts_(use.assignments.size()),
        own_(experts_ / lanes + spare),
        load_(lanes, 0),
        seated_(lanes) {
    SLUICE_ASSERT(experts_ % lanes == 0 && own_ <= experts_,
                  base::text(experts_, " experts, ", spare, " to spare, on ", lanes, " lanes"));
    count_seats();
    if (use.coactivations.empty()) {
      seat_longest_first();
      even_out(/*enough=*/0);
    } else {
      seat_together();
      const int64_t mean =
          std::accumulate(load_.begin(), load_.end(), int64_t{0}) / static_cast<int64_t>(lanes);
      const int64_t enough = mean + mean / 100;
      even_out(enough);
      bring_together(std::max(std::ranges::max(load_), enough));
    }
  }

  std::vector<int> result() {
    std::vector<int> seats;
    for (std::vector<size_t>& own : seated_) {
      std::ranges::sort(own);
      for (const size_t expert : own) seats.push_back(static_cast<int>(expert));
    }
    return seats;
  }

 private:
  static constexpr int64_t kVisit = 5040;  // unit of loads: most numbers of slots divide it
  static constexpr size_t kMostRounds = 20;

  size_t lanes() const { return load_.size(); }
  int64_t together(size_t a, size_t b) const { return a == b ? 0 : use_.coactivations[a * experts_ + b]; }
  bool is_free(size_t lane) const { return seated_[lane].size() < own_; }
  bool has(size_t lane, size_t expert) const {
    return std::ranges::find(seated_[lane], expert) != seated_[lane].end();
  }
  void take(size_t lane, size_t expert) {
    seated_[lane].push_back(expert);
    load_[lane] += share_[expert];
  }

  // Each expert has one slot; each further one goes to the expert with most visits per slot.
  void count_seats() {
    seats_.assign(experts_, 1);
    for (size_t left = own_ * lanes() - experts_; left > 0; --left) {
      size_t most = experts_;
      for (size_t expert = 0; expert < experts_; ++expert) {
        if (seats_[expert] == static_cast<int64_t>(lanes())) continue;
        if (most == experts_ ||
            use_.assignments[expert] * seats_[most] > use_.assignments[most] * seats_[expert])
          most = expert;
      }
      ++seats_[most];
    }
    for (size_t expert = 0; expert < experts_; ++expert) {
      order_.push_back(expert);
      share_.push_back(use_.assignments[expert] * kVisit / seats_[expert]);
    }
    std::ranges::stable_sort(order_, std::ranges::greater(), [&](size_t expert) { return share_[expert]; });
  }

  void seat_longest_first() {
    for (const size_t expert : order_) seat(expert);
    fill_up();
  }
  // Places the expert's slots on the lanes with least load among those with a free slot.
  void seat(size_t expert) {
    std::vector<size_t> free;
    for (size_t lane = 0; lane < lanes(); ++lane) {
      if (is_free(lane)) free.push_back(lane);
    }
    std::ranges::stable_sort(free, {}, [&](size_t lane) { return load_[lane]; });
    free.resize(std::min(free.size(), static_cast<size_t>(seats_[expert])));
    for (const size_t lane : free) take(lane, expert);
  }
  // Fills slots that stayed free because most lanes were full: with the most visited experts not there yet.
  void fill_up() {
    for (size_t lane = 0; lane < lanes(); ++lane) {
      for (auto next = order_.begin(); is_free(lane); ++next) {
        if (has(lane, *next)) continue;
        ++seats_[*next];
        take(lane, *next);
      }
    }
  }
  // Experts with several slots first. Then, lane by lane, the most visited expert
  // left, followed by the experts that share most rows with those on the lane.
  void seat_together() {
    std::vector<size_t> left;
    for (const size_t expert : order_) seats_[expert] == 1 ? left.push_back(expert) : seat(expert);
    for (size_t lane = 0; lane < lanes(); ++lane) {
      std::vector<int64_t> with(experts_, 0);
      while (is_free(lane) && !left.empty()) {
        const auto next = std::ranges::max_element(left, {}, [&](size_t expert) { return with[expert]; });
        const size_t expert = *next;
        left.erase(next);
        take(lane, expert);
        for (const size_t other : left) with[other] += together(expert, other);
      }
    }
    fill_up();
  }

  // Swaps two experts with one slot each between two lanes.
  struct Swap {
    size_t a, at_a, b, at_b;
  };
  void make(const Swap& swap) {
    size_t &x = seated_[swap.a][swap.at_a], &y = seated_[swap.b][swap.at_b];
    load_[swap.a] += share_[y] - share_[x];
    load_[swap.b] += share_[x] - share_[y];
    std::swap(x, y);
  }
  // visit(swap, expert of a, expert of b, load of the busier of both lanes afterwards).
  template <typename Visit>
  void for_each_swap(size_t a, size_t b, Visit visit) const {
    for (size_t at_a = 0; at_a < own_; ++at_a) {
      const size_t x = seated_[a][at_a];
      for (size_t at_b = 0; at_b < own_ && seats_[x] == 1; ++at_b) {
        const size_t y = seated_[b][at_b];
        const int64_t more = share_[y] - share_[x];
        if (seats_[y] == 1) visit(Swap{a, at_a, b, at_b}, x, y, std::max(load_[a] + more, load_[b] - more));
      }
    }
  }

  // The busiest lane makes the swap that lowers the larger
  // load of both lanes most, while its load exceeds `enough`.
  void even_out(int64_t enough) {
    for (size_t round = 0; round < kMostRounds * lanes(); ++round) {
      const auto busiest = static_cast<size_t>(std::ranges::max_element(load_) - load_.begin());
      if (load_[busiest] <= enough) return;
      int64_t least = load_[busiest];
      Swap best{};
      for (size_t lane = 0; lane < lanes(); ++lane) {
        if (lane == busiest) continue;
        for_each_swap(busiest, lane, [&](const Swap& swap, size_t, size_t, int64_t most) {
          if (most >= least) return;
          least = most;
          best = swap;
        });
      }
      if (least == load_[busiest]) return;
      make(best);
    }
  }

  void bring_together(int64_t most_load) {
    // By lane and expert: coactivations of the expert with those on the lane.
    std::vector<std::vector<int64_t>> with(lanes(), std::vector<int64_t>(experts_, 0));
    const auto count = [&](size_t lane, size_t other, int64_t sign) {
      for (size_t expert = 0; expert < experts_; ++expert)
        with[lane][expert] += sign * together(expert, other);
    };
    for (size_t lane = 0; lane < lanes(); ++lane) {
      for (const size_t other : seated_[lane]) count(lane, other, 1);
    }
    // For each two lanes, makes the swap that gains most; repeats until nothing changes.
    bool changed = true;
    for (size_t round = 0; round < kMostRounds && changed; ++round) {
      changed = false;
      for (size_t a = 0; a < lanes(); ++a) {
        for (size_t b = a + 1; b < lanes(); ++b) {
          int64_t most_gain = 0;
          Swap best{};
          for_each_swap(a, b, [&](const Swap& swap, size_t x, size_t y, int64_t load) {
            const int64_t gain = with[b][x] + with[a][y] - with[a][x] - with[b][y] - 2 * together(x, y);
            if (gain <= most_gain || load > most_load) return;
            most_gain = gain;
            best = swap;
          });
          if (most_gain == 0) continue;
          changed = true;
          const size_t x = seated_[a][best.at_a], y = seated_[b][best.at_b];
          make(best);
          count(a, x, -1);
          count(a, y, 1);
          count(b, y, -1);
          count(b, x, 1);
        }
      }
    }
  }

  const ExpertUse& use_;
  size_t experts_, own_;                     // own_: slots per lane
  std::vector<int64_t> seats_;               // by expert
  std::vector<int64_t> share_;               // by expert: load per slot
  std::vector<size_t> order_;                // experts, descending by load per slot
  std::vector<int64_t> load_;                // by lane
  std::vector<std::vector<size_t>> seated_;  // by lane
};

}  // namespace

std::vector<int> placed_experts(const ExpertUse& use, int lanes, int spare) {
  return Seating(use, static_cast<size_t>(lanes), static_cast<size_t>(spare)).result();
}

strategy::ExpertPlacement place_experts(std::span<const ExpertUse> layers, int lanes, int spare) {
  strategy::ExpertPlacement placement;
  for (const ExpertUse& use : layers) {
    std::vector<int>& seats = placement.layers.emplace_back();
    if (!use.assignments.empty()) seats = placed_experts(use, lanes, spare);
  }
  return placement;
}

double expert_load_imbalance(std::span<const ExpertUse> layers, const strategy::ExpertPlacement& placement,
                             int lanes) {
  double sum = 0;
  int64_t count = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].assignments.empty()) continue;
    sum += model::expert_load_imbalance(layers[layer].assignments, placement.layers[layer], lanes);
    ++count;
  }
  return count == 0 ? 1 : sum / static_cast<double>(count);
}

}  // namespace sluice::plan
