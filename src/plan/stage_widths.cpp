#include "plan/stage_widths.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/units.h"
#include "plan/square_root.h"

namespace sluice::plan {

using base::kMilli;

namespace {

constexpr int64_t kUnits = 8;  // in a step, at least
constexpr int64_t kFront = 5;  // of what else the lanes of a ring run this part comes before it
// What a unit that is larger than a ring's share of the credit costs at least beside one that fits.
constexpr int64_t kTooLargeHalves = 3;

}  // namespace

StageWidths::StageWidths(const Packing& packing)
    : packing_(packing), scheme_(packing.scheme), passages_(0, {}) {
  choose_widths();
  measure();
}

int64_t StageWidths::most_ns(int64_t end_ns) const { return std::max(end_ns / kUnits, least_unit_ns_); }

// Inside nodes powers of two and all lanes; outside, of each doubling of a node's lanes two more.
void StageWidths::choose_widths() {
  const int widest = packing_.node_lanes();
  for (int power = 1; power < widest; power *= 2) in_node_.push_back(power);
  in_node_.push_back(widest);
  for (int base = widest; base <= scheme_.scheme().cp; base *= 2) {
    for (const int width : {base, base + base / 4, base + base / 2}) {
      if (width > widest && width <= scheme_.scheme().cp) wide_.push_back(width);
    }
  }
  wide_.push_back(scheme_.scheme().cp);
  std::sort(wide_.begin(), wide_.end());
  wide_.erase(std::unique(wide_.begin(), wide_.end()), wide_.end());
  std::vector<int> widths;
  std::ranges::set_union(in_node_, wide_, std::back_inserter(widths));
  passages_ = ByWidth<SchemeCost::Passage>(packing_.lengths.size(), std::move(widths));
}

void StageWidths::measure() {
  cost::Work all;
  for (const int64_t length : packing_.lengths) {
    all += scheme_.work_of(length);
    works_ns_.push_back(scheme_.unit_ns(scheme_.work_of(length), 1) - scheme_.micro_batch_ns());
  }
  const int pp = scheme_.scheme().pp;
  const int64_t unit_ns = std::max<int64_t>(1, scheme_.unit_ns(all, 1));
  const SchemeCost::StageTimes first = scheme_.cells_of(0, all);
  const SchemeCost::StageTimes last = scheme_.cells_of(pp - 1, all);
  const auto part = [&](int64_t ns) {
    return std::max<int64_t>(1, static_cast<int64_t>(cost::Wide{kMilli} * ns / unit_ns));
  };
  forward_first_ = part(first.forward_ns);
  backward_first_ = std::max(forward_first_ + 1, part(first.backward_input_ns + first.backward_weight_ns));
  through_last_ = part(last.forward_ns + last.backward_input_ns);
  const int64_t work_ns = unit_ns / scheme_.scheme().cp;
  ideal_ns_ = std::max(work_ns, packing_.lengths.empty() ? 0 : scheme_.floors().path_ns(length(0)));
  const int64_t constant_ns = std::max<int64_t>(1, scheme_.micro_batch_ns());
  const int64_t units = std::max<int64_t>(1, square_root(work_ns * (pp - 1) / constant_ns));
  least_unit_ns_ = work_ns / units;
  const int64_t most_tokens = std::max<int64_t>(1, scheme_.lane_max_len_tokens());
  unit_tokens_ = std::clamp(scheme_.credit_tokens() / (2 * pp), all.tokens / scheme_.scheme().cp / units + 1,
                            most_tokens);
  ring_tokens_ = std::max(unit_tokens_, scheme_.credit_tokens() / (pp + 1));
}

// On the first stage the forwards of what comes before it and the gradients of what comes after, on the last
// stage forwards and input gradients of what comes before, stand in line with it.
Room StageWidths::room(const SchemeCost::Passage& passage, int64_t end_ns) const {
  const int64_t rest_ns = std::max<int64_t>(0, end_ns - passage.unit_ns);
  const int64_t slack_ns = std::max<int64_t>(0, end_ns - passage.path_ns());
  const int64_t most_before_ns = std::min({rest_ns, (end_ns - passage.from_last_ns) * kMilli / through_last_,
                                           slack_ns * kMilli / forward_first_});
  const int64_t least_before_ns = std::max<int64_t>(
      0, (backward_first_ * rest_ns - kMilli * slack_ns) / (backward_first_ - forward_first_));
  Room room;
  if (least_before_ns <= most_before_ns) {
    room.before_ns = std::clamp(rest_ns / kFront, least_before_ns, most_before_ns);
    room.after_ns = rest_ns - room.before_ns;
  } else {
    room.before_ns = std::max<int64_t>(0, most_before_ns);
    room.after_ns =
        std::max<int64_t>(0, kMilli * slack_ns - forward_first_ * room.before_ns) / backward_first_;
    room.idle_ns = rest_ns - room.before_ns - room.after_ns;
  }
  return room;
}

SchemeCost::Passage StageWidths::passage(int place, int width) const {
  return passages_.of(place, width,
                      [&] { return scheme_.passage(scheme_.share_of(length(place), width), width); });
}

int StageWidths::width_of(int place, int64_t end_ns) const {
  const int64_t length = this->length(place);
  const int most = static_cast<int>(std::min<int64_t>(scheme_.scheme().cp, std::max<int64_t>(1, length / 2)));
  int best = 0;
  cost::Wide best_ns = 0;
  const auto consider = [&](int width) {
    if (width > most || width < scheme_.fewest_lanes(length)) return false;
    const cost::Work work = scheme_.share_of(length, width);
    const SchemeCost::Passage passage = this->passage(place, width);
    if (width <= in_node_.back() && passage.unit_ns <= most_ns(end_ns) && work.tokens <= unit_tokens_) {
      best = width;
      return true;
    }
    // Idle time counts, for lanes that have several of them once.
    const int64_t idle_ns = room(passage, end_ns).idle_ns;
    cost::Wide ns = cost::Wide{passage.unit_ns} * width * end_ns / std::max<int64_t>(1, end_ns - idle_ns);
    // One that ends late counts at least twice.
    if (passage.path_ns() > end_ns) ns = 2 * ns * passage.path_ns() / end_ns;
    if (work.tokens > ring_tokens_) ns = std::max(ns * kTooLargeHalves / 2, ns * work.tokens / ring_tokens_);
    if (best == 0 || ns < best_ns) {
      best = width;
      best_ns = ns;
    }
    return false;
  };
  for (const int width : in_node_) {
    if (consider(width)) return best;
  }
  for (const int width : wide_) consider(width);
  if (best == 0) return scheme_.fewest_lanes(length);
  return best;
}

}  // namespace sluice::plan
