#include "rl/reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "corpus/temporary_directory.h"

namespace sluice::rl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kScripts = std::filesystem::path(__FILE__).parent_path() / "../../tools";
const RewardOptions kOptions{.timeout_s = 0.5,
                             .tools = {.interpreter = "/usr/bin/python3", .scripts = kScripts}};

std::vector<double> rewards_of(const std::vector<std::string>& names,
                               const std::vector<RewardInput>& answers) {
  std::vector<double> rewards;
  for (const Verdict& verdict : make_reward(names, kOptions)->of(answers)) {
    EXPECT_EQ(verdict.fault, "");
    rewards.push_back(verdict.reward);
  }
  return rewards;
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
  std::vector<Verdict> verdicts(const std::string& body, const std::vector<std::string>& responses) {
    std::vector<RewardInput> answers;
    for (const std::string& response : responses) answers.push_back({"p", response, "r"});
    return make_reward(std::vector<std::string>{function(body)}, kOptions)->of(answers);
  }
  // The fault of a response with which the function fails.
  std::string fault(const std::string& body) { return verdicts(body, {"the response"}).front().fault; }
  std::string place(int line) const {
    return (folder_.path() / "rewards.py").string() + ":" + std::to_string(line);
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

TEST_F(PythonRewardTest, FaultsNameTheirLineAndTheResponse) {
  const std::string raised =
      fault("def inner():\n  raise ValueError('no such\\nunit')\ndef score(p, r, a):\n  inner()\n");
  EXPECT_EQ(raised,
            place(2) + ": score failed with ValueError: no such unit; the response was \"the response\"");
  EXPECT_THAT(fault("import json\ndef score(p, r, a):\n\n  return json.loads(r)\n"),
              HasSubstr(place(4) + ": score failed with JSONDecodeError"));
  EXPECT_THAT(fault("\ndef score(p, r, a):\n  return float('nan')\n"),
              HasSubstr(place(2) + ": score returned nan: rewards are finite numbers"));
  EXPECT_THAT(fault("def score(p, r, a): pass\n"), HasSubstr("returned None"));
  EXPECT_THAT(fault("import sys\ndef score(p, r, a): sys.exit(4)\n"), HasSubstr("failed with SystemExit: 4"));
}

// The time is over, whatever the function does about it.
TEST_F(PythonRewardTest, NothingTakesLongerThanItMay) {
  const std::string said = "score took longer than 0.5 s (rl.reward_timeout_s)";
  EXPECT_THAT(fault("def score(p, r, a):\n  while True: pass\n"), HasSubstr(place(2) + ": " + said));
  EXPECT_THAT(
      fault("import time\ndef score(p, r, a):\n  try: time.sleep(60)\n  except Exception: return 1\n"),
      HasSubstr(place(3) + ": " + said));
  EXPECT_THAT(fault("import time\ndef score(p, r, a):\n  try: time.sleep(60)\n  except: return 1\n"),
              HasSubstr(said));
  EXPECT_THAT(fault("import signal, time\ndef score(p, r, a):\n  signal.alarm(0)\n  time.sleep(60)\n"),
              HasSubstr(place(4)));
  EXPECT_THAT(fault("import signal\ndef score(p, r, a):\n  signal.pthread_sigmask(signal.SIG_BLOCK, "
                    "[signal.SIGALRM])\n  while True: pass\n"),
              HasSubstr(place(4)));
  EXPECT_THAT(fault("import concurrent.futures as f, time\ndef hang():\n  time.sleep(60)\n"
                    "def score(p, r, a):\n  with f.ThreadPoolExecutor(1) as pool:\n"
                    "    return pool.submit(hang).result(timeout=50)\n"),
              AllOf(HasSubstr(place(3)), HasSubstr("longer than 0.5 s"), HasSubstr("its process was ended")));
  EXPECT_THAT(fault("import os, signal\ndef score(p, r, a): os.kill(os.getpid(), signal.SIGSTOP)\n"),
              HasSubstr("longer than 0.5 s"));
}

TEST_F(PythonRewardTest, LoadingHasALimitToo) {
  RewardOptions options = kOptions;
  options.load_s = 0.5;
  const auto fault_of = [&](const std::string& body) -> std::string {
    try {
      make_reward(std::vector<std::string>{function(body)}, options);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string sound = "def score(p, r, a): return 1\n";
  EXPECT_EQ(fault_of(sound), "");
  EXPECT_THAT(fault_of("import time\n\ntime.sleep(1000)\n" + sound),
              HasSubstr(place(3) + " takes longer than 0.5 s to load"));
  EXPECT_THAT(fault_of("while True:\n  try:\n    while True: pass\n  except Exception: pass\n" + sound),
              HasSubstr("takes longer than 0.5 s to load"));
  EXPECT_THAT(fault_of("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
                       "while True: pass\n" +
                       sound),
              HasSubstr("did not answer in 1.55 s: its process was ended"));
}

TEST_F(PythonRewardTest, OthersAreRewardedAllTheSame) {
  const std::vector<Verdict> mixed = verdicts(
      "import os, signal, time\n"
      "state = []\n"
      "def score(p, r, a):\n"
      "  state.append(r)\n"
      "  if r == 'hang':\n"
      "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
      "    time.sleep(60)\n"
      "  if r == 'raise': raise KeyError(r)\n"
      "  if r == 'end': os._exit(3)\n"
      "  print('K' * 100)\n"
      "  return len(r)\n",
      {"a", "raise", "bb", "hang", "ccc", "end", "dddd"});
  std::vector<double> rewards;
  for (const Verdict& verdict : mixed) rewards.push_back(verdict.fault.empty() ? verdict.reward : -1);
  EXPECT_EQ(rewards, (std::vector<double>{1, -1, 2, -1, 3, -1, 4}));
  EXPECT_THAT(mixed[5].fault, HasSubstr("ended with status 3"));
}

TEST_F(PythonRewardTest, TheFirstFaultStopsAllWhereItIsToldTo) {
  RewardOptions options = kOptions;
  options.stops_at_fault = true;
  const auto reward = make_reward(
      std::vector<std::string>{function("import time\ndef score(p, r, a):\n  if r == 'hang': time.sleep(60)\n"
                                        "  return 1 / len(r)\n")},
      options);
  const std::vector<RewardInput> answers = {{"", "ab", ""}, {"", "", ""}, {"", "hang", ""}, {"", "hang", ""}};
  EXPECT_THAT([&] { reward->of(answers); },
              testing::ThrowsMessage<base::RunError>(AllOf(
                  HasSubstr(place(4) + ": score failed with ZeroDivisionError"), HasSubstr("zero or drop"))));
  EXPECT_EQ(reward->of(std::vector<RewardInput>{{"", "abcd", ""}}), std::vector<Verdict>{{0.25}});
}

TEST_F(PythonRewardTest, ChildrenOfAFunctionEndWithIt) {
  const std::string pid = (folder_.path() / "pid").string();
  fault(
      "import signal, subprocess, time\ndef score(p, r, a):\n  signal.alarm(0)\n"
      "  child = subprocess.Popen(['sleep', '600'])\n  open('" +
      pid +
      "', 'w').write(str(child.pid))\n"
      "  time.sleep(60)\n");
  const pid_t child = std::stoi(base::read_file(pid));
  const auto is_there = [&] {
    std::ifstream status("/proc/" + std::to_string(child) + "/status");
    const std::string text(std::istreambuf_iterator<char>(status), {});
    return !text.empty() && text.find("State:\tZ") == text.npos;
  };
  for (int i = 0; i < 1000 && is_there(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(is_there());
}

// Modules come from the function's own folder, then from PYTHONPATH, as for its writer; never from Sluice.
TEST_F(PythonRewardTest, FindsTheModulesThatItsWriterFinds) {
  std::ofstream(folder_.path() / "chat_template.py") << "worth = 3\n";
  std::filesystem::create_directory(folder_.path() / "packages");
  std::ofstream(folder_.path() / "packages/helper.py") << "worth = 4\n";
  ::setenv("PYTHONPATH", (folder_.path() / "packages").c_str(), 1);
  EXPECT_EQ(rewards_of({function("import chat_template, helper\nfrom dataclasses import dataclass\n"
                                 "@dataclass\nclass A:\n  x: 'int' = 0\n"
                                 "def score(p, r, a): return chat_template.worth + 10 * helper.worth\n")},
                       {{"", "", ""}}),
            std::vector<double>{43});
  ::unsetenv("PYTHONPATH");
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
