#include "base/json_reader.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/json.h"

namespace sluice::base {
namespace {

using ::testing::HasSubstr;

std::string fault_of(std::string_view bytes, JsonDialect dialect = JsonDialect::kStrict) {
  Json ignored;
  const auto fault = read_json_text(bytes, dialect, ignored);
  return fault ? text(fault->line, ":", fault->column, ": ", fault->what) : "none";
}

std::string repeated(const std::string& part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

TEST(JsonReader, ReadsWhatJsonIs) {
  const std::pair<std::string, Json> cases[] = {
      {"[]", Json::array()},
      {" {\t}\r\n", Json::object()},
      {"\xEF\xBB\xBF{}", Json::object()},
      {"0", 0},
      {"-0", 0},
      {"-0.0", -0.0},
      {"123456789012", 123456789012},
      {"-9223372036854775808", std::numeric_limits<int64_t>::min()},
      {"18446744073709551615", std::numeric_limits<uint64_t>::max()},
      {"18446744073709551616", 18446744073709551616.0},
      {"1e3", 1000.0},
      {"1E-2", 0.01},
      {"0e+1", 0.0},
      {"123e-10000000", 0.0},
      {"0.1", 0.1},
      {"2.2250738585072011e-308", 2.2250738585072011e-308},
      {"true", true},
      {"[null, false]", Json::array({nullptr, false})},
      {R"("\"\\\/\b\f\n\r\t")", "\"\\/\b\f\n\r\t"},
      {R"("\u0061\u00e9\u2028\ud83d\ude00\u0000")", std::string("aé\u2028😀\0", 11)},
      {"\"\x7F\u2028😀\"", "\x7F\u2028😀"},
      {R"({"a": {"b": [1, {"c": "d"}]}, "": 2})", {{"a", {{"b", Json::array({1, {{"c", "d"}}})}}}, {"", 2}}},
      {R"({"a": 1, "b": 2, "a": 3})", {{"a", 3}, {"b", 2}}}};
  for (const auto& [bytes, expected] : cases) {
    Json value;
    EXPECT_FALSE(read_json_text(bytes, JsonDialect::kStrict, value)) << bytes << fault_of(bytes);
    EXPECT_EQ(value, expected) << bytes;
    EXPECT_EQ(value.type(), expected.is_number_integer() && bytes[0] != '-' ? Json::value_t::number_unsigned
                                                                            : expected.type())
        << bytes;
  }
}

TEST(JsonReader, NamesWhatIsNoJsonWithItsPlace) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "1:1: the text ends where a value should begin"},
      {"\xEF\xBB\xBF", "the text ends where a value should begin"},
      {"[1,]", "1:4: a comma stands in front of ']'"},
      {"[1,,2]", "1:4: ',' stands where a value should begin"},
      {"[,1]", "1:2: ',' stands where a value should begin"},
      {"[1 true]", "1:4: 't' stands where a comma or ']' should"},
      {"[1", "1:3: the end of the text stands where a comma or ']' should: the text is cut off"},
      {"[1}", "'}' stands where a comma or ']' should"},
      {"{\"a\": 1\n\"b\": 2}", "2:1: '\"' stands where a comma or '}' should"},
      {"{\"a\" 1}", "'1' stands where the ':' behind a key should"},
      {"{\"a\": 1,}", "a comma stands in front of '}'"},
      {"{a: 1}", "'a' stands where a key in double quotes should begin"},
      {"{'a': 1}", "''' stands where a key"},
      {"{\"a\":", "the text ends where a value should begin"},
      {"[] []", "1:4: '[' stands behind the value"},
      {"{}\x01", "stands behind the value"},
      {std::string("{}\0 1", 5), "'\\u0000' stands behind the value"},
      {std::string("[1,\0 2]", 7), "'\\u0000' stands where a value"},
      {std::string("\0", 1), "'\\u0000' stands where a value"},
      {"\"a\nb\"", "a string holds a line end"},
      {"\"a\tb\"", "a string holds a control character"},
      {"\"\\x\"", "a backslash in a string begins no escape"},
      {"\"\\", "a backslash"},
      {"\"\\u12\"", "fewer than four hexadecimal digits"},
      {"\"é\\ud83d\"", "1:3: '\\ud83d' is half of a surrogate pair"},
      {"\"\\ud83d\\u0061\"", "half of a surrogate pair"},
      {"\"\\ude00\\ud83d\"", "'\\ude00' is half of a surrogate pair"},
      {"\"\\ud83d\\u12\"", "fewer than four"},
      {"\"\xE9\"", "bytes that are not UTF-8"},
      {"\"\xED\xA0\x80\"", "bytes that are not UTF-8"},
      {"\"\xC0\xAF\"", "bytes that are not UTF-8"},
      {"\"abc", "the text ends inside a string"},
      {"01", "'01' is no number"},
      {"-", "'-' is no number"},
      {"1.", "'1.' is no number"},
      {".5", "'.' stands where a value"},
      {"1e", "'1e' is no number"},
      {"+1", "'+' stands where a value"},
      {"0x1", "'x' stands behind the value"},
      {"1e999", "the number 1e999 is beyond what 64 bits hold"},
      {"tru", "'t' stands where a value"},
      {"True", "'T' stands where a value"},
      {"truefalse", "'f' stands behind the value"},
      {"[1] // comment", "'/' stands behind the value"},
      {"NaN", "NaN is not JSON, only Python writes it"},
      {"[1,\n -Infinity]", "2:2: -Infinity is not JSON"},
      {"\xFF\xFE{\0", "UTF-16"},
      {std::string("{\0}\0", 4), "UTF-16"},
      {std::string("\0{\0}", 4), "UTF-16"},
      {"\u00A0[]", "stands where a value"}};
  for (const auto& [bytes, expected] : cases) {
    EXPECT_THAT(fault_of(bytes), HasSubstr(expected)) << bytes;
    EXPECT_FALSE(is_json(bytes)) << bytes;
  }
}

TEST(JsonReader, ReadsWhatPythonWritesWhereItIsTold) {
  Json value;
  ASSERT_FALSE(read_json_text("[NaN, Infinity, -Infinity, 1e999, -1e999]", JsonDialect::kPython, value));
  EXPECT_TRUE(std::isnan(value[0].get<double>()));
  for (const int i : {1, 3}) EXPECT_EQ(value[i].get<double>(), std::numeric_limits<double>::infinity());
  for (const int i : {2, 4}) EXPECT_EQ(value[i].get<double>(), -std::numeric_limits<double>::infinity());
  for (const char* bytes : {"nan", "Inf", "-NaN", "infinity", "NaNs"}) {
    EXPECT_NE(fault_of(bytes, JsonDialect::kPython), "none") << bytes;
  }
  EXPECT_EQ(excerpt(parse_python_json("Infinity", "x")), "inf");
}

TEST(JsonReader, LevelsBeyondTheMostAreRefused) {
  const auto nested = [](int levels) { return repeated("[", levels) + repeated("]", levels); };
  EXPECT_EQ(fault_of(nested(kDeepestJson)), "none");
  EXPECT_THAT(fault_of(nested(kDeepestJson + 1)), HasSubstr("more than 100 values stand inside one another"));
  EXPECT_THAT(fault_of(repeated("[", 1 << 20)), HasSubstr("more than 100"));
  EXPECT_THAT(fault_of(repeated("{\"\":", 1 << 20)), HasSubstr("more than 100"));
  EXPECT_EQ(fault_of("[" + repeated("[[]],", 1 << 10) + "\"" + repeated("[", 200) + "\"]"), "none");
}

// A parser that is quadratic in the number of keys would take minutes.
TEST(JsonReader, ObjectsOfManyKeys) {
  constexpr int kKeys = 200'000;
  std::string bytes = "{";
  for (int i = 0; i < kKeys; ++i) bytes += text("\"model.layers.", i, ".weight\": ", i, ",");
  bytes += "\"model.layers.7.weight\": [7], \"last\": {}}";
  Json value;
  ASSERT_EQ(fault_of(bytes), "none");
  read_json_text(bytes, JsonDialect::kStrict, value);
  EXPECT_EQ(value.size(), kKeys + 1);
  EXPECT_EQ(std::next(value.begin(), 7).key(), "model.layers.7.weight");
  EXPECT_EQ(*std::next(value.begin(), 7), Json({7}));
  EXPECT_EQ(std::prev(value.end()).key(), "last");
}

TEST(JsonReader, ErrorsNameFileLineAndColumnOrThePlaceThatIsGiven) {
  const auto message = [](const std::string& bytes, const std::string& name) -> std::string {
    try {
      parse_json(bytes, name);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(message("{\"a\": 1,\n \"é\", 2}", "x.json"),
              HasSubstr("x.json:2:5 is not JSON: ',' stands where the ':'"));
  EXPECT_THAT(message("{\"a\" 1}", "x.jsonl:17"), HasSubstr("x.jsonl:17 is not JSON at column 6: "));
}

}  // namespace
}  // namespace sluice::base
