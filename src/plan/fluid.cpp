#include "plan/fluid.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "plan/square_root.h"

namespace sluice::plan {
namespace {

using cost::Wide;

constexpr int64_t kParts = 16;              // unit of h and V
constexpr int64_t kFullPart = 32;           // a mix with all room used takes this part longer
constexpr int64_t kMostMicroBatches = 512;  // per pipeline; more change nothing
constexpr int64_t kLeastTimeNs = 1'000;     // first of the scale
constexpr int64_t kStep = 4306612134;       // 2^(1/256) in 2^-32
constexpr int kStepBits = 32;
// Lengths within an eighth of the longest form one class, whose mean represents all.
constexpr int64_t kClassPart = 8;
// The part of a path through several stages that other micro-batches in the way add.
constexpr int64_t kInTheWayPart = 8;
// A scheme is useful for a class if it costs at most a quarter more than
// the cheapest scheme, at the ideal time or at one a quarter longer.
constexpr int64_t kUsefulPart = 4;

using base::kMilli;
using LengthClass = FluidTimes::LengthClass;

// The longest first.
std::vector<LengthClass> classes_of(std::vector<int64_t> lengths, const std::vector<int64_t>& max_lens) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<LengthClass> classes;
  int64_t shortest = std::numeric_limits<int64_t>::max();  // the least length of the last class
  for (const int64_t length : lengths) {
    if (length < shortest) {
      classes.push_back({.longest = length});
      shortest = length - length / kClassPart;
      for (const int64_t max_len : max_lens) {
        if (max_len < length) shortest = std::max(shortest, max_len + 1);
      }
    }
    ++classes.back().sequences;
    classes.back().tokens += length;
  }
  return classes;
}

// How long a sequence over so many lanes occupies a pipeline, as the mean over its
// lanes. Its busiest stage computes, with exposed rings but without a micro-batch's
// constant. Its tokens are also in flight until they have passed all stages, so a long
// sequence occupies its share of the credit for that time. The larger of both counts.
int64_t work_ns(const SchemeCost& scheme, int stage, int64_t length, const SchemeCost::OnLanes& on) {
  const int lanes = on.lanes();
  const int64_t credit = scheme.credit_tokens() * scheme.scheme().cp;
  const auto flight_ns = static_cast<int64_t>(Wide{on.path_ns(length)} * length / credit);
  const auto constant_ns =
      static_cast<int64_t>(Wide{scheme.micro_batch_ns()} * length / scheme.max_len_tokens());
  const int cp = scheme.scheme().cp;
  const auto busy_ns = [&]() -> int64_t {
    if (lanes == 1) return scheme.floors().floor_ns(stage, length) - constant_ns;
    // On one stage a micro-batch has its constant once, however many of its sequences are cut.
    if (scheme.scheme().pp == 1) return lanes * (on.lane_ns(length) - scheme.micro_batch_ns()) / cp;
    return lanes * on.lane_ns(length) / cp - constant_ns;
  };
  return std::max({busy_ns(), flight_ns, int64_t{1}});
}

// The largest micro-batches that keep all stages busy: while one is in flight,
// for 2·PP + 1 thirds of a stage's time, others must fit the credit, too.
int64_t full_tokens(const SchemeCost& scheme) {
  const int pp = scheme.scheme().pp;
  return std::max<int64_t>(1,
                           std::min(scheme.lane_max_len_tokens(), scheme.credit_tokens() * 3 / (2 * pp + 1)));
}

}  // namespace

Capacity::Capacity(const SchemeCost& scheme, int64_t full_ns, int64_t gathers_ns)
    : constant_ns_(scheme.micro_batch_ns() + gathers_ns),
      full_ns_(std::max<int64_t>(full_ns, 1)),
      bubble_((scheme.scheme().pp - 1) * kParts / 2) {}

int64_t Capacity::work_ns(int64_t time_ns) const {
  // In parts. The last micro-batch is half full.
  const auto least = static_cast<int64_t>(Wide{time_ns} * kParts / full_ns_) + kParts / 2;
  const auto cheapest = square_root(static_cast<int64_t>(std::min<Wide>(
                            Wide{bubble_} * kParts * time_ns / std::max<int64_t>(constant_ns_, 1),
                            Wide{std::numeric_limits<int64_t>::max()}))) -
                        bubble_;
  const int64_t count = std::clamp(std::max(least, cheapest), kParts, kMostMicroBatches * kParts);
  const Wide left_ns = time_ns - Wide{constant_ns_} * (count + bubble_) / kParts;
  return std::max<int64_t>(0, static_cast<int64_t>(left_ns * count / (count + bubble_)));
}

// On a path through several stages other micro-batches are in the way.
// Weight gradients fill about half of the bubbles that a path leaves.
FluidTimes::Way FluidTimes::way_of(const SchemeCost& scheme, int stage, const LengthClass& cls,
                                   const SchemeCost::OnLanes& on) {
  const int64_t path_ns = on.path_ns(cls.longest);
  const int64_t busy_ns = scheme.scheme().pp > 1 ? on.lane_ns(cls.longest) : path_ns;
  return {.path_ns = scheme.scheme().pp > 1 ? path_ns + path_ns / kInTheWayPart : path_ns,
          .work_ns = work_ns(scheme, stage, cls.tokens / cls.sequences, on),
          .bubble_ns = std::max<int64_t>(0, path_ns - busy_ns) / 2};
}

void FluidTimes::OnScheme::add_way(Way way) {
  while (ways.size() > begins.back() && ways.back().work_ns >= way.work_ns &&
         ways.back().path_ns >= way.path_ns) {
    ways.pop_back();
  }
  if (ways.size() == begins.back() || ways.back().path_ns > way.path_ns) ways.push_back(way);
}

FluidTimes::FluidTimes(std::span<const SchemeCost> schemes, const std::vector<std::vector<int64_t>>& batches)
    : schemes_(schemes) {
  std::vector<std::map<int, SchemeCost::OnLanes>> on_lanes(schemes.size());
  std::vector<Wide> tokens(schemes.size(), 0), works_ns(schemes.size(), 0);
  std::vector<int> stages;
  for (const SchemeCost& scheme : schemes) {
    stages.push_back(batches.empty() ? 0 : scheme.floors().busiest_stage(scheme.work_of(batches.front()), 1));
  }
  std::vector<int64_t> max_lens;
  for (const SchemeCost& scheme : schemes) max_lens.push_back(scheme.max_len_tokens());
  int64_t least_ns = base::kNever;
  int64_t most_ns = 1;
  for (const std::vector<int64_t>& lengths : batches) {
    const std::vector<LengthClass> classes = classes_of(lengths, max_lens);
    Batch& batch = batches_.emplace_back();
    for (const LengthClass& of : classes) batch.sequences.push_back(of.sequences);
    for (size_t k = 0; k < schemes.size(); ++k) {
      OnScheme& on = batch.on.emplace_back();
      int64_t total_ns = 0;
      for (const LengthClass& of : classes) {
        const bool fits = of.longest <= schemes[k].max_len_tokens();
        if (!fits) ++on.first;
        on.begins.push_back(on.ways.size());
        if (!fits) continue;
        for (int lanes = schemes[k].fewest_lanes(of.longest);;
             lanes = std::min(2 * lanes, schemes[k].scheme().cp)) {
          auto at = on_lanes[k].find(lanes);
          if (at == on_lanes[k].end()) at = on_lanes[k].emplace(lanes, schemes[k].on(lanes)).first;
          on.add_way(way_of(schemes[k], stages[k], of, at->second));
          if (lanes == schemes[k].scheme().cp) break;
        }
        total_ns += of.sequences * on.ways[on.begins.back()].work_ns;
        tokens[k] += of.tokens;
      }
      on.begins.push_back(on.ways.size());
      works_ns[k] += total_ns;
      most_ns = std::max(most_ns, 2 * total_ns + 2 * schemes[k].micro_batch_ns());
      if (on.first == 0 && !classes.empty()) least_ns = std::min(least_ns, on.ways[on.begins[1] - 1].path_ns);
    }
  }
  for (int64_t time_ns = std::max<int64_t>(std::min(least_ns, most_ns), kLeastTimeNs);;
       time_ns = static_cast<int64_t>((Wide{time_ns} * kStep >> kStepBits) + 1)) {
    times_.push_back(time_ns);
    if (time_ns > most_ns) break;
  }
  for (size_t k = 0; k < schemes.size(); ++k) {
    const Wide full_ns =
        works_ns[k] * schemes[k].scheme().cp * full_tokens(schemes[k]) / std::max<Wide>(tokens[k], 1);
    const int64_t gathers_ns = schemes[k].gathers_ns({.tokens = full_tokens(schemes[k]), .squares = 0});
    const Capacity capacity(schemes[k], static_cast<int64_t>(full_ns), gathers_ns);
    for (const int64_t time_ns : times_) capacity_.push_back(capacity.work_ns(time_ns));
  }
  by_growth_.resize(schemes.size());
  std::iota(by_growth_.begin(), by_growth_.end(), size_t{0});
  by_longest_ = by_growth_;
  // Growth from half of the length that all schemes hold to that length, in millionths.
  const int64_t held = *std::ranges::min_element(max_lens);
  std::vector<int64_t> growth;
  for (size_t k = 0; k < schemes.size(); ++k) {
    growth.push_back(
        static_cast<int64_t>(Wide{schemes[k].floors().floor_ns(stages[k], held)} * base::kMicro /
                             std::max<int64_t>(1, schemes[k].floors().floor_ns(stages[k], held / 2))));
  }
  std::stable_sort(by_growth_.begin(), by_growth_.end(),
                   [&](size_t a, size_t b) { return growth[a] < growth[b]; });
  std::stable_sort(by_longest_.begin(), by_longest_.end(), [&](size_t a, size_t b) {
    return schemes[a].max_len_tokens() > schemes[b].max_len_tokens();
  });
}

// A class that passes in time fits. Sequences placed before are no shorter, so a pipeline full
// of sequences of this length has no room for more. A pipeline's first sequence is its longest.
const FluidTimes::Slot* FluidTimes::slots(const Batch& batch, size_t scheme, int place) const {
  if (batch.slots.empty()) batch.slots.resize(schemes_.size() * times_.size());
  std::unique_ptr<Slot[]>& known = batch.slots[scheme * times_.size() + static_cast<size_t>(place)];
  if (known) return known.get();
  known = std::make_unique<Slot[]>(batch.sequences.size());
  const int64_t each_ns = capacity_ns(scheme, place);
  const int64_t limit_ns = time_ns(place);
  for (size_t c = 0; c < batch.sequences.size() && each_ns > 0; ++c) {
    const Way* way = batch.on[scheme].way(c, limit_ns);
    if (way == nullptr) continue;
    const int64_t work_ns = std::min(way->work_ns, each_ns);
    const int64_t bubble_ns =
        std::clamp<int64_t>(way->bubble_ns - (limit_ns - each_ns), 0, each_ns - work_ns);
    known[c] = {.work_ns = work_ns, .first_ns = bubble_ns + work_ns, .sequences = each_ns / work_ns};
  }
  return known.get();
}

// Gives classes, longest first, to the first pipelines in order that hold them in time and have room.
std::optional<int64_t> FluidTimes::used_milli(const Batch& batch, const Mix& mix,
                                              std::span<const size_t> order, int place) const {
  struct Room {
    const Slot* slots;
    int64_t pipelines;
    int64_t ranks;      // per pipeline
    int64_t left_ns;    // over all pipelines
    int64_t sequences;  // assigned
  };
  std::vector<Room> rooms;
  int64_t all_ns = 1;
  for (const size_t k : order) {
    const int64_t room_ns = mix[k] * capacity_ns(k, place);
    const int ranks = schemes_[k].scheme().ranks();
    rooms.push_back({slots(batch, k, place), mix[k], ranks, room_ns, 0});
    all_ns += room_ns * ranks;
  }
  int64_t used_ns = 0;
  for (size_t c = 0; c < batch.sequences.size(); ++c) {
    int64_t left = batch.sequences[c];
    for (Room& room : rooms) {
      const Slot& slot = room.slots[c];
      if (slot.work_ns == 0 || room.left_ns < slot.work_ns) continue;
      const int64_t empty = std::max<int64_t>(0, room.pipelines - room.sequences);
      const auto takes_ns = [&](int64_t count) {
        return count * slot.work_ns + std::min(count, empty) * (slot.first_ns - slot.work_ns);
      };
      int64_t taken = std::min(left, room.pipelines * slot.sequences - room.sequences);
      if (taken > 0 && takes_ns(taken) > room.left_ns) {
        const int64_t firsts = std::min(empty, room.left_ns / slot.first_ns);
        taken = firsts < empty ? firsts : empty + (room.left_ns - empty * slot.first_ns) / slot.work_ns;
      }
      if (taken <= 0) continue;
      left -= taken;
      room.left_ns -= takes_ns(taken);
      room.sequences += taken;
      used_ns += taken * slot.work_ns * room.ranks;
      if (left == 0) break;
    }
    if (left > 0) return std::nullopt;
  }
  return static_cast<int64_t>(Wide{used_ns} * kMilli / all_ns);
}

int FluidTimes::place_of(int64_t time_ns) const {
  return static_cast<int>(std::ranges::lower_bound(times_, time_ns) - times_.begin());
}

int64_t FluidTimes::estimate_ns(size_t batch, const Mix& mix, int64_t limit_ns, int64_t about_ns) const {
  const Batch& of = batches_[batch];
  std::vector<size_t> by_growth, by_longest;
  bool holds = false;
  for (size_t i = 0; i < schemes_.size(); ++i) {
    if (mix[by_growth_[i]] > 0) by_growth.push_back(by_growth_[i]);
    if (mix[by_longest_[i]] == 0) continue;
    by_longest.push_back(by_longest_[i]);
    holds = holds || of.on[by_longest_[i]].first == 0;
  }
  if (!holds) return cost::kLongestNs;
  std::optional<int64_t> used;
  const auto in_time = [&](int place) {
    std::optional<int64_t> milli = used_milli(of, mix, by_growth, place);
    if (!milli && by_longest != by_growth) milli = used_milli(of, mix, by_longest, place);
    if (milli) used = milli;
    return milli.has_value();
  };
  const int end = static_cast<int>(times_.size());
  int low = -1;
  int high = place_of(limit_ns);
  if (high < end && !in_time(high)) return cost::kLongestNs;
  // From near `about_ns` in growing steps, up and then down.
  int next = std::min(place_of(about_ns), high - 1);
  for (int step = 1; next > low && next < high; step *= 2) {
    if (in_time(next)) {
      high = next;
      next -= step;
    } else {
      low = next;
      next += step;
    }
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (in_time(middle) ? high : low) = middle;
  }
  high = std::min(high, static_cast<int>(times_.size()) - 1);  // if no time suffices: the last
  const int64_t end_ns =
      time_ns(high) + static_cast<int64_t>(Wide{time_ns(high)} * used.value_or(kMilli) / kMilli / kFullPart);
  return end_ns <= limit_ns ? end_ns : cost::kLongestNs;
}

int64_t FluidTimes::milli_ranks(const Batch& batch, size_t cls, size_t scheme, int place) const {
  const int64_t capacity = capacity_ns(scheme, place);
  const Way* way = batch.on[scheme].way(cls, time_ns(place));
  if (capacity <= 0 || way == nullptr) return cost::kLongestNs;
  return static_cast<int64_t>(
      (Wide{batch.sequences[cls]} * way->work_ns * schemes_[scheme].scheme().ranks() * kMilli + capacity -
       1) /
      capacity);
}

std::optional<std::vector<int64_t>> FluidTimes::shares(const Batch& batch, int ranks,
                                                       std::span<const size_t> allowed, int place) const {
  std::vector<int64_t> milli(schemes_.size(), 0);
  int64_t left = ranks * kMilli;
  for (size_t c = 0; c < batch.sequences.size(); ++c) {
    int64_t least = cost::kLongestNs;
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
  for (const int64_t limit_ns : {least->time_ns, least->time_ns + least->time_ns / kUsefulPart}) {
    const int place = place_of(limit_ns);
    if (place == static_cast<int>(times_.size())) break;
    for (size_t c = 0; c < of.sequences.size(); ++c) {
      int64_t cheapest = cost::kLongestNs;
      for (const size_t k : all) cheapest = std::min(cheapest, milli_ranks(of, c, k, place));
      for (const size_t k : all) {
        const int64_t cost = milli_ranks(of, c, k, place);
        is_useful[k] =
            is_useful[k] || (cost != cost::kLongestNs && cost - cheapest <= cheapest / kUsefulPart);
      }
    }
  }
  for (const size_t k : all) {
    if (is_useful[k]) found.push_back(k);
  }
  return found;
}

}  // namespace sluice::plan
