#include "plan/level.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "plan/precision.h"

namespace sluice::plan {
namespace {

using Halves = SchemeCost::Halves;

constexpr size_t kMovesTried = 6;  // loads that a sequence may move to

class Leveller {
 public:
  Leveller(const Packing& packing, WidthTimes& times, Filling& filling)
      : packing_(packing), times_(times), filling_(filling), places_(filling.loads.size()) {
    std::vector<LoadIndex> load_of(filling.micro_batches.size());
    for (LoadIndex i(0); i < filling.loads.size(); ++i) load_of[filling.loads[i].first_micro_batch] = i;
    for (size_t place = 0; place < filling.micro_batch_of.size(); ++place)
      places_[load_of[filling.micro_batch_of[place]]].push_back(static_cast<int>(place));
    longest_ = filling.longest();
    listed_.resize(longest_.size());
    for (LoadIndex i(0); i < filling.loads.size(); ++i) {
      if (!filling.loads[i].divided) list(i);
    }
  }

  void run() {
    for (size_t tries = packing_.lengths.size(); tries > 0 && step(); --tries) {
    }
  }

 private:
  // A sequence to move there, and one to move back; -1: none.
  struct Step {
    int64_t over_ns = 0;  // the longest half afterwards, minus its pass's longest
    LoadIndex to;
    int place = -1;
    int back = -1;
  };

  // The loads of a pass by time; `both` by number of lanes.
  // Divided loads are left out: their lanes' loads take no less.
  using ByTime = std::set<std::pair<int64_t, LoadIndex>>;
  struct Listed {
    ByTime forwards, backwards;
    std::map<int, ByTime> both;
  };
  Listed& listed_of(const Load& load) { return listed_[static_cast<size_t>(load.pass)]; }
  void list(LoadIndex index) {
    const Load& load = filling_.loads[index];
    Listed& listed = listed_of(load);
    listed.forwards.emplace(load.takes.forward_ns, index);
    listed.backwards.emplace(load.takes.backward_ns, index);
    listed.both[load.lanes.lanes].emplace(load.takes.both_ns(), index);
  }
  void unlist(LoadIndex index) {
    const Load& load = filling_.loads[index];
    Listed& listed = listed_of(load);
    listed.forwards.erase({load.takes.forward_ns, index});
    listed.backwards.erase({load.takes.backward_ns, index});
    listed.both[load.lanes.lanes].erase({load.takes.both_ns(), index});
  }
  void change(LoadIndex index) {
    Load& load = filling_.loads[index];
    unlist(index);
    load.takes = batch(index).takes = takes(load, batch(index).work);
    list(index);
    const Listed& listed = listed_of(load);
    longest_[static_cast<size_t>(load.pass)] = {listed.forwards.rbegin()->first,
                                                listed.backwards.rbegin()->first};
  }

  const Halves& longest_of(const Load& load) const { return longest_[static_cast<size_t>(load.pass)]; }
  LanePart& batch(LoadIndex load) { return filling_.micro_batches[filling_.loads[load].first_micro_batch]; }
  Halves takes(const Load& load, const cost::Work& work) {
    Halves takes = times_.takes(work, load.width);
    takes += load.exchange;
    return takes;
  }
  int64_t over_ns(const Load& load, const cost::Work& work) {
    const Halves takes = this->takes(load, work);
    return std::max(takes.forward_ns - longest_of(load).forward_ns,
                    takes.backward_ns - longest_of(load).backward_ns);
  }

  // Takes a step away from one of the loads whose half is the longest of its pass.
  bool step() {
    std::set<LoadIndex> last;
    for (const Listed& listed : listed_) {
      for (const ByTime* of : {&listed.forwards, &listed.backwards}) {
        if (of->empty()) continue;
        for (auto at = of->lower_bound({of->rbegin()->first, LoadIndex(0)}); at != of->end(); ++at)
          last.insert(at->second);
      }
    }
    for (const LoadIndex from : last) {
      const int64_t negligible_ns = longest_of(filling_.loads[from]).both_ns() / kNegligiblePart;
      const Step best = best_of(from, -negligible_ns);
      if (best.place < 0) continue;
      move(from, best.to, best.place);
      if (best.back >= 0) move(best.to, from, best.back);
      change(from);
      change(best.to);
      return true;
    }
    return false;
  }

  Step best_of(LoadIndex from, int64_t below_ns) {
    Step best{.over_ns = below_ns};
    const std::vector<LoadIndex> others = slackest(from);
    for (const int place : places_[from]) {
      for (const LoadIndex to : others) {
        consider(from, {.to = to, .place = place}, best);
        for (const int back : partners(to, place)) {
          if (back >= 0) consider(from, {.to = to, .place = place, .back = back}, best);
        }
      }
    }
    return best;
  }

  // The few other loads with most slack.
  std::vector<LoadIndex> slackest(LoadIndex from) const {
    std::vector<std::pair<int64_t, LoadIndex>> slack;
    for (const Listed& listed : listed_) {
      for (const auto& [lanes, both] : listed.both) {
        size_t more = kMovesTried + 1;  // one may be `from`
        for (auto at = both.begin(); at != both.end() && more > 0; ++at, --more) {
          if (at->second != from) slack.emplace_back(-slack_ns(filling_.loads[at->second]), at->second);
        }
      }
    }
    const size_t tried = std::min(kMovesTried, slack.size());
    std::ranges::partial_sort(slack, slack.begin() + static_cast<std::ptrdiff_t>(tried));
    std::vector<LoadIndex> loads;
    for (size_t i = 0; i < tried; ++i) loads.push_back(slack[i].second);
    return loads;
  }
  // Time summed over its lanes until the pass's longest load ends.
  int64_t slack_ns(const Load& load) const {
    return (longest_of(load).both_ns() - load.takes.both_ns()) * load.lanes.lanes;
  }

  // The neighbours of the ideal partner, which would leave both loads equally far from their passes' longest.
  std::array<int, 2> partners(LoadIndex to, int place) const {
    const int64_t ideal_ns = times_.work_ns(place) - slack_ns(filling_.loads[to]) / 2;
    const std::vector<int>& others = places_[to];
    const auto at = std::ranges::lower_bound(others, ideal_ns, std::greater<>(),
                                             [&](int other) { return times_.work_ns(other); });
    return {at == others.end() ? -1 : *at, at == others.begin() ? -1 : *(at - 1)};
  }

  bool fits(int place, const Load& load) const {
    return load.width >= times_.first_width(place) && load.width < times_.end_width(place);
  }

  void consider(LoadIndex from, Step step, Step& best) {
    const Load &a = filling_.loads[from], &b = filling_.loads[step.to];
    if (!fits(step.place, b) || (step.back >= 0 && !fits(step.back, a))) return;
    cost::Work given = batch(from).work, taken = batch(step.to).work;
    given -= times_.share(step.place, a.width);
    taken += times_.share(step.place, b.width);
    if (step.back >= 0) {
      taken -= times_.share(step.back, b.width);
      given += times_.share(step.back, a.width);
    }
    if (taken.tokens > b.most_tokens || given.tokens > a.most_tokens || given.tokens == 0) return;
    step.over_ns = over_ns(b, taken);
    if (step.over_ns >= best.over_ns) return;
    step.over_ns = std::max(step.over_ns, over_ns(a, given));
    if (step.over_ns < best.over_ns) best = step;
  }

  void move(LoadIndex from, LoadIndex to, int place) {
    batch(from).work -= times_.share(place, filling_.loads[from].width);
    batch(to).work += times_.share(place, filling_.loads[to].width);
    std::erase(places_[from], place);
    places_[to].insert(std::ranges::lower_bound(places_[to], place), place);
    filling_.micro_batch_of[static_cast<size_t>(place)] = filling_.loads[to].first_micro_batch;
  }

  const Packing& packing_;
  WidthTimes& times_;
  Filling& filling_;
  std::vector<std::vector<int>> places_;  // by load, ascending
  std::vector<Halves> longest_;           // by pass, over its loads
  std::vector<Listed> listed_;            // by pass
};

}  // namespace

void level(const Packing& packing, WidthTimes& times, Filling& filling) {
  Leveller(packing, times, filling).run();
}

}  // namespace sluice::plan
