// Rewards that can be checked: a function of what was asked, answered, and known to be right.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "corpus/python_child.h"

namespace sluice::rl {

struct Answer {
  std::string prompt;
  std::string response;
  std::string reference;  // what the corpus has in the response's place
};

// Not thread-safe.
class Reward {
 public:
  virtual ~Reward() = default;
  // Of each. RunError, naming function and answer, when it raises, says no finite number, or takes longer
  // than it may.
  virtual std::vector<double> of(std::span<const Answer> answers) = 0;
};

struct RewardOptions {
  double timeout_s = 10;  // for one answer
  corpus::PythonTools tools;
};

// The sum of all that `names` say:
//   exact            1 where response and reference are the same but for white space around them
//   number           1 where the last numbers that they say are equal; 1,234.50 and 1234.5 are
//   regex:PATTERN    1 where Python's re finds the pattern in the response
//   python:FILE:NAME what the function NAME(prompt, response, reference) of a Python file returns
// InputError naming one that is none of these, or a function that cannot be loaded.
std::unique_ptr<Reward> make_reward(std::span<const std::string> names, const RewardOptions& options);

// The last number that a text says, without its separators of thousands; empty: none.
std::string last_number(const std::string& text);

}  // namespace sluice::rl
