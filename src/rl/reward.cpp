#include "rl/reward.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::rl {
namespace {

using base::text;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

double value_of(const std::string& number) {
  double value = 0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  return value;
}

// A reward that looks at one answer after the other.
template <typename Score>
class Each final : public Reward {
 public:
  explicit Each(Score score) : score_(std::move(score)) {}
  std::vector<double> of(std::span<const Answer> answers) override {
    std::vector<double> rewards;
    for (const Answer& answer : answers) rewards.push_back(score_(answer) ? 1 : 0);
    return rewards;
  }

 private:
  Score score_;
};

bool says_the_same(const Answer& answer) {
  return base::trim(answer.response) == base::trim(answer.reference);
}

bool says_the_number(const Answer& answer) {
  const std::string said = last_number(answer.response);
  const std::string right = last_number(answer.reference);
  return !said.empty() && !right.empty() && value_of(said) == value_of(right);
}

// Of a function that a child process runs (tools/rewards.py).
class PythonReward final : public Reward {
 public:
  PythonReward(std::vector<std::string> arguments, std::string subject, const RewardOptions& options)
      : child_(options.tools, "rewards.py", arguments, std::move(subject)), timeout_s_(options.timeout_s) {}

  std::vector<double> of(std::span<const Answer> answers) override {
    if (answers.empty()) return {};
    // The script stops a function in time; what doesn't let itself be stopped ends with its process.
    constexpr double kGrace_s = 30;
    child_.set_patience(timeout_s_ * static_cast<double>(answers.size()) + kGrace_s);
    child_.send("R", 1);
    child_.send_number(static_cast<uint64_t>(answers.size()));
    for (const Answer& answer : answers) {
      for (const std::string* part : {&answer.prompt, &answer.response, &answer.reference}) {
        child_.send_number(static_cast<uint64_t>(part->size()));
        child_.send(part->data(), part->size());
      }
    }
    try {
      child_.check_status();
    } catch (const base::InputError& error) {
      throw base::RunError(error.what());
    }
    std::vector<double> rewards(answers.size());
    child_.receive(rewards.data(), rewards.size() * sizeof(double));
    return rewards;
  }

 private:
  corpus::PythonChild child_;
  double timeout_s_;
};

class Sum final : public Reward {
 public:
  explicit Sum(std::vector<std::unique_ptr<Reward>> parts) : parts_(std::move(parts)) {}
  std::vector<double> of(std::span<const Answer> answers) override {
    std::vector<double> sum(answers.size(), 0.0);
    for (const std::unique_ptr<Reward>& part : parts_) {
      const std::vector<double> own = part->of(answers);
      std::ranges::transform(sum, own, sum.begin(), std::plus());
    }
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Reward>> parts_;
};

std::unique_ptr<Reward> one_reward(const std::string& name, const RewardOptions& options) {
  if (name == "exact") return std::make_unique<Each<decltype(&says_the_same)>>(says_the_same);
  if (name == "number") return std::make_unique<Each<decltype(&says_the_number)>>(says_the_number);
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : name.substr(colon + 1);
  const std::string timeout = text(options.timeout_s);
  if (kind == "regex" && !rest.empty()) {
    return std::make_unique<PythonReward>(std::vector<std::string>{"--regex", rest, timeout}, name, options);
  }
  const size_t last = rest.rfind(':');
  if (kind == "python" && last != std::string::npos && last > 0 && last + 1 < rest.size()) {
    return std::make_unique<PythonReward>(
        std::vector<std::string>{rest.substr(0, last), rest.substr(last + 1), timeout}, name, options);
  }
  throw base::InputError(text("[config] rl.reward names ", "\"", name, "\"",
                              ": give exact, number, regex:PATTERN or python:FILE.py:FUNCTION"));
}

}  // namespace

std::string last_number(const std::string& text) {
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  size_t begin = end;
  const auto belongs = [&](size_t i) {
    if (is_digit(text[i])) return true;
    return (text[i] == '.' || text[i] == ',') && i > 0 && is_digit(text[i - 1]);
  };
  while (begin > 0 && belongs(begin - 1)) --begin;
  std::string number;
  if (begin > 0 && begin < end && text[begin - 1] == '-') number = "-";
  for (size_t i = begin; i < end; ++i) {
    if (text[i] != ',') number += text[i];
  }
  return number;
}

std::unique_ptr<Reward> make_reward(std::span<const std::string> names, const RewardOptions& options) {
  std::vector<std::unique_ptr<Reward>> parts;
  for (const std::string& name : names) parts.push_back(one_reward(name, options));
  if (parts.empty()) throw base::InputError("[config] rl.reward is empty: name at least one");
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Sum>(std::move(parts));
}

}  // namespace sluice::rl
