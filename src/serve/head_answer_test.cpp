// Requests for a head's numbers from their body to their response, without a network.
#include "serve/head_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "serve/test_model.h"
#include "serve/test_reply.h"

namespace sluice::serve {
namespace {

using base::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// A head of two numbers: a text's tokens, and 1. A text of an x alone fails on the device.
std::vector<std::vector<double>> numbers_of(const TokenTexts& texts) {
  std::vector<std::vector<double>> numbers;
  for (const auto& text : texts) {
    if (text == std::vector<int32_t>{kBeginToken, 'x', kEndToken})
      throw std::runtime_error("the device is lost");
    numbers.push_back({static_cast<double>(text.size()), 1});
  }
  return numbers;
}

class HeadServing {
 public:
  explicit HeadServing(HeadEngineOptions options = {}, HeadEngine::Compute compute = numbers_of)
      : engine_(std::move(compute), options) {}
  ~HeadServing() {
    engine_.stop("the test has ended");
    pool_.reset();
  }

  std::shared_ptr<MemoryReply> ask(const Json& body, HeadEndpoint endpoint = HeadEndpoint::kEmbeddings) {
    auto reply = std::make_shared<MemoryReply>();
    std::make_shared<HeadAnswer>(context_, "a", reply, AnswerHead{.id = "head-1", .model = "mine"})
        ->begin(body.dump(), endpoint);
    return reply;
  }
  HeadEngine& engine() { return engine_; }
  std::string fault;

 private:
  const ByteTokenizer tokenizer_;
  HeadEngine engine_;
  std::unique_ptr<FairPool> pool_ = std::make_unique<FairPool>(2);
  HeadAnswerContext context_{engine_,
                             *pool_,
                             {.tokenizer = &tokenizer_,
                              .model = "mine",
                              .vocabulary = kVocabulary,
                              .context_length = 50,
                              .head = {.output = ServedHead::Output::kEmbedding, .width = 2},
                              .pair_template = "{query}{document}",
                              .limits = {}},
                             [] { return "fp"; },
                             [this](const std::string& why) { fault = why; }};
};

// Holds the engine in its first batch.
struct HeldCompute {
  std::promise<void> began, go;
  std::atomic<bool> first = true;
  HeadEngine::Compute compute() {
    return [this](const TokenTexts& texts) {
      if (first.exchange(false)) {
        began.set_value();
        go.get_future().wait();
      }
      return numbers_of(texts);
    };
  }
};

TEST(HeadAnswer, TextsAreAnsweredInTheirOrder) {
  HeadServing serving;
  const Json told = serving.ask({{"input", {"ab", "\u00e9"}}, {"normalize", false}})->json();
  EXPECT_EQ(told.at("model"), "mine");
  EXPECT_EQ(told.at("system_fingerprint"), "fp");
  // Each text has a token that begins and one that ends it.
  EXPECT_EQ(told.at("data").at(0).at("embedding"), Json({4.0, 1.0}));
  EXPECT_EQ(told.at("data").at(1).at("index"), 1);
  EXPECT_EQ(told.at("usage").at("total_tokens"), 8);
}

TEST(HeadAnswer, MistakesAreToldByTheirFieldAndComputeNothing) {
  HeadServing serving({}, [](const TokenTexts&) -> std::vector<std::vector<double>> {
    ADD_FAILURE() << "nothing is to be computed";
    return {};
  });
  const auto told = serving.ask({{"input", ""}});
  EXPECT_EQ(told->response().status, 400);
  EXPECT_EQ(told->json().at("error").at("param"), "input");
  EXPECT_EQ(serving.ask({{"input", "a"}, {"model", "other"}})->response().status, 404);
  EXPECT_EQ(serving.engine().stats().requests, 0);
}

TEST(HeadAnswer, AFaultOfTheModelIsToldToAllAndLater) {
  HeadServing serving;
  EXPECT_EQ(serving.ask({{"input", "x"}})->response().status, 503);
  const auto later = serving.ask({{"input", "ab"}});
  EXPECT_EQ(later->response().status, 503);
  EXPECT_THAT(later->response().body, HasSubstr("the device is lost"));
}

TEST(HeadAnswer, NumbersThatAreNotFiniteAreTheServersFault) {
  HeadServing serving({}, [](const TokenTexts& texts) {
    return std::vector<std::vector<double>>(texts.size(), {NAN, 1});
  });
  EXPECT_EQ(serving.ask({{"input", "ab"}})->response().status, 500);
  EXPECT_NE(serving.fault, "");
}

TEST(HeadAnswer, AFullQueueAndClientsThatLeave) {
  HeldCompute held;
  HeadServing serving({.max_queued_texts = 2}, held.compute());
  const auto first = serving.ask({{"input", "a"}});
  held.began.get_future().wait();
  const auto leaves = serving.ask({{"input", {"b", "c"}}});
  const auto refused = serving.ask({{"input", "d"}});
  EXPECT_EQ(refused->response().status, 503);
  EXPECT_THAT(refused->response().fields, ElementsAre(Pair("Retry-After", "1")));
  leaves->leave();
  held.go.set_value();
  EXPECT_EQ(first->response().status, 200);
  while (serving.engine().stats().waiting > 0) std::this_thread::yield();
  EXPECT_EQ(serving.ask({{"input", "d"}})->response().status, 200);
  EXPECT_EQ(serving.engine().stats().aborted, 1);
  EXPECT_EQ(leaves->written(), 0U);
}

}  // namespace
}  // namespace sluice::serve
