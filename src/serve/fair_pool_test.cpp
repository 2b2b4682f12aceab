#include "serve/fair_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

namespace sluice::serve {
namespace {

TEST(FairPool, ClientsTakeTurnsAndBeginningsTakeTurnsWithAnswersUnderWay) {
  FairPool pool(1);
  std::promise<void> began, go, done;
  std::vector<std::string> order;
  pool.post(FairPool::Turn::kBegin, "a", [&] {
    began.set_value();
    go.get_future().wait();
  });
  began.get_future().wait();
  const auto add = [&](FairPool::Turn turn, const char* client) {
    pool.post(turn, client, [&order, client] { order.emplace_back(client); });
  };
  for (int i = 0; i < 4; ++i) add(FairPool::Turn::kBegin, "a");
  add(FairPool::Turn::kBegin, "b");
  add(FairPool::Turn::kBegin, "b");
  for (int i = 0; i < 3; ++i) add(FairPool::Turn::kGoOn, "c");
  pool.post(FairPool::Turn::kBegin, "a", [&] { done.set_value(); });
  go.set_value();
  done.get_future().wait();
  EXPECT_THAT(order, testing::ElementsAre("c", "a", "c", "b", "c", "a", "b", "a", "a"));
}

}  // namespace
}  // namespace sluice::serve
