#include "runtime/row_link.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/test_fake.h"
#include "link/test_cases.h"
#include "model/outline.h"
#include "runtime/test_cluster.h"

namespace sluice::runtime {
namespace {

using link::RowEnd;
using link::RowPlacement;

// Two random plans of the same sequences, with the ends that a row link joins.
struct Pair {
  int world_size = 1;
  int gpus_per_node = 1;
  int64_t width = 1;
  RowPlacement from, to;
};

strategy::StepPlan random_plan(base::Rng& rng, const std::vector<strategy::Sequence>& sequences,
                               int world_size) {
  const model::Outline outline = model::outline_of_odd_sizes();
  const strategy::Strategy strategy = link::random_strategy(rng, outline, world_size);
  const auto make = std::vector{dealt_plan, ringed_plan, packed_plan}[static_cast<size_t>(rng.below(3))];
  return make(static_cast<int64_t>(rng.below(1000)), sequences, strategy, 96);
}

Pair random_pair(uint64_t seed, int world_size) {
  base::Rng rng(seed, 91);
  Pair pair{.world_size = world_size,
            .gpus_per_node = static_cast<int>(rng.between(1, world_size)),
            .width = rng.between(1, 3)};
  const std::vector<strategy::Sequence> sequences =
      random_batch(seed, 1, rng.between(1, 12), rng.between(2, 60));
  const auto end = [&] { return rng.below(2) == 0 ? RowEnd::kFirstStage : RowEnd::kLastStage; };
  pair.from = row_placement(random_plan(rng, sequences, world_size), world_size, end());
  pair.to = row_placement(random_plan(rng, sequences, world_size), world_size, end());
  return pair;
}

double value_of(const link::RowRun& run, int64_t token, int64_t column) {
  return 1 + run.sequence * 1e6 + static_cast<double>(token) * 10 + static_cast<double>(column);
}

// Calls visit(a rank's run, token, column, element) for the rows that a rank has.
template <typename Visit>
void for_each_row(const RowPlacement& placement, int rank, const ActRows& rows, int64_t width, Visit visit) {
  for (const link::RowRun& run : placement.runs) {
    if (run.rank != rank) continue;
    double* const first = rows.at(static_cast<size_t>(run.micro_batch)).mutable_data_ptr<double>();
    for (int64_t token = run.tokens.begin; token < run.tokens.end; ++token) {
      for (int64_t column = 0; column < width; ++column)
        visit(run, token, column, first[(run.row + token - run.tokens.begin) * width + column]);
    }
  }
}

// Rows with their values, and −7 where there is no token.
ActRows filled(const RowPlacement& placement, int rank, int64_t width) {
  ActRows rows;
  for (const int64_t shard : placement.shard_rows[static_cast<size_t>(rank)])
    rows.push_back(at::empty({shard, width}, at::kDouble).fill_(-7));
  for_each_row(placement, rank, rows, width,
               [](const link::RowRun& run, int64_t token, int64_t column, double& at) {
                 at = value_of(run, token, column);
               });
  return rows;
}

// Expects every token's row, and zeros everywhere else.
void expect_carried(const RowPlacement& placement, int rank, const ActRows& rows, int64_t width,
                    uint64_t seed) {
  double rest = 0;
  for (const at::Tensor& shard : rows) rest += shard.numel() > 0 ? shard.abs().sum().item<double>() : 0;
  for_each_row(placement, rank, rows, width,
               [&](const link::RowRun& run, int64_t token, int64_t column, double at) {
                 EXPECT_EQ(at, value_of(run, token, column)) << "seed " << seed << " rank " << rank;
                 rest -= at;
               });
  EXPECT_EQ(rest, 0) << "seed " << seed << " rank " << rank;
}

// The rank of every token, found token by token.
std::map<std::pair<int, int64_t>, int> homes(const RowPlacement& placement) {
  std::map<std::pair<int, int64_t>, int> homes;
  for (const link::RowRun& run : placement.runs) {
    for (int64_t token = run.tokens.begin; token < run.tokens.end; ++token) {
      const bool added = homes.try_emplace({run.sequence, token}, run.rank).second;
      EXPECT_TRUE(added) << "token " << token << " of sequence " << run.sequence << " has two homes";
    }
  }
  return homes;
}

int64_t changed_homes(const RowPlacement& from, const RowPlacement& to) {
  const auto before = homes(from), after = homes(to);
  EXPECT_EQ(before.size(), after.size());
  int64_t changed = 0;
  for (const auto& [token, rank] : before) changed += after.at(token) != rank ? 1 : 0;
  return changed;
}

// All ranks of a world carry the rows of each pair there and back, over the strict fake transport.
class Carriers {
 public:
  Carriers(int world_size, uint64_t first_seed, uint64_t pairs)
      : world_size_(world_size), first_seed_(first_seed), sent_(pairs) {
    for (uint64_t i = 0; i < pairs; ++i) pairs_.push_back(random_pair(first_seed + i, world_size));
  }

  void run() {
    comm::FakeWorld world(world_size_, {.seed = first_seed_});
    std::vector<comm::FakeWorld::Participant> participants;
    for (int rank = 0; rank < world_size_; ++rank) participants.emplace_back(world, rank);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size_; ++rank) {
      threads.emplace_back([&, rank, mine = std::move(participants[static_cast<size_t>(rank)])] {
        try {
          carry_all(*world.transport(rank));
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex_);
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const int64_t moved = changed_homes(pairs_[i].from, pairs_[i].to);
      EXPECT_EQ(link::moved_rows(pairs_[i].from, pairs_[i].to), moved);
      EXPECT_EQ(link::moved_rows(pairs_[i].to, pairs_[i].from), moved);
      EXPECT_EQ(sent_[i], 2 * moved * pairs_[i].width) << "seed " << first_seed_ + i;
    }
  }

 private:
  void carry_all(comm::Transport& transport) {
    std::vector<int> all(static_cast<size_t>(world_size_));
    std::iota(all.begin(), all.end(), 0);
    const auto inter = transport.communicator("inter", all), intra = transport.communicator("intra", all);
    LinkRunner inter_runner(*inter), intra_runner(*intra);
    const RowLinkRunners runners{inter_runner, intra_runner};
    const int rank = transport.rank();
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      const RowLink there = row_link(pair.from, pair.to, pair.width, pair.gpus_per_node, rank),
                    back = row_link(pair.to, pair.from, pair.width, pair.gpus_per_node, rank);
      ActRows rows =
          carry(there, filled(pair.from, rank, pair.width), comm::DType::kFloat64, at::kCPU, runners);
      const ActRows returned = carry(back, rows, comm::DType::kFloat64, at::kCPU, runners);
      const std::lock_guard lock(mutex_);
      expect_carried(pair.to, rank, rows, pair.width, first_seed_ + i);
      expect_carried(pair.from, rank, returned, pair.width, first_seed_ + i);
      sent_[i] += there.sent_elements() + back.sent_elements();
    }
  }

  int world_size_;
  uint64_t first_seed_;
  std::vector<Pair> pairs_;
  std::mutex mutex_;
  std::vector<int64_t> sent_;  // by pair
};

TEST(RowLink, RandomPairsOfLayoutsCarryTheirRowsThereAndBack) {
  at::set_num_threads(1);
  constexpr uint64_t kPairs = 10'000;
  constexpr int kMostRanks = 8;
  for (int world_size = 1; world_size <= kMostRanks; ++world_size)
    Carriers(world_size, static_cast<uint64_t>(world_size) * kPairs, kPairs / kMostRanks).run();
}

TEST(RowLink, UnchangedLayoutsSendNothing) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Pair pair = random_pair(seed, 6);
    EXPECT_EQ(link::moved_rows(pair.from, pair.from), 0);
    for (int rank = 0; rank < 6; ++rank)
      EXPECT_EQ(row_link(pair.from, pair.from, 3, pair.gpus_per_node, rank).sent_elements(), 0);
  }
}

// TP ranks have even shards of a lane's rows; the last shards include rows without tokens.
TEST(RowLink, PlacesRowsByLaneAndTpRank) {
  strategy::StepPlan plan;
  plan.sequences = {{0, 0, 5}, {1, 0, 4}};
  plan.pipelines.push_back({strategy::parse_strategy("<2,2,1>", 4).pipelines.front(), 16, {}});
  plan.pipelines.front().micro_batches = {{.sequences = {{0, 5}}}, {.sequences = {{1, 4}}}};
  const RowPlacement last = link::row_placement(plan, 4, RowEnd::kLastStage);
  EXPECT_EQ(last.tokens(), 9);
  const std::vector<std::vector<int64_t>> shards{{}, {}, {3, 2}, {3, 2}};
  EXPECT_EQ(last.shard_rows, shards);
  ASSERT_EQ(last.runs.size(), 4);
  EXPECT_EQ(last.runs[1].rank, 3);
  EXPECT_EQ(last.runs[1].tokens, (base::Interval{3, 5}));
  EXPECT_EQ(last.runs[1].row, 0);
  EXPECT_EQ(last.runs[3].micro_batch, 1);
  EXPECT_EQ(link::row_placement(plan, 4, RowEnd::kFirstStage).runs[3].rank, 1);
}

TEST(RowLink, OfOtherTokensIsAnError) {
  Pair pair = random_pair(3, 4);
  pair.to.runs.pop_back();
  EXPECT_ANY_THROW(row_link(pair.from, pair.to, 1, 8, 0));
}

}  // namespace
}  // namespace sluice::runtime
