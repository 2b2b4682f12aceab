#include "inference/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "inference/test_scheduling.h"

namespace sluice::inference {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Runs a scheduler to the end and checks every engine step. A sequence's tokens are computed in order,
// each once, in blocks that no other sequence writes. Rows that a token attends to hold its own prefix.
class Checked {
 public:
  explicit Checked(const SchedulerOptions& options) : scheduler(options), options_(options) {}

  // `ends(sequence)`: whether its next token is the last.
  template <typename Ends>
  void run(Ends ends) {
    for_each_micro_step(
        scheduler, options_.stages, [&](const std::deque<std::vector<ScheduledTokens>>& by_stage) {
          check(by_stage.front());
          for (const ScheduledTokens& scheduled : by_stage.back()) {
            if (scheduled.needs_sampling)
              scheduler.append_token(scheduled.sequence,
                                     scheduler.total_sequences() + static_cast<int64_t>(scheduled.end),
                                     ends(scheduled.sequence));
          }
          engine_steps += by_stage.front().empty() ? 0 : 1;
          ++micro_steps;
          full_micro_steps += std::ranges::none_of(by_stage, &std::vector<ScheduledTokens>::empty) ? 1 : 0;
        });
    EXPECT_EQ(scheduler.free_kv_blocks(), options_.kv_blocks);
    for (int64_t sequence = 0; sequence < scheduler.total_sequences(); ++sequence)
      EXPECT_TRUE(scheduler.finished(sequence));
  }

  Scheduler scheduler;
  int64_t engine_steps = 0, micro_steps = 0, full_micro_steps = 0;

 private:
  void check(const std::vector<ScheduledTokens>& step) {
    std::set<int64_t> sequences, written;
    int64_t rows = 0;
    for (const ScheduledTokens& scheduled : step) {
      EXPECT_TRUE(sequences.insert(scheduled.sequence).second) << "a sequence twice in a step";
      EXPECT_LT(scheduled.begin, scheduled.end);
      rows += scheduled.end - scheduled.begin;
      const std::vector<int64_t>& tokens = scheduler.tokens(scheduled.sequence);
      EXPECT_EQ(scheduled.needs_sampling, scheduled.end == static_cast<int64_t>(tokens.size()));
      for (int64_t token = scheduled.begin; token < scheduled.end; ++token) {
        const int64_t row = row_of(scheduled, token);
        EXPECT_TRUE(written.insert(row).second) << "a row twice in a step";
        rows_[row] = std::vector<int64_t>(tokens.begin(), tokens.begin() + token + 1);
      }
    }
    // A layer writes all keys before it attends.
    for (const ScheduledTokens& scheduled : step) {
      const std::vector<int64_t>& tokens = scheduler.tokens(scheduled.sequence);
      for (int64_t token = 0; token < scheduled.end; ++token) {
        const std::vector<int64_t> prefix(tokens.begin(), tokens.begin() + token + 1);
        EXPECT_EQ(rows_[row_of(scheduled, token)], prefix)
            << "sequence " << scheduled.sequence << ", token " << token;
      }
    }
    EXPECT_LE(rows, options_.max_num_batched_tokens);
    std::set<int64_t> slots;
    for (const ScheduledTokens& scheduled : step) {
      EXPECT_TRUE(scheduled.slot >= 0 && scheduled.slot < options_.max_num_seqs &&
                  slots.insert(scheduled.slot).second);
    }
    EXPECT_LE(static_cast<int64_t>(step.size()), options_.max_num_seqs);
  }
  static int64_t row_of(const ScheduledTokens& scheduled, int64_t token) {
    return scheduled.kv_blocks[static_cast<size_t>(token / kKvBlockTokens)] * kKvBlockTokens +
           token % kKvBlockTokens;
  }

  SchedulerOptions options_;
  std::map<int64_t, std::vector<int64_t>>
      rows_;  // by cache row: the tokens up to the one that it was written for
};

std::vector<int64_t> prompt(int64_t length, int64_t first = 0) {
  std::vector<int64_t> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int64_t>(i);
  return tokens;
}

TEST(Scheduler, SequencesJoinAndLeaveBetweenSteps) {
  Checked checked({.kv_blocks = 20, .max_num_seqs = 2, .max_num_batched_tokens = 100});
  for (int i = 0; i < 3; ++i) checked.scheduler.add({prompt(10 + i), 4 + i});
  checked.run([](int64_t) { return false; });
  // The first two take 4 and 5 steps, and the third begins in the second's last one.
  EXPECT_EQ(checked.engine_steps, 10);
  EXPECT_EQ(checked.scheduler.preemptions(), 0);
  EXPECT_EQ(checked.scheduler.tokens(2).size(), 12U + 6);
}

TEST(Scheduler, LongPromptsAreChunked) {
  Checked checked({.kv_blocks = 20, .max_num_seqs = 4, .max_num_batched_tokens = 50});
  checked.scheduler.add({prompt(120), 2});
  checked.run([](int64_t) { return false; });
  EXPECT_EQ(checked.engine_steps, 4);
}

// Four stages with an engine step each, from the end of the first prompt to the end of the last sequence.
TEST(Scheduler, StagesAreFilled) {
  Checked checked({.kv_blocks = 100, .max_num_seqs = 16, .max_num_batched_tokens = 400, .stages = 4});
  for (int i = 0; i < 16; ++i) checked.scheduler.add({prompt(10 + 5 * i), 50});
  checked.run([](int64_t) { return false; });
  EXPECT_LT(checked.micro_steps, 4 * 50 + 30);
  EXPECT_GT(checked.full_micro_steps, checked.micro_steps * 9 / 10);
}

// The decodes of a single sequence follow each other through all stages.
TEST(Scheduler, OneSequenceUsesOneStageAtATime) {
  Checked checked({.kv_blocks = 20, .max_num_seqs = 4, .max_num_batched_tokens = 120, .stages = 3});
  checked.scheduler.add({prompt(100), 5});
  checked.run([](int64_t) { return false; });
  EXPECT_EQ(checked.engine_steps, 3 + 4);  // the prompt's chunks are in flight together
  EXPECT_EQ(checked.micro_steps, 3 + 2 + 4 * 3);
}

TEST(Scheduler, SamplesShareFullBlocksOfTheirPrompt) {
  Checked checked({.kv_blocks = 12, .max_num_seqs = 8, .max_num_batched_tokens = 1000});
  const int64_t first = checked.scheduler.add({prompt(5 * kKvBlockTokens + 3), 8, 4});
  const std::vector<ScheduledTokens> pieces = checked.scheduler.schedule();
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_EQ(pieces[0].end - pieces[0].begin, 5 * kKvBlockTokens + 3);
  EXPECT_EQ(pieces[1].begin, 5 * kKvBlockTokens);
  EXPECT_EQ(checked.scheduler.free_kv_blocks(), 12 - 5 - 4);
  EXPECT_EQ(first, 0);
}

TEST(Scheduler, WithoutBlocksTheYoungestIsPreemptedAndResumes) {
  Checked checked({.kv_blocks = 4, .max_num_seqs = 4, .max_num_batched_tokens = 1000});
  for (int i = 0; i < 3; ++i) checked.scheduler.add({prompt(20, 100 * i), 70});
  checked.run([](int64_t) { return false; });
  EXPECT_GT(checked.scheduler.preemptions(), 0);
}

TEST(Scheduler, SequencesLargerThanTheCacheAreRefused) {
  Scheduler scheduler({.kv_blocks = 2});
  EXPECT_THAT(
      [&] {
        scheduler.add({prompt(60), 10});
      },
      ThrowsMessage<base::InputError>(HasSubstr("need 96 tokens of KV cache, but it holds 64")));
  EXPECT_EQ(scheduler.add({prompt(60), 5}), 0);
}

// Tokens of an engine step by client.
std::map<int64_t, int64_t> rows_by_client(const std::vector<ScheduledTokens>& step,
                                          const std::map<int64_t, int64_t>& client_of) {
  std::map<int64_t, int64_t> rows;
  for (const ScheduledTokens& scheduled : step)
    rows[client_of.at(scheduled.sequence)] += scheduled.end - scheduled.begin;
  return rows;
}

TEST(Scheduler, ANewcomersPromptIsNextBesideACrowd) {
  Scheduler scheduler({.kv_blocks = 1000, .max_num_seqs = 8, .max_num_batched_tokens = 100});
  std::map<int64_t, int64_t> client_of;
  for (int i = 0; i < 50; ++i) client_of[scheduler.add({prompt(400), 100, 1, false, 1})] = 1;
  const auto run_step = [&] {
    const std::vector<ScheduledTokens> pieces = scheduler.schedule();
    for (const ScheduledTokens& scheduled : pieces) {
      if (scheduled.needs_sampling) scheduler.append_token(scheduled.sequence, 0, false);
    }
    return rows_by_client(pieces, client_of);
  };
  for (int i = 0; i < 50; ++i) run_step();
  ASSERT_EQ(scheduler.num_running(), 8);
  client_of[scheduler.add({prompt(40), 100, 1, false, 2})] = 2;
  // The very next step is the newcomer's alone; one of the crowd is preempted for it.
  EXPECT_EQ(run_step(), (std::map<int64_t, int64_t>{{2, 40}}));
  EXPECT_EQ(scheduler.preemptions(), 1);
  // With a newcomer each time, every second step is everybody's.
  for (int64_t client = 3; client < 7; ++client) {
    client_of[scheduler.add({prompt(10), 100, 1, false, client})] = client;
    const std::map<int64_t, int64_t> rows = run_step();
    EXPECT_EQ(rows.at(client), 10);
    EXPECT_EQ(rows.contains(1), client % 2 == 1);
  }
  EXPECT_EQ(scheduler.num_running(), 8);
}

// A crowd of one client that has all slots but the newcomers', with a step in flight.
Scheduler with_crowd(int64_t newcomer_slots) {
  Scheduler scheduler({.kv_blocks = 200, .max_num_seqs = 8, .newcomer_slots = newcomer_slots});
  for (int i = 0; i < 20; ++i) scheduler.add({prompt(20), 100, 1, false, 1});
  scheduler.schedule();
  EXPECT_EQ(scheduler.num_running(), 8 - newcomer_slots);
  return scheduler;
}

TEST(Scheduler, ANewcomersPromptIsComputedInsideAStepOfOthers) {
  Scheduler scheduler = with_crowd(1);
  const std::vector<int64_t> crowd = scheduler.running();
  const int64_t first = scheduler.add({prompt(40), 2, 2, false, 2});
  const std::vector<ScheduledTokens> pieces = scheduler.schedule_within();
  ASSERT_EQ(pieces.size(), 1U) << "there is one slot";
  EXPECT_EQ(pieces[0].sequence, first);
  EXPECT_EQ(pieces[0].end, 40);
  EXPECT_TRUE(pieces[0].needs_sampling);
  EXPECT_EQ(scheduler.preemptions(), 0) << "running sequences keep their blocks";
  scheduler.append_token(first, 0, false);
  scheduler.add({prompt(10), 2, 1, false, 3});
  EXPECT_TRUE(scheduler.schedule_within().empty()) << "one in each step";
  for (const int64_t sequence : crowd) scheduler.append_token(sequence, 0, false);
  // Then the third client has a step of its own, and one of the crowd is preempted for it.
  const std::vector<ScheduledTokens> next = scheduler.schedule();
  EXPECT_EQ(scheduler.preemptions(), 1);
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].end, 10);
}

TEST(Scheduler, WithoutAFreeSlotNoneIsPreemptedInsideAStep) {
  Scheduler scheduler = with_crowd(0);
  scheduler.add({prompt(40), 2, 1, false, 2});
  EXPECT_TRUE(scheduler.schedule_within().empty());
  EXPECT_EQ(scheduler.preemptions(), 0);
  for (const int64_t sequence : std::vector(scheduler.running())) scheduler.append_token(sequence, 0, false);
  EXPECT_EQ(scheduler.schedule().size(), 1U);
}

TEST(Scheduler, ClientsWithRunningSequencesWaitForTheStepsEnd) {
  Scheduler scheduler = with_crowd(1);
  EXPECT_TRUE(scheduler.schedule_within().empty());
}

TEST(Scheduler, ClientsShareTokensAndSlotsEquallyWhateverTheirRequests) {
  Scheduler scheduler({.kv_blocks = 4000, .max_num_seqs = 8, .max_num_batched_tokens = 64});
  std::map<int64_t, int64_t> client_of, rows;
  for (int64_t client = 1; client <= 2; ++client) {
    for (int64_t i = 0; i < (client == 1 ? 300 : 30); ++i)
      client_of[scheduler.add({prompt(100), 20, 1, false, client})] = client;
  }
  for (int i = 0; i < 60; ++i) {
    const std::vector<ScheduledTokens> pieces = scheduler.schedule();
    for (const auto& [client, own] : rows_by_client(pieces, client_of)) rows[client] += own;
    for (const ScheduledTokens& scheduled : pieces) {
      if (scheduled.needs_sampling) scheduler.append_token(scheduled.sequence, 0, false);
    }
  }
  EXPECT_NEAR(static_cast<double>(rows[1]) / static_cast<double>(rows[2]), 1.0, 0.1);
}

TEST(Scheduler, WithoutBlocksSequencesOfTheCrowdArePreempted) {
  Scheduler scheduler({.kv_blocks = 8, .max_num_seqs = 8, .max_num_batched_tokens = 1000});
  for (int i = 0; i < 8; ++i) scheduler.add({prompt(20), 60, 1, false, 1});
  scheduler.schedule();
  for (const int64_t sequence : scheduler.running()) scheduler.append_token(sequence, 0, false);
  const int64_t other = scheduler.add({prompt(20), 60, 1, false, 2});
  for (int i = 0; i < 120 && !scheduler.finished(other); ++i) {
    for (const ScheduledTokens& scheduled : scheduler.schedule()) {
      if (scheduled.needs_sampling) scheduler.append_token(scheduled.sequence, 0, false);
    }
    EXPECT_TRUE(scheduler.finished(other) ||
                std::ranges::find(scheduler.running(), other) != scheduler.running().end());
  }
  EXPECT_TRUE(scheduler.finished(other));
}

TEST(Scheduler, PreemptedTogetherTheyResumeInOrder) {
  Checked checked({.kv_blocks = 40, .max_num_seqs = 4, .max_num_batched_tokens = 100});
  for (int i = 0; i < 6; ++i) checked.scheduler.add({prompt(20, 100 * i), 30});
  for (int i = 0; i < 5; ++i) {
    for (const ScheduledTokens& scheduled : checked.scheduler.schedule()) {
      if (scheduled.needs_sampling) checked.scheduler.append_token(scheduled.sequence, 1, false);
    }
  }
  const std::vector<int64_t> before = checked.scheduler.running();
  checked.scheduler.preempt_all();
  EXPECT_EQ(checked.scheduler.num_running(), 0);
  EXPECT_EQ(checked.scheduler.free_kv_blocks(), 40);
  const std::vector<ScheduledTokens> pieces = checked.scheduler.schedule();
  ASSERT_EQ(checked.scheduler.running(), before);
  for (const ScheduledTokens& scheduled : pieces) {
    EXPECT_EQ(scheduled.begin, 0);
    if (scheduled.needs_sampling) checked.scheduler.append_token(scheduled.sequence, 1, false);
  }
  checked.scheduler.preempt_all();  // cached rows from before are not read again
  checked.run([](int64_t) { return false; });
}

// Random loads with early ends, shared prompts, tight caches and small token budgets.
TEST(Scheduler, AnyLoadEndsWithAllBlocksFree) {
  base::Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const SchedulerOptions options{.kv_blocks = rng.between(6, 40),
                                   .max_num_seqs = rng.between(1, 12),
                                   .max_num_batched_tokens = rng.between(12, 200),
                                   .stages = static_cast<int>(rng.between(1, 5))};
    Checked checked(options);
    const int64_t requests = rng.between(1, 12);
    for (int64_t i = 0; i < requests; ++i) {
      const int64_t most = options.kv_blocks * kKvBlockTokens;
      const int64_t given = rng.between(1, std::min<int64_t>(150, most - 1));
      checked.scheduler.add({prompt(given, 1000 * i), rng.between(1, std::min<int64_t>(60, most - given)),
                             static_cast<int>(rng.between(1, 4)), false, rng.between(0, round % 4)});
    }
    checked.run([&](int64_t) { return rng.below(20) == 0; });
  }
}

}  // namespace
}  // namespace sluice::inference
