#include "graph/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cost/memory_cost.h"
#include "graph/clock.h"
#include "graph/memory.h"
#include "graph/test_graphs.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A good graph of two pipelines, one with two stages, to break in one place.
class Broken : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto plan = testing::plan_from_text("<2,2,1> + <1,1,1>", {"30, 40, 50", "60, 20"}, 6);
    graph_ = build(plan, table_, cost_, 6);
    ASSERT_THAT(faults(graph_, table_, cost_), IsEmpty());
  }

  Node& find(const std::string& name) {
    for (Node& node : graph_.nodes) {
      if (label(node) == name) return node;
    }
    throw base::AssertionError("no node '" + name + "' in\n" + to_text(graph_));
  }
  Node& first_of(NodeKind kind, int stage = -1) {
    for (const int id : graph_.in_order()) {
      Node& node = graph_.nodes[static_cast<size_t>(id)];
      if (node.kind == kind && (stage < 0 || node.at()->stage == stage)) return node;
    }
    throw base::AssertionError(std::string("no ") + name_of(kind));
  }
  // The fault that the graph is refused for; re-timed first where the change leaves no valid seq.
  std::string fault() { return base::join(faults(graph_, table_, cost_), "\n"); }
  std::string fault_after_clock() {
    run_clock(graph_);
    return fault();
  }
  static void forget(Node& node, int on) { std::erase(node.dependencies, on); }

  const model::Outline outline_ = model::outline_of_12_heads(4);
  const model::ParameterTable table_ = model::parameter_table(outline_);
  const cost::CostModel cost_ = testing::small_cost(outline_, {.gpus_per_node = 4});
  StepGraph graph_;
};

TEST_F(Broken, TwoNodesSwappedInAProgram) {
  for (std::vector<int>& program : graph_.programs) {
    for (size_t i = 1; i < program.size(); ++i) {
      std::swap(program[i - 1], program[i]);
      EXPECT_THAT(fault(), HasSubstr("before"));
      std::swap(program[i - 1], program[i]);
    }
  }
}

TEST_F(Broken, SeqOfTwoNodesSwapped) {
  const std::vector<int> order = graph_.in_order();
  for (size_t i = 1; i < order.size(); ++i) {
    const Node& before = graph_.node(order[i - 1]);
    const Node& after = graph_.node(order[i]);
    std::vector<int> shared;
    std::ranges::set_intersection(before.members, after.members, std::back_inserter(shared));
    const bool waits = std::ranges::binary_search(after.dependencies, before.id);
    if (shared.empty() && !waits) continue;
    std::swap(graph_.nodes[static_cast<size_t>(before.id)].seq,
              graph_.nodes[static_cast<size_t>(after.id)].seq);
    EXPECT_THAT(fault(), HasSubstr("order: "));
    std::swap(graph_.nodes[static_cast<size_t>(before.id)].seq,
              graph_.nodes[static_cast<size_t>(after.id)].seq);
  }
}

TEST_F(Broken, SeqGivenTwice) {
  graph_.nodes[0].seq = graph_.nodes[1].seq;
  EXPECT_THAT(fault(), HasSubstr("no number of its own"));
}

TEST_F(Broken, DependencyOnALaterNode) {
  const int last = graph_.in_order().back();
  graph_.nodes[0].dependencies.push_back(last);
  EXPECT_THAT(fault(), HasSubstr("waits for"));
}

TEST_F(Broken, NodeMissingFromAProgram) {
  graph_.programs[2].pop_back();
  EXPECT_THAT(fault(), HasSubstr("is in"));
}

TEST_F(Broken, NodeInAStrangersProgram) {
  graph_.programs[5].push_back(graph_.programs[0].back());  // rank 0's Update
  std::ranges::sort(graph_.programs[5], {}, [&](int id) { return graph_.node(id).seq; });
  EXPECT_THAT(fault(), HasSubstr("is no member of it"));
}

TEST_F(Broken, MembersOutOfOrder) {
  std::ranges::reverse(first_of(NodeKind::kPullIntra).members);
  EXPECT_THAT(fault(), HasSubstr("distinct ascending ranks"));
}

TEST_F(Broken, IdThatIsNotThePosition) {
  graph_.nodes[3].id = 4;
  EXPECT_THAT(fault(), HasSubstr("has id 4"));
}

TEST_F(Broken, LayersOfACellLeftOut) {
  Node& cell = first_of(NodeKind::kForward, 1);
  std::get<Cell>(cell.payload).run.end -= 1;
  EXPECT_THAT(fault(), HasSubstr("completeness: "));
}

TEST_F(Broken, CellTwice) {
  Cell& cell = std::get<Cell>(find("F p0 s0 m2 E L0-2").payload);
  cell.pass = 1;
  cell.tokens = 40;
  EXPECT_THAT(fault(), HasSubstr("repeats work or comes too early"));
}

TEST_F(Broken, WeightGradientBeforeItsInputGradient) {
  Node& input = first_of(NodeKind::kBackwardInput, 1);
  for (Node& node : graph_.nodes) {
    if (node.kind != NodeKind::kBackwardWeight) continue;
    const Cell& weight = node.cell();
    if (weight.pass == input.cell().pass && weight.stage == 1 && weight.pipeline == 0) {
      std::swap(node.kind, input.kind);
      break;
    }
  }
  EXPECT_THAT(fault(), HasSubstr("completeness: "));
}

TEST_F(Broken, CellOnOtherRanks) {
  Node& cell = find("F p1 s0 m1 E L0-4 H");
  cell.members = {5};
  EXPECT_THAT(fault_after_clock(), HasSubstr("runs on other ranks"));
}

TEST_F(Broken, PayloadOfAnotherKind) {
  first_of(NodeKind::kForward).payload = LinkRound{0};
  EXPECT_THAT(fault(), HasSubstr("of kind forward has the payload of another kind"));
}

TEST_F(Broken, TokensThatThePlanHasNot) {
  std::get<Cell>(find("F p1 s0 m1 E L0-4 H").payload).tokens += 1;
  EXPECT_THAT(fault(), HasSubstr("no micro-batch of the plan"));
}

TEST_F(Broken, TransferOfOtherBytes) {
  find("act p0 s0 m1").bytes += 8;
  EXPECT_THAT(fault(), HasSubstr("bytes instead of"));
}

TEST_F(Broken, TransferBeforeItsProducer) {
  Node& transfer = find("grad p0 s0 m1");
  transfer.dependencies.clear();
  EXPECT_THAT(fault_after_clock(), HasSubstr("does not wait for"));
}

TEST_F(Broken, ConsumerBeforeItsTransfer) {
  const int transfer = find("act p0 s0 m1").id;
  forget(find("F p0 s1 m1 L2-4 H"), transfer);
  EXPECT_THAT(fault_after_clock(), HasSubstr("does not wait for 'act p0 s0 m1'"));
}

TEST_F(Broken, TransferBetweenOtherRanks) {
  std::erase(find("act p0 s0 m1").members, 3);
  EXPECT_THAT(fault_after_clock(), HasSubstr("between other ranks"));
}

TEST_F(Broken, ForwardBeforeItsPull) {
  Node& cell = first_of(NodeKind::kForward, 0);
  std::erase_if(cell.dependencies, [&](int on) { return graph_.node(on).kind == NodeKind::kPullIntra; });
  EXPECT_THAT(fault_after_clock(), HasSubstr("which rank 0 has not waited for"));
}

TEST_F(Broken, PullRoundsOutOfOrder) {
  first_of(NodeKind::kPullInter).payload = LinkRound{1};
  EXPECT_THAT(fault(), HasSubstr("where round 0 is due"));
}

TEST_F(Broken, PushBeforeAGradient) {
  int broken = 0;
  const StepGraph good = graph_;
  for (size_t i = 0; i < good.nodes.size(); ++i) {
    if (good.nodes[i].kind != NodeKind::kPushIntra) continue;
    for (const int on : good.nodes[i].dependencies) {
      if (!is_compute_cell(good.node(on).kind)) continue;
      graph_ = good;
      forget(graph_.nodes[i], on);
      EXPECT_THAT(fault_after_clock(), HasSubstr("does not wait for the last gradient on rank"));
      ++broken;
    }
  }
  EXPECT_GT(broken, 4);
}

TEST_F(Broken, LevelsOfARoundApart) {
  Node& inter = first_of(NodeKind::kPushInter);
  inter.dependencies.clear();
  EXPECT_THAT(fault_after_clock(), HasSubstr("does not wait for the level before it"));
}

TEST_F(Broken, ScalarsBeforeTheLastPush) {
  first_of(NodeKind::kReduceScalars).dependencies.clear();
  EXPECT_THAT(fault_after_clock(), HasSubstr("do not wait for the last push"));
}

TEST_F(Broken, UpdateBeforeTheScalars) {
  first_of(NodeKind::kUpdate).dependencies.clear();
  EXPECT_THAT(fault_after_clock(), HasSubstr("does not wait for the scalars"));
}

TEST_F(Broken, RankWithoutUpdate) {
  Node& update = first_of(NodeKind::kUpdate);
  update.members = {update.members.front() == 0 ? 1 : 0};
  EXPECT_THAT(fault_after_clock(), HasSubstr("updates 0 times"));
}

// All forwards first is a good order for a device that holds them all, not for a smaller one.
// A block that two lanes have at hand for its backward would have to wait for another pass.
TEST_F(Broken, PassBetweenAForwardAndItsBackward) {
  graph_ = build(testing::plan_from_text("<1,1,2,2>", {"30, 40 / 20, 50"}, 2), table_, cost_, 2,
                 {.disabled_passes = {"layer-parts"}});
  ASSERT_THAT(faults(graph_, table_, cost_), IsEmpty());
  std::vector<Node*> order;  // forward and backward of the first pass, then of the second
  for (const int id : graph_.in_order()) {
    Node& node = graph_.nodes[static_cast<size_t>(id)];
    if (is_compute_cell(node.kind)) order.push_back(&node);
  }
  ASSERT_EQ(order.size(), 4u);
  forget(*order[2], order[1]->id);
  order[2]->dependencies.push_back(order[0]->id);
  order[1]->dependencies.push_back(order[2]->id);
  order[3]->dependencies.push_back(order[1]->id);
  for (Node* node : order) {
    std::ranges::sort(node->dependencies);
    node->dependencies.erase(std::ranges::unique(node->dependencies).begin(), node->dependencies.end());
  }
  EXPECT_THAT(fault_after_clock(), HasSubstr("lies between a forward and its backward on rank 0"));
}

TEST_F(Broken, CreditExceeded) {
  int64_t device_bytes = 0;
  const auto tight = [&] {
    return testing::small_cost(outline_, {.gpus_per_node = 4, .device_bytes = device_bytes});
  };
  while (cost::MemoryCost(tight(), {2, 2, 1}).credit_tokens(6) < 50)
    device_bytes += 1000;  // each micro-batch fits alone
  ASSERT_LT(cost::MemoryCost(tight(), {2, 2, 1}).credit_tokens(6), 90) << "but not two of them";
  EXPECT_THAT(base::join(faults(graph_, table_, tight()), "\n"), HasSubstr("credits: "));
}

TEST_F(Broken, AboveCapacityNamesRankPeakAndCapacity) {
  cost::CostModel::Options options = cost_.options();
  options.memory.transient_bytes_per_token = 0;
  const int64_t peak =
      std::ranges::max(predicted_memory(graph_, cost_), {}, &RankMemory::peak_bytes).peak_bytes;
  options.memory.device_bytes = peak;
  EXPECT_EQ(memory_fault(graph_, cost::CostModel(options)), "");
  options.memory.device_bytes = peak - 1;
  EXPECT_THAT(memory_fault(graph_, cost::CostModel(options)),
              ::testing::AllOf(HasSubstr("rank "), HasSubstr(base::human_bytes(static_cast<double>(peak))),
                               HasSubstr("1 B more than")));
}

TEST_F(Broken, VerifyOrThrowBlamesUs) {
  graph_.nodes[0].seq = 7;
  EXPECT_THROW(require_proved(graph_, table_, cost_), base::AssertionError);
}

}  // namespace
}  // namespace sluice::graph
