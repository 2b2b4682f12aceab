#include "published/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::published {
namespace {

using BinLists = std::vector<std::vector<int>>;

// Indices into `items`, the heaviest first.
std::vector<int> heaviest_first(std::span<const PartitionItem> items) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const PartitionItem& first = items[static_cast<size_t>(a)];
    const PartitionItem& second = items[static_cast<size_t>(b)];
    return std::pair(first.work, first.tokens) > std::pair(second.work, second.tokens);
  });
  return order;
}

int64_t largest_work(std::span<const PartitionItem> items, const BinLists& bins) {
  int64_t largest = 0;
  for (const std::vector<int>& bin : bins) {
    int64_t work = 0;
    for (const int item : bin) work += items[static_cast<size_t>(item)].work;
    largest = std::max(largest, work);
  }
  return largest;
}

enum class Found { kYes, kNo, kOutOfNodes };

// Whether bins of at most `limit` work hold all items, which are in descending order.
class Completion {
 public:
  Completion(std::span<const PartitionItem> items, const PartitionOptions& options, int64_t limit,
             int64_t node_budget)
      : items_(items),
        capacity_(options.capacity_tokens),
        limit_(limit),
        nodes_left_(node_budget),
        bins_(static_cast<size_t>(options.bins)) {
    std::vector<int> all(items.size());
    std::iota(all.begin(), all.end(), 0);
    found_ = fill(0, all) ? Found::kYes : nodes_left_ > 0 ? Found::kNo : Found::kOutOfNodes;
  }
  Found found() const { return found_; }
  BinLists take() { return std::move(bins_); }

 private:
  // A bin while it is filled from the items `left` by the bins before it.
  struct Bin {
    size_t number = 0;
    const std::vector<int>& left;
    std::vector<PartitionItem> from;  // sums of the items left from each place on
    std::vector<char> taken;
    PartitionItem need;  // content that this bin must have, because later bins lack room
  };

  const PartitionItem& item(int index) const { return items_[static_cast<size_t>(index)]; }
  bool fits(const PartitionItem& held, int index) const {
    return held.work + item(index).work <= limit_ && held.tokens + item(index).tokens <= capacity_;
  }

  bool fill(size_t number, const std::vector<int>& left) {
    if (left.empty()) return true;
    if (number == bins_.size()) return false;
    Bin bin{.number = number, .left = left, .from = {}, .taken = {}, .need = {}};
    bin.from.resize(left.size() + 1);
    bin.taken.resize(left.size(), 0);
    for (size_t i = left.size(); i > 0; --i) {
      const PartitionItem& next = item(left[i - 1]);
      bin.from[i - 1] = {bin.from[i].work + next.work, bin.from[i].tokens + next.tokens};
    }
    const auto after = static_cast<int64_t>(bins_.size() - number - 1);
    bin.need = {bin.from[0].work - after * limit_, bin.from[0].tokens - after * capacity_};
    if (!fits({}, left[0])) return false;
    return take_item(bin, 0, {});
  }

  bool take_item(Bin& bin, size_t place, const PartitionItem& held) {
    bin.taken[place] = 1;
    bins_[bin.number].push_back(bin.left[place]);
    const PartitionItem& next = item(bin.left[place]);
    if (extend(bin, place + 1, {held.work + next.work, held.tokens + next.tokens})) return true;
    bins_[bin.number].pop_back();
    bin.taken[place] = 0;
    return false;
  }

  // Tries every choice of further items from `place` on, then the bins after this one.
  bool extend(Bin& bin, size_t place, const PartitionItem& held) {
    bool more_fits = false;
    for (size_t i = place; i < bin.left.size(); ++i) {
      if (held.work + bin.from[i].work < bin.need.work ||
          held.tokens + bin.from[i].tokens < bin.need.tokens) {
        return false;
      }
      if (--nodes_left_ <= 0) return false;
      if (!fits(held, bin.left[i])) continue;
      more_fits = true;
      if (take_item(bin, i, held)) return true;
      while (i + 1 < bin.left.size() && same(bin.left[i], bin.left[i + 1])) ++i;
    }
    if (more_fits || held.work < bin.need.work || held.tokens < bin.need.tokens) return false;
    std::vector<int> left;
    for (size_t i = 0; i < bin.left.size(); ++i) {
      if (bin.taken[i] != 0) continue;
      if (fits(held, bin.left[i])) return false;  // dominated: a skipped item still fits
      left.push_back(bin.left[i]);
    }
    return fill(bin.number + 1, left);
  }

  bool same(int a, int b) const { return item(a).work == item(b).work && item(a).tokens == item(b).tokens; }

  std::span<const PartitionItem> items_;
  int64_t capacity_;
  int64_t limit_;
  int64_t nodes_left_;
  BinLists bins_;
  Found found_ = Found::kNo;
};

// Puts each item, in the given order, into the bin with the least of `load` among those with room.
std::optional<BinLists> greedy(std::span<const PartitionItem> items, const PartitionOptions& options,
                               int64_t PartitionItem::*load) {
  BinLists bins(static_cast<size_t>(options.bins));
  std::vector<PartitionItem> held(bins.size());
  for (size_t i = 0; i < items.size(); ++i) {
    size_t best = bins.size();
    for (size_t bin = 0; bin < bins.size(); ++bin) {
      if (held[bin].tokens + items[i].tokens > options.capacity_tokens) continue;
      if (best == bins.size() || held[bin].*load < held[best].*load) best = bin;
    }
    if (best == bins.size()) return std::nullopt;
    bins[best].push_back(static_cast<int>(i));
    held[best].work += items[i].work;
    held[best].tokens += items[i].tokens;
  }
  return bins;
}

int64_t with_tolerance(int64_t value, int64_t tolerance_ppm) {
  return value + static_cast<int64_t>(static_cast<__int128>(value) * tolerance_ppm / 1'000'000);
}

// Items are in descending order.
Partition solve(std::span<const PartitionItem> items, const PartitionOptions& options) {
  Partition result{.lower_bound = partition_bound(items, options.bins)};
  const auto accept = [&](std::optional<BinLists> bins) {
    if (!bins) return;
    const int64_t largest = largest_work(items, *bins);
    if (result.bins && result.largest_work <= largest) return;
    result.bins = std::move(bins);
    result.largest_work = largest;
  };
  accept(greedy(items, options, &PartitionItem::work));
  if (!result.bins) accept(greedy(items, options, &PartitionItem::tokens));

  PartitionItem all;
  for (const PartitionItem& item : items) all = {all.work + item.work, all.tokens + item.tokens};
  if (all.tokens > static_cast<__int128>(options.capacity_tokens) * options.bins) {
    return {.lower_bound = result.lower_bound, .proved = true};
  }
  // Below `low` no solution exists, or none was found within the node budget.
  constexpr int kShares = 8;
  const bool searched = items.size() <= kMostSearchedItems;
  bool certain = true;
  int64_t low = result.lower_bound;
  const auto high = [&] { return result.bins ? result.largest_work : all.work + 1; };
  const auto open = [&] {
    return result.bins ? result.largest_work > with_tolerance(low, options.tolerance_ppm) : low <= all.work;
  };
  for (bool first = true; searched && open(); first = false) {
    const int64_t limit = first ? with_tolerance(low, options.tolerance_ppm) : low + (high() - low) / 2;
    Completion completion(items, options, std::min(limit, high() - 1), options.node_budget / kShares);
    if (completion.found() == Found::kYes) {
      accept(completion.take());
      continue;
    }
    certain = certain && completion.found() == Found::kNo;
    low = std::min(limit, high() - 1) + 1;
    if (certain) result.lower_bound = low;
  }
  result.lower_bound = std::min(result.lower_bound, high());
  result.proved = result.bins
                      ? result.largest_work <= with_tolerance(result.lower_bound, options.tolerance_ppm)
                      : certain && searched;
  return result;
}

}  // namespace

int64_t partition_bound(std::span<const PartitionItem> items, int bins) {
  std::vector<int64_t> works;
  for (const PartitionItem& item : items) works.push_back(item.work);
  std::sort(works.rbegin(), works.rend());
  const int64_t all = std::accumulate(works.begin(), works.end(), int64_t{0});
  int64_t bound = std::max((all + bins - 1) / bins, works.empty() ? 0 : works[0]);
  const auto step = static_cast<size_t>(bins);
  for (size_t shared = 1; shared * step < works.size(); ++shared) {
    const auto last = works.begin() + static_cast<ptrdiff_t>(shared * step);
    bound = std::max(bound, std::accumulate(last - static_cast<ptrdiff_t>(shared), last + 1, int64_t{0}));
  }
  return bound;
}

Partition partition(std::span<const PartitionItem> items, const PartitionOptions& options) {
  SLUICE_ASSERT(options.bins >= 1, base::text("a partition into ", options.bins, " bins"));
  const std::vector<int> order = heaviest_first(items);
  std::vector<PartitionItem> sorted;
  for (const int index : order) sorted.push_back(items[static_cast<size_t>(index)]);
  Partition result = solve(sorted, options);
  if (!result.bins) return result;
  for (std::vector<int>& bin : *result.bins) {
    for (int& item : bin) item = order[static_cast<size_t>(item)];
    std::sort(bin.begin(), bin.end());
  }
  return result;
}

}  // namespace sluice::published
