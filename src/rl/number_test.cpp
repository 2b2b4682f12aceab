#include "rl/number.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace sluice::rl {
namespace {

// The value of one of up to fifteen digits.
double value_of(const std::string& text) {
  const std::optional<Number> number = last_number(text);
  if (!number) return -12345;
  double value =
      std::stod(number->numerator + "e" + std::to_string(number->exponent)) / std::stod(number->denominator);
  return number->negative ? -value : value;
}

bool has_none(const std::string& text) { return !last_number(text).has_value(); }

bool same(const std::string& a, const std::string& b) {
  const std::optional<Number> left = last_number(a), right = last_number(b);
  return left && right && *left == *right;
}

TEST(Number, TakesTheLast) {
  EXPECT_EQ(value_of("First 3, then 4."), 4);
  EXPECT_EQ(value_of("72 clips,yo"), 72);
  EXPECT_EQ(value_of("\\boxed{42}"), 42);
  EXPECT_EQ(value_of("x1.2."), 1.2);
  EXPECT_EQ(value_of("is .5"), 0.5);
  EXPECT_EQ(value_of("the end.5"), 5);
  EXPECT_EQ(value_of("007"), 7);
  for (const char* text : {"", "none", ".", "-", ",,,", "\\frac{a}{b}"}) EXPECT_TRUE(has_none(text)) << text;
  EXPECT_TRUE(has_none(std::string(1 << 20, ',')));
  EXPECT_EQ(value_of(std::string(1 << 20, 'x') + " 5"), 5);
}

TEST(Number, StrokesAreSignsOnlyInFront) {
  for (const char* text : {"-7", "= -7", "=-7", "x = - 7", "(-7)", "-$7", "$-7", "\u22127", "\u2212$7",
                           "a 10.-7 b", "-\\$7", "**-7**", "\u7b54\u6848\u662f-7", "-7 \\text{ m}"})
    EXPECT_EQ(value_of(text), -7) << text;
  for (const char* text : {"3-7", "3\u20137", "x-7", "a - 7", "3 - 7", "(3)-7", "- 7", "well--7", "7-", "+7"})
    EXPECT_EQ(value_of(text), 7) << text;
}

TEST(Number, MarksPartThousandsInGroupsOfThree) {
  for (const char* text : {"1,234", "9{,}512.5 - 8{,}278.5 = 1{,}234", "1\\,234", "1'234", "1\u202f234",
                           "$1,234.00", "1,\\!234", "1_234"})
    EXPECT_EQ(value_of(text), 1234) << text;
  EXPECT_EQ(value_of("1,234,567.5"), 1234567.5);
  EXPECT_EQ(value_of("1, 234"), 234);
  EXPECT_EQ(value_of("In 2020, 5"), 5);
  for (const char* text : {"x=1,2", "(3,4)", "[0,1)", "12,34", "1,2345", "1234,567", "0,123", "(3, 4)",
                           "[-1, 0)", "{1, 2, 3}", "1,-2"})
    EXPECT_TRUE(has_none(text)) << text;
  EXPECT_EQ(value_of("f(2, 3) = 5"), 5);
  EXPECT_EQ(value_of("(by 2020, 5)"), 5);
}

TEST(Number, PowersOfTen) {
  for (const char* text :
       {"1.5e3", "1.5E+3", "15e2", "1.5 \\times 10^{3}", "1.5\u00d710^3", "1.5 x 10^3", "1.5*10^3"})
    EXPECT_EQ(value_of(text), 1500) << text;
  EXPECT_EQ(value_of("10^{-3}"), 1e-3);
  EXPECT_EQ(value_of("2^10"), 1024);
  EXPECT_EQ(value_of("3em"), 3);
  EXPECT_EQ(value_of("3e"), 3);
  EXPECT_TRUE(same("1e999999", "10e999998"));
  EXPECT_TRUE(has_none("1e99999999"));
  EXPECT_TRUE(has_none("7^9999999"));
}

TEST(Number, FractionsAndWhatStandsInFront) {
  for (const char* text : {"4/8", "\\frac{1}{2}", "\\dfrac12", "\\frac{ 4 }{8}", "0.5", "1\u20442"})
    EXPECT_EQ(value_of(text), 0.5) << text;
  for (const char* text : {"1 1/2", "1\\frac12", "1 \\frac{4}{8}", "3/2"})
    EXPECT_EQ(value_of(text), 1.5) << text;
  EXPECT_EQ(value_of("-1\\frac12"), -1.5);
  EXPECT_EQ(value_of("-\\frac{1}{2}"), -0.5);
  EXPECT_EQ(value_of("\\frac{-1}{2}"), -0.5);
  EXPECT_TRUE(same("1/3", "2/6"));
  EXPECT_FALSE(same("1/3", "0.333333333333333333"));
  for (const char* text : {"3/0", "1/2/2024", "12.05.2024", "1.2.3"}) EXPECT_TRUE(has_none(text)) << text;
}

TEST(Number, UnitsArePassedOver) {
  for (const char* text :
       {"25 m2", "25 cm^2", "25 \\text{ cm}^{3}", "25%", "25\\%", "25 km/h", "25\u20ac", "25\u00b0"})
    EXPECT_EQ(value_of(text), 25) << text;
}

TEST(Number, LongOnesAreComparedExactly) {
  EXPECT_FALSE(same("9007199254740993", "9007199254740992"));
  EXPECT_TRUE(same("9007199254740993.000", "9,007,199,254,740,993"));
  EXPECT_TRUE(same("-0", "0.00"));
  EXPECT_FALSE(same("5", "-5"));
  EXPECT_TRUE(same(std::string(3000, '9'), std::string(3000, '9')));
  EXPECT_FALSE(same(std::string(3000, '9'), std::string(2999, '9') + "8"));
  EXPECT_FALSE(same(std::string(1 << 20, '9'), "9"));
}

}  // namespace
}  // namespace sluice::rl
