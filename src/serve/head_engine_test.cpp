#include "serve/head_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "comm/test_fake.h"

namespace sluice::serve {
namespace {

using Texts = std::vector<std::vector<int32_t>>;
using Numbers = std::vector<std::vector<double>>;

// The sum of a text's tokens, times a factor.
Numbers sums_of(const Texts& texts, double factor) {
  Numbers numbers;
  for (const auto& text : texts) {
    double sum = 0;
    for (const int32_t token : text) sum += token;
    numbers.push_back({factor * sum});
  }
  return numbers;
}

// A request whose end can be waited for.
struct Asked {
  std::promise<void> done;
  std::shared_ptr<PendingTexts> pending;

  Asked(HeadEngine& engine, const std::string& client, Texts texts)
      : pending(engine.add_request(client, std::move(texts), [this] { done.set_value(); })) {}
  std::vector<std::vector<float>> numbers() {
    done.get_future().wait();
    std::vector<std::vector<float>> told;
    EXPECT_TRUE(pending->read(told));
    return told;
  }
};

// Holds the engine in its first batch until it is let go.
struct Gate {
  std::promise<void> began, go;
  std::atomic<int> batches = 0;

  HeadEngine::Compute compute() {
    return [this](const Texts& texts) {
      if (batches++ == 0) {
        began.set_value();
        go.get_future().wait();
      }
      return sums_of(texts, 1);
    };
  }
};

TEST(HeadEngine, EachTextGetsItsNumbersAndRequestsArePackedTogether) {
  Gate gate;
  HeadEngine engine(gate.compute(), {});
  Asked first(engine, "a", {{1, 2}});
  gate.began.get_future().wait();
  Asked second(engine, "a", {{3}, {4, 5}}), third(engine, "b", {{6}});
  EXPECT_EQ(engine.stats().waiting, 3);
  EXPECT_EQ(engine.stats().clients, 2);
  gate.go.set_value();
  using testing::ElementsAre;
  EXPECT_THAT(first.numbers(), ElementsAre(ElementsAre(3.0F)));
  EXPECT_THAT(second.numbers(), ElementsAre(ElementsAre(3.0F), ElementsAre(9.0F)));
  EXPECT_THAT(third.numbers(), ElementsAre(ElementsAre(6.0F)));
  EXPECT_EQ(gate.batches, 2);
  EXPECT_EQ(engine.stats().prompt_tokens, 6);
}

TEST(HeadEngine, TextsBeyondABoundAreRefusedInAllAndOfOneClient) {
  Gate gate;
  HeadEngine engine(gate.compute(), {.max_queued_texts = 4, .max_queued_texts_of_client = 2});
  Asked first(engine, "a", {{1}});
  gate.began.get_future().wait();
  Asked own(engine, "a", {{1}, {2}});
  EXPECT_EQ(engine.add_request("a", {{1}}, [] {}), nullptr);
  Asked others(engine, "b", {{1}, {2}});
  EXPECT_EQ(engine.add_request("c", {{1}}, [] {}), nullptr);
  EXPECT_EQ(engine.stats().refused, 2);
  gate.go.set_value();
  own.numbers();
  others.numbers();
  Asked again(engine, "c", {{1}});
  again.numbers();
}

TEST(HeadEngine, WhatClientsLeftIsNotComputed) {
  Gate gate;
  HeadEngine engine(gate.compute(), {});
  Asked first(engine, "a", {{1}});
  gate.began.get_future().wait();
  const auto gone = engine.add_request("b", {{1}, {2}}, [] { ADD_FAILURE() << "nobody waits"; });
  gone->abort();
  gate.go.set_value();
  first.numbers();
  Asked last(engine, "a", {{1}});
  last.numbers();
  EXPECT_EQ(gate.batches, 2);
  EXPECT_EQ(engine.stats().aborted, 1);
}

// The first of three ranks gets the requests; the others compute the same batches and take the same models.
TEST(HeadEngine, FollowersComputeWhatTheLeaderDoes) {
  comm::FakeWorld world(3);
  std::vector<std::vector<Texts>> batches(3);
  std::vector<std::vector<std::string>> taken(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = world.transport(rank);
      const auto members = transport->communicator("members", {0, 1, 2});
      const auto compute = [&, rank](const Texts& texts) {
        batches[static_cast<size_t>(rank)].push_back(texts);
        return sums_of(texts, 1);
      };
      if (rank > 0) {
        return follow(*members, {compute, [&, rank](const std::string& place) {
                                   taken[static_cast<size_t>(rank)].push_back(place);
                                 }});
      }
      HeadEngine engine(compute, {.followers = members.get()});
      Asked first(engine, "a", {{1, 2}, {3}});
      EXPECT_EQ(first.numbers().size(), 2u);
      EXPECT_TRUE(engine.between_steps([&] { taken[0].push_back("newer"); }, "newer"));
      EXPECT_THROW(engine.between_steps([] { throw base::InputError("it is no model"); }, "broken"),
                   base::InputError);
      Asked second(engine, "b", {{70'000}});
      EXPECT_EQ(second.numbers().front().front(), 70'000.0F);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(batches[0].size(), 2u);
  for (const size_t rank : {1, 2}) {
    EXPECT_EQ(batches[rank], batches[0]);
    EXPECT_EQ(taken[rank], (std::vector<std::string>{"newer", "broken"}));
  }
}

TEST(HeadEngine, AFaultOfTheModelEndsAllAndIsTold) {
  HeadEngine engine([](const Texts&) -> Numbers { throw std::runtime_error("the device is lost"); }, {});
  std::promise<void> done;
  const auto pending = engine.add_request("a", {{1}}, [&] { done.set_value(); });
  done.get_future().wait();
  std::vector<std::vector<float>> numbers;
  EXPECT_THROW(pending->read(numbers), Unavailable);
  EXPECT_EQ(engine.fault(), "the device is lost");
  EXPECT_THROW(engine.add_request("a", {{1}}, [] {}), Unavailable);
  EXPECT_FALSE(engine.between_steps([] {}, ""));
}

TEST(HeadEngine, StoppingEndsWhatWaits) {
  Gate gate;
  HeadEngine engine(gate.compute(), {});
  Asked first(engine, "a", {{1}});
  gate.began.get_future().wait();
  std::promise<void> done;
  const auto waits = engine.add_request("b", {{1}}, [&] { done.set_value(); });
  auto stopped = std::async([&] { engine.stop("it is late"); });
  while (true) {  // until stop() takes effect
    try {
      if (const auto more = engine.add_request("c", {{1}}, [] {})) more->abort();
    } catch (const Unavailable&) {
      break;
    }
  }
  gate.go.set_value();
  stopped.wait();
  done.get_future().wait();
  std::vector<std::vector<float>> numbers;
  EXPECT_THROW(waits->read(numbers), Unavailable);
  EXPECT_EQ(first.numbers().front().front(), 1.0F);
}

TEST(HeadEngine, ARequestIsOfOneModelWhenParametersChange) {
  std::atomic<double> factor = 1;
  std::promise<void> began, go;
  std::atomic<int> batches = 0;
  HeadEngine engine(
      [&](const Texts& texts) {
        if (batches++ == 0) {
          began.set_value();
          go.get_future().wait();
        }
        return sums_of(texts, factor);
      },
      {.max_num_batched_tokens = 2});
  Asked asked(engine, "a", {{1}, {2}, {3}, {4}});
  began.get_future().wait();
  auto changed = std::async([&] { return engine.between_steps([&] { factor = 10; }, ""); });
  go.set_value();
  EXPECT_TRUE(changed.get());
  using testing::ElementsAre;
  const auto numbers = asked.numbers();
  // The action may have come before or behind the last batch; never in the middle.
  const float one = numbers.front().front();
  EXPECT_THAT(one, testing::AnyOf(1.0F, 10.0F));
  EXPECT_THAT(numbers, ElementsAre(ElementsAre(one), ElementsAre(2 * one), ElementsAre(3 * one),
                                   ElementsAre(4 * one)));
}

}  // namespace
}  // namespace sluice::serve
