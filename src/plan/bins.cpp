#include "plan/bins.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/fixed_point.h"
#include "plan/square_root.h"

namespace sluice::plan {
namespace {

// Indices of the items by descending key; equal ones in their own order.
template <typename Key>
std::vector<int> descending(std::span<const PackItem> items, Key key) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return key(items[static_cast<size_t>(a)]) > key(items[static_cast<size_t>(b)]);
  });
  return order;
}

}  // namespace

Bins first_fit_decreasing(std::span<const PackItem> items, int64_t capacity_tokens) {
  Bins bins;
  std::vector<int64_t> room;
  for (const int index : descending(items, [](const PackItem& item) { return item.tokens; })) {
    const int64_t tokens = items[static_cast<size_t>(index)].tokens;
    SLUICE_ASSERT(tokens <= capacity_tokens, base::text(tokens, " tokens exceed ", capacity_tokens));
    const auto found = std::find_if(room.begin(), room.end(), [&](int64_t left) { return left >= tokens; });
    const auto bin = static_cast<size_t>(found - room.begin());
    if (found == room.end()) {
      bins.emplace_back();
      room.push_back(capacity_tokens);
    }
    bins[bin].push_back(index);
    room[bin] -= tokens;
  }
  return bins;
}

std::optional<Bins> balance(std::span<const PackItem> items, int bins, int64_t capacity_tokens) {
  SLUICE_ASSERT(bins >= 1 && bins <= static_cast<int>(items.size()), base::text(bins, " bins"));
  Bins result(static_cast<size_t>(bins));
  std::vector<int64_t> work_ns(result.size(), 0);
  std::vector<int64_t> room(result.size(), capacity_tokens);
  for (const int index : descending(items, [](const PackItem& item) { return item.work_ns; })) {
    const PackItem& item = items[static_cast<size_t>(index)];
    size_t best = result.size();
    for (size_t bin = 0; bin < result.size(); ++bin) {
      if (room[bin] < item.tokens) continue;
      // An empty bin beats one whose items take no measurable time, so that none stays empty.
      const auto load = [&](size_t of) { return std::pair(work_ns[of], result[of].size()); };
      if (best == result.size() || load(bin) < load(best)) best = bin;
    }
    if (best == result.size()) return std::nullopt;
    result[best].push_back(index);
    work_ns[best] += item.work_ns;
    room[best] -= item.tokens;
  }
  return result;
}

int64_t even_micro_batches(int64_t work_ns, int64_t micro_batch_ns, int pp) {
  const cost::Wide squared = cost::Wide{work_ns} * (pp - 1) / (2 * std::max<int64_t>(micro_batch_ns, 1));
  return std::max<int64_t>(1, square_root(static_cast<int64_t>(squared)));
}

}  // namespace sluice::plan
