#include "base/printable.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/json_fields.h"
#include "base/utf8.h"

namespace sluice::base {
namespace {

TEST(Printable, ControlsSeparatorsAndDirectionsAreEscaped) {
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\u001b]0;title\\u0007");
  EXPECT_EQ(printable("a\r\n\tb\x7f"), "a\\u000d\\u000a\\u0009b\\u007f");
  EXPECT_EQ(printable("\xC2\x9b"
                      "31m"),
            "\\u009b31m");
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "txt \xE2\x80\xA8"),
            "\\u202etxt \\u2028");
  EXPECT_EQ(printable("a\nb\tc\x1b", Layout::kLines), "a\nb\tc\\u001b");
}

TEST(Printable, TextInAnyLanguageStays) {
  for (const char* kept : {"", "plain", "größer", "日本語", "🦀", "1 µs … 2 ÷ 3"}) {
    EXPECT_EQ(printable(kept), kept);
  }
}

TEST(Printable, BytesThatAreNoUtf8AreShownAsBytes) {
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xC0\x8A"), "\\xc0\\x8a");           // a line feed in two bytes
}

TEST(Printable, JsonMeansTheSame) {
  const Json value = {{"key", "\xC2\x9b\x7f\x1b \xE2\x80\xAE"}};
  EXPECT_EQ(Json::parse(printable(json_text(value))), value);
}

TEST(PrintableStream, WholeOutputPassesIt) {
  std::ostringstream out;
  {
    const PrintableStream guard(out);
    out << "a\x1b" << 'b' << '\x07' << "\xE2"
        << "\x80\xA6\n";
    EXPECT_EQ(out.str(), "");
    out << std::flush;
    EXPECT_EQ(out.str(), "a\\u001bb\\u0007…\n");
    for (int i = 0; i < 10'000; ++i) out << "größer\x1b\n";
  }
  std::string expected = "a\\u001bb\\u0007…\n";
  for (int i = 0; i < 10'000; ++i) expected += "größer\\u001b\n";
  EXPECT_EQ(out.str(), expected);
  out << "\x1b";
  EXPECT_EQ(out.str(), expected + "\x1b");
}

TEST(PrintableStream, FullDiskIsAFailure) {
  struct Full : std::streambuf {
    std::streamsize xsputn(const char*, std::streamsize) override { return 0; }
  } full;
  std::ostream out(&full);
  const PrintableStream guard(out);
  out << "lost" << std::flush;
  EXPECT_FALSE(out.good());
}

TEST(Utf8, CodePoints) {
  EXPECT_EQ(utf8_code_point("a"), U'a');
  EXPECT_EQ(utf8_code_point("ß"), U'ß');
  EXPECT_EQ(utf8_code_point("…"), U'…');
  EXPECT_EQ(utf8_code_point("🦀"), U'🦀');
}

}  // namespace
}  // namespace sluice::base
