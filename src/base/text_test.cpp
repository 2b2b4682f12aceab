#include "base/text.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/hash.h"
#include "base/json_fields.h"
#include "base/queue.h"

namespace sluice::base {
namespace {

TEST(Text, SplitsAndJoins) {
  EXPECT_EQ(split("a,b,,c", ','), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(join(split("a,b", ','), " + "), "a + b");
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

TEST(Json, ErrorsNameFileAndKey) {
  const Json value = parse_json(R"({"a": "text"})", "x.json");
  try {
    require<int>(value, "a", "x.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("x.json: key 'a'"), std::string::npos);
  }
  EXPECT_THROW(require<int>(value, "b", "x.json"), InputError);
}

std::string fault_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Json, ErrorsSayWhatIsExpected) {
  const Json value = parse_json(R"({"a": 7.5, "b": null})", "x.json");
  EXPECT_EQ(fault_of([&] {
              require_in<int>(value, "a", {1, 9}, "x.json");
            }),
            "x.json: key 'a' is 7.5: give a whole number from 1 to 9");
  EXPECT_EQ(fault_of([&] {
              require_in<double>(value, "a", {0, 0.5}, "x.json");
            }),
            "x.json: key 'a' is 7.5: give a number from 0 to 0.5");
  EXPECT_EQ(require_in<double>(value, "a", {0, 8}, "x.json"), 7.5);
  EXPECT_EQ(fault_of([&] {
              require_in<int>(value, "b", {0, 1}, "x.json");
            }),
            "x.json: key 'b' is null: give a whole number from 0 to 1");
  EXPECT_EQ(fault_of([&] {
              require_in<int>(value, "c", {0, 1}, "x.json");
            }),
            "x.json: key 'c' is missing: add it");
}

TEST(Json, ErrorsDoNotNameTheLibrary) {
  for (const char* bytes : {"{", "{\"a\": 1e999}", "\"\xff\""}) {
    const std::string fault = fault_of([&] { parse_json(bytes, "x.json"); });
    EXPECT_TRUE(fault.starts_with("x.json is not JSON: ")) << fault;
    EXPECT_EQ(fault.find("json.exception"), std::string::npos) << fault;
  }
}

TEST(Json, TextOfBytesThatAreNoUtf8) { EXPECT_EQ(json_text(Json("a\xff")), "\"a\xEF\xBF\xBD\""); }

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
