// Requests of many clients on one engine, whose model says the successor of each byte.
#include "serve/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "comm/test_fake.h"
#include "serve/test_serving.h"

namespace sluice::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using News = PendingRequest::News;

// An engine on its own, without a server.
struct Alone {
  ChainedModel model;
  generate::Decoder decoder;
  Engine engine;

  explicit Alone(const ServingOptions& options = {})
      : model(options.next),
        decoder(model.shard(), kTestKvBlocks, /*most_texts=*/8),
        engine(decoder, engine_options(options)) {}
};

// A request whose end can be waited for.
struct Pending {
  std::shared_ptr<PendingRequest> request;
  std::atomic<int> news = 0;
  std::promise<void> ended;

  Pending(Engine& engine, const std::string& prompt, int64_t tokens, int samples = 1, News kind = News::kEnd,
          generate::SamplingParams params = {}, const std::string& client = "a") {
    auto ready = std::make_shared<std::promise<void>>();
    auto future = ready->get_future().share();
    request = engine.add_request(client, {ids_of(prompt), tokens, samples}, std::move(params), kind,
                                 [this, future] {
                                   future.wait();
                                   ++news;
                                   bool all = true;
                                   for (int sample = 0; sample < request->request().samples; ++sample)
                                     all = all && request->sample_finished(sample);
                                   if (all && !std::exchange(told_, true)) ended.set_value();
                                 });
    ready->set_value();
  }
  std::vector<PendingRequest::SequenceOutput> outputs() {
    ended.get_future().wait();
    std::vector<PendingRequest::SequenceOutput> all;
    EXPECT_TRUE(request->read(all));
    return all;
  }
  std::string text(size_t sample = 0) {
    const std::vector<PendingRequest::SequenceOutput> all = outputs();
    std::string text;
    for (const int64_t token : all.at(sample).output.tokens) text += static_cast<char>(token);
    return text;
  }

 private:
  bool told_ = false;
};

TEST(Engine, SamplesAreTheModelsAndTheirBlocksAreFreed) {
  Alone alone;
  Pending pending(alone.engine, "abc", 4, /*samples=*/2);
  const auto outputs = pending.outputs();
  ASSERT_EQ(outputs.size(), 2U);
  for (const auto& [output, finished] : outputs) {
    EXPECT_THAT(output.tokens, ElementsAre('d', 'e', 'f', 'g'));
    EXPECT_TRUE(finished);
    EXPECT_FALSE(output.finish_reason);
    EXPECT_EQ(output.end_token, -1);
  }
  alone.engine.stop("it is read");  // the last step's figures are there
  const EngineStats stats = alone.engine.stats();
  EXPECT_EQ(stats.requests, 1);
  EXPECT_EQ(stats.prompt_tokens, 3);
  EXPECT_EQ(stats.generated_tokens, 8);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.clients, 0);
  EXPECT_EQ(stats.free_kv_blocks, kTestKvBlocks);
  EXPECT_TRUE(alone.engine.idle());
}

TEST(Engine, EndTokensAndStopConditionsEndTheirSequences) {
  Alone alone;
  Pending end(alone.engine, "abc", 9, 1, News::kEnd, {.end_tokens = {'x', 'g'}});
  const generate::Output output = end.outputs().front().output;
  EXPECT_THAT(output.tokens, ElementsAre('d', 'e', 'f'));
  EXPECT_TRUE(output.finish_reason);
  EXPECT_EQ(output.end_token, 'g');
  Pending stop(alone.engine, "abc", 9, 1, News::kEnd, {.stop_condition = [](const generate::Output& so_far) {
                 return so_far.tokens.back() == 'e';
               }});
  EXPECT_EQ(stop.text(), "de");
}

TEST(Engine, NewsOfTokensComesWithEachOneAndNewsOfTheEndOnce) {
  Alone alone;
  Pending tokens(alone.engine, "abc", 5, 1, News::kTokens), end(alone.engine, "abc", 5, /*samples=*/3);
  tokens.outputs();
  end.outputs();
  EXPECT_EQ(tokens.news, 5);
  EXPECT_EQ(end.news, 1);
}

TEST(Engine, SequencesBeyondABoundAreRefusedInAllAndOfOneClient) {
  Alone alone({.max_queued_requests = 4, .max_queued_requests_of_client = 2});
  Hold hold(alone.engine);
  const auto add = [&](const std::string& client, int samples) {
    return alone.engine.add_request(client, {ids_of("abc"), 2, samples}, {}, News::kEnd, [] {});
  };
  EXPECT_NE(add("a", 2), nullptr);
  EXPECT_EQ(add("a", 1), nullptr) << "two sequences of this client wait";
  EXPECT_NE(add("b", 2), nullptr);
  EXPECT_EQ(add("c", 1), nullptr) << "four sequences wait in all";
  const EngineStats stats = alone.engine.stats();
  EXPECT_EQ(stats.waiting, 4);
  EXPECT_EQ(stats.refused, 2);
  EXPECT_EQ(stats.requests, 2);
  EXPECT_EQ(stats.clients, 2) << "a client that was only refused is none";
}

TEST(Engine, RequestsThatCanNeverBeComputedAreRefusedAtOnce) {
  Alone alone;
  const auto add = [&](int64_t tokens, const generate::Sampling& sampling) {
    return [&alone, tokens, sampling] {
      alone.engine.add_request("a", {ids_of("abc"), tokens}, {.sampling = sampling}, News::kEnd, [] {});
    };
  };
  EXPECT_THAT(add(5000, {}), ThrowsMessage<base::InputError>(HasSubstr("it holds 2048: generate fewer")));
  EXPECT_THAT(add(5, {.temperature = -1}), ThrowsMessage<base::InputError>(HasSubstr("temperature")));
  EXPECT_EQ(alone.engine.stats().requests, 0);
}

TEST(Engine, ClientsThatLeaveFreeTheirPlacesBeforeAndDuringGeneration) {
  Alone alone;
  std::promise<void> began;
  const auto endless = [&](const generate::Output& so_far) {
    if (so_far.tokens.size() == 2) began.set_value();
    return false;
  };
  const auto leaving =
      alone.engine.add_request("a", {ids_of("abc"), 400}, {.stop_condition = endless}, News::kTokens, [] {});
  began.get_future().wait();
  Hold hold(alone.engine);
  const auto waiting = alone.engine.add_request("b", {ids_of("abc"), 400}, {}, News::kEnd,
                                                [] { ADD_FAILURE() << "nobody waits"; });
  leaving->abort();
  waiting->abort();
  hold.release();
  Pending other(alone.engine, "abc", 2, 1, News::kEnd, {}, "c");
  EXPECT_EQ(other.text(), "de");
  alone.engine.stop("it is read");
  const EngineStats stats = alone.engine.stats();
  EXPECT_EQ(stats.aborted, 2);
  EXPECT_LT(stats.generated_tokens, 400);
  EXPECT_EQ(stats.free_kv_blocks, kTestKvBlocks);
  EXPECT_EQ(stats.clients, 0);
}

TEST(Engine, AStopConditionThatFailsEndsItsRequestAlone) {
  Alone alone;
  Pending broken(alone.engine, "abc", 9, 1, News::kTokens,
                 {.stop_condition = [](const generate::Output& so_far) -> bool {
                   if (so_far.tokens.size() == 3) throw base::RunError("the tokenizer has ended");
                   return false;
                 }});
  Pending other(alone.engine, "abc", 9);
  EXPECT_EQ(other.text(), "defghijkl");
  broken.ended.get_future().wait();
  std::vector<PendingRequest::SequenceOutput> outputs;
  EXPECT_THAT([&] { broken.request->read(outputs); },
              ThrowsMessage<base::RunError>(HasSubstr("the tokenizer has ended")));
  EXPECT_EQ(alone.engine.fault(), "");
}

// Lets a sequence come to two tokens, and no further before go().
struct TokenGate {
  std::promise<void> began, open;
  std::atomic<bool> met = false;

  std::function<bool(const generate::Output&)> condition() {
    return [this](const generate::Output& so_far) {
      if (so_far.tokens.size() < 2 || met.exchange(true)) return false;
      began.set_value();
      open.get_future().wait();
      return false;
    };
  }
  void await() { began.get_future().wait(); }
  void go() { open.set_value(); }
};

// A client that saw the old model's tokens keeps them; one that waits for the whole output gets all of it
// from the new model, which says Y always.
TEST(Engine, NewParametersRestartRequestsOfWhichNothingWasSeen) {
  Alone alone;
  TokenGate gate;
  std::unique_ptr<Pending> whole, streamed;
  {
    const Hold hold(alone.engine);  // both begin with the same step
    whole = std::make_unique<Pending>(alone.engine, "abc", 100);
    streamed = std::make_unique<Pending>(alone.engine, "abc", 100, 1, News::kTokens,
                                         generate::SamplingParams{.stop_condition = gate.condition()});
  }
  gate.await();
  std::map<int64_t, int64_t> always;
  for (int64_t byte = 0; byte < 256; ++byte) always[byte] = 'Y';
  auto changed =
      std::async([&] { return alone.engine.between_steps([&] { alone.model.set_next(always); }, ""); });
  changed.wait_for(std::chrono::milliseconds(20));
  gate.go();
  EXPECT_TRUE(changed.get());
  EXPECT_EQ(whole->text(), std::string(100, 'Y'));
  const std::string seen = streamed->text();
  EXPECT_EQ(seen.size(), 100U);
  EXPECT_THAT(seen, testing::StartsWith("de"));
  EXPECT_THAT(seen, testing::EndsWith("YYYY"));
}

TEST(Engine, AnActionThatFailsIsItsCallersFaultAlone) {
  Alone alone;
  EXPECT_THROW(alone.engine.between_steps([] { throw base::InputError("it is no model"); }, ""),
               base::InputError);
  Pending after(alone.engine, "abc", 2);
  EXPECT_EQ(after.text(), "de");
  EXPECT_TRUE(alone.engine.between_steps([] {}, ""));
}

// Calls stop() and returns once it takes effect.
std::future<void> stopping(Engine& engine, const std::string& why) {
  auto stopped = std::async([&engine, why] { engine.stop(why); });
  while (true) {
    try {
      if (const auto more = engine.add_request("other", {ids_of("a"), 1}, {}, News::kEnd, [] {}))
        more->abort();
    } catch (const Unavailable&) {
      return stopped;
    }
  }
}

TEST(Engine, StoppingEndsAllRequestsWithItsFirstReason) {
  Alone alone;
  TokenGate gate;
  Pending running(alone.engine, "abc", 100, 1, News::kEnd, {.stop_condition = gate.condition()});
  gate.await();
  Pending waiting(alone.engine, "abc", 2);
  const auto stopped = stopping(alone.engine, "it is late");
  gate.go();
  stopped.wait();
  alone.engine.stop("a second reason");
  for (Pending* const each : {&running, &waiting}) {
    each->ended.get_future().wait();
    std::vector<PendingRequest::SequenceOutput> outputs;
    EXPECT_THAT([&] { each->request->read(outputs); }, ThrowsMessage<Unavailable>(HasSubstr("it is late")));
  }
  EXPECT_THAT([&] { Pending(alone.engine, "abc", 2); }, ThrowsMessage<Unavailable>(HasSubstr("it is late")));
  EXPECT_FALSE(alone.engine.between_steps([] { ADD_FAILURE() << "the engine has ended"; }, ""));
}

// The caller's parameters are in use until then.
TEST(Engine, AnActionUnderWayIsAwaitedAlsoWhenTheEngineStops) {
  Alone alone;
  std::promise<void> began, go;
  std::atomic<bool> done = false, done_at_return = false;
  auto caller = std::async([&] {
    const bool ran = alone.engine.between_steps(
        [&] {
          began.set_value();
          go.get_future().wait();
          done = true;
        },
        "");
    done_at_return = done.load();
    return ran;
  });
  began.get_future().wait();
  const auto stopped = stopping(alone.engine, "it is late");
  caller.wait_for(std::chrono::milliseconds(50));
  go.set_value();
  EXPECT_TRUE(caller.get());
  EXPECT_TRUE(done_at_return);
  stopped.wait();
}

// As when a device is lost in the middle of a step: here a callback on the engine's thread throws.
TEST(Engine, AFaultOnItsThreadEndsAllRequestsAndIsTold) {
  Alone alone;
  std::promise<void> ended;
  std::atomic<bool> thrown = false;
  std::shared_ptr<PendingRequest> breaks;
  std::unique_ptr<Pending> other;
  {
    const Hold hold(alone.engine);
    breaks = alone.engine.add_request("a", {ids_of("abc"), 3}, {}, News::kTokens, [&] {
      if (!thrown.exchange(true)) throw std::runtime_error("the device is lost");
      ended.set_value();
    });
    other = std::make_unique<Pending>(alone.engine, "abc", 100);
  }
  ended.get_future().wait();
  other->ended.get_future().wait();
  for (PendingRequest* const each : {breaks.get(), other->request.get()}) {
    std::vector<PendingRequest::SequenceOutput> outputs;
    EXPECT_THAT([&] { each->read(outputs); }, ThrowsMessage<Unavailable>(HasSubstr("the device is lost")));
  }
  EXPECT_EQ(alone.engine.fault(), "the device is lost");
  EXPECT_THROW(Pending(alone.engine, "abc", 1), Unavailable);
  EXPECT_FALSE(alone.engine.between_steps([] { ADD_FAILURE() << "the engine has ended"; }, ""));
}

TEST(PendingRequest, FrequentChangesOfParametersDelayARequestAFewTimesOnly) {
  PendingRequest request({ids_of("abc"), 4}, {}, News::kEnd, [] {});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(request.restart()) << i;
  EXPECT_FALSE(request.restart());
  PendingRequest streamed({ids_of("abc"), 4}, {}, News::kTokens, [] {});
  EXPECT_FALSE(streamed.restart());
}

TEST(PendingRequest, OutputsGrowAndForgetNothingThatWasRead) {
  int changes = 0;
  PendingRequest request({ids_of("abc"), 4, /*samples=*/2}, {}, News::kTokens, [&] { ++changes; });
  generate::Output output{.tokens = {1, 2}, .log_probabilities = {-0.5, -1}};
  request.publish(0, output, false);
  request.publish(0, output, false);  // nothing new
  EXPECT_EQ(changes, 1);
  std::vector<PendingRequest::SequenceOutput> read;
  EXPECT_FALSE(request.read(read));
  output.tokens.push_back(3);
  output.log_probabilities.push_back(-2);
  request.publish(0, output, true);
  request.publish(1, {.tokens = {9}, .log_probabilities = {0}}, true);
  EXPECT_TRUE(request.read(read));
  EXPECT_THAT(read[0].output.tokens, ElementsAre(1, 2, 3));
  EXPECT_THAT(read[0].output.log_probabilities, ElementsAre(-0.5, -1, -2));
  EXPECT_THAT(read[1].output.tokens, ElementsAre(9));
}

// The leader alone gets requests; the other rank makes the same engine steps, and takes the same messages.
TEST(Engine, FollowersGetItsCallsAndMessages) {
  comm::FakeWorld world(2);
  std::vector<std::string> taken;
  int64_t followed = 0;
  std::thread other([&] {
    const auto transport = world.transport(1);
    const auto members = transport->communicator("members", {0, 1});
    const ChainedModel model;
    const generate::Decoder decoder(model.shard(), kTestKvBlocks, /*most_texts=*/8);
    generate::Generator generator(decoder, engine_options().scheduler);
    generate::follow(*members, generator, [&](const std::string& message) { taken.push_back(message); });
    followed = generator.generated_tokens();
  });
  {
    const auto transport = world.transport(0);
    const auto members = transport->communicator("members", {0, 1});
    const ChainedModel model;
    const generate::Decoder decoder(model.shard(), kTestKvBlocks, /*most_texts=*/8);
    EngineOptions options = engine_options();
    options.followers = members.get();
    Engine engine(decoder, options);
    Pending first(engine, "abc", 5, /*samples=*/2);
    first.outputs();
    EXPECT_TRUE(engine.between_steps([] {}, "a newer model"));
    Pending second(engine, "xyz", 3);
    EXPECT_EQ(second.text(), "{|}");
  }
  other.join();
  EXPECT_THAT(taken, ElementsAre("a newer model"));
  EXPECT_EQ(followed, 13);
}

}  // namespace
}  // namespace sluice::serve
