#include "inference/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "inference/testing.h"

namespace sluice::inference {
namespace {

// What came of each pass, and of all of them.
struct Taken {
  std::vector<std::vector<int64_t>> passes;  // texts, rows, spoken
  cost::DecodeWork::Sight all, windowed;
  int64_t evictions = 0;

  void add(const cost::DecodeWork& work) {
    for (int64_t i = 0; i < work.passes; ++i) passes.push_back({work.texts, work.rows, work.spoken});
    const auto sum = [](cost::DecodeWork::Sight& to, const cost::DecodeWork::Sight& more) {
      to.keys += more.keys;
      to.chunk_keys += more.chunk_keys;
      to.pairs += more.pairs;
    };
    sum(all, work.all);
    sum(windowed, work.windowed);
  }
};

Taken by_scheduler(const std::vector<Lengths>& load, const SchedulerOptions& options, int64_t window) {
  Scheduler scheduler(options);
  std::map<int64_t, int64_t> end;  // by text
  for (const Lengths& request : load) {
    int64_t text = scheduler.add({std::vector<int64_t>(static_cast<size_t>(request.prompt), 0),
                                  request.most_tokens, static_cast<int>(request.said.size())});
    for (const int64_t said : request.said) end[text++] = request.prompt + said;
  }
  Taken taken;
  for_each_turn(scheduler, options.stages, [&](const std::deque<std::vector<Piece>>& under_way) {
    cost::DecodeWork work;
    for (const Piece& piece : under_way.front()) work.add(piece.begin, piece.end, piece.says, window);
    taken.add(work);
    for (const Piece& piece : under_way.back()) {
      if (!piece.says) continue;
      const bool ends = static_cast<int64_t>(scheduler.tokens(piece.text).size()) + 1 == end.at(piece.text);
      scheduler.said(piece.text, 0, ends);
    }
  });
  taken.evictions = scheduler.evictions();
  return taken;
}

TEST(Passes, AreTheSchedulers) {
  base::Rng rng(3);
  int64_t put_off = 0, runs = 0, passes = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t longest = rng.between(1, 300);
    std::vector<Lengths> load(static_cast<size_t>(rng.between(1, 20)));
    for (Lengths& request : load) {
      request.prompt = rng.between(1, 200);
      request.most_tokens = longest;
      request.said.resize(static_cast<size_t>(rng.between(1, 5)));
      for (int64_t& said : request.said) said = rng.between(1, longest);
    }
    const SchedulerOptions options{.pages = pages_for(200 + longest) + rng.between(0, 60),
                                   .most_texts = rng.between(1, 40),
                                   .most_rows = rng.between(1, 120),
                                   .stages = static_cast<int>(std::max<int64_t>(1, rng.between(-2, 4))),
                                   .shares_prompts = rng.between(0, 1) == 1};
    const int64_t window = rng.between(0, 1) * rng.between(1, 100);
    Taken expected = by_scheduler(load, options, window);
    const Passes found = passes_of(load, options, window);
    Taken taken;
    for (const cost::DecodeWork& work : found.work) taken.add(work);
    if (options.stages > 1) {  // passes of a round come one behind the other, not in turn
      std::ranges::sort(taken.passes);
      std::ranges::sort(expected.passes);
    }
    ASSERT_EQ(taken.passes, expected.passes) << "trial " << trial;
    EXPECT_EQ(taken.all, expected.all);
    EXPECT_EQ(taken.windowed, expected.windowed);
    EXPECT_EQ(found.evictions, expected.evictions);
    EXPECT_EQ(found.count,
              std::ranges::count_if(expected.passes, [](const auto& pass) { return pass[1] > 0; }));
    put_off += found.evictions;
    runs += std::ssize(found.work);
    passes += found.count;
  }
  EXPECT_GT(put_off, 1000);  // the trials have tight caches
  EXPECT_LT(runs, passes / 2);
}

TEST(Passes, OfALongLoadAreFewRuns) {
  std::vector<Lengths> load;
  for (int64_t i = 0; i < 1000; ++i) load.push_back({100, 20'000, {1 + i * 20}});
  const Passes found = passes_of(load, {.pages = 1 << 20, .most_texts = 1000, .most_rows = 4096}, 0);
  EXPECT_GT(found.count, 19'981);  // of the longest, which comes last, behind prompts of 100,000 tokens
  EXPECT_LT(found.count, 19'981 + 50);
  EXPECT_LT(std::ssize(found.work), 1100);
}

TEST(Passes, RefuseWhatTheCacheCannotHold) {
  const std::vector<Lengths> load{{100, 200, {5}}};
  EXPECT_THROW(passes_of(load, {.pages = 9}, 0), base::InputError);
}

}  // namespace
}  // namespace sluice::inference
