// Rewards that can be checked: a function of what was asked, answered, and known to be right.
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
  std::string ground_truth;  // what the corpus has in the response's place
};

struct Verdict {
  double reward = 0;
  // Why there is none, naming the reward, its place, and the response: its function raises, returns no finite
  // number, takes longer than it may, or ends its process. Then `reward` is 0.
  std::string fault = {};
  bool operator==(const Verdict&) const = default;
};

// Not thread-safe.
class Reward {
 public:
  virtual ~Reward() = default;
  // Of each. RunError where a fault stops all.
  virtual std::vector<Verdict> of(std::span<const RewardInput> answers) = 0;
};

struct RewardOptions {
  double timeout_s = 10;        // for one answer
  double load_s = 600;          // for a function's file to be loaded, with all that it imports
  bool stops_at_fault = false;  // the first fault of a function is a RunError, whatever else waits
  corpus::PythonTools tools;
};

// The sum of all that `names` say:
//   exact            1 where response and reference are the same but for white space around them
//   number           1 where the last numbers that they say are equal (rl/number.h)
//   regex:PATTERN    1 where Python's re finds the pattern in the response
//   python:FILE:NAME what the function NAME(prompt, response, reference) of a Python file returns
//   model:FOLDER     0 here: ranks score responses together (learn/learnt_rewards.h)
// InputError naming one that is none of these, or a function that cannot be loaded; RunError where loading it
// takes too long and does not let itself be stopped.
std::unique_ptr<Reward> make_reward(std::span<const std::string> names, const RewardOptions& options);

}  // namespace sluice::rl
