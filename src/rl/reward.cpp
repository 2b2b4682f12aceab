#include "rl/reward.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/learnt_rewards.h"
#include "rl/number.h"

namespace sluice::rl {
namespace {

using base::text;

// A reward that checks one answer after the other.
template <typename Score>
class Each final : public Reward {
 public:
  explicit Each(Score score) : score_(std::move(score)) {}
  std::vector<Verdict> of(std::span<const RewardInput> answers) override {
    std::vector<Verdict> verdicts;
    for (const RewardInput& answer : answers) verdicts.push_back({score_(answer) ? 1.0 : 0.0});
    return verdicts;
  }

 private:
  Score score_;
};

bool says_the_same(const RewardInput& answer) {
  return base::trim(answer.response) == base::trim(answer.ground_truth);
}

bool says_the_number(const RewardInput& answer) {
  const std::optional<Number> given = last_number(answer.response);
  const std::optional<Number> right = last_number(answer.ground_truth);
  return given && right && *given == *right;
}

// A function that a child process runs (tools/rewards.py) and stops in time. A child that does not let itself
// be stopped is killed, and another one goes on with the next response.
class PythonReward final : public Reward {
 public:
  PythonReward(std::vector<std::string> arguments, std::string name, const RewardOptions& options)
      : child_(tools_of(options), "rewards.py", arguments, name),
        file_(std::move(arguments.front())),
        name_(std::move(name)),
        timeout_s_(options.timeout_s),
        stops_at_fault_(options.stops_at_fault) {
    child_.set_patience(behind_own_clock(timeout_s_));
  }

  std::vector<Verdict> of(std::span<const RewardInput> answers) override {
    std::vector<Verdict> verdicts;
    bool asked = false;
    while (verdicts.size() < answers.size()) {
      const std::span<const RewardInput> rest = answers.subspan(verdicts.size());
      if (!asked) ask(rest);
      asked = true;
      Verdict& verdict = verdicts.emplace_back(next());
      if (verdict.fault.empty()) continue;
      verdict.fault += text("; the response was \"", base::beginning(rest.front().response), "\"");
      if (stops_at_fault_) {
        child_.restart();  // drops the other rewards, which are on their way
        throw base::RunError(text(verdict.fault, " (with rl.on_bad_reward zero or drop the run goes on)"));
      }
      if (std::exchange(ended_, false)) {
        child_.restart();
        asked = false;
      }
    }
    return verdicts;
  }

 private:
  // The time to wait for a child that stops slow functions itself: its traces take a while, too.
  static double behind_own_clock(double seconds) { return 1.1 * seconds + 1; }

  static corpus::PythonTools tools_of(const RewardOptions& options) {
    corpus::PythonTools tools = options.tools;
    tools.start_s = behind_own_clock(options.load_s);
    return tools;
  }

  void ask(std::span<const RewardInput> answers) {
    try {
      send(answers);
    } catch (const corpus::ChildEnded&) {  // it ended since it was last asked
      child_.restart();
      send(answers);
    }
  }

  void send(std::span<const RewardInput> answers) {
    child_.send("R", 1);
    child_.send_number(static_cast<uint64_t>(answers.size()));
    for (const RewardInput& answer : answers) {
      for (const std::string* part : {&answer.prompt, &answer.response, &answer.ground_truth})
        child_.send_text(*part);
    }
    child_.flush();
  }

  // The verdict on the next response. If it sets ended_, the child must not be asked again.
  Verdict next() {
    constexpr char kOk = 'K', kHangs = 'T';
    try {
      const char status = child_.receive_number<char>();
      if (status == kOk) return {child_.receive_number<double>()};
      if (status != kHangs) return {0, child_.receive_text()};
      ended_ = true;
      return {0, late(place_in(traces()))};
    } catch (const corpus::ChildLate&) {
      ended_ = true;
      return {0, late("")};
    } catch (const corpus::ChildEnded& gone) {
      ended_ = true;
      return {0, gone.what()};
    }
  }

  std::string late(const std::string& place) const {
    return text(place, place.empty() ? "" : ": ", name_, " took longer than ", timeout_s_,
                " s (rl.reward_timeout_s) and did not let itself be stopped, so its process was ended");
  }

  // Python's traces of its threads, read until the child is silent; the child has ended then.
  std::string traces() {
    constexpr double kSilence_s = 0.1;
    constexpr size_t kMostBytes = size_t{1} << 18;
    std::string traces;
    child_.set_patience(kSilence_s);
    try {
      while (traces.size() < kMostBytes) traces += child_.receive_number<char>();
    } catch (const corpus::ChildEnded&) {
    }
    child_.kill();
    child_.set_patience(behind_own_clock(timeout_s_));
    return traces;
  }

  // FILE:LINE of a thread that is in the reward's own file, from such traces; empty if none is.
  std::string place_in(const std::string& traces) const {
    const std::string begin = text("File \"", file_, "\", line ");
    const size_t found = traces.find(begin);
    if (found == traces.npos) return "";
    const size_t line = found + begin.size();
    return text(file_, ":", traces.substr(line, traces.find_first_not_of("0123456789", line) - line));
  }

  corpus::PythonChild child_;
  std::string file_, name_;
  double timeout_s_;
  bool stops_at_fault_;
  bool ended_ = false;
};

class Sum final : public Reward {
 public:
  explicit Sum(std::vector<std::unique_ptr<Reward>> parts) : parts_(std::move(parts)) {}
  std::vector<Verdict> of(std::span<const RewardInput> answers) override {
    std::vector<Verdict> sum(answers.size());
    for (const std::unique_ptr<Reward>& part : parts_) {
      const std::vector<Verdict> own = part->of(answers);
      for (size_t i = 0; i < own.size(); ++i) {
        if (sum[i].fault.empty()) sum[i].fault = own[i].fault;
        sum[i].reward = sum[i].fault.empty() ? sum[i].reward + own[i].reward : 0;
      }
    }
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Reward>> parts_;
};

std::unique_ptr<Reward> one_reward(const std::string& name, const RewardOptions& options) {
  if (name == "exact") return std::make_unique<Each<decltype(&says_the_same)>>(says_the_same);
  if (name == "number") return std::make_unique<Each<decltype(&says_the_number)>>(says_the_number);
  if (config::is_learnt_reward(name)) {
    const auto nothing = [](const RewardInput&) { return false; };
    return std::make_unique<Each<decltype(nothing)>>(nothing);
  }
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : name.substr(colon + 1);
  const std::string timeout = text(options.timeout_s), load = text(options.load_s);
  if (kind == "regex" && !rest.empty()) {
    return std::make_unique<PythonReward>(std::vector<std::string>{"--regex", rest, timeout, load}, name,
                                          options);
  }
  const size_t last = rest.rfind(':');
  if (kind == "python" && last != std::string::npos && last > 0 && last + 1 < rest.size()) {
    return std::make_unique<PythonReward>(
        std::vector<std::string>{rest.substr(0, last), rest.substr(last + 1), timeout, load}, name, options);
  }
  throw base::InputError(
      text("[config] rl.reward names ", "\"", name, "\"",
           ": give exact, number, regex:PATTERN, python:FILE.py:FUNCTION or model:FOLDER"));
}

}  // namespace

std::unique_ptr<Reward> make_reward(std::span<const std::string> names, const RewardOptions& options) {
  std::vector<std::unique_ptr<Reward>> parts;
  for (const std::string& name : names) parts.push_back(one_reward(name, options));
  if (parts.empty()) throw base::InputError("[config] rl.reward is empty: name at least one");
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<Sum>(std::move(parts));
}

}  // namespace sluice::rl
