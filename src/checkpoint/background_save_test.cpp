// Ranks of one process save in place of a training run, and exchange their status when the test says so.
#include "checkpoint/background_save.h"

#include <gmock/gmock.h>

#include <fstream>
#include <memory>
#include <numeric>

#include "base/file.h"
#include "checkpoint/find.h"
#include "checkpoint/load.h"
#include "checkpoint/test_directory.h"
#include "link/layout.h"
#include "model/parameter_count.h"
#include "model/test_outline.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using Progress = BackgroundSave::Progress;

constexpr int kRanks = 3;

// A rank's slices, which the test changes as training would.
struct Rank {
  std::vector<std::vector<float>> values;  // by bucket
  std::unique_ptr<BackgroundSave> save;

  // Sets element e of a bucket to e + `offset` in all three states.
  void set(const model::ParameterTable& table, int rank, float offset) {
    values.clear();
    for (const model::Bucket& bucket : table.buckets) {
      const base::Interval owned = link::OwnerLayout{kRanks}.owned(bucket, rank);
      std::vector<float>& own = values.emplace_back(static_cast<size_t>(owned.size()));
      std::iota(own.begin(), own.end(), static_cast<float>(owned.begin) + offset);
    }
  }
};

class SavingBehind : public testing::Test {
 protected:
  SavingBehind() { open({{root_, {.count = 2}}}); }

  void open(const std::vector<SaveLocation>& places) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BackgroundSave::Options options{.rank = rank, .world_size = kRanks, .locations = places};
      ranks_[rank].save = std::make_unique<BackgroundSave>(std::move(options));
    }
  }

  void begin(int64_t step) {
    for (int r = 0; r < kRanks; ++r) begin(r, step);
  }

  void begin(int r, int64_t step) {
    ranks_[r].set(table_, r, static_cast<float>(step));
    SaveInput input;
    input.manifest.step = step;
    input.manifest.model = model::saved_outline(1);
    if (r == 0) input.companions.push_back({"config.json", "{}"});
    input.snapshot = [this, r] {
      snapshots_[r] = ranks_[r].values;
      std::vector<OwnerState> states;
      for (const model::Bucket& bucket : table_.buckets) {
        const void* data = snapshots_[r][static_cast<size_t>(bucket.index)].data();
        states.push_back({link::OwnerLayout{kRanks}.owned(bucket, r), data, data, data});
      }
      return states;
    };
    ranks_[r].save->begin(std::move(input));
  }

  // One exchange between the ranks, each done with its part if `wait`.
  Progress exchange(bool wait = true) {
    std::vector<SaveStatus> words;
    for (Rank& rank : ranks_) {
      if (wait) rank.save->wait();
      words.push_back(rank.save->status());
    }
    const Progress progress = ranks_[0].save->advance(words);
    for (int r = 1; r < kRanks; ++r) EXPECT_EQ(ranks_[r].save->advance(words), progress);
    return progress;
  }

  Progress exchange_until_news() {
    Progress progress = exchange();
    while (progress == Progress::kUnderWay) progress = exchange();
    return progress;
  }

  // Expects a whole checkpoint of the step's values.
  void expect_saved(const fs::path& root, int64_t step) {
    Checkpoint checkpoint(step_directory(root, step));
    checkpoint.verify();
    EXPECT_EQ(checkpoint.companions().size(), 1U);
    for (const model::Bucket& bucket : table_.buckets) {
      std::vector<float> read(static_cast<size_t>(bucket.size)), expected(read.size());
      checkpoint.read(bucket.index, {0, bucket.size}, State::kExpAvg, read.data());
      std::iota(expected.begin(), expected.end(), static_cast<float>(step));
      EXPECT_EQ(read, expected);
    }
  }

  TestDirectory directory_;
  fs::path root_ = directory_ / "checkpoints";
  model::ParameterTable table_ = model::parameter_table(model::saved_outline(1));
  std::vector<std::vector<float>> snapshots_[kRanks];
  Rank ranks_[kRanks];
};

TEST_F(SavingBehind, SavesTheStateOfItsBeginning) {
  begin(7);
  for (int r = 0; r < kRanks; ++r) {
    ranks_[r].save->wait();          // copied, and the place is prepared
    ranks_[r].set(table_, r, 1000);  // the next update
  }
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  EXPECT_FALSE(ranks_[0].save->busy());
  expect_saved(root_, 7);
  EXPECT_GT(ranks_[0].save->saved_bytes(), 3 * 4 * model::parameter_count(model::saved_outline(1)));
}

TEST_F(SavingBehind, WaitsForEveryRank) {
  begin(0, 5);
  begin(1, 5);
  std::vector<SaveStatus> words;
  for (int r = 0; r < 2; ++r) {
    ranks_[r].save->wait();
    words.push_back(ranks_[r].save->status());
  }
  words.push_back({});  // rank 2 is not done
  EXPECT_EQ(ranks_[0].save->advance(words), Progress::kUnderWay);
  EXPECT_EQ(ranks_[1].save->advance(words), Progress::kUnderWay);
  begin(2, 5);
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  expect_saved(root_, 5);
}

TEST_F(SavingBehind, CommitsBehindAllFilesAlone) {
  begin(3);
  exchange();  // the place is prepared; files are being written
  for (const Rank& rank : ranks_) rank.save->wait();
  EXPECT_TRUE((step_directory(root_, 3) / rank_file_name(2)).is_file());
  EXPECT_FALSE(latest(root_));
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  EXPECT_EQ(latest(root_)->step, 3);
}

TEST_F(SavingBehind, OneThatEndsMidwayLeavesTheCheckpointBefore) {
  begin(1);
  exchange_until_news();
  begin(2);
  exchange();
  for (Rank& rank : ranks_) rank.save.reset();
  EXPECT_EQ(latest(root_)->step, 1);
  expect_saved(root_, 1);
}

TEST_F(SavingBehind, RankThatCannotWriteFailsTheSaveOfAll) {
  begin(1);
  exchange_until_news();
  begin(2);
  for (const Rank& rank : ranks_) rank.save->wait();
  (step_directory(root_, 2) / rank_file_name(1)).make_directory();  // in the file's way
  EXPECT_EQ(exchange_until_news(), Progress::kFailed);
  EXPECT_TRUE(ranks_[1].save->failure());
  EXPECT_FALSE(ranks_[0].save->failure());
  EXPECT_FALSE(ranks_[2].save->busy());
  EXPECT_EQ(latest(root_)->step, 1);
  begin(4);
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  EXPECT_FALSE(fs::exists(step_directory(root_, 2).path()));
  expect_saved(root_, 4);
}

class SavingTwice : public SavingBehind {
 protected:
  SavingTwice() { open({{root_, {.count = 2}}, {mirror_, {.count = 1}}}); }
  fs::path mirror_ = directory_ / "mirror";
};

TEST_F(SavingTwice, MirrorHoldsTheSame) {
  for (const int64_t step : {2, 4}) {
    begin(step);
    EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
    EXPECT_TRUE(ranks_[0].save->committed());
    EXPECT_EQ(exchange_until_news(), Progress::kMirrored);
    EXPECT_FALSE(ranks_[0].save->busy());
  }
  expect_saved(mirror_, 4);
  for (const char* name : {"manifest.json", "rank-0002.safetensors", "model/config.json"}) {
    EXPECT_EQ((step_directory(mirror_, 4) / name).read(), (step_directory(root_, 4) / name).read());
  }
  EXPECT_EQ(saved_steps(root_).size(), 2U);
  EXPECT_EQ(saved_steps(mirror_).size(), 1U);  // by its own retention
}

TEST_F(SavingTwice, CheckpointStandsWithoutItsMirror) {
  std::ofstream(mirror_) << "a file where the directory belongs";
  begin(2);
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  EXPECT_EQ(exchange_until_news(), Progress::kMirrorFailed);
  EXPECT_FALSE(ranks_[1].save->busy());
  expect_saved(root_, 2);
  fs::remove(mirror_);
  begin(4);
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  EXPECT_EQ(exchange_until_news(), Progress::kMirrored);
  expect_saved(mirror_, 4);
}

TEST_F(SavingTwice, MirrorCanBeGivenUp) {
  begin(2);
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  for (const Rank& rank : ranks_) {
    rank.save->wait();
    rank.save->drop_mirrors();
  }
  begin(3);
  EXPECT_EQ(exchange_until_news(), Progress::kCommitted);
  EXPECT_EQ(exchange_until_news(), Progress::kMirrored);
  EXPECT_EQ(saved_steps(mirror_).size(), 1U);
  expect_saved(mirror_, 3);
}

}  // namespace
}  // namespace sluice::checkpoint
