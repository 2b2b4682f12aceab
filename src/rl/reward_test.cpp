#include "rl/reward.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "corpus/temporary_directory.h"

namespace sluice::rl {
namespace {

const std::filesystem::path kScripts = std::filesystem::path(__FILE__).parent_path() / "../../tools";
const RewardOptions kOptions{.timeout_s = 0.5,
                             .tools = {.interpreter = "/usr/bin/python3", .scripts = kScripts}};

std::vector<double> rewards_of(const std::vector<std::string>& names, const std::vector<Answer>& answers) {
  return make_reward(names, kOptions)->of(answers);
}

TEST(RewardTest, ExactLeavesWhiteSpaceAround) {
  EXPECT_EQ(rewards_of({"exact"}, {{"", " 4 5\n", "4 5"}, {"", "4  5", "4 5"}, {"", "", " "}}),
            (std::vector<double>{1, 0, 1}));
}

TEST(RewardTest, NumberTakesTheLast) {
  EXPECT_EQ(rewards_of({"number"}, {{"", "First 3, so it is 1,234.50.", "1234.5"},
                                    {"", "-7", "7"},
                                    {"", "\\boxed{42}", "#### 42"},
                                    {"", "none", "3"},
                                    {"", "3", "none"}}),
            (std::vector<double>{1, 0, 1, 0, 0}));
  EXPECT_EQ(last_number("a 10.-3.5 b"), "-3.5");
  EXPECT_EQ(last_number(std::string(1 << 20, ',')), "");
  EXPECT_EQ(last_number("x1.2."), "1.2");
}

TEST(RewardTest, RegexIsPythons) {
  EXPECT_EQ(rewards_of({"regex:^<think>.*</think>"}, {{"", "<think>a</think>b", ""}, {"", "b", ""}}),
            (std::vector<double>{1, 0}));
}

TEST(RewardTest, SumsOfSeveral) {
  EXPECT_EQ(rewards_of({"exact", "number", "regex:4"}, {{"", "4", "4"}, {"", "x 4", "4"}}),
            (std::vector<double>{3, 2}));
}

class PythonRewardTest : public ::testing::Test {
 protected:
  std::string function(const std::string& body) {
    std::ofstream(folder_.path() / "rewards.py") << body;
    return "python:" + (folder_.path() / "rewards.py").string() + ":score";
  }
  // What is said of a response that the function fails with.
  std::string fault(const std::string& body) {
    const auto reward = make_reward(std::vector<std::string>{function(body)}, kOptions);
    try {
      reward->of(std::vector<Answer>{{"p", "the response", "r"}});
    } catch (const base::RunError& error) {
      return error.what();
    }
    return "nothing";
  }

  corpus::TemporaryDirectory folder_;
};

TEST_F(PythonRewardTest, CallsTheFunctionWithAllThree) {
  const std::string name = function(
      "def score(prompt, response, reference):\n  print('to standard output')\n"
      "  return len(prompt) + 10 * len(response) + 100 * len(reference)\n");
  EXPECT_EQ(
      rewards_of({name}, {{"a", "bé", "c"}, {"", "\xff\x00"[0] == '\xff' ? std::string("\xff") : "", ""}}),
      (std::vector<double>{121, 10}));
}

TEST_F(PythonRewardTest, FaultsNameFunctionAndResponse) {
  const std::string raised = fault("def score(p, r, a):\n  raise ValueError('no such unit')\n");
  EXPECT_NE(raised.find("ValueError: no such unit"), std::string::npos) << raised;
  EXPECT_NE(raised.find("the response"), std::string::npos) << raised;
  EXPECT_NE(fault("def score(p, r, a):\n  return float('nan')\n").find("returned nan"), std::string::npos);
  EXPECT_NE(fault("def score(p, r, a):\n  while True: pass\n").find("longer than 0.5 s"), std::string::npos);
}

TEST_F(PythonRewardTest, AFaultIsNotTheEnd) {
  const auto reward =
      make_reward(std::vector<std::string>{function("def score(p, r, a):\n  return 1 / len(r)\n")}, kOptions);
  EXPECT_THROW(reward->of(std::vector<Answer>{{"", "", ""}}), base::RunError);
  EXPECT_EQ(reward->of(std::vector<Answer>{{"", "ab", ""}}), std::vector<double>{0.5});
}

TEST_F(PythonRewardTest, WhatIsNoRewardIsRefused) {
  for (const std::string name :
       {"", "exactly", "python:", "python:x.py", "regex:", "python:nowhere.py:score"})
    EXPECT_THROW(make_reward(std::vector<std::string>{name}, kOptions), base::InputError) << name;
  EXPECT_THROW(make_reward(std::vector<std::string>{"regex:("}, kOptions), base::InputError);
  EXPECT_THROW(make_reward(std::vector<std::string>{}, kOptions), base::InputError);
  EXPECT_THROW(make_reward(std::vector<std::string>{function("x = 1\n")}, kOptions), base::InputError);
  EXPECT_THROW(make_reward(std::vector<std::string>{function("syntax error\n")}, kOptions), base::InputError);
}

}  // namespace
}  // namespace sluice::rl
