#include "strategy/pass.h"

#include <algorithm>

#include "base/error.h"
#include "base/interval.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using base::text;

// The lanes of the share groups that a micro-batch touches.
base::Interval closure(const PipelineMicroBatch& micro_batch, int share) {
  const int first = micro_batch.first_lane / share * share;
  return {first, (micro_batch.end_lane() + share - 1) / share * share};
}

// The first lane of the pass that no micro-batch ties to the lanes before it; -1: all lanes are tied.
int untied_lane(const PipelinePlan& plan, const Pass& pass) {
  int64_t reached = pass.first_lane;
  std::vector<base::Interval> groups;
  for (const int micro_batch : pass.micro_batches)
    groups.push_back(
        closure(plan.micro_batches[static_cast<size_t>(micro_batch)], plan.pipeline.scheme.fsdp));
  std::ranges::sort(groups, {}, &base::Interval::begin);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0 && groups[i].begin >= reached) return static_cast<int>(groups[i].begin);
    reached = std::max(reached, groups[i].end);
  }
  return -1;
}

// Builds and checks passes; micro-batches join them in the order of the plan.
class PassReader {
 public:
  PassReader(const PipelinePlan& plan, const std::string& name) : plan_(plan), name_(name) {
    for (size_t u = 0; u < plan.micro_batches.size(); ++u) add(static_cast<int>(u));
  }

  std::vector<Pass> take() {
    for (size_t p = 0; p < passes_.size(); ++p) {
      Pass& pass = passes_[p];
      if (pass.micro_batches.empty())
        fail(p, "no micro-batch is in it: number passes from 0 on without gaps");
      std::ranges::sort(pass.micro_batches, {}, [&](int micro_batch) { return at(micro_batch).first_lane; });
      const int lane = untied_lane(plan_, pass);
      if (lane >= 0) {
        fail(p, text("nothing ties lane ", lane, " to those before it: lanes without a common micro-batch ",
                     "or FSDP group run in passes of their own"));
      }
    }
    return std::move(passes_);
  }

 private:
  const PipelineMicroBatch& at(int micro_batch) const {
    return plan_.micro_batches[static_cast<size_t>(micro_batch)];
  }

  [[noreturn]] void fail(size_t pass, const std::string& what) const {
    throw base::InputError(text(name_, ": pass ", pass, ": ", what));
  }

  void add(int index) {
    const PipelineMicroBatch& micro_batch = at(index);
    const size_t most = plan_.micro_batches.size();
    if (!micro_batch.pass || *micro_batch.pass < 0 || static_cast<size_t>(*micro_batch.pass) >= most) {
      throw base::InputError(text(name_, ": a micro-batch of lane ", micro_batch.first_lane, " is in ",
                                  micro_batch.pass ? text("pass ", *micro_batch.pass) : "no pass",
                                  ": where lanes share parameters each is in one of at most ", most));
    }
    const auto number = static_cast<size_t>(*micro_batch.pass);
    if (number >= passes_.size()) passes_.resize(number + 1);
    Pass& pass = passes_[number];
    const base::Interval lanes = closure(micro_batch, plan_.pipeline.scheme.fsdp);
    if (pass.micro_batches.empty()) {
      pass = {static_cast<int>(lanes.begin), static_cast<int>(lanes.size()), {}, micro_batch.memory};
    }
    if (pass.memory != micro_batch.memory) {
      fail(number, text("its micro-batches run under '", to_text(pass.memory), "' and '",
                        to_text(micro_batch.memory), "': give all of them one memory policy"));
    }
    const int end = std::max(pass.end_lane(), static_cast<int>(lanes.end));
    pass.first_lane = std::min(pass.first_lane, static_cast<int>(lanes.begin));
    pass.lanes = end - pass.first_lane;
    pass.micro_batches.push_back(index);
    last_.resize(static_cast<size_t>(plan_.pipeline.scheme.cp), -1);
    for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane) {
      int& last = last_[static_cast<size_t>(lane)];
      if (last >= *micro_batch.pass) {
        fail(number, text("lane ", lane,
                          last == *micro_batch.pass ? " has two micro-batches of it"
                                                    : text(" runs it behind pass ", last)));
      }
      last = *micro_batch.pass;
    }
  }

  const PipelinePlan& plan_;
  const std::string& name_;
  std::vector<Pass> passes_;
  std::vector<int> last_;  // by lane: the pass of its previous micro-batch
};

}  // namespace

int micro_batch_on(const PipelinePlan& plan, const Pass& pass, int lane) {
  for (const int micro_batch : pass.micro_batches) {
    if (plan.micro_batches[static_cast<size_t>(micro_batch)].covers(lane)) return micro_batch;
  }
  return -1;
}

int64_t tokens_on(const PipelinePlan& plan, const Pass& pass, int lane) {
  const int micro_batch = micro_batch_on(plan, pass, lane);
  return micro_batch < 0 ? 0 : plan.micro_batches[static_cast<size_t>(micro_batch)].tokens_on(lane);
}

int64_t tokens_of(const PipelinePlan& plan, const Pass& pass) {
  int64_t most = 0;
  for (const int micro_batch : pass.micro_batches)
    most = std::max(most, plan.micro_batches[static_cast<size_t>(micro_batch)].tokens());
  return most;
}

int head_lanes_of(const PipelinePlan& plan, const Pass& pass) {
  int most = 1;
  for (const int micro_batch : pass.micro_batches)
    most = std::max(most, plan.micro_batches[static_cast<size_t>(micro_batch)].head_lanes());
  return most;
}

std::vector<Pass> passes(const PipelinePlan& plan, const std::string& name) {
  if (plan.pipeline.scheme.fsdp > 1) return PassReader(plan, name).take();
  std::vector<Pass> own;
  own.reserve(plan.micro_batches.size());
  for (size_t u = 0; u < plan.micro_batches.size(); ++u) {
    const PipelineMicroBatch& micro_batch = plan.micro_batches[u];
    own.push_back({micro_batch.first_lane, micro_batch.lanes, {static_cast<int>(u)}, micro_batch.memory});
  }
  return own;
}

void assign_passes(PipelinePlan& plan) {
  struct Open {
    base::Interval lanes;
    MemoryPolicy memory;
  };
  const int share = plan.pipeline.scheme.fsdp;
  std::vector<Open> open;
  std::vector<size_t> next(static_cast<size_t>(plan.pipeline.scheme.cp), 0);  // by lane, first it may join
  for (PipelineMicroBatch& micro_batch : plan.micro_batches) {
    micro_batch.pass = std::nullopt;
    if (share == 1) continue;
    const base::Interval lanes = closure(micro_batch, share);
    const auto first = next.begin() + micro_batch.first_lane;
    size_t pass = *std::max_element(first, first + micro_batch.lanes);
    const auto holds = [&](const Open& of) {
      return of.lanes.begin <= lanes.begin && lanes.end <= of.lanes.end && of.memory == micro_batch.memory;
    };
    while (pass < open.size() && !holds(open[pass])) ++pass;
    if (pass == open.size()) open.push_back({lanes, micro_batch.memory});
    micro_batch.pass = static_cast<int>(pass);
    std::fill_n(first, micro_batch.lanes, pass + 1);
  }
}

}  // namespace sluice::strategy
