#include "plan/strip.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/units.h"

namespace sluice::plan {

using Halves = SchemeCost::Halves;
using strategy::PipelineMicroBatch;

namespace {

constexpr int kTried = 3;  // loads of each width that a sequence tries with their exchange
// A sequence may add this much less to a load than its linear work, by rounding.
constexpr int64_t kLinearRoundingNs = 8;

// The numbers of lanes that sequences are cut over. Beyond a node only
// whole nodes: heads then divide best, and no node's lanes are split.
std::vector<int> widths_of(int node_lanes, int lanes) {
  std::vector<int> widths;
  for (int width = 1; width < lanes; width += width < node_lanes ? 1 : node_lanes) widths.push_back(width);
  widths.push_back(lanes);
  return widths;
}

}  // namespace

int64_t Filling::end_ns(bool apart) const {
  if (apart) return halves().both_ns();
  std::vector<int64_t> ends_ns;
  for (const Load& load : loads) {
    const auto pass = static_cast<size_t>(load.pass);
    if (ends_ns.size() <= pass) ends_ns.resize(pass + 1, 0);
    ends_ns[pass] = std::max(ends_ns[pass], load.end_ns());
  }
  return std::accumulate(ends_ns.begin(), ends_ns.end(), int64_t{0});
}

std::vector<Halves> Filling::longest() const {
  std::vector<Halves> ends;
  for (const Load& load : loads) {
    const auto pass = static_cast<size_t>(load.pass);
    if (ends.size() <= pass) ends.resize(pass + 1);
    ends[pass].forward_ns = std::max(ends[pass].forward_ns, load.takes.forward_ns);
    ends[pass].backward_ns = std::max(ends[pass].backward_ns, load.takes.backward_ns);
  }
  return ends;
}

Halves Filling::halves() const {
  const std::vector<Halves> ends = longest();
  return std::accumulate(ends.begin(), ends.end(), Halves{}, [](Halves sum, const Halves& end) {
    sum += end;
    return sum;
  });
}

Strip::Strip(const Packing& packing)
    : packing_(packing),
      times_(packing.scheme, packing.lengths, widths_of(packing.node_lanes, packing.lanes())),
      constant_ns_(packing.scheme.micro_batch_ns()),
      rest_ns_(packing.lengths.size()) {
  int64_t rest_ns = 0;
  for (int place = times_.places() - 1; place >= 0; --place)
    rest_ns_[static_cast<size_t>(place)] = rest_ns += times_.work_ns(place);
  if (packing.scheme.scheme().pp > 1) return;  // different loads may have different slowest stages
  constexpr int64_t kTokens = 1024;
  const int64_t linear_ns = std::max<int64_t>(2, packing.scheme.load_ns({.tokens = kTokens})) - 1;  // rounded
  tokens_per_ns_ = static_cast<int64_t>((cost::Wide{kTokens} << kRateBits) / linear_ns) + 1;
}

bool Strip::in_time(const Halves& takes, int64_t start_ns, const Halves& most) const {
  if (!trial_->apart) return start_ns + takes.both_ns() <= most.both_ns();
  return takes.forward_ns <= most.forward_ns && takes.backward_ns <= most.backward_ns;
}

bool Strip::fill(const Trial& trial) {
  trial_ = &trial;
  filling_.loads.clear();
  filling_.micro_batches.clear();
  filling_.micro_batch_of.clear();
  passes_.resize(trial.passes.size());
  free_passes_.resize(passes_.size());
  std::iota(free_passes_.begin(), free_passes_.end(), 0);
  left_ns_ = usable_tokens_ = 0;
  if (in_passes()) count_rest_tokens();
  for (size_t p = 0; p < passes_.size(); ++p) {
    OpenPass& pass = passes_[p];
    pass.most = trial.passes[p];
    pass.free.reset(packing_.nodes);
    const int64_t lane_ns = pass.most.both_ns() - constant_ns_;
    left_ns_ += packing_.lanes() * lane_ns;
    pass.usable_tokens = usable_tokens(lane_ns, capacity());
    usable_tokens_ += packing_.lanes() * pass.usable_tokens;
  }
  open_.resize(static_cast<size_t>(times_.widths()));
  for (auto& open : open_) open.clear();
  open_end_ = 0;
  for (int place = 0; place < times_.places(); ++place) {
    if (!may_hold_rest(place) || !put(place)) return false;
  }
  return true;
}

// By place: tokens of the sequence and of all after it. A sequence
// that may exceed the capacity on its widest lanes counts as 0.
void Strip::count_rest_tokens() {
  if (rest_capacity_ == capacity()) return;
  rest_capacity_ = capacity();
  rest_tokens_.resize(rest_ns_.size());
  int64_t rest = 0;
  for (int place = times_.places() - 1; place >= 0; --place) {
    const int64_t length = packing_.length(place);
    const int widest = times_.lanes(times_.end_width(place) - 1);
    const bool fits = packing_.scheme.share_of(length, widest).tokens <= rest_capacity_;
    rest_tokens_[static_cast<size_t>(place)] = rest += fits ? length : 0;
  }
}

// Tokens that a lane can take in time and room: other lanes may hide
// attention, but not linear work. With several stages only room counts.
int64_t Strip::usable_tokens(int64_t left_ns, int64_t room_tokens) const {
  if (left_ns < 0 || room_tokens <= 0) return 0;
  return static_cast<int64_t>(std::min<cost::Wide>(tokens_in(left_ns), room_tokens));
}

bool Strip::may_hold_rest(int place) const {
  const auto at = static_cast<size_t>(place);
  if (left_ns_ < rest_ns_[at]) return false;
  if (!in_passes()) return true;
  const bool times_tokens = packing_.scheme.scheme().pp == 1;
  const cost::Wide roundings = times_tokens ? cost::Wide{times_.places() - place} * packing_.lanes() : 0;
  return usable_tokens_ + tokens_in(kLinearRoundingNs * roundings) >= rest_tokens_[at];
}

// If lanes stack loads, a sequence prefers beginning a load
// to joining one of more lanes than it would take alone.
bool Strip::put(int place) {
  const int all = times_.widths();
  if (trial_->spreads) return begin(place) || join(place, 0, all, Room::kInMicroBatch);
  const int own = trial_->stacks ? std::min(all, first_width(place, trial_->passes.front()) + 1) : all;
  return join(place, 0, 1, Room::kInMicroBatch) || join(place, 1, own, Room::kInMicroBatch) || begin(place) ||
         join(place, own, all, Room::kInMicroBatch) || (!in_passes() && join(place, 0, all, Room::kAny));
}

// The first width on which the sequence may end in time alone; end_width() if none.
int Strip::first_width(int place, const Halves& most) {
  const int64_t room_ns = std::max<int64_t>(1, most.both_ns() - constant_ns_);
  int width = std::max(times_.first_width(place), times_.width_of((times_.work_ns(place) - 1) / room_ns + 1));
  while (width < times_.end_width(place) &&
         !(allows(place, width, most) && in_time(times_.alone(place, width), 0, most)))
    ++width;
  return width;
}

// Lanes of several nodes that share nothing don't wait for each
// other's passes, so sequences may fill the whole pass there.
bool Strip::allows(int place, int width, const Halves& most) {
  const int lanes = times_.lanes(width);
  const bool waits = in_passes() || lanes < packing_.node_lanes;
  if (width + 1 == times_.end_width(place)) return true;
  if (times_.share(place, width).tokens > capacity()) return false;
  if (lanes < trial_->least_lanes) return false;
  if (lanes == 1 || !waits) return true;
  const auto part = [&](int64_t ns) { return ns * trial_->most_milli / base::kMilli; };
  return in_time(times_.alone(place, width), 0, {part(most.forward_ns), part(most.backward_ns)});
}

bool Strip::join(int place, int first_width, int end_width, Room room) {
  joins_.clear();
  const int64_t work_ns = times_.work_ns(place);
  end_width = std::min(end_width, open_end_);
  for (int width = std::max(first_width, times_.first_width(place)); width < end_width; ++width) {
    const auto& open = open_[static_cast<size_t>(width)];
    if (open.empty()) continue;
    const int lanes = times_.lanes(width);
    const auto least = [&](int64_t left_ns) {
      return std::ranges::lower_bound(open, left_ns, {}, &Open::left_ns);
    };
    const auto in_time = least(work_ns / lanes);
    if (in_time == open.end()) continue;
    const int64_t tokens = room == Room::kAny ? 0 : times_.share(place, width).tokens;
    int tried = 0;
    const auto consider = [&](const Open& next) {
      if (next.room_tokens < tokens) return;
      joins_.emplace_back((next.left_ns * lanes - work_ns) * (trial_->to_most_left() ? -1 : 1), next.load);
      ++tried;
    };
    if (trial_->to_most_left()) {
      for (auto next = open.end(); next != in_time && tried < kTried;) consider(*--next);
    } else {
      auto next = in_time;
      while (next != open.end() && tried < kTried) consider(*next++);
      if (next == open.end()) continue;
      next = least(std::max(next->left_ns, times_.alone(place, width).both_ns()));
      while (next != open.end() && tried == kTried) consider(*next++);
    }
  }
  std::ranges::sort(joins_);
  return std::ranges::any_of(joins_, [&](const auto& join) { return extend(place, join.second); });
}

LoadIndex Strip::add_load(const Load& load) {
  filling_.loads.push_back(load);
  return LoadIndex(filling_.loads.size() - 1);
}

LanePartIndex Strip::add_micro_batch(const LanePart& part) {
  filling_.micro_batches.push_back(part);
  return LanePartIndex(filling_.micro_batches.size() - 1);
}

// Adds the sequence to the fullest micro-batch with room, or to a new one if it has tokens for each lane.
bool Strip::extend(int place, LoadIndex index) {
  Load& extended = load(index);
  const cost::Work& share = times_.share(place, extended.width);
  LanePartIndex into = fullest_with_room(extended, share.tokens);
  const bool may_begin = !extended.part_of.exists() && extended.width < times_.end_width(place);
  if (!into.exists() && !may_begin) return false;
  LanePart grown{.work = share, .takes = times_.alone(place, extended.width)};
  Halves takes = extended.takes;
  if (into.exists()) {
    grown = micro_batch(into);
    takes -= grown.takes;
    grown.work += share;
    grown.takes = times_.takes(grown.work, extended.width);
    grown.takes += extended.exchange;
  }
  takes += grown.takes;
  if (!in_time(takes, extended.start_ns, pass_of(extended).most)) return false;
  close(index);
  left_ns_ -= (takes.both_ns() - extended.takes.both_ns()) * extended.lanes.lanes;
  extended.takes = takes;
  if (into.exists()) {
    micro_batch(into) = grown;
  } else {
    grown.next = extended.first_micro_batch;
    into = extended.first_micro_batch = add_micro_batch(grown);
  }
  filling_.micro_batch_of.push_back(into);
  note_room(extended);
  for (size_t run = extended.free_begin; run < extended.free_end; ++run)
    pass_of(extended).free.raise(run, extended.end_ns());
  open(index);
  return true;
}

LanePartIndex Strip::fullest_with_room(const Load& load, int64_t tokens) {
  LanePartIndex fullest;
  for (LanePartIndex next = load.first_micro_batch; next.exists(); next = micro_batch(next).next) {
    if (micro_batch(next).work.tokens + tokens > load.most_tokens) continue;
    if (!fullest.exists() || micro_batch(next).work.tokens > micro_batch(fullest).work.tokens) fullest = next;
  }
  return fullest;
}

void Strip::note_room(Load& load) {
  load.room_tokens = 0;
  for (LanePartIndex next = load.first_micro_batch; next.exists(); next = micro_batch(next).next)
    load.room_tokens = std::max(load.room_tokens, load.most_tokens - micro_batch(next).work.tokens);
}

// Begins a load on the fewest lanes, in the pass where these take least lane time.
bool Strip::begin(int place) {
  std::optional<Place> best;
  cost::Wide least_area = 0;
  const bool equal_areas = times_.widths() == 1;
  for (const int pass : free_passes_) {
    if (best && equal_areas) break;
    OpenPass& of = passes_[static_cast<size_t>(pass)];
    const int most_lanes = of.free.most_lanes();
    if (most_lanes == 0) continue;
    for (int width = first_width(place, of.most); width < times_.end_width(place); ++width) {
      const int lanes = times_.lanes(width);
      if (lanes > most_lanes) break;
      if (!allows(place, width, of.most)) continue;
      const Halves& takes = times_.alone(place, width);
      const std::optional<FreeLanes::Place> found = find(takes, lanes, of);
      if (!found) continue;
      const cost::Wide area = cost::Wide{takes.both_ns()} * lanes;
      if (!best || area < least_area) {
        best = {.pass = pass, .width = width, .of = *found};
        least_area = area;
      }
      break;
    }
  }
  if (!best) return false;
  const cost::Work& share = times_.share(place, best->width);
  const Halves& alone = times_.alone(place, best->width);
  const LanePartIndex part = add_micro_batch({.work = share, .takes = alone});
  filling_.micro_batch_of.push_back(part);
  const LoadIndex index = add_load({.lanes = take(*best),
                                    .width = best->width,
                                    .pass = best->pass,
                                    .start_ns = best->of.start_ns,
                                    .takes = alone,
                                    .most_tokens = capacity(),
                                    .room_tokens = capacity() - share.tokens,
                                    .first_micro_batch = part});
  left_ns_ -= (alone.both_ns() - constant_ns_) * times_.lanes(best->width);
  usable_tokens_ -= passes_[static_cast<size_t>(best->pass)].usable_tokens * times_.lanes(best->width);
  const int lanes = load(index).lanes.lanes;
  const bool divides = trial_->keeps_whole && lanes > packing_.node_lanes;
  if (trial_->stacks && lanes > 1 && !divides) lay_free_above(index);
  divides ? divide(index) : open(index);
  return true;
}

void Strip::divide(LoadIndex index) {
  Load& divided = load(index);
  divided.divided = true;
  const LanePart part = micro_batch(divided.first_micro_batch);
  Load of_lane = divided;
  of_lane.divided = false;
  of_lane.part_of = index;
  of_lane.most_tokens = std::min(capacity(), times_.most_tokens(part.work, divided.width));
  of_lane.room_tokens = of_lane.most_tokens - part.work.tokens;
  of_lane.width = 0;
  of_lane.exchange = part.takes;
  of_lane.exchange -= times_.takes(part.work, of_lane.width);
  const LaneRun lanes = divided.lanes;
  for (int lane = lanes.first; lane < lanes.end(); ++lane) {
    of_lane.lanes = {lane, 1};
    of_lane.first_micro_batch = add_micro_batch(part);
    open(add_load(of_lane));
  }
}

// Finds lanes on which a load of this time ends in time.
std::optional<FreeLanes::Place> Strip::find(const Halves& takes, int lanes, OpenPass& pass) {
  if (!in_time(takes, 0, pass.most)) return std::nullopt;
  return pass.free.find(lanes, lanes <= packing_.node_lanes, pass.most.both_ns() - takes.both_ns());
}

// Closes the loads below: they may not grow any more.
LaneRun Strip::take(const Place& at) {
  FreeLanes& free = passes_[static_cast<size_t>(at.pass)].free;
  const LaneRun taken{free.run(at.of.run).lanes.first, times_.lanes(at.width)};
  const auto [first, end] = free.take(at.of.run, taken.lanes);
  for (size_t run = first; run < end; ++run) {
    if (const LoadIndex below = free.run(run).above; below.exists()) close(below);
  }
  if (!trial_->stacks && free.most_lanes() == 0)
    free_passes_.erase(std::ranges::lower_bound(free_passes_, at.pass));
  return taken;
}

void Strip::lay_free_above(LoadIndex index) {
  Load& below = load(index);
  FreeLanes& free = pass_of(below).free;
  below.free_begin = free.runs();
  auto node = std::ranges::upper_bound(packing_.nodes, below.lanes.first, {}, &LaneRun::end);
  for (; node != packing_.nodes.end() && node->first < below.lanes.end(); ++node) {
    const int first = std::max(node->first, below.lanes.first);
    const int end = std::min(node->end(), below.lanes.end());
    const bool whole = end - first == node->lanes;
    free.add({.lanes = {first, end - first}, .floor_ns = below.end_ns(), .above = index, .whole = whole});
  }
  below.free_end = free.runs();
}

Strip::Open Strip::opened(const Load& load, LoadIndex index) {
  const Halves& most = pass_of(load).most;
  const auto room_tokens =
      static_cast<int32_t>(std::clamp<int64_t>(load.room_tokens, -1, std::numeric_limits<int32_t>::max()));
  if (!trial_->apart) return {most.both_ns() - load.end_ns(), index, room_tokens};
  const auto of_both = [&](int64_t takes_ns, int64_t most_ns) {
    return static_cast<int64_t>(cost::Wide{most_ns - takes_ns} * most.both_ns() /
                                std::max<int64_t>(1, most_ns));
  };
  const int64_t left_ns = std::min(of_both(load.takes.forward_ns, most.forward_ns),
                                   of_both(load.takes.backward_ns, most.backward_ns));
  return {left_ns, index, room_tokens};
}

// Opens the load unless not even the shortest sequence has room or time.
void Strip::open(LoadIndex index) {
  Load& of = load(index);
  const int shortest = times_.places() - 1;
  const Open entry = opened(of, index);
  const int64_t left_ns = pass_of(of).most.both_ns() - of.end_ns();
  if (in_passes() && of.room_tokens < times_.share(shortest, of.width).tokens) return;
  if (entry.left_ns < times_.work_ns(shortest) / of.lanes.lanes) return;  // join asks for no less
  of.usable_tokens = usable_tokens(left_ns, of.room_tokens) * of.lanes.lanes;
  usable_tokens_ += of.usable_tokens;
  open_end_ = std::max(open_end_, of.width + 1);
  auto& open = open_[static_cast<size_t>(of.width)];
  open.insert(std::ranges::lower_bound(open, entry), entry);
}

// REQUIRES: the load has not changed since it was opened.
void Strip::close(LoadIndex index) {
  Load& closed = load(index);
  const Open entry = opened(closed, index);
  auto& open = open_[static_cast<size_t>(closed.width)];
  const auto at = std::ranges::lower_bound(open, entry);
  if (at == open.end() || *at != entry) return;
  open.erase(at);
  usable_tokens_ -= closed.usable_tokens;
  closed.usable_tokens = 0;
}

std::vector<strategy::MicroBatchSequence> Strip::sequences_of(const std::vector<int>& places) const {
  std::vector<strategy::MicroBatchSequence> sequences;
  for (const int place : places) sequences.push_back(packing_.sequence(place));
  return sequences;
}

// Adds one micro-batch per lane part; a divided load's micro-batch includes its lanes' whole sequences.
void Strip::add_micro_batches(const Filling& filling, LoadIndex index, const Places& places,
                              std::optional<int> pass, std::vector<PipelineMicroBatch>& micro_batches) const {
  const auto of = [&](LanePartIndex micro_batch) { return sequences_of(places[micro_batch]); };
  const Load& load = filling.loads[index];
  if (load.part_of.exists()) return;
  for (LanePartIndex next = load.first_micro_batch; next.exists(); next = filling.micro_batches[next].next) {
    micro_batches.push_back(
        {.first_lane = load.lanes.first, .lanes = load.lanes.lanes, .sequences = of(next), .pass = pass});
  }
  if (!load.divided) return;
  std::vector<std::vector<strategy::MicroBatchSequence>> own;
  for (int lane = 0; lane < load.lanes.lanes; ++lane)
    own.push_back(of(filling.loads[index + 1 + static_cast<size_t>(lane)].first_micro_batch));
  if (std::ranges::any_of(own, [](const auto& lane) { return !lane.empty(); }))
    micro_batches.back().own = std::move(own);
}

// A trial's pass becomes several passes if the share groups of its loads are disjoint.
std::vector<PipelineMicroBatch> Strip::pipeline_micro_batches(const Filling& filling) const {
  Places places(filling.micro_batches.size());
  for (size_t place = 0; place < filling.micro_batch_of.size(); ++place)
    places[filling.micro_batch_of[place]].push_back(static_cast<int>(place));
  const std::vector<Load>& all = filling.loads;
  std::vector<LoadIndex> loads(all.size());
  std::iota(loads.begin(), loads.end(), LoadIndex(0));
  const int share = packing_.scheme.scheme().fsdp;
  if (in_passes())
    std::ranges::stable_sort(loads, {},
                             [&](LoadIndex i) { return std::pair(all[i].pass, all[i].lanes.first); });
  std::vector<PipelineMicroBatch> micro_batches;
  int passes = 0;
  int reached = 0;  // end of the current pass's share groups
  const Load* before = nullptr;
  for (const LoadIndex index : loads) {
    const Load& load = all[index];
    if (before == nullptr || load.pass != before->pass) reached = 0;
    before = &load;
    if (load.lanes.first >= reached) ++passes;
    reached = std::max(reached, (load.lanes.end() + share - 1) / share * share);
    add_micro_batches(filling, index, places, share > 1 ? std::optional(passes - 1) : std::nullopt,
                      micro_batches);
  }
  return strategy::in_injection_order(std::move(micro_batches), packing_.lanes());
}

}  // namespace sluice::plan
