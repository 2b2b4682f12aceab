#include "plan/one_lane.h"

#include <algorithm>
#include <utility>

#include "plan/bins.h"
#include "schedule/flow_bound.h"

namespace sluice::plan {
namespace {

int64_t work_of(std::span<const PackItem> items, const std::vector<int>& bin) {
  int64_t work_ns = 0;
  for (const int item : bin) work_ns += items[static_cast<size_t>(item)].work_ns;
  return work_ns;
}

strategy::Unit unit_of(std::span<const PackItem> items, const std::vector<int>& bin) {
  strategy::Unit unit{.sequences = {}};
  for (const int index : bin) {
    const PackItem& item = items[static_cast<size_t>(index)];
    unit.sequences.push_back({item.sequence, item.tokens});
  }
  return unit;
}

// Tries micro-batches in several counts and orders and keeps the best.
class OneLanePacker {
 public:
  explicit OneLanePacker(const Packing& packing)
      : scheme_(packing.scheme),
        options_(packing.options),
        times_(packing.timer.times()),
        table_(packing.scheme.scheme().pp) {
    for (const strategy::UnitSequence& of : packing.sequences) {
      items_.push_back({.sequence = of.sequence,
                        .tokens = of.length_tokens,
                        .work_ns = scheme_.sequence_ns(of.length_tokens)});
    }
  }

  std::optional<TimedUnits> run() {
    if (items_.empty()) return TimedUnits{};
    const Bins fewest = fewest_bins(items_, scheme_.max_len_tokens());
    if (scheme_.scheme().pp == 1) {
      collect(fewest);
    } else {
      collect_trials(fewest);
    }
    return best_trial();
  }

 private:
  // Micro-batches and an order of them.
  struct Trial {
    size_t bins = 0;         // index into bins_
    std::vector<int> order;  // rows of table_
    int64_t least_ns = 0;    // no schedule is shorter
  };

  void collect_trials(const Bins& fewest) {
    const auto fewest_bins = static_cast<int>(fewest.size());
    collect_orders(fewest);
    int64_t work_ns = 0;
    for (const PackItem& item : items_) work_ns += item.work_ns;
    const int64_t micro_batch_ns = scheme_.micro_batch_ns();
    for (const int count : micro_batch_counts(work_ns, micro_batch_ns, scheme_.scheme().pp, fewest_bins,
                                              static_cast<int>(items_.size()), options_.seeds)) {
      if (auto even = balance(items_, count, scheme_.max_len_tokens())) collect_orders(std::move(*even));
    }
  }

  // Rows of the bins at the end of the table.
  std::vector<int> write_rows(const Bins& bins) {
    std::vector<int> rows;
    for (const std::vector<int>& bin : bins) {
      rows.push_back(table_.units());
      table_.resize(rows.back() + 1);
      times_.write(work_of_bin(bin), table_, rows.back());
    }
    return rows;
  }

  cost::Work work_of_bin(const std::vector<int>& bin) const {
    cost::Work work;
    for (const int item : bin) {
      const int64_t tokens = items_[static_cast<size_t>(item)].tokens;
      work += scheme_.work_of(tokens);
    }
    return work;
  }

  // These in their order.
  void collect(Bins bins) {
    collect_order(write_rows(bins));
    bins_.push_back(std::move(bins));
  }

  // The next of bins_ in this order.
  void collect_order(std::vector<int> order) {
    const int64_t least_ns = bound_.at_least_ns(table_, order, scheme_.credit_tokens());
    trials_.push_back({.bins = bins_.size(), .order = std::move(order), .least_ns = least_ns});
  }

  void collect_orders(Bins bins) {
    std::vector<std::pair<int64_t, std::vector<int>>> by_work;
    for (std::vector<int>& bin : bins) {
      const int64_t work_ns = work_of(items_, bin);
      by_work.emplace_back(-work_ns, std::move(bin));
    }
    std::stable_sort(by_work.begin(), by_work.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < bins.size(); ++i) bins[i] = std::move(by_work[i].second);
    std::vector<int> order = write_rows(bins);
    collect_order(order);
    std::reverse(order.begin(), order.end());
    if (bins.size() > 1 && options_.seeds.has(Seed::kOrders)) collect_order(order);
    if (bins.size() > 2 && options_.seeds.has(Seed::kOrders)) {
      // From the smallest, alternately in front and behind, towards the largest in the middle.
      std::vector<int> peaked(order.size());
      const auto count = static_cast<int>(order.size());
      for (int i = 0; i < count; ++i)
        peaked[static_cast<size_t>(place_towards_middle(i, count))] = order[static_cast<size_t>(i)];
      collect_order(std::move(peaked));
    }
    bins_.push_back(std::move(bins));
  }

  // The most promising first, until the next cannot win.
  std::optional<TimedUnits> best_trial() {
    std::ranges::stable_sort(trials_, {}, &Trial::least_ns);
    int64_t best_ns = options_.below_ns;
    const Trial* best = nullptr;
    for (const Trial& trial : trials_) {
      if (best_ns <= std::max(trial.least_ns, options_.enough_ns)) break;
      const int64_t makespan_ns =
          recurrence_.makespan_ns(table_, trial.order, 1, scheme_.credit_tokens(), best_ns - 1);
      if (makespan_ns == schedule::Recurrence::kLate) continue;
      best_ns = makespan_ns;
      best = &trial;
    }
    if (best == nullptr) return std::nullopt;
    TimedUnits timed{.units = {}, .makespan_ns = best_ns};
    const int first_row = std::ranges::min(best->order);
    for (const int row : best->order)
      timed.units.push_back(unit_of(items_, bins_[best->bins][static_cast<size_t>(row - first_row)]));
    return timed;
  }

  const SchemeCost& scheme_;
  const PackOptions& options_;
  const schedule::UnitTimes& times_;
  schedule::UnitTable table_;  // of all trials
  schedule::FlowBound bound_;
  schedule::Recurrence recurrence_;
  std::vector<Bins> bins_;
  std::vector<Trial> trials_;
  std::vector<PackItem> items_;
};

}  // namespace

std::optional<TimedUnits> pack_one_lane(Packing& packing) { return OneLanePacker(packing).run(); }

}  // namespace sluice::plan
