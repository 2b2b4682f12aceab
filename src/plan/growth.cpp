#include "plan/growth.h"

#include <algorithm>

namespace sluice::plan {
namespace {

using cost::Wide;

constexpr int64_t kWhole = SchemeFloors::kWholePart;
constexpr int64_t kEnoughParts = 4096;  // idle time is found to one part in so many of all

}  // namespace

Growth::Growth(const SchemeCost& scheme, int64_t work_ns, int64_t most_ns)
    : work_ns_(work_ns), most_ns_(most_ns) {
  const int last = scheme.scheme().pp - 1;
  const int64_t forward = std::max<int64_t>(1, scheme.floors().forward_parts(last));
  constant_ns_ = scheme.floors().constant_ns(last);
  below_parts_ = last * forward;
  rest_parts_ = kWhole - forward;
}

int64_t Growth::next_ns(int64_t idle_ns, int64_t sum_ns) const {
  return static_cast<int64_t>((Wide{idle_ns} * kWhole + Wide{sum_ns} * rest_parts_) / below_parts_);
}

// Of the largest, its constant included.
int64_t Growth::full_ns(int count) const {
  return std::max(most_ns_, (work_ns_ + count - 1) / count) + constant_ns_;
}

int64_t Growth::sum_ns(int64_t idle_ns, int count) const {
  const int64_t full = full_ns(count);
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t next = next_ns(idle_ns, sum);
    if (next >= full) return sum + (count - i) * full;
    sum += next;
  }
  return sum;
}

// The least, to a part of all that is too small to matter, that lets so many micro-batches hold the work.
int64_t Growth::idle_ns(int count) const {
  const int64_t all_ns = work_ns_ + count * constant_ns_;
  int64_t too_little = 0, enough = all_ns;
  while (enough - too_little > 1 + all_ns / kEnoughParts) {
    const int64_t middle = too_little + (enough - too_little) / 2;
    (sum_ns(middle, count) < all_ns ? too_little : enough) = middle;
  }
  return enough;
}

std::vector<int64_t> Growth::sizes_ns(int count) const {
  const int64_t idle = idle_ns(count);
  std::vector<int64_t> sizes;
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t size = std::min(full_ns(count), next_ns(idle, sum));
    sum += size;
    sizes.push_back(std::max<int64_t>(1, size - constant_ns_));
  }
  return sizes;
}

int Growth::best_count(int fewest, int most) const {
  int64_t overhead_ns = fewest * constant_ns_ + idle_ns(fewest);
  for (int count = fewest; count < most; ++count) {
    const int64_t next = (count + 1) * constant_ns_ + idle_ns(count + 1);
    if (next >= overhead_ns) return count;
    overhead_ns = next;
  }
  return most;
}

}  // namespace sluice::plan
