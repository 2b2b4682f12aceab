#include "report/watch.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "watch/alarm_text.h"

namespace sluice::report {
namespace {

using base::Json;
using base::text;

std::vector<StepRecord> last_steps(const std::filesystem::path& path, int64_t most_steps) {
  if (!std::filesystem::exists(path))
    throw base::InputError(text(path.string(), " is missing: give the directory of a run that train writes"));
  std::deque<std::pair<int64_t, std::string>> lines;
  std::ifstream file(path);
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const bool unfinished = file.eof() && !base::is_json(line);
    if (line.empty() || unfinished || line.find("\"validation_loss\"") != std::string::npos) continue;
    lines.emplace_back(number, std::move(line));
    if (std::ssize(lines) > most_steps) lines.pop_front();
  }
  std::vector<StepRecord> steps;
  for (const auto& [at, line] : lines) {
    const std::string place = text(path.string(), ":", at);
    steps.push_back(step_record(base::parse_json(line, place), place));
  }
  return steps;
}

// "pull" for "pull_wait_ms": the kind that makes up most of the rank's waiting.
std::string longest_wait(const watch::Figures& figures, size_t rank) {
  constexpr std::string_view kWait = "_wait_ms";
  std::string longest;
  double most_ms = 0;
  for (const watch::Figure figure : watch::all_figures()) {
    const std::string_view key = watch::traits(figure).key;
    if (!key.ends_with(kWait) || rank >= figures[figure].size() || !(figures[figure][rank] > most_ms))
      continue;
    most_ms = figures[figure][rank];
    longest = key.substr(0, key.size() - kWait.size());
  }
  return longest;
}

}  // namespace

WatchedRun watch_run(const std::filesystem::path& run, int64_t most_steps) {
  WatchedRun watched;
  watch::Detector paces;
  for (StepRecord& step : last_steps(run / "metrics.jsonl", most_steps)) {
    ++watched.steps;
    if (step.figures.ranks() > 0) {
      watched.ranks.resize(step.figures.ranks());
      paces.add(step.step, watch::scores_of(step.figures, step.time_ns));
      watched.figures = step.figures;
    }
    for (WatchedRank& rank : watched.ranks) rank.alarms.clear();
    for (const watch::Alarm& alarm : step.alarms) {
      if (static_cast<size_t>(alarm.rank) >= watched.ranks.size()) continue;
      WatchedRank& rank = watched.ranks[static_cast<size_t>(alarm.rank)];
      if (rank.alarms.empty()) ++rank.alarmed_steps;
      rank.alarms.push_back(alarm);
    }
    if (!step.critical_path.empty()) watched.critical_path = step;
    watched.last = std::move(step);
  }
  const std::vector<double> over_window = paces.slowdowns();
  for (size_t rank = 0; rank < watched.ranks.size(); ++rank) {
    WatchedRank& own = watched.ranks[rank];
    if (rank < over_window.size()) own.slowdown = over_window[rank];
    const std::vector<double>& waits = watched.figures[watch::Figure::kWait];
    if (rank < waits.size() && waits[rank] > 0) own.wait_ms = waits[rank];
    own.waits_for = longest_wait(watched.figures, rank);
  }
  return watched;
}

Json to_json(const WatchedRun& run) {
  const auto or_null = [](double value) { return value > 0 ? Json(value) : Json(); };
  Json ranks = Json::array();
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const WatchedRank& own = run.ranks[rank];
    Json alarms = Json::array();
    for (const watch::Alarm& alarm : own.alarms) alarms.push_back(watch::name_of(alarm.cause));
    ranks.push_back({{"rank", rank},
                     {"slowdown", or_null(own.slowdown)},
                     {"waits_ms", own.wait_ms},
                     {"waits_for", own.waits_for.empty() ? Json() : Json(own.waits_for)},
                     {"alarms", alarms},
                     {"evidence", watch::evidence(run.figures, rank)}});
  }
  return {{"step", run.last ? Json(run.last->step) : Json()}, {"steps", run.steps}, {"ranks", ranks}};
}

namespace {

std::string alarms_text(const WatchedRun& run, size_t rank) {
  const WatchedRank& own = run.ranks[rank];
  if (own.alarms.empty()) return "";
  std::vector<std::string> names;
  for (const watch::Alarm& alarm : own.alarms)
    names.push_back(text(watch::name_of(alarm.cause), " since step ", alarm.since + 1));
  const std::string why = watch::evidence(run.figures, rank);
  return text("  ", base::join(names, ", "), " (", own.alarmed_steps, " of ", run.steps, " steps)",
              why.empty() ? "" : "; ", why);
}

// The longest shares of the newest critical path.
std::string path_text(const StepRecord& step) {
  constexpr size_t kMostShares = 6;
  std::string shown = text("critical path of step ", step.step, ", ms (planned):\n");
  char line[96];
  for (size_t share = 0; share < std::min(kMostShares, step.critical_path.size()); ++share) {
    const PathShare& own = step.critical_path[share];
    std::snprintf(line, sizeof line, "%4d  %-8s %9.1f (%.1f)\n", own.rank, own.kind.c_str(),
                  milliseconds(own.time_ns), milliseconds(own.planned_ns));
    shown += line;
  }
  return shown;
}

}  // namespace

std::string to_text(const WatchedRun& run) {
  if (!run.last) return "no step yet\n";
  const StepRecord& last = *run.last;
  char line[192];
  std::snprintf(line, sizeof line, "step %lld  loss %.4f  %.1f ms (predicted %.1f)  %.0f tokens/s\n",
                static_cast<long long>(last.step + 1), last.loss.value_or(0), milliseconds(last.time_ns),
                milliseconds(last.predicted_ns), last.tokens_per_s);
  std::string shown = line;
  if (run.ranks.empty())
    return shown + "no slowdowns of ranks: there is one alone, or an older program wrote them\n";
  shown += text("slowdown over ", watch::Detector::Options{}.window,
                " steps: computed over planned, relative to the median\n");
  shown += "rank  slowdown   waits ms  mostly for\n";
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const WatchedRank& own = run.ranks[rank];
    std::snprintf(line, sizeof line, "%4zu  %8.2f  %9.1f  %-10s", rank, own.slowdown, own.wait_ms,
                  own.waits_for.c_str());
    std::string row = line + alarms_text(run, rank);
    row.resize(row.find_last_not_of(' ') + 1);
    shown += row + "\n";
  }
  if (run.critical_path) shown += path_text(*run.critical_path);
  return shown;
}

}  // namespace sluice::report
