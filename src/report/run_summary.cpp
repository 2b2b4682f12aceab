#include "report/run_summary.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "report/numbers.h"
#include "strategy/readable.h"

namespace sluice::report {

using base::text;

namespace {

std::string titled(const SystemRun& run) {
  return run.configuration.empty() ? run.title
                                   : text(run.title, " (", strategy::readable_text(run.configuration), ")");
}

// A cluster's preset names its nodes: "a800x8" -> "A800".
std::string device_of(const std::string& hardware) {
  const size_t times = hardware.find_last_of('x');
  if (times == std::string::npos || !base::parse_integer(hardware.substr(times + 1))) return hardware;
  std::string device = hardware.substr(0, times);
  for (char& c : device) c = 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return device;
}

std::string headline_alone(const RunData& data) {
  const SystemSummary own = summary_of(data.systems.front());
  const std::string machine = machine_of(data);
  return text(data.simulated ? data.systems.front().title + " needs " : "Training took ",
              shown_duration(own.mean_step_ns), " a step", machine.empty() ? "" : " on " + machine, ": ",
              shown_rate(own.tokens_per_s), ".");
}

std::string headline_compared(const RunData& data, size_t best) {
  const SystemRun& own = data.systems.front();
  const SystemRun& other = data.systems[best];
  const double ratio = speed_up(own, other).mean;
  const auto others =
      std::ranges::count_if(data.systems, [](const SystemRun& run) { return !run.steps.empty(); }) - 1;
  const std::string machine = machine_of(data);
  const std::string rival =
      text(titled(other), others > 1 ? text(", the best of ", others, " other systems") : "");
  const std::string step = text(own.title, " needs ", shown_duration(summary_of(own).mean_step_ns), " a step",
                                machine.empty() ? "" : " on " + machine, ": ");
  if (ratio >= 1) return text(step, shown_ratio(ratio), " the speed of ", rival, ".");
  return text(step, "slower than ", rival, ", which needs ", shown_percent(1 - ratio), " less.");
}

std::string compute_shares(const RunData& data, size_t best) {
  const TimeShares own = summary_of(data.systems.front()).shares;
  if (own.total_ns() == 0) return "";
  const TimeShares other = summary_of(data.systems[best]).shares;
  const bool compared = best > 0 && other.total_ns() > 0;
  return text("Its ranks compute for ", shown_percent(share_of(own.compute_ns, own)), " of the time",
              compared ? text(", those of ", data.systems[best].title, " for ",
                              shown_percent(share_of(other.compute_ns, other)))
                       : "",
              ".");
}

// The last loss of each validation set.
std::string held_out_losses(const RunData& data) {
  std::map<std::string, double> losses;
  for (const Evaluation& evaluation : data.evaluations) losses[evaluation.set] = evaluation.validation_loss;
  std::vector<std::string> texts;
  for (const auto& [set, loss] : losses) {
    texts.push_back(text(decimal(loss, 3), set.empty() ? "" : text(" (", set, ")")));
  }
  return texts.empty() ? "" : text("; on held-out text it is ", base::join(texts, ", "));
}

std::string losses(const RunData& data) {
  const std::vector<StepRecord>& steps = data.systems.front().steps;
  const StepRecord& first = steps.front();
  const StepRecord& last = steps.back();
  if (!first.loss || !last.loss) return "";
  return text("The loss went from ", decimal(*first.loss, 3), " to ", decimal(*last.loss, 3), " in ",
              counted(static_cast<int64_t>(steps.size()), "step"), held_out_losses(data), ".");
}

std::string fallbacks(const RunData& data) {
  const std::vector<StepRecord>& steps = data.systems.front().steps;
  const auto fell_back = [](const StepRecord& step) { return !step.fallback.empty(); };
  const auto first = std::ranges::find_if(steps, fell_back);
  if (first == steps.end()) return "";
  return text(counted(std::ranges::count_if(steps, fell_back), "step"),
              " did not run the planner's own plan, step ", first->step, " the first: ", first->fallback,
              ".");
}

std::string degradation(const RunData& data) {
  const std::vector<StepRecord>& steps = data.systems.front().steps;
  const auto is_slower = [](const StepRecord& step) { return !step.degraded.empty(); };
  const auto first = std::ranges::find_if(steps, is_slower);
  if (first == steps.end()) return "";
  return text(counted(std::ranges::count_if(steps, is_slower), "step"),
              " ran slower than the machines could: ", first->degraded, ".");
}

std::string unfused_attention(const RunData& data) {
  int64_t calls = 0;
  for (const StepRecord& step : data.systems.front().steps) calls += step.unfused_attention;
  return calls == 0
             ? ""
             : text(counted(calls, "call"),
                    " for attention were left to plain operators, because no fused kernel takes them.");
}

std::string prediction(const RunData& data) {
  const PredictionError found = prediction_error(data.systems.front());
  if (found.error < 0) return "";
  const double slower = found.drift - 1;
  return text("Half of the steps were predicted to within ", shown_percent(found.error),
              " of what they took; the machine was ", shown_percent(std::abs(slower)),
              slower > 0 ? " slower" : " faster",
              " than when it was measured, and beside that half are within ", shown_percent(found.spread),
              ".");
}

}  // namespace

SystemSummary summary_of(const SystemRun& run) {
  SystemSummary summary;
  if (run.steps.empty()) return summary;
  const auto count = static_cast<double>(run.steps.size());
  int64_t sum_ns = 0;
  int64_t tokens = 0;
  double used = 0, known_ns = 0;  // MFU weighted by time
  summary.least_step_ns = run.steps.front().time_ns;
  for (const StepRecord& step : run.steps) {
    sum_ns += step.time_ns;
    tokens += step.tokens;
    if (step.mfu) {
      used += *step.mfu * static_cast<double>(step.time_ns);
      known_ns += static_cast<double>(step.time_ns);
    }
    summary.least_step_ns = std::min(summary.least_step_ns, step.time_ns);
    summary.most_step_ns = std::max(summary.most_step_ns, step.time_ns);
    summary.peak_bytes = std::max(summary.peak_bytes, step.peak_bytes);
    summary.predicted_peak_bytes = std::max(summary.predicted_peak_bytes, step.predicted_peak_bytes);
    summary.shares += step.shares;
  }
  const double mean_ns = static_cast<double>(sum_ns) / count;
  double squares = 0;
  for (const StepRecord& step : run.steps) {
    const double difference = static_cast<double>(step.time_ns) - mean_ns;
    squares += difference * difference;
  }
  summary.steps = static_cast<int64_t>(run.steps.size());
  summary.mean_step_ns = std::llround(mean_ns);
  summary.std_step_ns = std::llround(std::sqrt(squares / count));
  if (known_ns > 0) summary.mfu = used / known_ns;
  if (sum_ns > 0) summary.tokens_per_s = static_cast<double>(tokens) / (static_cast<double>(sum_ns) / 1e9);
  return summary;
}

double share_of(int64_t part_ns, const TimeShares& shares) {
  const int64_t total_ns = shares.total_ns();
  return total_ns == 0 ? 0 : static_cast<double>(part_ns) / static_cast<double>(total_ns);
}

size_t best_other(const RunData& data) {
  size_t best = 0;
  int64_t least_ns = 0;
  for (size_t i = 1; i < data.systems.size(); ++i) {
    const int64_t mean_ns = summary_of(data.systems[i]).mean_step_ns;
    if (mean_ns == 0 || (best > 0 && mean_ns >= least_ns)) continue;
    best = i;
    least_ns = mean_ns;
  }
  return best;
}

SpeedUp speed_up(const SystemRun& first, const SystemRun& other) {
  std::map<int64_t, int64_t> first_ns;
  for (const StepRecord& step : first.steps) first_ns[step.step] = step.time_ns;
  SpeedUp result;
  int64_t own_ns = 0;
  int64_t other_ns = 0;
  for (const StepRecord& step : other.steps) {
    const auto own = first_ns.find(step.step);
    if (own == first_ns.end() || own->second <= 0) continue;
    const double ratio = static_cast<double>(step.time_ns) / static_cast<double>(own->second);
    result.least = own_ns == 0 ? ratio : std::min(result.least, ratio);
    result.most = std::max(result.most, ratio);
    own_ns += own->second;
    other_ns += step.time_ns;
  }
  if (own_ns > 0) result.mean = static_cast<double>(other_ns) / static_cast<double>(own_ns);
  return result;
}

PredictionError prediction_error(const SystemRun& run) {
  std::vector<double> shares;  // predicted ÷ measured
  for (const StepRecord& step : run.steps) {
    if (step.predicted_ns <= 0 || step.time_ns <= 0) continue;
    shares.push_back(static_cast<double>(step.predicted_ns) / static_cast<double>(step.time_ns));
  }
  if (shares.empty()) return {};
  const auto median_distance = [&](double factor) {
    std::vector<double> distances;
    for (const double share : shares) distances.push_back(std::abs(factor * share - 1));
    std::ranges::nth_element(distances, distances.begin() + std::ssize(distances) / 2);
    return distances[distances.size() / 2];
  };
  std::vector<double> drifts;
  for (const double share : shares) drifts.push_back(1 / share);
  std::ranges::nth_element(drifts, drifts.begin() + std::ssize(drifts) / 2);
  const double drift = drifts[drifts.size() / 2];
  return {median_distance(1), drift, median_distance(drift)};
}

std::string memberships_text(const std::vector<StepRecord>& steps) {
  std::string described;
  const StepRecord* before = nullptr;
  for (const StepRecord& step : steps) {
    const std::string ranks = step.ranks > 0 ? base::human_count(step.ranks, "rank", "ranks") : "some ranks";
    if (before == nullptr) described = ranks;
    if (before != nullptr && before->restarts != step.restarts)
      described += text(", from step ", step.step + 1, " on ", step.ranks > 0 ? text(step.ranks) : "some");
    before = &step;
  }
  return steps.empty() || steps.front().restarts == steps.back().restarts ? "" : described;
}

std::vector<ActSum> act_sums(const SystemRun& run) {
  std::vector<ActSum> sums;
  for (const StepRecord& step : run.steps) {
    for (const ActRecord& act : step.acts) {
      auto found = std::ranges::find(sums, act.name, &ActSum::name);
      if (found == sums.end()) found = sums.insert(sums.end(), ActSum{.name = act.name});
      ++found->steps;
      add(act, found->sum);
    }
  }
  return sums;
}

std::string machine_of(const RunData& data) {
  if (data.ranks == 0) return data.hardware;
  if (data.simulated && !data.hardware.empty()) return text(data.ranks, "\u00a0", device_of(data.hardware));
  return counted(data.ranks, "rank") + (data.hardware.empty() ? "" : " (" + data.hardware + ")");
}

Verdict verdict_of(const RunData& data) {
  SLUICE_ASSERT(!data.systems.empty(), "a report of no system");
  if (data.systems.front().steps.empty()) return {"No step was run.", data.systems.front().infeasible};
  const size_t best = best_other(data);
  std::vector<std::string> sentences = {compute_shares(data, best), losses(data),
                                        prediction(data),           fallbacks(data),
                                        degradation(data),          unfused_attention(data)};
  std::erase(sentences, "");
  return {best > 0 ? headline_compared(data, best) : headline_alone(data), base::join(sentences, " ")};
}

}  // namespace sluice::report
