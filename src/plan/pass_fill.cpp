#include "plan/pass_fill.h"

#include <algorithm>
#include <limits>

namespace sluice::plan {
namespace {

constexpr size_t kTightest = 3;  // loads that a sequence is tried on with what they exchange

}  // namespace

int64_t FilledPass::end_ns() const {
  return loads.empty() ? 0 : std::ranges::max_element(loads, {}, &PassLoad::end_ns)->end_ns;
}

WidthTimes::WidthTimes(const SchemeCost& scheme, std::span<const int64_t> lengths, std::vector<int> widths)
    : scheme_(scheme), widths_(std::move(widths)) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i == 0 || lengths[i] != lengths[i - 1]) {
      lengths_.push_back({.tokens = lengths[i],
                          .alone_ns = scheme.load_ns(scheme.share_of(lengths[i], 1)),
                          .fewest = scheme.fewest_lanes(lengths[i])});
    }
    length_of_.push_back(static_cast<int>(lengths_.size()) - 1);
  }
  lane_ns_.assign(lengths_.size() * widths_.size(), -1);
}

WidthTimes::Fit WidthTimes::fewest_lanes(int place, int64_t limit_ns, int64_t least) {
  const Length& length = of(place);
  const int64_t room_ns = std::max<int64_t>(1, limit_ns - scheme_.micro_batch_ns());
  const int64_t most = std::max<int64_t>(1, length.tokens / 2);
  const int64_t fewest =
      std::max<int64_t>({(length.alone_ns - 1) / room_ns + 1, length.fewest, std::min(least, most)});
  for (auto at = std::ranges::lower_bound(widths_, fewest); at != widths_.end() && *at <= most; ++at) {
    int64_t& known_ns =
        lane_ns_[static_cast<size_t>(length_of_[static_cast<size_t>(place)]) * widths_.size() +
                 static_cast<size_t>(at - widths_.begin())];
    if (known_ns < 0) known_ns = scheme_.lane_ns(length.tokens, *at);
    if (known_ns <= limit_ns) return {*at, known_ns};
  }
  return {};
}

bool PassFill::fill(std::span<const int> places, int64_t limit_ns, int least_lanes) {
  limit_ns_ = limit_ns;
  shortest_ = places.empty() ? 0 : lengths_[static_cast<size_t>(places.back())];
  nodes_.clear();
  for (const LaneRun& node : all_nodes_) nodes_.push_back({node.first, node.first + node.lanes});
  filled_.loads.clear();
  filled_.load_of.clear();
  singles_.clear();
  cut_.clear();
  length_ = 0;
  for (const int place : places) {
    const int64_t length = lengths_[static_cast<size_t>(place)];
    if (length != length_) {
      length_ = length;
      alone_ns_ = times_.alone_ns(place);
      fit_ = times_.fewest_lanes(place, limit_ns, least_lanes);
      share_lanes_ = 0;
    }
    if (fit_.lanes == 0 || !((fit_.lanes == 1 && join_single()) || join_cut() || begin())) return false;
  }
  return true;
}

// The single lane that ends last of those that still end in time.
bool PassFill::join_single() {
  auto at =
      std::ranges::upper_bound(singles_, std::pair(limit_ns_ - alone_ns_, std::numeric_limits<int>::max()));
  while (at != singles_.begin()) {
    --at;
    const int index = at->second;
    const PassLoad& single = load(index);
    if (single.work.tokens + length_ > capacity() || !extend(index)) continue;
    singles_.erase(at);
    if (single.work.tokens + shortest_ <= capacity()) add_single(index);
    return true;
  }
  return false;
}

void PassFill::add_single(int index) {
  const std::pair single(load(index).end_ns, index);
  singles_.insert(std::ranges::upper_bound(singles_, single), single);
}

bool PassFill::extend(int index) {
  PassLoad& extended = load(index);
  cost::Work work = extended.work;
  work += share_on(extended.lanes.lanes);
  if (work.tokens > capacity()) return false;
  const int64_t end_ns = scheme_.unit_ns(work, extended.lanes.lanes);
  if (end_ns > limit_ns_) return false;
  extended.work = work;
  extended.end_ns = end_ns;
  filled_.load_of.push_back(index);
  return true;
}

const cost::Work& PassFill::share_on(int lanes) {
  if (lanes != share_lanes_) share_ = scheme_.share_of(length_, lanes);
  share_lanes_ = lanes;
  return share_;
}

// The load of several lanes that has least room left of those with room.
bool PassFill::join_cut() {
  std::vector<std::pair<cost::Wide, int>>& tightest = tightest_;
  tightest.clear();
  for (const int index : cut_) {
    const PassLoad& cut = load(index);
    const int lanes = cut.lanes.lanes;
    if (lanes < fit_.lanes || cut.work.tokens + length_ / lanes > capacity()) continue;
    const cost::Wide left_ns = cost::Wide{limit_ns_ - cut.end_ns} * lanes - alone_ns_;
    if (left_ns >= 0) tightest.emplace_back(left_ns, index);
  }
  const size_t tried = std::min(tightest.size(), kTightest);
  std::ranges::partial_sort(tightest, tightest.begin() + static_cast<std::ptrdiff_t>(tried));
  tightest.resize(tried);
  return std::ranges::any_of(tightest, [&](const auto& cut) { return extend(cut.second); });
}

// On the node with the fewest free lanes that has enough, or on whole nodes that follow each other.
std::optional<LaneRun> PassFill::free_run() {
  Node* best = nullptr;
  for (Node& node : nodes_) {
    if (node.free() >= fit_.lanes && (best == nullptr || node.free() < best->free())) best = &node;
  }
  if (best != nullptr) return take_of(*best, fit_.lanes);
  for (size_t begin = 0; begin < nodes_.size(); ++begin) {
    int lanes = 0;
    size_t end = begin;
    while (end < nodes_.size() && nodes_[end].whole && lanes < fit_.lanes) lanes += nodes_[end++].free();
    if (lanes < fit_.lanes) continue;
    const LaneRun run{nodes_[begin].first, fit_.lanes};
    int left = fit_.lanes;
    for (size_t n = begin; n < end; ++n) left -= take_of(nodes_[n], std::min(left, nodes_[n].free())).lanes;
    return run;
  }
  return std::nullopt;
}

LaneRun PassFill::take_of(Node& node, int lanes) {
  const LaneRun run{node.first, lanes};
  node.first += lanes;
  node.whole = false;
  return run;
}

bool PassFill::begin() {
  const std::optional<LaneRun> run = free_run();
  if (!run) return false;
  const int index = static_cast<int>(filled_.loads.size());
  filled_.loads.push_back({*run, share_on(run->lanes), fit_.ns});
  filled_.load_of.push_back(index);
  if (run->lanes == 1) {
    add_single(index);
  } else {
    cut_.push_back(index);
  }
  return true;
}

}  // namespace sluice::plan
