// Rows that wait at a stage's border, compared with runs of the graph in which ranks go on in random order.
#include "graph/waiting_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/test_graphs.h"

namespace sluice::graph {
namespace {

constexpr Stream kStreamsOfLane[] = {Stream::kCompute, Stream::kActivation, Stream::kGradient};

bool is_of_lane(const Node& node) { return is_compute_cell(node.kind) || is_transfer(node.kind); }

// Runs a pipeline's cells and transfers of one lane step by step. Each stage's streams begin nodes in their
// order; a transfer ends when both stages have begun it.
class RandomRun {
 public:
  RandomRun(const StepGraph& graph, int lane, uint64_t seed)
      : graph_(graph),
        place_(graph.plan.pipelines.front().pipeline),
        order_(graph, 0, lane),
        rng_(seed, 91),
        next_(static_cast<size_t>(stages())) {
    for (int stage = 0; stage < stages(); ++stage) {
      waiting_.emplace_back(graph, order_, stage);
      rank_.push_back(place_.rank_of(stage, lane, 0));
    }
  }

  int stages() const { return place_.scheme.pp; }

  // Visits (stage, bytes waiting, bytes that may wait) whenever a cell runs. Rows of pass p take 1 << p
  // bytes.
  template <typename Visit>
  void run(const Visit& visit) {
    while (true) {
      std::vector<std::pair<int, Stream>> ready;
      for (int stage = 0; stage < stages(); ++stage) {
        for (const Stream stream : kStreamsOfLane) {
          if (may_begin(stage, stream)) ready.emplace_back(stage, stream);
        }
      }
      std::vector<int> running;  // nodes that all their stages have begun
      for (const auto& [node, begun] : begun_) {
        if (!ended_.contains(node) && begun == (is_transfer(graph_.node(node).kind) ? 2 : 1))
          running.push_back(node);
      }
      for (int stage = 0; stage < stages(); ++stage) check(stage, visit);
      if (ready.empty() && running.empty()) break;
      const size_t chosen = rng_.below(ready.size() + running.size());
      if (chosen < ready.size()) {
        begin(ready[chosen].first, ready[chosen].second);
      } else {
        ended_.insert(running[chosen - ready.size()]);
      }
    }
    for (int stage = 0; stage < stages(); ++stage) {
      for (const Stream stream : kStreamsOfLane)
        ASSERT_EQ(next_[static_cast<size_t>(stage)][stream], std::ssize(order_.nodes(stage, stream)));
    }
  }

 private:
  const std::vector<int>& queue(int stage, Stream stream) const { return order_.nodes(stage, stream); }

  bool is_on(const Node& node, int stage) const {
    return std::ranges::binary_search(node.members, rank_[static_cast<size_t>(stage)]);
  }
  bool all_ended(int stage, Stream stream, int count) const {
    const auto& nodes = queue(stage, stream);
    return std::all_of(nodes.begin(), nodes.begin() + count, [&](int id) { return ended_.contains(id); });
  }
  bool may_begin(int stage, Stream stream) {
    const int at = next_[static_cast<size_t>(stage)][stream];
    if (at == std::ssize(queue(stage, stream)) || !all_ended(stage, stream, at)) return false;
    const Node& node = graph_.node(queue(stage, stream)[static_cast<size_t>(at)]);
    for (const int id : node.dependencies) {
      const Node& other = graph_.node(id);
      if (is_of_lane(other) && is_on(other, stage) && !ended_.contains(id)) return false;
    }
    if (!is_transfer(node.kind) || !receives(node, stage)) return true;
    return std::ranges::all_of(kStreamsOfLane, [&](Stream other) {
      return all_ended(stage, other, order_.ended_before(node.id, stage, other));
    });
  }
  void begin(int stage, Stream stream) {
    int& at = next_[static_cast<size_t>(stage)][stream];
    const int id = queue(stage, stream)[static_cast<size_t>(at++)];
    ++begun_[id];
    begun_on_.emplace(stage, id);
  }

  template <typename Visit>
  void check(int stage, const Visit& visit) {
    const int at = next_[static_cast<size_t>(stage)][Stream::kCompute];
    if (at == 0 || ended_.contains(queue(stage, Stream::kCompute)[static_cast<size_t>(at) - 1])) return;
    std::map<int, bool> has_begun, has_ended;  // by pass: any of its cells; all of them
    for (int i = 0; i < std::ssize(queue(stage, Stream::kCompute)); ++i) {
      const int pass = graph_.node(queue(stage, Stream::kCompute)[static_cast<size_t>(i)]).at()->pass;
      has_begun[pass] = has_begun[pass] || i < at;
      has_ended.try_emplace(pass, true).first->second &= i < at - 1;
    }
    int64_t bytes = 0;
    for (const int id : queue(stage, Stream::kActivation)) {
      const int pass = graph_.node(id).at()->pass;
      if (receives(graph_.node(id), stage) && begun_on_.contains({stage, id}) && !has_begun[pass])
        bytes += int64_t{1} << pass;
    }
    for (const int id : queue(stage, Stream::kGradient)) {
      const int pass = graph_.node(id).at()->pass;
      if (!receives(graph_.node(id), stage) && has_ended[pass] && !ended_.contains(id))
        bytes += int64_t{1} << pass;
    }
    visit(stage, bytes, waiting_[static_cast<size_t>(stage)].most_bytes(at - 1, [](int pass) {
      return int64_t{1} << pass;
    }));
  }

  const StepGraph& graph_;
  const strategy::Pipeline& place_;
  LaneOrder order_;
  base::Rng rng_;
  std::vector<std::map<Stream, int>> next_;  // by stage: the number of nodes that it has begun
  std::vector<int> rank_;                    // by stage
  std::vector<WaitingRows> waiting_;         // by stage
  std::map<int, int> begun_;                 // by node: the number of stages that have begun it
  std::set<std::pair<int, int>> begun_on_;
  std::set<int> ended_;
};

TEST(WaitingRows, NoOrderOfRanksHasMoreThanAreCounted) {
  int64_t waited = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto random =
        testing::random_case(seed, {.max_pipelines = 1, .policies = seed % 2 == 0, .freezes = seed % 5 == 0});
    const StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    for (uint64_t order = 0; order < 4; ++order) {
      RandomRun(graph, 0, seed * 4 + order).run([&](int stage, int64_t bytes, int64_t most) {
        ASSERT_LE(bytes, most) << "seed " << seed << " order " << order << " stage " << stage;
        waited += bytes;
      });
    }
  }
  EXPECT_GT(waited, 0);
}

// The bound is met: rows of the second micro-batch come while the first is at work.
TEST(WaitingRows, SomeOrderHasAsManyAsAreCounted) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const cost::CostModel cost = testing::small_cost(outline, {.device_bytes = 1'000'000'000});
  const model::ParameterTable table = model::parameter_table(outline, cost.program());
  for (const char* const strategy : {"<1,2,1>", "<1,3,1>"}) {
    const StepGraph graph =
        build(testing::plan_from_text(strategy, {"60, 60, 60, 60, 60"}, 4), table, cost, 4);
    std::map<int, int64_t> reached, counted;  // by stage
    for (uint64_t order = 0; order < 300; ++order) {
      RandomRun(graph, 0, order).run([&](int stage, int64_t bytes, int64_t most) {
        reached[stage] = std::max(reached[stage], bytes);
        counted[stage] = std::max(counted[stage], most);
      });
    }
    EXPECT_EQ(counted[0], 0) << "nothing enters the first stage";
    EXPECT_GT(counted[1], 0);
    EXPECT_EQ(reached, counted) << strategy;
  }
}

}  // namespace
}  // namespace sluice::graph
