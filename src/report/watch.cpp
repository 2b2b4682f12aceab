#include "report/watch.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "report/pace.h"

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
    const bool unfinished = file.eof() && !Json::accept(line);
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

}  // namespace

WatchedRun watch_run(const std::filesystem::path& run, int64_t most_steps) {
  WatchedRun watched;
  PaceWatch paces;
  for (StepRecord& step : last_steps(run / "metrics.jsonl", most_steps)) {
    ++watched.steps;
    if (!step.rank_pace.empty()) {
      paces.add(step.rank_pace);
      watched.ranks.resize(step.rank_pace.size());
      for (const int rank : paces.slow_ranks()) ++watched.ranks[static_cast<size_t>(rank)].slow_steps;
      for (size_t rank = 0; rank < std::min(watched.ranks.size(), step.rank_wait_ms.size()); ++rank)
        watched.ranks[rank].wait_ms = step.rank_wait_ms[rank];
    }
    watched.last = std::move(step);
  }
  const std::vector<double> over_window = paces.paces();
  for (size_t rank = 0; rank < over_window.size(); ++rank) watched.ranks[rank].pace = over_window[rank];
  for (const int rank : paces.slow_ranks()) watched.ranks[static_cast<size_t>(rank)].slow = true;
  return watched;
}

Json to_json(const WatchedRun& run) {
  const auto or_null = [](double value) { return value > 0 ? Json(value) : Json(); };
  Json ranks = Json::array();
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const WatchedRank& own = run.ranks[rank];
    Json alarms = Json::array();
    if (own.slow) alarms.push_back("slow");
    ranks.push_back(
        {{"rank", rank}, {"pace", or_null(own.pace)}, {"waits_ms", own.wait_ms}, {"alarms", alarms}});
  }
  return {{"step", run.last ? Json(run.last->step) : Json()}, {"steps", run.steps}, {"ranks", ranks}};
}

std::string to_text(const WatchedRun& run) {
  if (!run.last) return "no step yet\n";
  const StepRecord& last = *run.last;
  char line[192];
  std::snprintf(line, sizeof line, "step %lld  loss %.4f  %.1f ms (predicted %.1f)  %.0f tokens/s\n",
                static_cast<long long>(last.step), last.loss.value_or(0), milliseconds(last.time_ns),
                milliseconds(last.predicted_ns), last.tokens_per_s);
  std::string shown = line;
  if (run.ranks.empty())
    return shown + "no paces of ranks: there is one alone, or an older program wrote them\n";
  shown += text("pace over ", PaceWatch::kWindow, " steps: computed over planned, relative to the median\n");
  shown += "rank   pace   waits ms\n";
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const WatchedRank& own = run.ranks[rank];
    std::snprintf(line, sizeof line, "%4zu  %5.2f  %9.1f%s\n", rank, own.pace, own.wait_ms,
                  own.slow ? text("  slow, ", own.slow_steps, " of ", run.steps, " steps").c_str() : "");
    shown += line;
  }
  return shown;
}

}  // namespace sluice::report
