#include "inference/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "inference/testing.h"

namespace sluice::inference {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Runs to the end and checks every pass: each text's tokens go through once after another, in pages that no
// other text writes, and what a text looks back to is what went through.
class Checked {
 public:
  explicit Checked(const SchedulerOptions& options) : scheduler(options), options_(options) {}

  // `ends(text)`: whether what it says now is the last.
  template <typename Ends>
  void run(Ends ends) {
    for_each_turn(scheduler, options_.stages, [&](const std::deque<std::vector<Piece>>& under_way) {
      check(under_way.front());
      for (const Piece& piece : under_way.back()) {
        if (piece.says)
          scheduler.said(piece.text, scheduler.texts() + static_cast<int64_t>(piece.end), ends(piece.text));
      }
      passes += under_way.front().empty() ? 0 : 1;
      ++turns;
      full_turns += std::ranges::none_of(under_way, &std::vector<Piece>::empty) ? 1 : 0;
    });
    EXPECT_EQ(scheduler.free_pages(), options_.pages);
    for (int64_t text = 0; text < scheduler.texts(); ++text) EXPECT_TRUE(scheduler.finished(text));
  }

  Scheduler scheduler;
  int64_t passes = 0, turns = 0, full_turns = 0;

 private:
  void check(const std::vector<Piece>& pieces) {
    std::set<int64_t> texts, written;
    int64_t rows = 0;
    for (const Piece& piece : pieces) {
      EXPECT_TRUE(texts.insert(piece.text).second) << "a text twice in a pass";
      EXPECT_LT(piece.begin, piece.end);
      rows += piece.end - piece.begin;
      const std::vector<int64_t>& tokens = scheduler.tokens(piece.text);
      EXPECT_EQ(piece.says, piece.end == static_cast<int64_t>(tokens.size()));
      for (int64_t token = piece.begin; token < piece.end; ++token) {
        const int64_t row = row_of(piece, token);
        EXPECT_TRUE(written.insert(row).second) << "a row twice in a pass";
        rows_[row] = std::vector<int64_t>(tokens.begin(), tokens.begin() + token + 1);
      }
    }
    // All are written before anybody looks back, as a layer does it.
    for (const Piece& piece : pieces) {
      const std::vector<int64_t>& tokens = scheduler.tokens(piece.text);
      for (int64_t token = 0; token < piece.end; ++token) {
        const std::vector<int64_t> prefix(tokens.begin(), tokens.begin() + token + 1);
        EXPECT_EQ(rows_[row_of(piece, token)], prefix) << "text " << piece.text << ", token " << token;
      }
    }
    EXPECT_LE(rows, options_.most_rows);
    std::set<int64_t> slots;
    for (const Piece& piece : pieces) {
      EXPECT_TRUE(piece.slot >= 0 && piece.slot < options_.most_texts && slots.insert(piece.slot).second);
    }
    EXPECT_LE(static_cast<int64_t>(pieces.size()), options_.most_texts);
  }
  static int64_t row_of(const Piece& piece, int64_t token) {
    return piece.pages[static_cast<size_t>(token / kPageTokens)] * kPageTokens + token % kPageTokens;
  }

  SchedulerOptions options_;
  std::map<int64_t, std::vector<int64_t>> rows_;  // what each was written for: all tokens up to its own
};

std::vector<int64_t> prompt(int64_t length, int64_t first = 0) {
  std::vector<int64_t> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<int64_t>(i);
  return tokens;
}

TEST(Scheduler, TextsJoinAndLeaveBetweenPasses) {
  Checked checked({.pages = 20, .most_texts = 2, .most_rows = 100});
  for (int i = 0; i < 3; ++i) checked.scheduler.add({prompt(10 + i), 4 + i});
  checked.run([](int64_t) { return false; });
  // The first two take 4 and 5 passes, and the third begins beside the second's last one.
  EXPECT_EQ(checked.passes, 10);
  EXPECT_EQ(checked.scheduler.evictions(), 0);
  EXPECT_EQ(checked.scheduler.tokens(2).size(), 12U + 6);
}

TEST(Scheduler, LongPromptsComeInPieces) {
  Checked checked({.pages = 20, .most_texts = 4, .most_rows = 50});
  checked.scheduler.add({prompt(120), 2});
  checked.run([](int64_t) { return false; });
  EXPECT_EQ(checked.passes, 4);
}

// Four stages that each have a pass under way, of texts of all lengths, from the first prompt's end to the
// last text's.
TEST(Scheduler, StagesAreFilled) {
  Checked checked({.pages = 100, .most_texts = 16, .most_rows = 400, .stages = 4});
  for (int i = 0; i < 16; ++i) checked.scheduler.add({prompt(10 + 5 * i), 50});
  checked.run([](int64_t) { return false; });
  EXPECT_LT(checked.turns, 4 * 50 + 30);
  EXPECT_GT(checked.full_turns, checked.turns * 9 / 10);
}

// Of what is said alone no stage has more than one pass at a time.
TEST(Scheduler, ATextGoesThroughStagesAlone) {
  Checked checked({.pages = 20, .most_texts = 4, .most_rows = 120, .stages = 3});
  checked.scheduler.add({prompt(100), 5});
  checked.run([](int64_t) { return false; });
  EXPECT_EQ(checked.passes, 3 + 4);  // the prompt's parts follow each other
  EXPECT_EQ(checked.turns, 3 + 2 + 4 * 3);
}

TEST(Scheduler, SamplesShareTheirPromptsWholePages) {
  Checked checked({.pages = 12, .most_texts = 8, .most_rows = 1000});
  const int64_t first = checked.scheduler.add({prompt(5 * kPageTokens + 3), 8, 4});
  const std::vector<Piece> pieces = checked.scheduler.next();
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_EQ(pieces[0].end - pieces[0].begin, 5 * kPageTokens + 3);
  EXPECT_EQ(pieces[1].begin, 5 * kPageTokens);
  EXPECT_EQ(checked.scheduler.free_pages(), 12 - 5 - 4);
  EXPECT_EQ(first, 0);
}

TEST(Scheduler, WithoutPagesTheYoungestIsPutOffAndComesBack) {
  Checked checked({.pages = 4, .most_texts = 4, .most_rows = 1000});
  for (int i = 0; i < 3; ++i) checked.scheduler.add({prompt(20, 100 * i), 70});
  checked.run([](int64_t) { return false; });
  EXPECT_GT(checked.scheduler.evictions(), 0);
}

TEST(Scheduler, WhatNoCacheHoldsIsRefused) {
  Scheduler scheduler({.pages = 2});
  EXPECT_THAT(
      [&] {
        scheduler.add({prompt(60), 10});
      },
      ThrowsMessage<base::InputError>(HasSubstr("need 96 tokens of cache, but it holds 64")));
  EXPECT_EQ(scheduler.add({prompt(60), 5}), 0);
}

// What of a pass belongs to each client.
std::map<int64_t, int64_t> rows_by_client(const std::vector<Piece>& pieces,
                                          const std::map<int64_t, int64_t>& client_of) {
  std::map<int64_t, int64_t> rows;
  for (const Piece& piece : pieces) rows[client_of.at(piece.text)] += piece.end - piece.begin;
  return rows;
}

TEST(Scheduler, AClientsPromptGoesThroughBesideAnothersMany) {
  Scheduler scheduler({.pages = 1000, .most_texts = 8, .most_rows = 100});
  std::map<int64_t, int64_t> client_of;
  for (int i = 0; i < 50; ++i) client_of[scheduler.add({prompt(400), 100, 1, false, 1})] = 1;
  const auto pass = [&] {
    const std::vector<Piece> pieces = scheduler.next();
    for (const Piece& piece : pieces) {
      if (piece.says) scheduler.said(piece.text, 0, false);
    }
    return rows_by_client(pieces, client_of);
  };
  for (int i = 0; i < 50; ++i) pass();
  ASSERT_EQ(scheduler.under_way(), 8);
  client_of[scheduler.add({prompt(40), 100, 1, false, 2})] = 2;
  // In the very next pass, which is its own, and for which one of the other's texts is put off.
  EXPECT_EQ(pass(), (std::map<int64_t, int64_t>{{2, 40}}));
  EXPECT_EQ(scheduler.evictions(), 1);
  // Whoever comes, every other pass is everybody's.
  for (int64_t client = 3; client < 7; ++client) {
    client_of[scheduler.add({prompt(10), 100, 1, false, client})] = client;
    const std::map<int64_t, int64_t> rows = pass();
    EXPECT_EQ(rows.at(client), 10);
    EXPECT_EQ(rows.contains(1), client % 2 == 1);
  }
  EXPECT_EQ(scheduler.under_way(), 8);
}

// A crowd of one client that has all seats but one, and a pass of it under way.
Scheduler with_crowd(int64_t newcomers) {
  Scheduler scheduler({.pages = 200, .most_texts = 8, .newcomers = newcomers});
  for (int i = 0; i < 20; ++i) scheduler.add({prompt(20), 100, 1, false, 1});
  scheduler.next();
  EXPECT_EQ(scheduler.under_way(), 8 - newcomers);
  return scheduler;
}

TEST(Scheduler, ANewcomersPromptGoesThroughWithinAPassOfOthers) {
  Scheduler scheduler = with_crowd(1);
  const std::vector<int64_t> crowd = scheduler.running();
  const int64_t first = scheduler.add({prompt(40), 2, 2, false, 2});
  const std::vector<Piece> pieces = scheduler.next_within();
  ASSERT_EQ(pieces.size(), 1U) << "there is one seat";
  EXPECT_EQ(pieces[0].text, first);
  EXPECT_EQ(pieces[0].end, 40);
  EXPECT_TRUE(pieces[0].says);
  EXPECT_EQ(scheduler.evictions(), 0) << "what is under way keeps its pages";
  scheduler.said(first, 0, false);
  scheduler.add({prompt(10), 2, 1, false, 3});
  EXPECT_TRUE(scheduler.next_within().empty()) << "one in each pass";
  for (const int64_t text : crowd) scheduler.said(text, 0, false);
  // Then the third client has a pass for itself, and one of the crowd is put off for it.
  const std::vector<Piece> next = scheduler.next();
  EXPECT_EQ(scheduler.evictions(), 1);
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].end, 10);
}

TEST(Scheduler, WithoutAFreeSeatNobodyIsPutOffWithinAPass) {
  Scheduler scheduler = with_crowd(0);
  scheduler.add({prompt(40), 2, 1, false, 2});
  EXPECT_TRUE(scheduler.next_within().empty());
  EXPECT_EQ(scheduler.evictions(), 0);
  for (const int64_t text : std::vector(scheduler.running())) scheduler.said(text, 0, false);
  EXPECT_EQ(scheduler.next().size(), 1U);
}

TEST(Scheduler, ClientsWithTextsUnderWayWaitForThePassesEnd) {
  Scheduler scheduler = with_crowd(1);
  EXPECT_TRUE(scheduler.next_within().empty());
}

TEST(Scheduler, ClientsShareRowsAndSlotsEquallyWhateverTheyAskFor) {
  Scheduler scheduler({.pages = 4000, .most_texts = 8, .most_rows = 64});
  std::map<int64_t, int64_t> client_of, rows;
  for (int64_t client = 1; client <= 2; ++client) {
    for (int64_t i = 0; i < (client == 1 ? 300 : 30); ++i)
      client_of[scheduler.add({prompt(100), 20, 1, false, client})] = client;
  }
  for (int i = 0; i < 60; ++i) {
    const std::vector<Piece> pieces = scheduler.next();
    for (const auto& [client, own] : rows_by_client(pieces, client_of)) rows[client] += own;
    for (const Piece& piece : pieces) {
      if (piece.says) scheduler.said(piece.text, 0, false);
    }
  }
  EXPECT_NEAR(static_cast<double>(rows[1]) / static_cast<double>(rows[2]), 1.0, 0.1);
}

TEST(Scheduler, WithoutPagesTextsOfTheCrowdAreGivenUp) {
  Scheduler scheduler({.pages = 8, .most_texts = 8, .most_rows = 1000});
  for (int i = 0; i < 8; ++i) scheduler.add({prompt(20), 60, 1, false, 1});
  scheduler.next();
  for (const int64_t text : scheduler.running()) scheduler.said(text, 0, false);
  const int64_t other = scheduler.add({prompt(20), 60, 1, false, 2});
  for (int i = 0; i < 120 && !scheduler.finished(other); ++i) {
    for (const Piece& piece : scheduler.next()) {
      if (piece.says) scheduler.said(piece.text, 0, false);
    }
    EXPECT_TRUE(scheduler.finished(other) ||
                std::ranges::find(scheduler.running(), other) != scheduler.running().end());
  }
  EXPECT_TRUE(scheduler.finished(other));
}

TEST(Scheduler, AllArePutOffAndComeBackInTheirOrder) {
  Checked checked({.pages = 40, .most_texts = 4, .most_rows = 100});
  for (int i = 0; i < 6; ++i) checked.scheduler.add({prompt(20, 100 * i), 30});
  for (int i = 0; i < 5; ++i) {
    for (const Piece& piece : checked.scheduler.next()) {
      if (piece.says) checked.scheduler.said(piece.text, 1, false);
    }
  }
  const std::vector<int64_t> before = checked.scheduler.running();
  checked.scheduler.put_off_all();
  EXPECT_EQ(checked.scheduler.under_way(), 0);
  EXPECT_EQ(checked.scheduler.free_pages(), 40);
  const std::vector<Piece> pieces = checked.scheduler.next();
  ASSERT_EQ(checked.scheduler.running(), before);
  for (const Piece& piece : pieces) {
    EXPECT_EQ(piece.begin, 0);
    if (piece.says) checked.scheduler.said(piece.text, 1, false);
  }
  checked.scheduler.put_off_all();  // nothing of what stands in pages is looked at again
  checked.run([](int64_t) { return false; });
}

// Random loads, with texts that end early, shared prompts, tight caches and small passes.
TEST(Scheduler, AnyLoadEndsWithAllPagesBack) {
  base::Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const SchedulerOptions options{.pages = rng.between(6, 40),
                                   .most_texts = rng.between(1, 12),
                                   .most_rows = rng.between(12, 200),
                                   .stages = static_cast<int>(rng.between(1, 5))};
    Checked checked(options);
    const int64_t requests = rng.between(1, 12);
    for (int64_t i = 0; i < requests; ++i) {
      const int64_t most = options.pages * kPageTokens;
      const int64_t given = rng.between(1, std::min<int64_t>(150, most - 1));
      checked.scheduler.add({prompt(given, 1000 * i), rng.between(1, std::min<int64_t>(60, most - given)),
                             static_cast<int>(rng.between(1, 4)), false, rng.between(0, round % 4)});
    }
    checked.run([&](int64_t) { return rng.below(20) == 0; });
  }
}

}  // namespace
}  // namespace sluice::inference
