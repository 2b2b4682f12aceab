#include "base/json.h"

#include <gmock/gmock.h>

#include <functional>

#include "base/json_fields.h"

namespace sluice::base {
namespace {

using ::testing::HasSubstr;

std::string fault(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(Json, EachRefusalNamesTheValueAndTheKindThatIsWanted) {
  const Json json = {{"flag", 1},       {"count", 1.5},         {"share", "x"},
                     {"name", nullptr}, {"list", Json{3, "a"}}, {"wide", 4294967296}};
  EXPECT_EQ(fault([&] { require<bool>(json, "flag", "f"); }), "f: key 'flag' is 1: give true or false");
  EXPECT_EQ(fault([&] { require<int64_t>(json, "count", "f"); }),
            "f: key 'count' is 1.5: give a whole number within 64 bits");
  EXPECT_EQ(fault([&] { require<int>(json, "wide", "f"); }),
            "f: key 'wide' is 4294967296: give a whole number within 32 bits");
  EXPECT_EQ(fault([&] { require<double>(json, "share", "f"); }), "f: key 'share' is \"x\": give a number");
  EXPECT_EQ(fault([&] { require<std::string>(json, "name", "f"); }),
            "f: key 'name' is null: give a text in quotes");
  EXPECT_EQ(fault([&] { require<std::vector<int64_t>>(json, "list", "f"); }),
            "f: key 'list' is [3,\"a\"]: give a list, each entry a whole number within 64 bits");
  using Pairs = std::vector<std::pair<double, bool>>;
  EXPECT_EQ(fault([&] { require<Pairs>(json, "list", "f"); }),
            "f: key 'list' is [3,\"a\"]: give a list, each entry [a number, true or false]");
  EXPECT_EQ(fault([&] {
              require_in<int>(json, "flag", {2, 9}, "f");
            }),
            "f: key 'flag' is 1: give a whole number from 2 to 9");
  EXPECT_EQ(require_in<double>(json, "count", {0, 8}, "f"), 1.5);
}

TEST(Json, AMissingKeyIsNamedWithTheKindThatIsWanted) {
  for (const Json& json : {Json{{"other", 1}}, Json{1, 2}, Json(3), Json()}) {
    EXPECT_EQ(fault([&] { require<Json>(json, "key", "f"); }), "f: key 'key' is missing: give a value");
    EXPECT_EQ(fault([&] { require<bool>(json, "key", "f"); }), "f: key 'key' is missing: give true or false");
    EXPECT_EQ(fault([&] {
                require_in<double>(json, "key", {0.5, 1}, "f");
              }),
              "f: key 'key' is missing: give a number from 0.5 to 1");
    EXPECT_EQ(get_or<int>(json, "key", 7, "f"), 7);
  }
  EXPECT_EQ(get_or<int>(Json{{"key", nullptr}}, "key", 7, "f"), 7);
}

TEST(Json, ASchemaThatIsNotTheReadersIsNamedWithTheOneThatIs) {
  EXPECT_EQ(fault([] {
              require_schema({{"schema", "other/1"}}, "mine/1", "f");
            }),
            "f: schema is 'other/1': give a file of schema 'mine/1'");
}

TEST(Json, ErrorsDoNotNameTheLibrary) {
  for (const char* bytes : {"{", "{\"a\": 1e999}", "\"\xff\""}) {
    const std::string message = fault([&] { parse_json(bytes, "x.json"); });
    EXPECT_TRUE(message.starts_with("x.json:1:")) << message;
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
  }
}

TEST(Json, TextOfBytesThatAreNoUtf8) { EXPECT_EQ(json_text(Json("a\xff")), "\"a\xEF\xBF\xBD\""); }

TEST(Json, MessagesAreWholeBehindAZeroByte) {
  const Json json = {{"name", std::string("a\0b\n", 4)}};
  const std::string message = fault([&] { require<int>(json, "name", "f"); });
  EXPECT_THAT(message, HasSubstr("give a whole number"));
  const std::string quoted =
      fault([] { throw InputError(text("'", std::string("a\0b\n", 4), "': give another")); });
  EXPECT_EQ(quoted, "'a\\u0000b\\u000a': give another");
}

}  // namespace
}  // namespace sluice::base
