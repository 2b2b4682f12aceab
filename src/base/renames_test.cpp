#include "base/renames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "base/json.h"
#include "base/renamed_json.h"

namespace sluice::base {
namespace {

using testing::HasSubstr;

TEST(Renames, HoldWhereTheTableSays) {
  ASSERT_NE(renamed("option", "--prompts", "sluice plan"), nullptr);
  EXPECT_EQ(renamed("option", "--prompts", "sluice plan")->name, "--input-len");
  EXPECT_EQ(renamed("option", "--prompts", "sluice generate"), nullptr) << "it is an option there";
  EXPECT_NE(renamed("option", "--texts", "sluice serve"), nullptr);
  EXPECT_NE(renamed("option", "--texts", "sluice generate"), nullptr);
  EXPECT_EQ(renamed("key", "--texts"), nullptr);
  EXPECT_EQ(renamed("key", ""), nullptr);
}

TEST(Renames, LeadFromOneNameToOneThatStays) {
  std::set<std::tuple<std::string, std::string, std::string>> before, now;
  for (const Rename& row : renames()) {
    for (const std::string& place : row.where) {
      EXPECT_TRUE(before.insert({row.kind, row.old_name, place}).second) << row.old_name << " in " << place;
      EXPECT_TRUE(now.insert({row.kind, row.name, place}).second) << row.name << " in " << place;
    }
  }
}

TEST(Renames, AreTakenEverywhereInAFile) {
  Json json =
      Json::parse(R"({"layers": [{"narrow": {"int8": 1}, "decode": {"text": 3}}], "ring": 4, "text": "x"})");
  take_new_names(json, "sluice.calibration/1");
  EXPECT_EQ(json["layers"][0]["low_precision"]["int8"], 1);
  EXPECT_EQ(json["layers"][0]["decode"], (Json{{"state", 3}}));
  EXPECT_EQ(json["state"], "x");
  EXPECT_EQ(json["ring"], 4) << "of another file";
  EXPECT_FALSE(json.contains("text"));
  Json both = {{"text", 1}, {"state", 2}};
  take_new_names(both, "sluice.calibration/1");
  EXPECT_EQ(both, (Json{{"text", 1}, {"state", 2}}));
  Json number = 3;
  take_new_names(number, "sluice.calibration/1");
  EXPECT_EQ(number, 3);
}

TEST(Renames, AreATableForPeople) {
  EXPECT_THAT(renames_text(), HasSubstr("| `rl.group` | `rl.num_generations` | run configuration |\n"));
}

}  // namespace
}  // namespace sluice::base
