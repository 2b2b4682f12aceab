#include "solver/flex_sp_milp.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "solver/cbc_program.h"

namespace sluice::milp {
namespace {

using published::FlexSpCost;
using published::FlexSpGroups;

constexpr double kInfinite = std::numeric_limits<double>::max();
constexpr double kNoticed = 0.999;  // groups below this part of the search's time count as faster

double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

// The constant part of a group's time, with its exchange's latencies; the rest is a sum over its sequences.
double constant_us(const FlexSpCost& cost, int size) { return us(cost.time_ns(cost.work_of(2), size)); }

double alone_us(const FlexSpCost& cost, int64_t length, int size) {
  return us(cost.time_ns(cost.work_of(length), size));
}

// Columns: for each group, whether it is used, then its possible sequences; and the slowest group's time.
// Groups of one size are adjacent, and a group is used only if the one before it is. Otherwise each plan
// would occur once for every order of its groups.
class Program {
 public:
  Program(std::span<const int64_t> lengths, const FlexSpCost& cost, double limit_us)
      : lengths_(lengths), cost_(cost), limit_us_(limit_us) {
    for (size_t s = 0; s < lengths.size(); ++s) program_.add_row(1, 1);
    ranks_row_ = program_.add_row(-kInfinite, cost.ranks());
    for (int size = 1; size <= cost.largest(); size *= 2) {
      const auto groups = std::min(static_cast<size_t>(cost.ranks() / size), lengths.size());
      for (size_t g = 0; g < groups; ++g) groups_.push_back({.size = size, .first_of_size = g == 0});
    }
    for (Group& group : groups_) add_rows(group);
    for (size_t g = 0; g < groups_.size(); ++g) add_columns(g);
    slowest_ = program_.add_column(1, 0, limit_us, false);
    for (const Group& group : groups_) program_.add(group.time_row, -1);
  }

  FlexSpSolution solve(double seconds) const {
    const CbcProgram::Solution solved =
        program_.solve({{"seconds", std::to_string(seconds)}, {"ratioGap", "0.0005"}, {"preprocess", "off"}});
    FlexSpSolution result{
        .groups = {}, .optimum_us = solved.objective, .proved = solved.optimal || solved.infeasible};
    if (!solved.infeasible && !solved.columns.empty()) result.groups = groups_of(solved.columns);
    return result;
  }

 private:
  struct Group {
    int size = 0;
    bool first_of_size = false;
    int time_row = -1, room_row = -1, used_row = -1, behind_row = -1;
    int used = -1;
    std::vector<int> columns;  // by sequence; -1: it does not fit
  };

  void add_rows(Group& group) {
    group.time_row = program_.add_row(-kInfinite, 0);
    group.room_row = program_.add_row(-kInfinite, 0);
    group.used_row = program_.add_row(-kInfinite, 0);
    if (!group.first_of_size) group.behind_row = program_.add_row(-kInfinite, 0);
  }

  void add_columns(size_t number) {
    Group& group = groups_[number];
    const double fixed_us = constant_us(cost_, group.size);
    const auto room = static_cast<double>(cost_.capacity_tokens(group.size));
    group.used = program_.add_column(0, 0, 1, true);
    program_.add(ranks_row_, group.size);
    program_.add(group.time_row, fixed_us);
    program_.add(group.room_row, -room);
    program_.add(group.used_row, -static_cast<double>(lengths_.size()));
    if (group.behind_row >= 0) program_.add(group.behind_row, 1);
    if (number + 1 < groups_.size() && groups_[number + 1].behind_row >= 0)
      program_.add(groups_[number + 1].behind_row, -1);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      const double own_us = alone_us(cost_, lengths_[s], group.size);
      const auto tokens = static_cast<double>(published::tokens_on_lane(lengths_[s], group.size));
      const bool fits = own_us <= limit_us_ && tokens <= room;
      group.columns.push_back(fits ? program_.add_column(0, 0, 1, true) : -1);
      if (!fits) continue;
      program_.add(static_cast<int>(s), 1);
      program_.add(group.time_row, own_us - fixed_us);
      program_.add(group.room_row, tokens);
      program_.add(group.used_row, 1);
    }
  }

  // Nullopt if these columns are no solution: when time runs out, groups may hold fractions of a
  // sequence.
  std::optional<FlexSpGroups> groups_of(const std::vector<double>& columns) const {
    FlexSpGroups found;
    std::vector<int> places(lengths_.size(), 0);
    int ranks = 0;
    for (const Group& group : groups_) {
      std::vector<int> own;
      cost::Work work;
      int64_t on_lane = 0;
      for (size_t s = 0; s < lengths_.size(); ++s) {
        if (group.columns[s] < 0 || columns[static_cast<size_t>(group.columns[s])] < 0.5) continue;
        own.push_back(static_cast<int>(s));
        ++places[s];
        work += cost_.work_of(lengths_[s]);
        on_lane += published::tokens_on_lane(lengths_[s], group.size);
      }
      if (own.empty()) continue;
      ranks += group.size;
      if (on_lane > cost_.capacity_tokens(group.size)) return std::nullopt;
      found.time_ns = std::max(found.time_ns, cost_.time_ns(work, group.size));
      found.sizes.insert(found.sizes.begin(), group.size);  // groups ascend, sizes descend
      found.sequences.insert(found.sequences.begin(), std::move(own));
    }
    const bool whole = std::ranges::all_of(places, [](int times) { return times == 1; });
    return whole && ranks <= cost_.ranks() ? std::optional(std::move(found)) : std::nullopt;
  }

  std::span<const int64_t> lengths_;
  const FlexSpCost& cost_;
  double limit_us_;
  CbcProgram program_;
  std::vector<Group> groups_;
  int ranks_row_ = -1, slowest_ = -1;
};

}  // namespace

// Columns: the number of groups of each size, and for each size its sequences.
std::optional<FewestRanks> ranks_by(double end_us, std::span<const int64_t> lengths, const FlexSpCost& cost,
                                    Sequences sequences) {
  CbcProgram program;
  for (size_t s = 0; s < lengths.size(); ++s) program.add_row(1, 1);
  for (int size = 1; size <= cost.largest(); size *= 2) {
    const double fixed_us = constant_us(cost, size);
    const int time_row = program.add_row(-kInfinite, 0);
    const int room_row = program.add_row(-kInfinite, 0);
    program.add_column(size, 0, cost.ranks() / size, true);
    program.add(time_row, -std::max(0.0, end_us - fixed_us));
    program.add(room_row, -static_cast<double>(cost.capacity_tokens(size)));
    for (size_t s = 0; s < lengths.size(); ++s) {
      const double own_us = alone_us(cost, lengths[s], size);
      const auto tokens = static_cast<double>(published::tokens_on_lane(lengths[s], size));
      const bool fits = own_us <= end_us && tokens <= static_cast<double>(cost.capacity_tokens(size));
      program.add_column(0, 0, fits ? 1 : 0, sequences == Sequences::kWhole);
      program.add(static_cast<int>(s), 1);
      program.add(time_row, own_us - fixed_us);
      program.add(room_row, tokens);
    }
  }
  const CbcProgram::Solution solution = program.solve({{"seconds", "2"}, {"ratioGap", "0"}});
  if (solution.infeasible) return FewestRanks{kInfinite, {}};
  if (!solution.optimal) return std::nullopt;
  FewestRanks found{solution.objective, {}};
  for (int size = cost.largest(), at = static_cast<int>(solution.columns.size()); size >= 1; size /= 2) {
    at -= static_cast<int>(lengths.size()) + 1;  // sizes ascend, each before its sequences
    const auto count = static_cast<size_t>(std::llround(solution.columns[static_cast<size_t>(at)]));
    found.sizes.insert(found.sizes.end(), count, size);
  }
  return found;
}

namespace {

// Adds groups of the remaining ranks, each as large as possible.
std::vector<int> filled(std::vector<int> sizes, const FlexSpCost& cost) {
  int left = cost.ranks() - std::accumulate(sizes.begin(), sizes.end(), 0);
  for (int size = cost.largest(); size >= 1; size /= 2) {
    for (; left >= size; left -= size) sizes.push_back(size);
  }
  std::ranges::sort(sizes, std::greater());
  return sizes;
}

// Groups with the sizes that the bound needs, at several ends between the bound and the search's time.
FlexSpGroups by_sizes_of_the_bound(std::span<const int64_t> lengths, const FlexSpCost& cost,
                                   FlexSpGroups best) {
  constexpr int kTries = 6;
  double low_us = 0, high_us = kNoticed * us(best.time_ns);
  for (int i = 0; i < kTries; ++i) {
    const double end_us = i == 0 ? high_us : (low_us + high_us) / 2;
    const std::optional<FewestRanks> fewest = ranks_by(end_us, lengths, cost, Sequences::kShared);
    if (!fewest || fewest->ranks > cost.ranks() + 1e-6) {
      low_us = end_us;
      continue;
    }
    high_us = end_us;
    std::optional<FlexSpGroups> groups = published::groups_near(lengths, filled(fewest->sizes, cost), cost);
    if (groups && groups->time_ns < best.time_ns) best = *std::move(groups);
  }
  return best;
}

}  // namespace

FlexSpSolution solve_flex_sp(std::span<const int64_t> lengths, const FlexSpCost& cost, double seconds,
                             double limit_us) {
  return Program(lengths, cost, limit_us).solve(seconds);
}

FlexSpGroups FlexSpImprover::operator()(std::span<const int64_t> lengths, const FlexSpCost& cost,
                                        const FlexSpGroups& found) {
  ++counts_.asked;
  const auto fewest = ranks_by(kNoticed * us(found.time_ns), lengths, cost, Sequences::kShared);
  if (fewest && fewest->ranks > cost.ranks() + 1e-6) {
    ++counts_.proved;
    return found;
  }
  FlexSpGroups best = by_sizes_of_the_bound(lengths, cost, found);
  FlexSpSolution solution = solve_flex_sp(lengths, cost, seconds_, kNoticed * us(best.time_ns));
  counts_.proved += solution.proved ? 1 : 0;
  if (solution.groups && solution.groups->time_ns < best.time_ns) best = *std::move(solution.groups);
  counts_.improved += best.time_ns < found.time_ns ? 1 : 0;
  return best;
}

}  // namespace sluice::milp
