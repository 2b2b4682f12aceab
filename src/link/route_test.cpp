#include "link/route.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "link/test_cases.h"
#include "link/test_route_text.h"

namespace sluice::link {
namespace {

constexpr uint64_t kCases = 200;

struct Routed {
  Case c;
  ComputeLayout layout;
  Rounds rounds_;
  Route route_;
};

Routed routed(Case c) {
  ComputeLayout layout(c.table, c.strategy, c.world_size);
  Rounds by_round = rounds(c.table, c.strategy);
  Route all = route(c.table, layout, by_round, c.world_size, c.gpus_per_node);
  return {std::move(c), std::move(layout), std::move(by_round), std::move(all)};
}

model::ParameterTable even_table(int64_t layers, bool tied = false) {
  return model::parameter_table(model::Outline{.layers = layers,
                                               .hidden = 16,
                                               .heads = 8,
                                               .kv_heads = 8,
                                               .head_dim = 2,
                                               .ffn_hidden = 32,
                                               .vocab = 64,
                                               .tie_embeddings = tied});
}

int owner_of(const Routed& r, int bucket, int64_t element) {
  for (int rank = 0; rank < r.c.world_size; ++rank) {
    const base::Interval owned =
        OwnerLayout{r.c.world_size}.owned(r.c.table.buckets[static_cast<size_t>(bucket)], rank);
    if (owned.begin <= element && element < owned.end) return rank;
  }
  return -1;
}

int64_t sum_over_rounds(const Route& route, int rank, std::vector<int64_t> Volume::*side) {
  int64_t total = 0;
  for (const RouteRound& round : route.rounds) {
    for (const auto* level : {&round.inter, &round.intra}) {
      total += (volume(*level, route.world_size).*side)[static_cast<size_t>(rank)];
    }
  }
  return total;
}

TEST(Route, BytesReceivedEqualShardLessOwned) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Routed r = routed(random_case(seed));
    for (int rank = 0; rank < r.c.world_size; ++rank) {
      int64_t shard_less_owned = 0;  // element by element
      for (const model::Bucket& bucket : r.c.table.buckets) {
        const base::IntervalSet& shard = r.layout.shard(bucket.index, rank);
        for (int64_t element = 0; element < bucket.size; ++element) {
          if (shard.contains({element, element + 1}) && owner_of(r, bucket.index, element) != rank) {
            ++shard_less_owned;
          }
        }
      }
      EXPECT_EQ(sum_over_rounds(r.route_, rank, &Volume::received), shard_less_owned) << "seed " << seed;
      EXPECT_EQ(pulled_elements(r.c.table, r.layout, r.c.world_size, rank), shard_less_owned);
    }
  }
}

TEST(Route, EachNodeTakesEachForeignElementInOnce) {
  using NodeElement = std::tuple<int, int, int64_t>;  // node, bucket, element
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Routed r = routed(random_case(seed));
    const auto node = [&](int rank) { return rank / r.c.gpus_per_node; };
    std::map<NodeElement, int> entered;
    for (const RouteRound& round : r.route_.rounds) {
      for (const auto& [bucket, slice, source, destination] : round.inter) {
        EXPECT_NE(node(source), node(destination));
        for (int64_t e = slice.begin; e < slice.end; ++e) {
          EXPECT_EQ(owner_of(r, bucket, e), source);
          ++entered[{node(destination), bucket, e}];
        }
      }
      for (const Transfer& transfer : round.intra) {
        EXPECT_EQ(node(transfer.source), node(transfer.destination));
      }
    }
    std::map<NodeElement, int> needed;
    for (int rank = 0; rank < r.c.world_size; ++rank) {
      for (const Holding& holding : r.layout.holdings(rank)) {
        for (const base::Interval& interval : holding.shard.intervals()) {
          for (int64_t e = interval.begin; e < interval.end; ++e) {
            if (node(owner_of(r, holding.bucket, e)) != node(rank))
              needed[{node(rank), holding.bucket, e}] = 1;
          }
        }
      }
    }
    EXPECT_EQ(entered, needed) << "seed " << seed;
  }
}

TEST(Route, TransfersStandInWireOrder) {
  const auto key = [](const Transfer& t) {
    return std::tie(t.bucket, t.slice.begin, t.source, t.destination);
  };
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Routed r = routed(random_case(seed));
    for (const RouteRound& round : r.route_.rounds) {
      for (const auto* level : {&round.inter, &round.intra}) {
        EXPECT_TRUE(std::is_sorted(level->begin(), level->end(),
                                   [&](const Transfer& a, const Transfer& b) { return key(a) < key(b); }));
      }
    }
  }
}

TEST(Route, RouteOfRankIsTheWholeRouteFiltered) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Routed r = routed(random_case(seed));
    for (int rank = 0; rank < r.c.world_size; ++rank) {
      const Route own =
          route_of_rank(r.c.table, r.layout, r.rounds_, r.c.world_size, r.c.gpus_per_node, rank);
      for (size_t round = 0; round < own.rounds.size(); ++round) {
        const auto filtered = [&](std::vector<Transfer> list) {
          std::erase_if(list, [&](const Transfer& t) { return t.source != rank && t.destination != rank; });
          return list;
        };
        EXPECT_EQ(own.rounds[round].inter, filtered(r.route_.rounds[round].inter));
        EXPECT_EQ(own.rounds[round].intra, filtered(r.route_.rounds[round].intra));
      }
    }
  }
}

TEST(Route, RoundVolumesEqualThoseOfTheTransfers) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Routed r = routed(random_case(seed));
    const std::vector<RoundVolume> volumes =
        round_volumes(r.c.table, r.layout, r.rounds_, r.c.world_size, r.c.gpus_per_node);
    ASSERT_EQ(volumes.size(), r.route_.rounds.size());
    for (size_t round = 0; round < volumes.size(); ++round) {
      const Volume inter = volume(r.route_.rounds[round].inter, r.c.world_size);
      const Volume intra = volume(r.route_.rounds[round].intra, r.c.world_size);
      EXPECT_EQ(volumes[round].inter.sent, inter.sent);
      EXPECT_EQ(volumes[round].inter.received, inter.received);
      EXPECT_EQ(volumes[round].intra.sent, intra.sent);
      EXPECT_EQ(volumes[round].intra.received, intra.received);
      EXPECT_TRUE(volumes[round].beyond.empty());
    }
  }
}

TEST(Route, VolumesBeyondLargerGroupsAreThoseOfTheTransfersThatLeaveThem) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Routed r = routed(random_case(seed));
    const int node = r.c.gpus_per_node;
    const strategy::Topology topology(node, 1, {2 * node, 6 * node});
    const std::vector<RoundVolume> volumes =
        round_volumes(r.c.table, r.layout, r.rounds_, r.c.world_size, topology);
    for (size_t round = 0; round < volumes.size(); ++round) {
      for (const int level : {1, 2}) {
        std::vector<Transfer> leaving = r.route_.rounds[round].inter;
        std::erase_if(leaving, [&](const Transfer& transfer) {
          return topology.level_of(transfer.source, transfer.destination) <= level;
        });
        const Volume expected = volume(leaving, r.c.world_size);
        const Volume& beyond = volumes[round].beyond[static_cast<size_t>(level - 1)];
        EXPECT_EQ(beyond.sent, expected.sent);
        EXPECT_EQ(beyond.received, expected.received);
      }
    }
  }
}

TEST(Route, ExchangesMatchBetweenPeers) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Routed r = routed(random_case(seed));
    const int world = r.c.world_size;
    for (const RouteRound& round : r.route_.rounds) {
      for (int a = 0; a < world; ++a) {
        const PeerSlices pull = pull_slices(round.intra, world, a);
        for (int b = 0; b < world; ++b) {
          const PeerSlices peer = pull_slices(round.intra, world, b);
          EXPECT_EQ(pull.send_elements(b), peer.receive_elements(a));
          EXPECT_EQ(pull.receive_elements(b), peer.send_elements(a));
        }
      }
    }
  }
}

TEST(Route, DataParallelismIsAnAllGather) {
  const Routed r = routed({even_table(3), strategy::parse_strategy("4x<1,1,1>", 4), 4, 4});
  const int64_t size = r.c.table.size();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(sum_over_rounds(r.route_, rank, &Volume::received), size - size / 4);
    EXPECT_EQ(sum_over_rounds(r.route_, rank, &Volume::sent), size - size / 4);
  }
}

TEST(Route, TwoNodesOfDataParallelismSendEachElementOverOnce) {
  const Routed r = routed({even_table(2), strategy::parse_strategy("8x<1,1,1>", 8), 8, 4});
  const int64_t size = r.c.table.size();
  int64_t between = 0;
  for (const RouteRound& round : r.route_.rounds) {
    const Volume inter = volume(round.inter, 8);
    for (const int64_t elements : inter.received) between += elements;
  }
  EXPECT_EQ(between, size);  // half of it each way
}

TEST(Route, EvenlyCutParameterHasThePapersSegments) {
  // The embedding is cut evenly by TP; its mutual slices are the paper's, or coarser where owner and
  // holders change together.
  const struct {
    const char* strategy;
    int world_size;
  } cases[] = {{"6x<1,1,1>", 6}, {"<2,1,1> + <4,1,1>", 6}, {"3x<4,1,1>", 12}, {"<8,1,1> + 2x<2,1,1>", 12}};
  for (const auto& [text, world] : cases) {
    Case c{model::parameter_table(model::Outline{.layers = 1,
                                                 .hidden = 24,
                                                 .heads = 8,
                                                 .kv_heads = 8,
                                                 .head_dim = 2,
                                                 .ffn_hidden = 24,
                                                 .vocab = 24}),
           strategy::parse_strategy(text, world), world, world};
    // The paper's mutual slices (Hydraulis, section 5.2): evenly many segments, LCM(N, TPmax).
    int most_tp = 1;
    for (const strategy::Pipeline& pipeline : c.strategy.pipelines)
      most_tp = std::max(most_tp, pipeline.scheme.tp);
    const int64_t finest = c.table.embedding().size / std::lcm(world, most_tp);
    const Routed r = routed(std::move(c));
    std::set<int64_t> cuts;
    for (const RouteRound& round : r.route_.rounds) {
      for (const Transfer& transfer : round.intra) {
        if (transfer.bucket != 0) continue;
        EXPECT_EQ(transfer.slice.begin % finest, 0) << text;
        EXPECT_EQ(transfer.slice.end % finest, 0) << text;
        cuts.insert(transfer.slice.begin);
      }
    }
    // Cuts lie where owners or TP shards begin: all multiples of 1/N and of 1/TP.
    std::set<int64_t> expected;
    const int64_t size = r.c.table.embedding().size;
    for (int i = 0; i < world; ++i) expected.insert(size * i / world);
    for (const strategy::Pipeline& pipeline : r.c.strategy.pipelines) {
      for (int t = 0; t < pipeline.scheme.tp; ++t) expected.insert(size * t / pipeline.scheme.tp);
    }
    EXPECT_EQ(cuts, expected) << text;
  }
}

// One layer, tied; ranks 0 and 1 (node 0) cut it by TP, rank 2 holds all of it, rank 3 idles but owns. What
// ranks 0 and 1 share (the second norm: bucket 1 from 26 to 28) enters node 0 in halves and spreads there.
TEST(Route, GoldenText) {
  const Case c{model::parameter_table(model::Outline{.layers = 1,
                                                     .hidden = 2,
                                                     .heads = 2,
                                                     .kv_heads = 1,
                                                     .head_dim = 2,
                                                     .ffn_hidden = 2,
                                                     .vocab = 4,
                                                     .tie_embeddings = true}),
               strategy::parse_strategy("<2,1,1> + <1,1,1>", 4), 4, 2};
  const Routed r = routed(c);
  EXPECT_EQ(to_text(r.route_), R"(4 ranks, 2 a node
round 0: buckets 0 1 2
  inter 0 -> 2  bucket 0 [0, 2)
  inter 1 -> 2  bucket 0 [2, 4)
  inter 2 -> 1  bucket 0 [4, 6)
  inter 3 -> 1  bucket 0 [6, 8)
  inter 0 -> 2  bucket 1 [0, 2)
  inter 0 -> 2  bucket 1 [2, 6)
  inter 0 -> 2  bucket 1 [6, 10)
  inter 1 -> 2  bucket 1 [10, 18)
  inter 1 -> 2  bucket 1 [18, 20)
  inter 2 -> 0  bucket 1 [20, 22)
  inter 2 -> 1  bucket 1 [22, 26)
  inter 2 -> 0  bucket 1 [26, 27)
  inter 2 -> 1  bucket 1 [27, 28)
  inter 2 -> 0  bucket 1 [28, 30)
  inter 3 -> 1  bucket 1 [30, 32)
  inter 3 -> 0  bucket 1 [32, 34)
  inter 3 -> 1  bucket 1 [34, 36)
  inter 3 -> 0  bucket 1 [36, 38)
  inter 3 -> 1  bucket 1 [38, 40)
  inter 1 -> 2  bucket 2 [0, 1)
  inter 3 -> 1  bucket 2 [1, 2)
  intra 0 = 0  bucket 0 [0, 2)
  intra 1 -> 0  bucket 0 [2, 4)
  intra 2 = 2  bucket 0 [4, 6)
  intra 3 -> 2  bucket 0 [6, 8)
  intra 0 = 0  bucket 1 [0, 2)
  intra 0 -> 1  bucket 1 [0, 2)
  intra 0 = 0  bucket 1 [2, 6)
  intra 0 -> 1  bucket 1 [6, 10)
  intra 1 -> 0  bucket 1 [10, 18)
  intra 1 = 1  bucket 1 [10, 18)
  intra 1 -> 0  bucket 1 [18, 20)
  intra 2 = 2  bucket 1 [20, 22)
  intra 2 = 2  bucket 1 [22, 26)
  intra 0 -> 1  bucket 1 [26, 27)
  intra 2 = 2  bucket 1 [26, 28)
  intra 1 -> 0  bucket 1 [27, 28)
  intra 2 = 2  bucket 1 [28, 30)
  intra 3 -> 2  bucket 1 [30, 32)
  intra 3 -> 2  bucket 1 [32, 34)
  intra 3 -> 2  bucket 1 [34, 36)
  intra 3 -> 2  bucket 1 [36, 38)
  intra 3 -> 2  bucket 1 [38, 40)
  intra 1 -> 0  bucket 2 [0, 1)
  intra 1 = 1  bucket 2 [0, 1)
  intra 1 -> 0  bucket 2 [1, 2)
  intra 3 -> 2  bucket 2 [1, 2)
)");
}

}  // namespace
}  // namespace sluice::link
