#include "serve/text_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::serve {
namespace {

using testing::ElementsAre;

std::shared_ptr<PendingTexts> request_of(const std::vector<size_t>& lengths) {
  std::vector<std::vector<int32_t>> texts;
  for (const size_t length : lengths) texts.emplace_back(length, 7);
  return std::make_shared<PendingTexts>(std::move(texts), [] {});
}

std::vector<std::string> names_of(const std::vector<QueuedText>& batch) {
  std::vector<std::string> names;
  for (const QueuedText& text : batch) names.push_back(text.client + std::to_string(text.index));
  return names;
}

TEST(TextQueue, ClientsShareBatchesByTokensNotByRequests) {
  TextQueue queue;
  for (int i = 0; i < 3; ++i) queue.add("crowd", request_of({4, 4}));
  queue.add("other", request_of({4, 4, 4}));
  EXPECT_EQ(queue.texts(), 9);
  EXPECT_EQ(queue.texts_of("crowd"), 6);
  EXPECT_THAT(names_of(queue.take_batch(16)), ElementsAre("crowd0", "other0", "crowd1", "other1"));
  EXPECT_THAT(names_of(queue.take_batch(16)), ElementsAre("crowd0", "other2", "crowd1", "crowd0"));
  EXPECT_EQ(queue.clients(), 1);
}

TEST(TextQueue, ANewClientIsServedNextButHasNoCreditForItsAbsence) {
  TextQueue queue;
  queue.add("a", request_of(std::vector<size_t>(20, 5)));
  EXPECT_EQ(queue.take_batch(50).size(), 10U);
  queue.add("b", request_of(std::vector<size_t>(20, 5)));
  EXPECT_THAT(names_of(queue.take_batch(20)), ElementsAre("b0", "a10", "b1", "a11"));
}

TEST(TextQueue, ATextLongerThanABatchGoesAlone) {
  TextQueue queue;
  queue.add("a", request_of({3, 100, 3}));
  EXPECT_THAT(names_of(queue.take_batch(10)), ElementsAre("a0"));
  EXPECT_THAT(names_of(queue.take_batch(10)), ElementsAre("a1"));
  EXPECT_THAT(names_of(queue.take_batch(10)), ElementsAre("a2"));
  EXPECT_TRUE(queue.empty());
  EXPECT_THAT(queue.take_batch(10), ElementsAre());
}

TEST(TextQueue, TextsOfClientsThatLeftAreDropped) {
  TextQueue queue;
  const auto gone = request_of({1, 1, 1}), stays = request_of({1});
  queue.add("a", gone);
  queue.add("a", stays);
  queue.add("b", gone);
  gone->abort();
  EXPECT_EQ(queue.drop_aborted(), 2);
  EXPECT_EQ(queue.texts(), 1);
  EXPECT_EQ(queue.clients(), 1);
  EXPECT_EQ(queue.take_batch(10).front().request, stays);
}

TEST(TextQueue, RequestsThatHaveBegunBeginAnewWithAllTheirTexts) {
  TextQueue queue;
  const auto half = request_of({1, 1, 1}), whole = request_of({1});
  queue.add("a", half);
  queue.add("a", whole);
  for (const QueuedText& text : queue.take_batch(2)) text.request->publish(text.index, {1.0});
  queue.begin_anew();
  EXPECT_EQ(queue.texts(), 4);
  EXPECT_THAT(names_of(queue.take_batch(9)), ElementsAre("a0", "a1", "a2", "a0"));
  std::vector<std::vector<float>> numbers;
  EXPECT_FALSE(half->publish(0, {2.0}));
  EXPECT_FALSE(half->publish(1, {3.0}));
  EXPECT_FALSE(half->read(numbers));
  EXPECT_TRUE(half->publish(2, {4.0}));
  EXPECT_TRUE(half->read(numbers));
  EXPECT_THAT(numbers, ElementsAre(ElementsAre(2.0F), ElementsAre(3.0F), ElementsAre(4.0F)));
}

}  // namespace
}  // namespace sluice::serve
