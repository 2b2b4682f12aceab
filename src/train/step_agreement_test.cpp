// The ranks' words between two steps, and the conclusions that all of them draw.
#include "train/step_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/test_fake.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRanks = 3;

// A rank's part of an agreement.
struct Word {
  UpcomingStep upcoming;
  StepStatus status;
  report::StepRecord record;
};

UpcomingStep upcoming(int64_t step, uint64_t agreement = 5) {
  auto prepared = std::make_unique<run::PreparedStep>();
  prepared->plan.step = step;
  prepared->agreement = agreement;
  return {.step = std::move(prepared), .failure = nullptr};
}

// All ranks' agreements; `change` makes each rank's word differ from a plain one about step 4.
struct Agreed {
  std::vector<StepAgreement> by_rank{kRanks};
  std::vector<report::StepRecord> records{kRanks};
};
Agreed agreed(const std::function<void(int rank, Word& word)>& change) {
  comm::FakeWorld world(kRanks);
  Agreed result;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto transport = world.transport(rank);
      survive::Control control(*transport);
      Word word{.upcoming = upcoming(4), .status = {}, .record = {}};
      change(rank, word);
      result.by_rank[static_cast<size_t>(rank)] = agree(control, word.upcoming, word.status, word.record);
      result.records[static_cast<size_t>(rank)] = word.record;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return result;
}

std::string why(const std::exception_ptr& failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(StepAgreement, EqualPlansAgreeAndNothingIsAsked) {
  for (const StepAgreement& agreement : agreed([](int, Word&) {}).by_rank) {
    EXPECT_EQ(why(agreement.failure), "");
    EXPECT_FALSE(agreement.stop);
    EXPECT_FALSE(agreement.boundary);
    EXPECT_FALSE(agreement.last);
    EXPECT_EQ(agreement.rank_statuses.size(), 3U);
    EXPECT_EQ(agreement.saves.size(), 3U);
  }
}

TEST(StepAgreement, OneRanksWishIsEverybodys) {
  const Agreed all = agreed([](int rank, Word& word) {
    word.status.stop = rank == 2 ? 1 : 0;
    word.status.boundary = rank == 1 ? 1 : 0;
    word.status.save.done = rank;
  });
  for (const StepAgreement& agreement : all.by_rank) {
    EXPECT_TRUE(agreement.stop);
    EXPECT_TRUE(agreement.boundary);
    for (int rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(agreement.saves[static_cast<size_t>(rank)].done, rank);
  }
}

TEST(StepAgreement, TimesAreTheSlowestRanksAndFailuresTheMostFrequent) {
  const Agreed all = agreed([](int rank, Word& word) {
    word.status.step_ns = 100 * (rank + 1);
    word.status.mtbf_ns = rank == 0 ? 0 : 50 * rank;  // the first has seen no failure
  });
  for (const StepAgreement& agreement : all.by_rank) {
    EXPECT_EQ(agreement.step_ns, 300);
    EXPECT_EQ(agreement.mtbf_ns, 50);
  }
}

TEST(StepAgreement, FiguresOfAllRanksGoIntoEachRecord) {
  const Agreed all = agreed([](int rank, Word& word) {
    word.record.pull_bytes = 10 * (rank + 1);
    word.record.peak_bytes = 7 - rank;
    word.record.loss = 0.5;
  });
  for (const report::StepRecord& record : all.records) {
    EXPECT_EQ(record.ranks, 3);
    EXPECT_EQ(record.pull_bytes, 60);
    EXPECT_EQ(record.peak_bytes, 7) << "the fullest rank's";
    EXPECT_EQ(record.loss, 0.5);
  }
}

TEST(StepAgreement, TheEndIsEverybodys) {
  for (const StepAgreement& agreement :
       agreed([](int, Word& word) { word.upcoming.step = nullptr; }).by_rank) {
    EXPECT_TRUE(agreement.last);
    EXPECT_EQ(why(agreement.failure), "");
  }
}

// A rank whose plan differs would compute another step: nobody runs it.
TEST(StepAgreement, PlansThatDifferFailOnAllRanksAndNameTheOther) {
  for (const bool other_step : {true, false}) {
    const Agreed all = agreed([&](int rank, Word& word) {
      if (rank == 1) word.upcoming = other_step ? upcoming(5) : upcoming(4, 6);
    });
    EXPECT_THAT(why(all.by_rank[0].failure),
                AllOf(HasSubstr("rank 1 planned step "), HasSubstr("otherwise than rank 0 (step 4")));
    for (const StepAgreement& agreement : all.by_rank) EXPECT_TRUE(agreement.failure);
  }
}

// The rank that failed tells the user; the others end with its status and without words of their own.
TEST(StepAgreement, ARankThatCouldNotPlanIsTheOneThatSaysWhy) {
  const Agreed all = agreed([](int rank, Word& word) {
    if (rank != 2) return;
    word.upcoming.step = nullptr;
    word.upcoming.failure = std::make_exception_ptr(base::InputError("step 4: document 7 is gone"));
  });
  EXPECT_THAT(why(all.by_rank[2].failure), HasSubstr("document 7 is gone"));
  for (const size_t rank : {0, 1}) {
    try {
      std::rethrow_exception(all.by_rank[rank].failure);
    } catch (const survive::QuietError& error) {
      EXPECT_EQ(error.exit_status(), base::InputError("").exit_status());
    }
  }
}

}  // namespace
}  // namespace sluice::train
