#include "strategy/pass.h"

#include <algorithm>

#include "base/error.h"
#include "base/interval.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using base::text;

// The lanes of the share groups that a unit lies on.
base::Interval closure(const Unit& unit, int share) {
  const int first = unit.first_lane / share * share;
  return {first, (unit.end_lane() + share - 1) / share * share};
}

// Lanes of a pass that no unit ties to those before them.
int untied_lane(const PipelinePlan& plan, const Pass& pass) {
  int64_t reached = pass.first_lane;
  std::vector<base::Interval> groups;
  for (const int unit : pass.units)
    groups.push_back(closure(plan.units[static_cast<size_t>(unit)], plan.pipeline.scheme.share));
  std::ranges::sort(groups, {}, &base::Interval::begin);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0 && groups[i].begin >= reached) return static_cast<int>(groups[i].begin);
    reached = std::max(reached, groups[i].end);
  }
  return -1;
}

// Checks passes while units join them in the order of the plan.
class PassReader {
 public:
  PassReader(const PipelinePlan& plan, const std::string& name) : plan_(plan), name_(name) {
    for (size_t u = 0; u < plan.units.size(); ++u) add(static_cast<int>(u));
  }

  std::vector<Pass> take() {
    for (size_t p = 0; p < passes_.size(); ++p) {
      Pass& pass = passes_[p];
      if (pass.units.empty()) fail(p, "no micro-batch is in it: number passes from 0 on without gaps");
      std::ranges::sort(pass.units, {}, [&](int unit) { return at(unit).first_lane; });
      const int lane = untied_lane(plan_, pass);
      if (lane >= 0) {
        fail(p, text("nothing ties lane ", lane, " to those before it: lanes without a common unit or ",
                     "share group run in passes of their own"));
      }
    }
    return std::move(passes_);
  }

 private:
  const Unit& at(int unit) const { return plan_.units[static_cast<size_t>(unit)]; }

  [[noreturn]] void fail(size_t pass, const std::string& what) const {
    throw base::InputError(text(name_, ": pass ", pass, ": ", what));
  }

  void add(int index) {
    const Unit& unit = at(index);
    const size_t most = plan_.units.size();
    if (!unit.pass || *unit.pass < 0 || static_cast<size_t>(*unit.pass) >= most) {
      throw base::InputError(text(name_, ": a micro-batch of lane ", unit.first_lane, " is in ",
                                  unit.pass ? text("pass ", *unit.pass) : "no pass",
                                  ": where lanes share parameters each is in one of at most ", most));
    }
    const auto number = static_cast<size_t>(*unit.pass);
    if (number >= passes_.size()) passes_.resize(number + 1);
    Pass& pass = passes_[number];
    const base::Interval lanes = closure(unit, plan_.pipeline.scheme.share);
    if (pass.units.empty()) {
      pass = {static_cast<int>(lanes.begin), static_cast<int>(lanes.size()), {}, unit.memory};
    }
    if (pass.memory != unit.memory) {
      fail(number, text("its micro-batches run under '", to_text(pass.memory), "' and '",
                        to_text(unit.memory), "': give all of them one memory policy"));
    }
    const int end = std::max(pass.end_lane(), static_cast<int>(lanes.end));
    pass.first_lane = std::min(pass.first_lane, static_cast<int>(lanes.begin));
    pass.lanes = end - pass.first_lane;
    pass.units.push_back(index);
    last_.resize(static_cast<size_t>(plan_.pipeline.scheme.cp), -1);
    for (int lane = unit.first_lane; lane < unit.end_lane(); ++lane) {
      int& last = last_[static_cast<size_t>(lane)];
      if (last >= *unit.pass) {
        fail(number,
             text("lane ", lane,
                  last == *unit.pass ? " has two micro-batches of it" : text(" runs it behind pass ", last)));
      }
      last = *unit.pass;
    }
  }

  const PipelinePlan& plan_;
  const std::string& name_;
  std::vector<Pass> passes_;
  std::vector<int> last_;  // by lane: the pass of the unit before
};

}  // namespace

int unit_on(const PipelinePlan& plan, const Pass& pass, int lane) {
  for (const int unit : pass.units) {
    if (plan.units[static_cast<size_t>(unit)].covers(lane)) return unit;
  }
  return -1;
}

int64_t tokens_on(const PipelinePlan& plan, const Pass& pass, int lane) {
  const int unit = unit_on(plan, pass, lane);
  return unit < 0 ? 0 : plan.units[static_cast<size_t>(unit)].tokens_on(lane);
}

int64_t tokens_of(const PipelinePlan& plan, const Pass& pass) {
  int64_t most = 0;
  for (const int unit : pass.units) most = std::max(most, plan.units[static_cast<size_t>(unit)].tokens());
  return most;
}

int head_lanes_of(const PipelinePlan& plan, const Pass& pass) {
  int most = 1;
  for (const int unit : pass.units)
    most = std::max(most, plan.units[static_cast<size_t>(unit)].head_lanes());
  return most;
}

std::vector<Pass> passes(const PipelinePlan& plan, const std::string& name) {
  if (plan.pipeline.scheme.share > 1) return PassReader(plan, name).take();
  std::vector<Pass> own;
  own.reserve(plan.units.size());
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const Unit& unit = plan.units[u];
    own.push_back({unit.first_lane, unit.lanes, {static_cast<int>(u)}, unit.memory});
  }
  return own;
}

void assign_passes(PipelinePlan& plan) {
  struct Open {
    base::Interval lanes;
    MemoryPolicy memory;
  };
  const int share = plan.pipeline.scheme.share;
  std::vector<Open> open;
  std::vector<size_t> next(static_cast<size_t>(plan.pipeline.scheme.cp), 0);  // by lane, its first pass yet
  for (Unit& unit : plan.units) {
    unit.pass = std::nullopt;
    if (share == 1) continue;
    const base::Interval lanes = closure(unit, share);
    const auto first = next.begin() + unit.first_lane;
    size_t pass = *std::max_element(first, first + unit.lanes);
    const auto holds = [&](const Open& of) {
      return of.lanes.begin <= lanes.begin && lanes.end <= of.lanes.end && of.memory == unit.memory;
    };
    while (pass < open.size() && !holds(open[pass])) ++pass;
    if (pass == open.size()) open.push_back({lanes, unit.memory});
    unit.pass = static_cast<int>(pass);
    std::fill_n(first, unit.lanes, pass + 1);
  }
}

}  // namespace sluice::strategy
