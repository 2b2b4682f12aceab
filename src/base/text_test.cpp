#include "base/text.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/choices.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/queue.h"

namespace sluice::base {
namespace {

TEST(Text, SplitsAndJoins) {
  EXPECT_EQ(split("a,b,,c", ','), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(join(split("a,b", ','), " + "), "a + b");
  EXPECT_EQ(choices_text({"1", "2", "4"}), "choose one of 1, 2, 4");
  EXPECT_EQ(choices_text({"1"}), "choose 1");
  EXPECT_EQ(trim("  x y\n"), "x y");
}

TEST(Text, ParsesWholeNumbersOnly) {
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_FALSE(parse_integer("12x"));
  EXPECT_FALSE(parse_integer(""));
  EXPECT_EQ(parse_number("2.5"), 2.5);
}

TEST(Text, HumanUnits) {
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_duration(1'500'000'000), "1.50 s");
  EXPECT_EQ(human_duration(125'000'000'000), "2m05s");
  EXPECT_EQ(human_count(-1234567), "-1,234,567");
  EXPECT_EQ(human_count(0, "batch", "batches"), "0 batches");
  EXPECT_EQ(human_count(1, "batch", "batches"), "1 batch");
  EXPECT_EQ(human_count(1234, "batch", "batches"), "1,234 batches");
}

TEST(Text, NearestWordWithinReach) {
  const std::vector<std::string> keys{"context_length", "tokens_per_step", "seed"};
  EXPECT_EQ(nearest_word("context_lenght", keys), "context_length");
  EXPECT_EQ(nearest_word("banana", keys), "");
}

TEST(Hash, TextRoundTrips) {
  const uint64_t hash = hash_bytes("sluice");
  EXPECT_EQ(parse_hash(hash_text(hash)), hash);
  EXPECT_THROW(parse_hash("12"), InputError);
}

TEST(BoundedQueue, DrainsAfterClose) {
  BoundedQueue<int> queue(2);
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) queue.push(i);
    queue.close();
  });
  int expected = 0;
  while (const auto item = queue.pop()) EXPECT_EQ(*item, expected++);
  EXPECT_EQ(expected, 100);
  producer.join();
  EXPECT_FALSE(queue.push(1));
}

TEST(Text, TablesAlignCodePoints) {
  EXPECT_EQ(table_text({{"a", "1"}, {"…bb", "1,000"}, {"c"}}, "lr"), "a        1\n…bb  1,000\nc\n");
}

TEST(Text, PercentsKeepThreeDigits) {
  EXPECT_EQ(human_percent(0.0004), "0.04 %");
  EXPECT_EQ(human_percent(0.456), "45.6 %");
}

}  // namespace
}  // namespace sluice::base
