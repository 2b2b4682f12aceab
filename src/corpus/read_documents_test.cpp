#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "base/utf8.h"
#include "corpus/documents.h"
#include "corpus/json_objects.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReadDocuments : public testing::Test {
 protected:
  // Documents read from a file with these bytes.
  std::vector<std::string> documents_of(const std::string& name, const std::string& bytes) {
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
    counts_ = {};
    std::vector<std::string> documents;
    for_each_document({.path = directory_ / name}, options_, counts_,
                      [&](std::string_view whole) { documents.emplace_back(whole); });
    return documents;
  }

  std::string error_of(const std::string& name, const std::string& bytes) {
    try {
      documents_of(name, bytes);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory directory_;
  DocumentOptions options_;
  DocumentCounts counts_;
};

TEST_F(ReadDocuments, BadLinesAreLeftOutCountedAndNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text": "abc)", "a.jsonl:2 is not JSON at column 14"},
      {R"({"text": "abc"},)", "a.jsonl:2 is not JSON at column 16: ',' stands behind the value"},
      {R"({"text": "abc"} {"text": "d"})", "'{' stands behind the value"},
      {R"({"text": 7})", ":2: 'text' is 7, no text: name the key of the documents with --text-key"},
      {R"({"text": ["a"]})", ":2: 'text' is [\"a\"], no text"},
      {R"({"title": "x"})", ":2: there is no 'text'"},
      {R"(null)", ":2: null stands where a JSON object should"},
      {R"(["text"])", "stands where a JSON object should"},
      {R"(text)", "a.jsonl:2 is not JSON at column 1"},
      {R"({"text": [{)", "is not JSON"},
      {R"(}{)", "is not JSON"},
      {"{\"text\": \"caf\xE9\"}", "bytes that are not UTF-8"},
      {R"({"text": "\ud83d"})", "half of a surrogate pair"},
      {R"({"text": 01})", "is no number"},
      {"{\"text\": \"a\tb\"}", "control character"},
      {"{\"text\": \"a\"}\x01", "stands behind the value"}};
  for (const auto& [line, fault] : cases) {
    const std::string lines = std::string("{\"text\": \"first\"}\n") + line + "\n{\"text\": \"last\"}\n";
    EXPECT_THAT(documents_of("a.jsonl", lines), ElementsAre("first", "last")) << line;
    EXPECT_EQ(counts_.refused.count, 1);
    EXPECT_THAT(counts_.refused.first, ElementsAre(HasSubstr(fault))) << line;
    options_.strict = true;
    EXPECT_THAT(error_of("a.jsonl", lines), HasSubstr(fault));
    options_.strict = false;
  }
}

TEST_F(ReadDocuments, EveryLineMayBeTheBadOne) {
  for (int bad = 0; bad < 3; ++bad) {
    std::string lines;
    for (int i = 0; i < 3; ++i) lines += i == bad ? "{\"text\": [{\"a\": \"\n" : "{\"text\": \"good\"}\n";
    EXPECT_THAT(documents_of("a.jsonl", lines), ElementsAre("good", "good")) << bad;
    EXPECT_EQ(counts_.refused.count, 1);
  }
}

TEST_F(ReadDocuments, OnlyTheFirstThreeAreKept) {
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += "nothing\n";
  EXPECT_THAT(documents_of("a.jsonl", lines), IsEmpty());
  EXPECT_EQ(counts_.refused.count, 9);
  EXPECT_EQ(counts_.refused.first.size(), 3);
  EXPECT_THAT(counts_.refused.first.back(), HasSubstr("a.jsonl:3 is"));
}

TEST_F(ReadDocuments, WhatIsNotTheTextMayBeWhatPythonWrites) {
  EXPECT_THAT(
      documents_of("a.jsonl", "{\"text\": \"a\", \"score\": NaN}\n{\"text\": \"b\", \"score\": -Infinity}\n"),
      ElementsAre("a", "b"));
  EXPECT_EQ(counts_.refused.count, 0);
}

TEST_F(ReadDocuments, NullIsAnEmptyTextAsInTables) {
  EXPECT_THAT(documents_of("a.jsonl", "{\"text\": null}\n{\"text\": \"\"}\n{\"text\": \"a\"}\n"),
              ElementsAre("a"));
  EXPECT_EQ(counts_.empty_documents, 2);
  EXPECT_EQ(counts_.refused.count, 0);
}

TEST_F(ReadDocuments, MarksAndLineEndsOfWindows) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_THAT(documents_of("a.jsonl", mark + "{\"text\": \"a\"}\r\n\r\n" + mark + "{\"text\": \"b\"}\r\n"),
              ElementsAre("a", "b"));
  EXPECT_THAT(documents_of("a.json", mark + "[\r\n{\"text\": \"a\"}\r\n]\r\n"), ElementsAre("a"));
  EXPECT_THAT(documents_of("no_ending", mark + "{\"text\": \"a\"}\r\n"), ElementsAre("a"));
  EXPECT_THAT(documents_of("a.txt", mark + "plain\r\n"), ElementsAre("plain\r\n"));
  EXPECT_THAT(documents_of("a.jsonl", "{\"text\": \"a\u2028b\u0085c\"}"), ElementsAre("a\u2028b\u0085c"));
  options_.delimiter = "\n\n";
  EXPECT_THAT(documents_of("a.txt", "a\r\n\r\nb\n\nc\r\n\r\nd"),
              ElementsAre("a\r\n\r\n", "b\n\n", "c\r\n\r\n", "d"));
}

TEST_F(ReadDocuments, OtherEncodingsAndFormatsAreNamed) {
  const std::string line = "{\"text\": \"a\"}\n";
  std::string little, big;
  for (const char c : line) {
    little += {c, '\0'};
    big += {'\0', c};
  }
  for (const std::string& bytes : {little, big, "\xFF\xFE" + little, "\xFE\xFF" + big}) {
    for (const char* name : {"a.jsonl", "a.txt"}) {
      EXPECT_THAT(error_of(name, bytes), HasSubstr("UTF-16: convert it to UTF-8")) << name;
    }
  }
  EXPECT_THAT(error_of("a.txt", std::string("\xFF\xFE\0\0a\0\0\0", 8)), HasSubstr("UTF-32"));
  EXPECT_THAT(error_of("a.txt", std::string("\xFD"
                                            "7zXZ\0",
                                            6)),
              HasSubstr("a.txt is xz: decompress it first"));
  EXPECT_THAT(error_of("a", "PAR1...."), HasSubstr("give its name the ending .parquet"));
  EXPECT_THAT(error_of("a.jsonl", std::string(257, '\0') + "ustar"), HasSubstr("a tar archive"));
}

TEST_F(ReadDocuments, TextThatIsNotUtf8IsLeftOutWithItsLine) {
  EXPECT_THAT(documents_of("a.txt", "one\ntwo\nthr\xE9"), IsEmpty());
  EXPECT_THAT(counts_.refused.first, ElementsAre(HasSubstr("a.txt:3: not UTF-8")));
}

TEST_F(ReadDocuments, ListsNeedTheirCommas) {
  const std::string a = R"({"text": "a"})", b = R"({"text": "b"})";
  EXPECT_THAT(documents_of("a.json", "[" + a + ",\n" + b + "]\n"), ElementsAre("a", "b"));
  EXPECT_THAT(documents_of("a.json", "[]"), IsEmpty());
  const std::pair<std::string, const char*> cases[] = {
      {"[" + a + ", " + b + ",]", "a.json:1: a comma stands behind the last element"},
      {"[" + a + ",\n, " + b + "]", "a.json:2: a comma stands where an element"},
      {"[, " + a + "]", "a comma stands where an element"},
      {"[,]", "a comma stands where an element"},
      {"[" + a + " " + b + "]", "a comma is missing in front of '{'"},
      {"[" + a + "\n\n7]", "a.json:3: a comma is missing in front of '7'"},
      {"[7 8]", "a comma is missing in front of '8'"},
      {"[" + a + "] " + b, "'{' stands behind the list"},
      {"[" + a + "],", "',' stands behind the list"},
      {"[\n" + a + ",\n", "a.json:3: the list has no end"},
      {"[\n{\"text\": \"a", "a.json:2: what begins here has no end"}};
  for (const auto& [bytes, fault] : cases) EXPECT_THAT(error_of("a.json", bytes), HasSubstr(fault)) << bytes;
}

TEST_F(ReadDocuments, BadElementsOfListsAreLeftOut) {
  const std::string list =
      "[{\"text\": \"a\"},\n null, 7, \"},{\", [1, {\"x\": \"]\"}],\n{\"text\": nothing},\n{\"text\": "
      "\"b\"}]";
  EXPECT_THAT(documents_of("a.json", list), ElementsAre("a", "b"));
  EXPECT_EQ(counts_.refused.count, 5);
  EXPECT_THAT(counts_.refused.first.front(), HasSubstr("a.json:2: null stands where"));
}

TEST_F(ReadDocuments, ObjectsOverSeveralLines) {
  const std::string pretty = "{\n  \"text\": \"a\",\n  \"more\": [\n{\"b\": 1}\n]\n}\n";
  EXPECT_THAT(documents_of("a.json", pretty + pretty), ElementsAre("a", "a"));
  EXPECT_THAT(documents_of("a.json", "{\"text\": \"a\"}{\"text\": \"b\"}"), ElementsAre("a", "b"));
  EXPECT_THAT(documents_of("a.json", pretty + "{\n\"text\": \"b\",\n}\n"), ElementsAre("a"));
  EXPECT_THAT(counts_.refused.first,
              ElementsAre(HasSubstr("a.json:9 is not JSON at column 1: a comma stands in front")));
  EXPECT_THAT(error_of("a.json", pretty + "{\n\"text\":"),
              HasSubstr("a.json:7: what begins here has no end"));
  EXPECT_THAT(error_of("a.json", pretty + "x"),
              HasSubstr("a.json:7: 'x' stands where a JSON object should begin"));
}

// A byte at a time, the records are the same as at once.
TEST(JsonObjects, PiecesMayBeCutAnywhere) {
  for (const std::string bytes :
       {"{\"a\": \"\\\"}\"}\n{\"b\": [1, {}]}\n\nnull\n", "[{\"a\\\\\": \"]\"}, 7, \"\\\"\", [[], {}] ,null]",
        "{\n\"a\": \"{\\\\\"\n}\n{}{\"x\":\n[]}"}) {
    const auto records_of = [&](size_t piece) {
      std::vector<std::pair<std::string, int64_t>> records;
      JsonObjects objects("x",
                          [&](std::string_view record, int64_t line) { records.emplace_back(record, line); });
      for (size_t at = 0; at < bytes.size(); at += piece)
        objects.feed(std::string_view(bytes).substr(at, piece));
      objects.finish();
      return records;
    };
    EXPECT_EQ(records_of(1), records_of(bytes.size())) << bytes;
    EXPECT_GE(records_of(1).size(), 3) << bytes;
  }
}

TEST(Utf8, EncodingsByTheirFirstBytes) {
  using namespace std::string_view_literals;
  EXPECT_STREQ(base::wide_encoding("\xFF\xFE\0\0"sv), "UTF-32");
  EXPECT_STREQ(base::wide_encoding("\0\0\xFE\xFF"sv), "UTF-32");
  EXPECT_STREQ(base::wide_encoding("{\0\"\0"sv), "UTF-16");
  for (const std::string_view plain : {""sv, "{}"sv, "{\"a\""sv, "a\0b"sv, "\0\0\0\0"sv, "\xEF\xBB\xBF{"sv})
    EXPECT_EQ(base::wide_encoding(plain), nullptr);
}

}  // namespace
}  // namespace sluice::corpus
