#include "strategy/scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Scheme, PrintsAndParsesBack) {
  for (const Scheme& scheme : {Scheme{}, Scheme{4, 2, 1}, Scheme{1, 1, 512}, Scheme{8, 16, 4},
                               Scheme{1, 1, 8, 4}, Scheme{2, 1, 8, 4, 2}}) {
    EXPECT_EQ(parse_scheme(to_text(scheme)), scheme);
  }
  EXPECT_EQ(to_text(Scheme{4, 2, 1}), "<4,2,1>");
  EXPECT_EQ(to_text(Scheme{1, 1, 8, 4}), "<1,1,8,4>");
  EXPECT_EQ(to_text(Scheme{1, 1, 8, 4, 2}), "<1,1,8,4,2>");
  EXPECT_EQ(parse_scheme("<4,2,2,1>"), (Scheme{4, 2, 2}));
  EXPECT_EQ(parse_scheme("<4,2,2,2,1>"), (Scheme{4, 2, 2, 2}));
}

TEST(Scheme, WhiteSpaceIsIgnored) { EXPECT_EQ(parse_scheme("  < 4 ,\t2 , 1 >\n"), (Scheme{4, 2, 1})); }

TEST(Scheme, ExpertGroupsLieInShareGroups) {
  const Scheme scheme{1, 1, 8, 4, 2};
  EXPECT_EQ(scheme.expert_fsdp(), 2);
  EXPECT_EQ(scheme.first_of_fsdp_group(7), 4);
  EXPECT_EQ(scheme.first_of_ep_group(7), 6);
}

TEST(Scheme, RanksIsTheProduct) { EXPECT_EQ((Scheme{4, 2, 3}).ranks(), 24); }

TEST(Scheme, EveryFaultIsNamedWithTheText) {
  const std::pair<std::string, std::string> faults[] = {
      {"", "'<' is missing"},
      {"4,2,1", "expected '<' at character 1"},
      {"<4,2,1", "'>' is missing"},
      {"<4,2>", "expected ','"},
      {"<4,2,2,1,1,1>", "expected '>'"},
      {"<1,1,8,3>",
       "'<1,1,8,3>': fsdp 3 does not divide cp 8, so its lanes make no whole FSDP groups: choose one of 1, "
       "2, 4, 8"},
      {"<1,1,1,2>", "so its lanes make no whole FSDP groups: choose 1"},
      {"<1,1,8,0>", "fsdp is 0: give 1 or more"},
      {"<1,1,8,4,3>",
       "ep 3 does not divide fsdp 4, so its FSDP groups make no whole expert groups: choose one of "
       "1, 2, 4"},
      {"<1,1,8,4,8>", "ep 8 does not divide fsdp 4"},
      {"<1,1,8,4,0>", "ep is 0: give 1 or more"},
      {"<0,2,1>", "tp is 0: give 1 or more"},
      {"<1,0,1>", "pp is 0: give 1 or more"},
      {"<1,1,0>", "cp is 0: give 1 or more"},
      {"<-1,1,1>", "tp must be a positive integer"},
      {"<1.5,1,1>", "expected ','"},
      {"<a,1,1>", "tp must be a positive integer"},
      {"<1 2,1,1>", "expected ','"},
      {"<99999999999999999999,1,1>", "tp is above 1048576"},
      {"<1048576,1048576,1048576>", "more than 1048576 ranks"},
      {"<1,1,1>x", "more text behind it"},
  };
  for (const auto& [text, fault] : faults) {
    EXPECT_THAT([&] { parse_scheme(text); },
                ThrowsMessage<base::InputError>(AllOf(HasSubstr("scheme '" + text + "'"), HasSubstr(fault))));
  }
}

TEST(Scheme, RandomBytesNeverDoMoreThanThrow) {
  const std::string alphabet = "<>,x+ 0123456789\t-a\xff";
  base::Rng rng(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int64_t size = rng.between(0, 12); size > 0; --size) text += alphabet[rng.below(alphabet.size())];
    try {
      EXPECT_EQ(parse_scheme(to_text(parse_scheme(text))), parse_scheme(text));
    } catch (const base::InputError&) {
    }
  }
}

}  // namespace
}  // namespace sluice::strategy
