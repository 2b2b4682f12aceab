#include "plan/fluid.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "plan/square_root.h"

namespace sluice::plan {
namespace {

using cost::Wide;

constexpr int64_t kParts = 16;              // of h and V
constexpr int64_t kMostMicroBatches = 512;  // of a pipeline; more change nothing
constexpr int64_t kStep = 4306612134;       // 2^(1/256) in 2^-32
constexpr int64_t kWhole = 1 << 16;         // of a class
constexpr int64_t kMilli = 1000;

// Sequences of a batch that differ by less than an eighth.
struct LengthClass {
  int64_t longest = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
};

std::vector<LengthClass> classes_of(std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<LengthClass> classes;
  for (const int64_t length : lengths) {
    if (classes.empty() || length < classes.back().longest - classes.back().longest / 8) {
      classes.push_back({.longest = length});
    }
    ++classes.back().sequences;
    classes.back().tokens += length;
  }
  return classes;
}

// How long a sequence keeps a pipeline, as the mean over its lanes: its busiest stage computes so long,
// with what its ring exposes but without the constant of a micro-batch; and its tokens are in flight until
// they have passed all stages, so that those of a long one keep out others for that time in the share of the
// credit that they take.
int64_t work_ns(const SchemeCost& scheme, int stage, int64_t length) {
  const int64_t credit = scheme.credit_tokens() * scheme.scheme().cp;
  const auto flight_ns = static_cast<int64_t>(Wide{scheme.path_ns(length)} * length / credit);
  const auto constant_ns =
      static_cast<int64_t>(Wide{scheme.micro_batch_ns()} * length / scheme.max_len_tokens());
  const int lanes = scheme.fewest_lanes(length);
  const int64_t busy_ns = lanes == 1 ? scheme.floor_ns(stage, length)
                                     : lanes * scheme.lane_ns(length, lanes) / scheme.scheme().cp;
  return std::max({busy_ns - constant_ns, flight_ns, int64_t{1}});
}

// Others are in the way on its path through several stages.
int64_t passage_ns(const SchemeCost& scheme, int64_t length) {
  const int64_t path_ns = scheme.path_ns(length);
  return scheme.scheme().pp > 1 ? path_ns + path_ns / 8 : path_ns;
}

// The largest micro-batches that keep all stages busy: while one is in flight, for 2·PP + 1 thirds of a
// stage's time, others have to fit the credit too.
int64_t full_tokens(const SchemeCost& scheme) {
  const int pp = scheme.scheme().pp;
  return std::max<int64_t>(1,
                           std::min(scheme.lane_max_len_tokens(), scheme.credit_tokens() * 3 / (2 * pp + 1)));
}

}  // namespace

Capacity::Capacity(const SchemeCost& scheme, int64_t full_ns)
    : constant_ns_(scheme.micro_batch_ns()),
      full_ns_(std::max<int64_t>(full_ns, 1)),
      bubble_((scheme.scheme().pp - 1) * kParts / 2) {}

int64_t Capacity::work_ns(int64_t time_ns) const {
  // In parts. The last micro-batch is half full.
  const auto least = static_cast<int64_t>(Wide{time_ns} * kParts / full_ns_) + kParts / 2;
  const auto cheapest =
      square_root(static_cast<int64_t>(std::min<Wide>(
          Wide{bubble_} * kParts * time_ns / std::max<int64_t>(constant_ns_, 1), Wide{1} << 62))) -
      bubble_;
  const int64_t count = std::clamp(std::max(least, cheapest), kParts, kMostMicroBatches * kParts);
  const Wide left_ns = time_ns - Wide{constant_ns_} * (count + bubble_) / kParts;
  return std::max<int64_t>(0, static_cast<int64_t>(left_ns * count / (count + bubble_)));
}

FluidTimes::FluidTimes(std::span<const SchemeCost> schemes, const std::vector<std::vector<int64_t>>& batches)
    : schemes_(schemes) {
  std::vector<Wide> tokens(schemes.size(), 0), works_ns(schemes.size(), 0);
  std::vector<int> stages;
  for (const SchemeCost& scheme : schemes) {
    stages.push_back(batches.empty() ? 0 : scheme.busiest_stage(cost::Work::of(batches.front()), 1));
  }
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  int64_t most_ns = 1;
  for (const std::vector<int64_t>& lengths : batches) {
    const std::vector<LengthClass> classes = classes_of(lengths);
    Batch& batch = batches_.emplace_back(Batch{.classes = classes.size(), .on = {}});
    for (size_t k = 0; k < schemes.size(); ++k) {
      OnScheme& on = batch.on.emplace_back();
      int64_t total_ns = 0;
      for (const LengthClass& of : classes) {
        const bool fits = of.longest <= schemes[k].max_len_tokens();
        if (!fits) ++on.first;
        on.work_ns.push_back(
            fits ? of.sequences * plan::work_ns(schemes[k], stages[k], of.tokens / of.sequences) : 0);
        on.path_ns.push_back(fits ? passage_ns(schemes[k], of.longest) : kNever);
        total_ns += on.work_ns.back();
        if (fits) tokens[k] += of.tokens;
      }
      works_ns[k] += total_ns;
      most_ns = std::max(most_ns, 2 * total_ns + 2 * schemes[k].micro_batch_ns());
      if (on.first == 0 && !classes.empty()) least_ns = std::min(least_ns, on.path_ns.front());
    }
  }
  for (int64_t time_ns = std::max<int64_t>(std::min(least_ns, most_ns), 1'000);;
       time_ns = static_cast<int64_t>((Wide{time_ns} * kStep >> 32) + 1)) {
    times_.push_back(time_ns);
    if (time_ns > most_ns) break;
  }
  for (size_t k = 0; k < schemes.size(); ++k) {
    const Wide full_ns =
        works_ns[k] * schemes[k].scheme().cp * full_tokens(schemes[k]) / std::max<Wide>(tokens[k], 1);
    const Capacity capacity(schemes[k], static_cast<int64_t>(full_ns));
    for (const int64_t time_ns : times_) capacity_.push_back(capacity.work_ns(time_ns));
  }
  by_growth_.resize(schemes.size());
  std::iota(by_growth_.begin(), by_growth_.end(), size_t{0});
  by_longest_ = by_growth_;
  std::vector<int64_t> growth;  // from 2^11 to 2^12 tokens, in millionths
  for (size_t k = 0; k < schemes.size(); ++k) {
    growth.push_back(static_cast<int64_t>(Wide{schemes[k].floor_ns(stages[k], 4096)} * 1'000'000 /
                                          std::max<int64_t>(1, schemes[k].floor_ns(stages[k], 2048))));
  }
  std::stable_sort(by_growth_.begin(), by_growth_.end(),
                   [&](size_t a, size_t b) { return growth[a] < growth[b]; });
  std::stable_sort(by_longest_.begin(), by_longest_.end(), [&](size_t a, size_t b) {
    return schemes[a].max_len_tokens() > schemes[b].max_len_tokens();
  });
}

// Classes from the longest to the first pipelines in order that hold them, pass them in time and have room.
bool FluidTimes::finishes(const Batch& batch, const Mix& mix, std::span<const size_t> order,
                          int place) const {
  std::vector<int64_t> room_ns;
  for (const size_t k : order) room_ns.push_back(mix[k] * capacity_ns(k, place));
  const int64_t limit_ns = time_ns(place);
  for (size_t c = 0; c < batch.classes; ++c) {
    int64_t left = kWhole;
    for (size_t j = 0; j < order.size() && left > 0; ++j) {
      const OnScheme& on = batch.on[order[j]];
      if (room_ns[j] <= 0 || on.path_ns[c] > limit_ns) continue;
      const auto wanted_ns = static_cast<int64_t>(Wide{on.work_ns[c]} * left >> 16);
      if (wanted_ns <= room_ns[j]) {
        room_ns[j] -= wanted_ns;
        left = 0;
      } else {
        left -= static_cast<int64_t>(Wide{room_ns[j]} * kWhole / on.work_ns[c]);
        room_ns[j] = 0;
      }
    }
    if (left > 0) return false;
  }
  return true;
}

int64_t FluidTimes::estimate_ns(size_t batch, const Mix& mix, int64_t limit_ns) const {
  const Batch& of = batches_[batch];
  std::vector<size_t> by_growth, by_longest;
  bool holds = false;
  for (size_t i = 0; i < schemes_.size(); ++i) {
    if (mix[by_growth_[i]] > 0) by_growth.push_back(by_growth_[i]);
    if (mix[by_longest_[i]] == 0) continue;
    by_longest.push_back(by_longest_[i]);
    holds = holds || of.on[by_longest_[i]].first == 0;
  }
  if (!holds) return kNever;
  const auto in_time = [&](int place) {
    return finishes(of, mix, by_growth, place) ||
           (by_longest != by_growth && finishes(of, mix, by_longest, place));
  };
  int low = -1;
  int high = static_cast<int>(std::lower_bound(times_.begin(), times_.end(), limit_ns) - times_.begin());
  if (high < static_cast<int>(times_.size()) && !in_time(high)) return kNever;
  // What is looked for is mostly near the limit.
  for (int step = 32; high - step > low; step *= 2) {
    if (!in_time(high - step))
      low = high - step;
    else
      high -= step;
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (in_time(middle) ? high : low) = middle;
  }
  return time_ns(high);
}

int64_t FluidTimes::milli_ranks(const Batch& batch, size_t cls, size_t scheme, int place) const {
  const int64_t capacity = capacity_ns(scheme, place);
  const OnScheme& on = batch.on[scheme];
  if (capacity <= 0 || on.path_ns[cls] > time_ns(place)) return kNever;
  return static_cast<int64_t>(
      (Wide{on.work_ns[cls]} * schemes_[scheme].scheme().ranks() * kMilli + capacity - 1) / capacity);
}

std::optional<std::vector<int64_t>> FluidTimes::shares(const Batch& batch, int ranks,
                                                       std::span<const size_t> allowed, int place) const {
  std::vector<int64_t> milli(schemes_.size(), 0);
  int64_t left = ranks * kMilli;
  for (size_t c = 0; c < batch.classes; ++c) {
    int64_t least = kNever;
    size_t cheapest = 0;
    for (const size_t k : allowed) {
      const int64_t cost = milli_ranks(batch, c, k, place);
      if (cost < least) cheapest = k;
      least = std::min(least, cost);
    }
    left -= least;
    if (left < 0) return std::nullopt;
    milli[cheapest] += least / schemes_[cheapest].scheme().ranks();
  }
  return milli;
}

std::optional<FluidTimes::Ideal> FluidTimes::ideal(size_t batch, int ranks,
                                                   std::span<const size_t> allowed) const {
  const Batch& of = batches_[batch];
  std::optional<Ideal> best;
  int low = -1;
  int high = static_cast<int>(times_.size());
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    std::optional<std::vector<int64_t>> milli = shares(of, ranks, allowed, middle);
    (milli ? high : low) = middle;
    if (milli) best = Ideal{time_ns(middle), std::move(*milli)};
  }
  return best;
}

std::vector<size_t> FluidTimes::useful(size_t batch, int ranks) const {
  std::vector<size_t> all(schemes_.size()), found;
  std::iota(all.begin(), all.end(), size_t{0});
  const std::optional<Ideal> least = ideal(batch, ranks, all);
  if (!least) return all;
  const Batch& of = batches_[batch];
  std::vector<bool> is_useful(schemes_.size(), false);
  for (const int64_t limit_ns : {least->time_ns, least->time_ns + least->time_ns / 4}) {
    const auto at = std::lower_bound(times_.begin(), times_.end(), limit_ns);
    if (at == times_.end()) break;
    const auto place = static_cast<int>(at - times_.begin());
    for (size_t c = 0; c < of.classes; ++c) {
      int64_t cheapest = kNever;
      for (const size_t k : all) cheapest = std::min(cheapest, milli_ranks(of, c, k, place));
      for (const size_t k : all) {
        const int64_t cost = milli_ranks(of, c, k, place);
        is_useful[k] = is_useful[k] || (cost != kNever && cost - cost / 5 <= cheapest);
      }
    }
  }
  for (const size_t k : all) {
    if (is_useful[k]) found.push_back(k);
  }
  return found;
}

}  // namespace sluice::plan
