// Rewards that can be checked: functions of a prompt, a response and the corpus' answer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "corpus/python_child.h"

namespace sluice::rl {

struct RewardInput {
  std::string prompt;
  std::string response;
  std::string ground_truth;  // the corpus' answer
};

struct Verdict {
  double reward = 0;
  // The reason if there is no reward, naming the reward, its place, and the response: its function raised,
  // returned no finite number, took too long, or ended its process. `reward` is 0 then.
  std::string fault = {};
  bool operator==(const Verdict&) const = default;
};

// Not thread-safe.
class Reward {
 public:
  virtual ~Reward() = default;
  // One for each answer. RunError if a fault stops the run.
  virtual std::vector<Verdict> of(std::span<const RewardInput> answers) = 0;
};

struct RewardOptions {
  double timeout_s = 10;        // for one answer
  double load_s = 600;          // for a function's file to be loaded, with all that it imports
  bool stops_at_fault = false;  // a function's first fault is a RunError, even if other answers wait
  corpus::PythonTools tools;
};

// The sum of the rewards that `names` lists:
//   exact            1 where response and reference are the same but for white space around them
//   number           1 where their last numbers are equal (rl/number.h)
//   regex:PATTERN    1 where Python's re finds the pattern in the response
//   python:FILE:NAME result of the function NAME(prompt, response, reference) of a Python file
//   model:FOLDER     0 here: ranks score responses together (learn/learnt_rewards.h)
// InputError naming an entry that is none of these, or a function that cannot be loaded. RunError if loading
// it takes too long and cannot be stopped.
std::unique_ptr<Reward> make_reward(std::span<const std::string> names, const RewardOptions& options);

}  // namespace sluice::rl
