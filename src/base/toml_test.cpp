#include "base/toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/printable.h"

namespace sluice::base {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string repetitions(const std::string& part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

TEST(Toml, KeysOfManyPartsAreRefused) {
  for (const std::string& bytes :
       {"[" + repetitions("a.", 50'000) + "a]", repetitions("a . \"b\" . ", 50'000) + "c = 1",
        "x = {" + repetitions("'a'.", 50'000) + "b = 1}", "[[" + repetitions("a.", 50'000) + "a]]"}) {
    EXPECT_THAT([&] { parse_toml("\n" + bytes, "run.toml"); },
                ThrowsMessage<InputError>(HasSubstr("run.toml:2: a key has more than 16 parts")));
  }
}

TEST(Toml, ManyLevelsOfValuesAreRefused) {
  EXPECT_THROW(parse_toml("x = " + repetitions("[", 100'000), "x"), InputError);
  EXPECT_THROW(parse_toml("x = " + repetitions("{a.b.c.d = ", 100'000), "x"), InputError);
}

TEST(Toml, DotsElsewhereAreNoKeys) {
  const std::string numbers = "x = [" + repetitions("0.5, ", 1000) + "1.5]\n";
  EXPECT_EQ(parse_toml_as_json(numbers, "x").at("x").size(), 1001);
  const std::string dots(1000, '.');
  EXPECT_EQ(parse_toml_as_json("x = \"" + dots + "\" # " + dots + "\ny = '" + dots + "'", "x").at("y"), dots);
  EXPECT_EQ(parse_toml_as_json("\"a.\\\"b" + dots + "\" = 1", "x").size(), 1);
}

TEST(Toml, OtherThanAsciiStandsInStringsAndComments) {
  const Json read = parse_toml_as_json(
      "\xEF\xBB\xBF# é\nx = \"é\" # \u2028\ny = \"\"\"a\né \\\"\"\" ü\n\"\"\"\n'ö' = 'ä'", "x");
  EXPECT_EQ(read.at("x"), "é");
  EXPECT_EQ(read.at("y"), "a\né \"\"\" ü\n");
  EXPECT_EQ(read.at("ö"), "ä");
  for (const std::string outside : {"é", "\u00A0", "\u2003", "\xFF"}) {
    EXPECT_THAT([&] { parse_toml("x = '''\n'''\n[a" + outside + "]", "run.toml"); },
                ThrowsMessage<InputError>(HasSubstr("run.toml:3: '")));
  }
  EXPECT_THAT(
      [] { parse_toml("x = é", "run.toml"); },
      ThrowsMessage<InputError>(HasSubstr("run.toml:1: 'é' stands outside of quotes: put the text in")));
}

TEST(Toml, FaultsNameTheLine) {
  for (const char* broken : {"[", "[.]\n", "[..]\n", "[!]\n", "[a", "[a.]\n", "[[a]\n", "[]\n", "[a]b\n",
                             "= 1\n", "a = [1\n", "a = '\n"}) {
    EXPECT_THAT([&] { parse_toml("[a]\nb = \"\"\"\n[\n\"\"\"\n" + std::string(broken), "run.toml"); },
                ThrowsMessage<InputError>(testing::MatchesRegex("run.toml:[56]: .*")))
        << broken;
  }
  EXPECT_THAT([] { parse_toml("a = 1\nb = \n", "run.toml"); },
              ThrowsMessage<InputError>(HasSubstr("run.toml:2: ")));
}

TEST(Toml, QuotesInsideOfBareValues) {
  for (const char* broken :
       {"a = 12\"é\"", "a = x'é'", "a = \"\"\"b\"\"\"\"\"\" é", "a = 'b''é'", "a = true\"é"}) {
    EXPECT_THAT([&] { parse_toml("\n" + std::string(broken), "run.toml"); },
                ThrowsMessage<InputError>(HasSubstr("run.toml:2: ")))
        << broken;
  }
  const Json read =
      parse_toml_as_json("a = \"\"\"b\"\"\"\"\" # é\nb = ['c',\"d\"]\n\"e\".'f' = {g = ''}\n'h'='i'", "x");
  EXPECT_EQ(read.at("a"), "b\"\"");
  EXPECT_EQ(read.at("b"), Json({"c", "d"}));
  EXPECT_EQ(read.at("h"), "i");
}

TEST(Toml, TextsArePrintedSoThatATerminalMayShowThem) {
  for (const std::string value :
       {"a\u0080b", "\x1B[2J", "quote \" back \\ tick '", "two\nlines", "é😀\u202E", "\x7F"}) {
    toml::table table;
    table.insert("a", value);
    const std::string shown = printable(toml_text(table), Layout::kLines);
    EXPECT_EQ(parse_toml(shown, "x")["a"].value_exact<std::string>(), value) << shown;
  }
  EXPECT_EQ(toml_text(toml::value<std::string>("x")), "\"x\"");
  EXPECT_EQ(toml_text(toml::value<std::string>("\ntwo")), "\"\\ntwo\"");
}

}  // namespace
}  // namespace sluice::base
