#include "inference/engine_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "inference/test_scheduling.h"

namespace sluice::inference {
namespace {

// The results of each engine step, and of all of them.
struct Taken {
  std::vector<std::vector<int64_t>> passes;  // sequences, rows, sampled rows
  cost::DecodeWork::AttentionWork all, windowed;
  int64_t evictions = 0;

  void add(const cost::DecodeWork& work) {
    for (int64_t i = 0; i < work.engine_steps; ++i)
      passes.push_back({work.sequences, work.rows, work.sampled_rows});
    const auto sum = [](cost::DecodeWork::AttentionWork& to, const cost::DecodeWork::AttentionWork& more) {
      to.keys += more.keys;
      to.chunk_keys += more.chunk_keys;
      to.pairs += more.pairs;
    };
    sum(all, work.all);
    sum(windowed, work.windowed);
  }
};

Taken by_scheduler(const std::vector<RequestLengths>& load, const SchedulerOptions& options, int64_t window) {
  Scheduler scheduler(options);
  std::map<int64_t, int64_t> end;  // by text
  for (const RequestLengths& request : load) {
    int64_t text = scheduler.add({std::vector<int64_t>(static_cast<size_t>(request.prompt), 0),
                                  request.max_tokens, static_cast<int>(request.output_lens.size())});
    for (const int64_t said : request.output_lens) end[text++] = request.prompt + said;
  }
  Taken taken;
  for_each_micro_step(
      scheduler, options.stages, [&](const std::deque<std::vector<ScheduledTokens>>& under_way) {
        cost::DecodeWork work;
        for (const ScheduledTokens& scheduled : under_way.front())
          work.add(scheduled.begin, scheduled.end, scheduled.needs_sampling, window);
        taken.add(work);
        for (const ScheduledTokens& scheduled : under_way.back()) {
          if (!scheduled.needs_sampling) continue;
          const bool ends = static_cast<int64_t>(scheduler.tokens(scheduled.sequence).size()) + 1 ==
                            end.at(scheduled.sequence);
          scheduler.append_token(scheduled.sequence, 0, ends);
        }
      });
  taken.evictions = scheduler.preemptions();
  return taken;
}

TEST(Passes, AreTheSchedulers) {
  base::Rng rng(3);
  int64_t put_off = 0, runs = 0, passes = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t longest = rng.between(1, 300);
    std::vector<RequestLengths> load(static_cast<size_t>(rng.between(1, 20)));
    for (RequestLengths& request : load) {
      request.prompt = rng.between(1, 200);
      request.max_tokens = longest;
      request.output_lens.resize(static_cast<size_t>(rng.between(1, 5)));
      for (int64_t& said : request.output_lens) said = rng.between(1, longest);
    }
    const SchedulerOptions options{.kv_blocks = kv_blocks_for(200 + longest) + rng.between(0, 60),
                                   .max_num_seqs = rng.between(1, 40),
                                   .max_num_batched_tokens = rng.between(1, 120),
                                   .stages = static_cast<int>(std::max<int64_t>(1, rng.between(-2, 4))),
                                   .shares_prompts = rng.between(0, 1) == 1};
    const int64_t window = rng.between(0, 1) * rng.between(1, 100);
    Taken expected = by_scheduler(load, options, window);
    const EngineSteps found = engine_steps_of(load, options, window);
    Taken taken;
    for (const cost::DecodeWork& work : found.work) taken.add(work);
    if (options.stages > 1) {  // passes of a round come one behind the other, not in turn
      std::ranges::sort(taken.passes);
      std::ranges::sort(expected.passes);
    }
    ASSERT_EQ(taken.passes, expected.passes) << "trial " << trial;
    EXPECT_EQ(taken.all, expected.all);
    EXPECT_EQ(taken.windowed, expected.windowed);
    EXPECT_EQ(found.preemptions, expected.evictions);
    EXPECT_EQ(found.count,
              std::ranges::count_if(expected.passes, [](const auto& pass) { return pass[1] > 0; }));
    put_off += found.preemptions;
    runs += std::ssize(found.work);
    passes += found.count;
  }
  EXPECT_GT(put_off, 1000);  // the trials have tight caches
  EXPECT_LT(runs, passes / 2);
}

TEST(Passes, OfALongLoadAreFewRuns) {
  std::vector<RequestLengths> load;
  for (int64_t i = 0; i < 1000; ++i) load.push_back({100, 20'000, {1 + i * 20}});
  const EngineSteps found =
      engine_steps_of(load, {.kv_blocks = 1 << 20, .max_num_seqs = 1000, .max_num_batched_tokens = 4096}, 0);
  EXPECT_GT(found.count, 19'981);  // the longest output, which comes last, after prompts of 100,000 tokens
  EXPECT_LT(found.count, 19'981 + 50);
  EXPECT_LT(std::ssize(found.work), 1100);
}

TEST(Passes, RefuseWhatTheCacheCannotHold) {
  const std::vector<RequestLengths> load{{100, 200, {5}}};
  EXPECT_THROW(engine_steps_of(load, {.kv_blocks = 9}, 0), base::InputError);
}

}  // namespace
}  // namespace sluice::inference
