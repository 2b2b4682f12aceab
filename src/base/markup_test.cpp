#include "base/markup.h"

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Markup, ElementsCloseAtTheEndOfTheirScope) {
  Markup out;
  {
    const auto list = out.element("ul", {{"class", "a"}});
    out.leaf("li", "one");
    const auto item = out.element("li");
    out.text("two");
  }
  EXPECT_EQ(out.bytes(), "<ul class=\"a\"><li>one</li><li>two</li></ul>");
}

TEST(Markup, OnlyVoidElementsAndShapesCloseThemselves) {
  Markup out;
  out.leaf("rect", {{"x", "1"}});
  out.leaf("td", "");
  EXPECT_EQ(out.bytes(), "<rect x=\"1\"/><td></td>");
}

TEST(Markup, TextAndAttributesAreEscaped) {
  Markup out;
  out.leaf("b", {{"title", "\"><script>"}}, "<i> & 'x'");
  EXPECT_EQ(out.bytes(), "<b title=\"&quot;&gt;&lt;script&gt;\">&lt;i&gt; &amp; &#39;x&#39;</b>");
}

TEST(Markup, WhatXmlForbidsIsReplaced) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("a\x01z\tß😀"), "a" + replacement + "z\tß😀");
  EXPECT_EQ(escaped("\xC0\xAF"), replacement + replacement) << "overlong";
  EXPECT_EQ(escaped("\xED\xA0\x80"), replacement + replacement + replacement) << "a surrogate";
  EXPECT_EQ(escaped("\xE2\x82"), replacement + replacement) << "cut off";
}

TEST(Markup, CoordinatesAreShort) {
  EXPECT_EQ(coordinate(12.3456, "%"), "12.35%");
  EXPECT_EQ(coordinate(3.0), "3");
  EXPECT_EQ(coordinate(-0.001), "0");
}

}  // namespace
}  // namespace sluice::base
