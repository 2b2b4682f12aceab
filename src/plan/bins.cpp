#include "plan/bins.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "cost/fixed_point.h"
#include "plan/square_root.h"

namespace sluice::plan {

Bins first_fit_decreasing(std::span<const PackItem> items, int64_t capacity_tokens) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int i) { return items[static_cast<size_t>(i)].tokens; });
  Bins bins;
  std::vector<int64_t> room;
  for (const int index : order) {
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

int64_t even_micro_batches(int64_t work_ns, int64_t micro_batch_ns, int pp) {
  const cost::Wide squared = cost::Wide{work_ns} * (pp - 1) / (2 * std::max<int64_t>(micro_batch_ns, 1));
  return std::max<int64_t>(1, square_root(static_cast<int64_t>(squared)));
}

}  // namespace sluice::plan
