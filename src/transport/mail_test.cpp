#include "transport/mail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <vector>

namespace sluice::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kLoopback = "127.0.0.1";

struct Box {
  explicit Box(const std::string& secret) : Box(listen_at(kLoopback), secret) {}
  Box(Socket listener, const std::string& secret)
      : place(kLoopback, port_of(listener)), mail(std::move(listener), {secret, "run", 2}) {}

  Place place;
  Mail mail;
};

// Serves both until `done` or the time is over. Returns the news of `to`.
template <typename Done>
Mail::News serve(Box& from, Box& to, Done done,
                 std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  Mail::News all;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!done(all) && std::chrono::steady_clock::now() < deadline) {
    std::vector<pollfd> entries;
    from.mail.watch(entries);
    to.mail.watch(entries);
    poll(entries.data(), entries.size(), 10);
    from.mail.serve();
    Mail::News news = to.mail.serve();
    all.messages.insert(all.messages.end(), news.messages.begin(), news.messages.end());
    all.gone.insert(all.gone.end(), news.gone.begin(), news.gone.end());
  }
  return all;
}

TEST(Mail, MessagesComeWholeAndInOrder) {
  Box here("secret"), there("secret");
  const std::string large(3'000'000, 'x');
  here.mail.send(there.place, "first");
  here.mail.send(there.place, large);
  here.mail.send(there.place, "");
  const Mail::News news = serve(here, there, [](const Mail::News& all) { return all.messages.size() == 3; });
  EXPECT_THAT(news.messages, ElementsAre("first", large, ""));
  EXPECT_TRUE(here.mail.is_sent());
}

TEST(Mail, WhoDoesNotKnowTheSecretIsNotHeard) {
  Box stranger("guess"), there("secret");
  stranger.mail.send(there.place, "let me in");
  const Mail::News news = serve(
      stranger, there, [](const Mail::News&) { return false; }, std::chrono::milliseconds(300));
  EXPECT_THAT(news.messages, IsEmpty());
}

TEST(Mail, AnEndShowsBehindWhatWasSaidBefore) {
  Box here("secret");
  auto there = std::make_unique<Box>("secret");
  const Place place = there->place;
  here.mail.connect(place);
  there->mail.send(here.place, "goodbye");
  there->mail.serve();
  there->mail.serve();
  there.reset();
  Box nobody("secret");
  const Mail::News news = serve(nobody, here, [](const Mail::News& all) { return !all.gone.empty(); });
  EXPECT_THAT(news.messages, ElementsAre("goodbye"));
  EXPECT_THAT(news.gone, ElementsAre(place));
}

TEST(Mail, WhereNobodyListensIsGone) {
  Box here("secret");
  Place place;
  {
    const Box closed("secret");
    place = closed.place;
  }
  here.mail.send(place, "hello?");
  Box nobody("secret");
  const Mail::News news = serve(nobody, here, [](const Mail::News& all) { return !all.gone.empty(); });
  EXPECT_THAT(news.gone, ElementsAre(place));
}

// A process that only watches for another's end sends nothing, and still counts as one of the run.
TEST(Mail, ManyStrangersPushOutNoneOfTheRun) {
  Box here("secret"), there("secret");
  here.mail.connect(there.place);
  const auto is_sent = [&](const Mail::News&) { return here.mail.is_sent(); };
  serve(here, there, is_sent);
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i)
    strangers.push_back(connect_to(there.place.first, there.place.second, 10'000'000'000));
  here.mail.send(there.place, "still here");
  const Mail::News news = serve(here, there, [](const Mail::News& all) { return !all.messages.empty(); });
  EXPECT_THAT(news.messages, ElementsAre("still here"));
  std::vector<pollfd> kept;
  there.mail.watch(kept);
  EXPECT_LE(kept.size(), 1 + 1 + 64);
  EXPECT_THAT(here.mail.serve().gone, IsEmpty());
}

}  // namespace
}  // namespace sluice::transport
