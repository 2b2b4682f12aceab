#include "link/wire.h"

#include <gmock/gmock.h>

#include <map>

#include "link/test_cases.h"
#include "model/outline.h"
#include "model/test_tuning.h"

namespace sluice::link {
namespace {

constexpr uint64_t kWireCases = 200;

// All ranks' memories, and exchanges between them.
template <typename Element>
class World {
 public:
  explicit World(const Case& c)
      : c_(c),
        layout(c.table, c.strategy, c.world_size),
        owners{c.world_size},
        route_(route(c.table, layout, rounds(c.table, c.strategy), c.world_size, c.gpus_per_node)) {
    const size_t buckets = c.table.buckets.size();
    for (int rank = 0; rank < c.world_size; ++rank) {
      compute.emplace_back(buckets);
      owner.emplace_back(buckets);
      for (const model::Bucket& bucket : c.table.buckets) {
        const auto index = static_cast<size_t>(bucket.index);
        compute.back()[index].resize(static_cast<size_t>(layout.shard(bucket.index, rank).size()));
        owner.back()[index].resize(static_cast<size_t>(owners.owned(bucket, rank).size()));
      }
    }
  }

  int ranks() const { return c_.world_size; }
  const Route& whole_route() const { return route_; }

  void pull() {
    for (const RouteRound& round : route_.rounds) {
      std::vector<RoundWire> wires;
      for (int rank = 0; rank < ranks(); ++rank) {
        wires.push_back(pull_wire(c_.table, layout, round, rank));
      }
      exchange(wires, &RoundWire::inter);
      exchange(wires, &RoundWire::intra);
    }
  }

  void push() {
    for (auto round = route_.rounds.rbegin(); round != route_.rounds.rend(); ++round) {
      std::vector<RoundWire> wires;
      for (int rank = 0; rank < ranks(); ++rank) {
        wires.push_back(push_wire(c_.table, layout, *round, c_.gpus_per_node, rank));
      }
      exchange(wires, &RoundWire::intra);
      exchange(wires, &RoundWire::inter);
    }
  }

  // By rank, by bucket.
  std::vector<std::vector<std::vector<Element>>> compute;
  std::vector<std::vector<std::vector<Element>>> owner;

 private:
  BucketMemory<Element> memory(int rank) {
    BucketMemory<Element> result;
    for (auto& bucket : compute[static_cast<size_t>(rank)]) result.compute.push_back(bucket.data());
    for (auto& bucket : owner[static_cast<size_t>(rank)]) result.owner.push_back(bucket.data());
    return result;
  }

  void exchange(const std::vector<RoundWire>& wires, WireLevel RoundWire::*level) {
    std::vector<std::vector<Element>> sent;
    for (int rank = 0; rank < ranks(); ++rank) {
      const WireLevel& own = wires[static_cast<size_t>(rank)].*level;
      pack(own, memory(rank), sent.emplace_back(static_cast<size_t>(own.sent())).data());
    }
    std::vector<int64_t> taken(static_cast<size_t>(ranks()), 0);
    for (int rank = 0; rank < ranks(); ++rank) {
      const WireLevel& own = wires[static_cast<size_t>(rank)].*level;
      std::vector<Element> received;
      for (int peer = 0; peer < ranks(); ++peer) {
        const WireLevel& theirs = wires[static_cast<size_t>(peer)].*level;
        const int64_t count = theirs.send_elements[static_cast<size_t>(rank)];
        ASSERT_EQ(count, own.receive_elements[static_cast<size_t>(peer)]);
        int64_t& offset = taken[static_cast<size_t>(peer)];
        const auto begin = sent[static_cast<size_t>(peer)].begin() + offset;
        received.insert(received.end(), begin, begin + count);
        offset += count;
      }
      unpack(own, received.data(), memory(rank));
    }
  }

  Case c_;

 public:
  ComputeLayout layout;
  OwnerLayout owners;

 private:
  Route route_;
};

// Calls visit(rank, bucket, element, value) for all elements in the compute shards.
template <typename Element, typename Visit>
void for_each_held(World<Element>& world, const Case& c, const Visit& visit) {
  for (int rank = 0; rank < c.world_size; ++rank) {
    for (const model::Bucket& bucket : c.table.buckets) {
      size_t offset = 0;
      for (const base::Interval& interval : world.layout.shard(bucket.index, rank).intervals()) {
        for (int64_t element = interval.begin; element < interval.end; ++element) {
          visit(rank, bucket.index, element,
                world.compute[static_cast<size_t>(rank)][static_cast<size_t>(bucket.index)][offset++]);
        }
      }
    }
  }
}

template <typename Element, typename Visit>
void for_each_owned(World<Element>& world, const Case& c, const Visit& visit) {
  for (int rank = 0; rank < c.world_size; ++rank) {
    for (const model::Bucket& bucket : c.table.buckets) {
      size_t offset = 0;
      const base::Interval owned = world.owners.owned(bucket, rank);
      for (int64_t element = owned.begin; element < owned.end; ++element) {
        visit(bucket.index, element,
              world.owner[static_cast<size_t>(rank)][static_cast<size_t>(bucket.index)][offset++]);
      }
    }
  }
}

template <typename Element>
void expect_pull_equals_oracle() {
  const auto value = [](int bucket, int64_t element) {
    return static_cast<Element>(1 + (bucket * 7919 + element) % 60000);
  };
  for (uint64_t seed = 0; seed < kWireCases; ++seed) {
    const Case c = random_case(seed);
    World<Element> world(c);
    for_each_owned(world, c, [&](int bucket, int64_t element, Element& at) { at = value(bucket, element); });
    world.pull();
    for_each_held(world, c, [&](int rank, int bucket, int64_t element, Element& at) {
      ASSERT_EQ(at, value(bucket, element)) << "seed " << seed << " rank " << rank << " bucket " << bucket;
    });
  }
}

TEST(Wire, PullBringsEveryHolderItsElements) {
  expect_pull_equals_oracle<float>();
  expect_pull_equals_oracle<double>();
  expect_pull_equals_oracle<uint16_t>();
}

// Adds over ranks inside nodes, then over nodes: the documented tree, one element at a time.
class TreeSums {
 public:
  explicit TreeSums(int gpus_per_node) : gpus_per_node_(gpus_per_node) {}

  // REQUIRES: ranks come in ascending order for each element.
  void add(int rank, int bucket, int64_t element, float value) {
    auto& nodes = sums_[{bucket, element}];
    const auto [node, first] = nodes.try_emplace(rank / gpus_per_node_, value);
    if (!first) node->second += value;
  }

  float total(int bucket, int64_t element) const {
    const auto& nodes = sums_.at({bucket, element});
    float sum = nodes.begin()->second;
    for (auto node = std::next(nodes.begin()); node != nodes.end(); ++node) sum += node->second;
    return sum;
  }

 private:
  int gpus_per_node_;
  std::map<std::pair<int, int64_t>, std::map<int, float>> sums_;
};

TEST(Wire, PushAddsOverTheTreeBitwise) {
  for (uint64_t seed = 0; seed < kWireCases; ++seed) {
    const Case c = random_case(seed);
    World<float> world(c);
    TreeSums expected(c.gpus_per_node);
    for_each_held(world, c, [&](int rank, int bucket, int64_t element, float& at) {
      at = static_cast<float>(base::random_normal(seed, static_cast<uint64_t>(rank * 1000 + bucket),
                                                  static_cast<uint64_t>(element)));
      expected.add(rank, bucket, element, at);
    });
    world.push();
    for_each_owned(world, c, [&](int bucket, int64_t element, float& at) {
      ASSERT_EQ(at, expected.total(bucket, element)) << "seed " << seed << " bucket " << bucket;
    });
  }
}

TEST(Wire, PushOfIntegersEqualsTheSumOverHolders) {
  for (uint64_t seed = 0; seed < kWireCases; ++seed) {
    const Case c = random_case(seed);
    World<double> world(c);
    std::map<std::pair<int, int64_t>, double> expected;
    for_each_held(world, c, [&](int rank, int bucket, int64_t element, double& at) {
      at = static_cast<double>((rank + 1) * 1000003 + bucket * 101 + element);
      expected[{bucket, element}] += at;
    });
    world.push();
    for_each_owned(world, c, [&](int bucket, int64_t element, double& at) {
      ASSERT_EQ(at, expected.at({bucket, element})) << "seed " << seed << " bucket " << bucket;
    });
  }
}

TEST(Wire, CountsEqualTheTheory) {
  for (uint64_t seed = 0; seed < kWireCases; ++seed) {
    const Case c = random_case(seed);
    const World<float> world(c);
    for (int rank = 0; rank < c.world_size; ++rank) {
      int64_t pulled = 0;
      int64_t pushed = 0;
      for (const RouteRound& round : world.whole_route().rounds) {
        const RoundWire pull = pull_wire(c.table, world.layout, round, rank);
        const RoundWire push = push_wire(c.table, world.layout, round, c.gpus_per_node, rank);
        pulled += pull.inter.received() + pull.intra.received();
        pushed += push.inter.sent() + push.intra.sent();
      }
      EXPECT_EQ(pulled, pulled_elements(c.table, world.layout, c.world_size, rank));
      EXPECT_EQ(pushed, pulled);
    }
  }
}

TEST(Wire, PushesOfFrozenBucketsMoveNothing) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Case c = random_case(seed);
    model::Outline outline = c.table.model.outline();
    model::freeze(outline, {"model.embed_tokens", "*.mlp.*"});
    c.table = model::parameter_table(outline);
    const World<float> world(c);
    const Rounds by_round = rounds(c.table, c.strategy);
    const std::vector<RoundVolume> volumes =
        round_volumes(c.table, world.layout, by_round, c.world_size, c.gpus_per_node, Moved::kTrained);
    const auto trained = [&](int bucket) { return c.table.buckets[static_cast<size_t>(bucket)].trained; };
    for (size_t round = 0; round < volumes.size(); ++round) {
      for (int rank = 0; rank < c.world_size; ++rank) {
        const RoundWire push =
            push_wire(c.table, world.layout, world.whole_route().rounds[round], c.gpus_per_node, rank);
        EXPECT_EQ(push.inter.sent(), volumes[round].inter.received[static_cast<size_t>(rank)]);
        EXPECT_EQ(push.intra.sent(), volumes[round].intra.received[static_cast<size_t>(rank)]);
        for (const WireLevel* level : {&push.inter, &push.intra}) {
          for (const Copy& copy : level->pack) EXPECT_TRUE(trained(copy.from.bucket));
          for (const Sum& sum : level->sums) EXPECT_TRUE(trained(sum.to.bucket));
        }
      }
    }
  }
}

TEST(Wire, RouteOfOneRankGivesTheSamePlan) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Case c = random_case(seed);
    const World<float> world(c);
    const Rounds by_round = rounds(c.table, c.strategy);
    for (int rank = 0; rank < c.world_size; ++rank) {
      const Route own = route_of_rank(c.table, world.layout, by_round, c.world_size, c.gpus_per_node, rank);
      for (size_t i = 0; i < own.rounds.size(); ++i) {
        const RoundWire a = push_wire(c.table, world.layout, own.rounds[i], c.gpus_per_node, rank);
        const RoundWire b =
            push_wire(c.table, world.layout, world.whole_route().rounds[i], c.gpus_per_node, rank);
        EXPECT_EQ(a.inter.send_elements, b.inter.send_elements);
        EXPECT_EQ(a.intra.receive_elements, b.intra.receive_elements);
        EXPECT_EQ(a.inter.sources, b.inter.sources);
        EXPECT_EQ(a.intra.sources, b.intra.sources);
      }
    }
  }
}

TEST(Wire, ContiguousSlicesMoveAsOneRun) {
  // One pipeline of one rank beside an idle one: everything it lacks is the idle rank's half.
  const Case c{
      model::parameter_table(model::Outline{
          .layers = 1, .hidden = 4, .heads = 2, .kv_heads = 2, .head_dim = 2, .ffn_hidden = 4, .vocab = 8}),
      strategy::parse_strategy("<1,1,1>", 2), 2, 8};
  const World<float> world(c);
  const RoundWire wire = pull_wire(c.table, world.layout, world.whole_route().rounds.front(), 0);
  EXPECT_EQ(wire.intra.unpack.size(), 2 * c.table.buckets.size());  // a local move and a received half each
  EXPECT_TRUE(wire.inter.idle());
}

}  // namespace
}  // namespace sluice::link
