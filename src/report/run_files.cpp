#include "report/run_files.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/renamed_json.h"
#include "base/text.h"
#include "base/toml.h"
#include "cost/snapshot_cost.h"
#include "report/page.h"
#include "report/run_summary.h"

namespace sluice::report {

namespace fs = std::filesystem;
using base::human_count;
using base::InputError;
using base::Json;
using base::text;

namespace {

constexpr size_t kMostTimelines = 8;
constexpr const char* kSimulation = "sluice.simulation/1";

int64_t count(const Json& line, const char* key, const std::string& place) {
  if (!line.contains(key) || line.at(key).is_null()) return 0;
  return base::require_in(line, key, kMetricCounts, place);
}

TimeShares shares_of(const Json& line, const std::string& place) {
  if (!line.contains("rank_time_ns")) return {};
  auto json = base::require<Json>(line, "rank_time_ns", place);
  base::take_new_names(json, kSimulation);
  const auto share = [&](const char* key) { return json.is_object() ? count(json, key, place) : 0; };
  return {.compute_ns = share("compute"),
          .cp_exchange_ns = share("cp_exchange"),
          .fsdp_ns = share("fsdp"),
          .pull_push_ns = share("pull_push"),
          .update_ns = share("update"),
          .bubble_ns = share("bubble"),
          .idle_ns = share("idle"),
          .strategy_switch_ns = share("strategy_switch")};
}

StepRecord step_of(const Json& line, const std::string& place) {
  StepRecord step = step_record(line, place);
  if (line.contains("lower_bound_ms") && !line.at("lower_bound_ms").is_null())
    step.lower_bound_ns =
        std::llround(base::require_in(line, "lower_bound_ms", kMetricMilliseconds, place) * 1e6);
  step.shares = shares_of(line, place);
  return step;
}

// Sums of a run's steps are taken in 64 bits: InputError for the line that would not fit.
void require_summable(const SystemRun& run, StepRecord& sums, const std::string& place) {
  const StepRecord& step = run.steps.back();
  sums.tokens += step.tokens;
  sums.time_ns += step.time_ns;
  sums.shares += step.shares;
  sums.unfused_attention += step.unfused_attention;
  constexpr int64_t kMost = int64_t{1} << 61;
  const int64_t largest =
      std::max({sums.tokens, sums.time_ns, sums.shares.total_ns(), sums.unfused_attention});
  if (largest <= kMost) return;
  throw InputError(text(place, ": tokens, times or calls of the steps up to this one add up to more than ",
                        kMost, ": correct the line"));
}

// The run that a line belongs to.
SystemRun& run_of(RunData& data, const Json& line, const std::string& place) {
  if (!data.simulated) return data.systems.front();
  const auto name = base::require<std::string>(line, "system", place);
  const auto found = std::ranges::find(data.systems, name, &SystemRun::name);
  if (found == data.systems.end())
    throw InputError(
        text(place, ": simulation.json has no system '", name, "': simulate again, or remove the line"));
  return *found;
}

void read_metrics(const fs::path& path, RunData& data) {
  if (!fs::exists(path))
    throw InputError(
        text(path.string(), " is missing: give the directory of a run that train or simulate wrote"));
  std::map<std::string, StepRecord> sums;
  std::ifstream lines(path);
  int64_t number = 0;
  for (std::string written; std::getline(lines, written);) {
    const std::string place = text(path.string(), ":", ++number);
    if (written.empty()) continue;
    if (lines.eof() && !base::is_json(written)) continue;  // the run is about to write the rest of it
    const Json line = base::parse_json(written, place);
    if (line.is_object() && line.contains("validation_loss")) {
      if (line["validation_loss"].is_null()) continue;
      data.evaluations.push_back({.step = base::require_in(line, "step", kMetricCounts, place),
                                  .set = base::get_or<std::string>(line, "set", "", place),
                                  .validation_loss = base::require<double>(line, "validation_loss", place),
                                  .targets = count(line, "targets", place)});
      if (line.contains("reward"))
        data.evaluations.back().reward = base::require<double>(line, "reward", place);
      for (const char* const key : kHeadFigures) {
        if (line.contains(key) && !line[key].is_null())
          data.evaluations.back().figures.emplace_back(key, base::require<double>(line, key, place));
      }
    } else {
      SystemRun& run = run_of(data, line, place);
      run.steps.push_back(step_of(line, place));
      require_summable(run, sums[run.name], place);
    }
  }
  const bool any = std::ranges::any_of(data.systems, [](const SystemRun& run) { return !run.steps.empty(); });
  if (!any) throw InputError(text(path.string(), " holds no step yet: wait for the first one"));
}

void read_simulation(const fs::path& path, RunData& data) {
  const std::string name = path.string();
  const Json file = base::read_json(path);
  base::require_schema(file, kSimulation, name);
  data.simulated = true;
  if (file.contains("ranks"))
    data.ranks = base::require_in<int>(file, "ranks", {0, graph::kMostTraceRanks}, name);
  data.hardware = base::get_or<std::string>(file, "hardware", "", name);
  data.device_bytes = count(file, "device_bytes", name);
  auto systems = base::require<Json>(file, "systems", name);
  base::take_new_names(systems, kSimulation);
  for (const auto& [system, json] : systems.items()) {
    data.systems.push_back({.name = system,
                            .title = base::require<std::string>(json, "title", name),
                            .configuration = base::get_or<std::string>(json, "configuration", "", name),
                            .infeasible = base::get_or<std::string>(json, "infeasible", "", name),
                            .steps = {},
                            .measured_passes_step_ns = count(json, "mean_step_ns_measured_gathers", name)});
  }
  if (data.systems.empty()) throw InputError(text(name, ": 'systems' is empty: simulate again"));
  const auto facts = base::get_or<Json>(file, "facts", Json::object(), name);
  for (const auto& [fact, value] : facts.items())
    data.facts.emplace_back(fact, base::require<std::string>(facts, fact, name));
  if (file.contains("lengths"))
    data.lengths =
        corpus::lengths_from_json({{"schema", "sluice.lengths/1"}, {"lengths", file["lengths"]}}, name);
}

// Facts of a training run, from sections of its configuration. Every key is optional, because a later version
// may have written the file.
class ConfigFacts {
 public:
  ConfigFacts(const Json& config, std::string name, RunData& data)
      : config_(config), name_(std::move(name)), data_(data) {}

  void add_all() {
    add_model();
    add_data();
    add("steps", text(human_count(integer("train", "steps")), " in all"));
    add("precision", text(word("train", "dtype"), " on ", word("train", "device")));
    add("optimiser", text(word("optimizer", "name") == "adamw_8bit" ? "AdamW in 8 bits" : "AdamW", ", lr ",
                          number("optimizer", "lr"), ", ", word("optimizer", "decay"), " to ",
                          number("optimizer", "min_lr")));
    add("candidates", strategies());
    const double device_gib = number("memory", "device_gib");
    if (device_gib > 0 && device_gib < 1e6) data_.device_bytes = std::llround(device_gib * (1 << 30));
  }

 private:
  Json section(const char* name) const { return base::get_or<Json>(config_, name, Json::object(), name_); }
  int64_t integer(const char* in, const char* key) const {
    return base::get_or<int64_t>(section(in), key, 0, name_);
  }
  double number(const char* in, const char* key) const {
    return base::get_or<double>(section(in), key, 0, name_);
  }
  std::string word(const char* in, const char* key) const {
    return base::get_or<std::string>(section(in), key, "", name_);
  }
  void add(const std::string& name, const std::string& value) { data_.facts.emplace_back(name, value); }

  void add_model() {
    const std::string folder = word("model", "hf");
    if (!folder.empty()) return add("model", folder);
    add("model",
        text(integer("model", "layers"), " layers, hidden ", human_count(integer("model", "hidden")), ", ",
             integer("model", "heads"), " heads, vocabulary ", human_count(integer("model", "vocab"))));
  }

  void add_data() {
    std::vector<std::string> prefixes;
    const auto train = base::get_or<Json>(section("data"), "train", Json::array(), name_);
    for (const Json& pair : train) {
      if (pair.is_array() && !pair.empty() && pair[0].is_string())
        prefixes.push_back(pair[0].get<std::string>());
    }
    add("corpus", base::join(prefixes, ", "));
    add("context", text(human_count(integer("data", "context_length")), " tokens"));
    add("batch", text(human_count(integer("data", "tokens_per_step")), " tokens a step"));
    for (const std::string& prefix : prefixes) read_lengths(prefix);
  }

  void read_lengths(const std::string& prefix) {
    try {
      for (const int32_t length : corpus::read_lengths(prefix)) data_.lengths.add(length);
    } catch (const base::Error& error) {
      data_.notes.push_back(text("the lengths of ", prefix, " (", error.what(), ")"));
    }
  }

  std::string strategies() const {
    const auto given = base::get_or<Json>(section("parallel"), "strategies", Json("auto"), name_);
    if (given.is_string()) return given.get<std::string>();
    std::vector<std::string> texts;
    for (const Json& strategy : given) {
      if (strategy.is_string()) texts.push_back(strategy.get<std::string>());
    }
    return base::join(texts, "; ");
  }

  const Json& config_;
  std::string name_;
  RunData& data_;
};

int count_rank_logs(const fs::path& directory) {
  int ranks = 0;
  while (fs::exists(directory / text("rank-", ranks, ".log"))) ++ranks;
  return ranks;
}

void read_training(const fs::path& directory, RunData& data) {
  data.systems.push_back(
      {.name = "sluice", .title = "Sluice", .configuration = "", .infeasible = "", .steps = {}});
  data.ranks = count_rank_logs(directory);
  if (const fs::path path = directory / "config.toml"; fs::exists(path)) {
    const Json config = base::parse_toml_as_json(base::read_file(path), path.string());
    ConfigFacts(config, path.string(), data).add_all();
  }
  if (const fs::path path = directory / "calibration.json"; fs::exists(path)) {
    const Json calibration = base::read_json(path);
    data.hardware = base::get_or<std::string>(calibration, "hardware", "", path.string());
    data.facts.emplace_back("machine", data.hardware);
    data.facts.emplace_back("calibration",
                            base::get_or<std::string>(calibration, "source", "", path.string()));
  }
}

struct TraceFile {
  fs::path path;
  int64_t step = 0;
  std::string suffix;  // "predicted", or a system's name; empty: Sluice's, measured in a training run
  size_t order = 0;    // the suffix's
};

// By step, then in the order of the systems, measured before predicted.
std::vector<TraceFile> trace_files(const fs::path& directory, const RunData& data) {
  static const std::regex pattern("trace-([0-9]{1,18})(?:-([A-Za-z0-9_]+))?\\.json");
  std::vector<TraceFile> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::smatch match;
    const std::string name = entry.path().filename().string();
    if (!std::regex_match(name, match, pattern)) continue;
    TraceFile file{
        .path = entry.path(), .step = base::parse_integer(match[1].str()).value(), .suffix = match[2]};
    const std::string system = data.simulated && !file.suffix.empty() ? file.suffix : "sluice";
    const auto found = std::ranges::find(data.systems, system, &SystemRun::name);
    if (found == data.systems.end()) continue;
    file.order = static_cast<size_t>(found - data.systems.begin()) + (file.suffix == "predicted" ? 1 : 0);
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, [](const TraceFile& file) { return std::pair(file.step, file.order); });
  return files;
}

std::vector<int64_t> peaks_of(const graph::Trace& trace, int ranks) {
  std::vector<int64_t> peaks(static_cast<size_t>(ranks), 0);
  bool any = false;
  for (const graph::TraceCounter& counter : trace.counters) {
    if (counter.name != "memory" || counter.rank >= ranks) continue;
    int64_t& peak = peaks[static_cast<size_t>(counter.rank)];
    peak = std::max(peak, counter.value);
    any = true;
  }
  return any ? peaks : std::vector<int64_t>{};
}

// Shares of time are sums over the ranks, in 64 bits.
void require_summable(const graph::Trace& trace, int ranks, const std::string& name) {
  int64_t end_ns = 0;
  for (const graph::TraceRecord& record : trace.records) end_ns = std::max(end_ns, record.end_ns);
  if (end_ns <= (int64_t{1} << 61) / std::max(1, ranks)) return;
  throw InputError(text(name, ": ", ranks, " ranks that run until ", base::human_duration(end_ns),
                        " are too much to add up: write the timeline again"));
}

// For a run whose ranks changed: the steps at which they did, and their numbers; the newest is the run's.
void add_epochs(RunData& data) {
  const std::vector<StepRecord>& steps = data.systems.front().steps;
  if (!steps.empty() && steps.back().ranks > 0 && steps.back().ranks <= graph::kMostTraceRanks)
    data.ranks = static_cast<int>(steps.back().ranks);
  if (const std::string ranks = memberships_text(steps); !ranks.empty())
    data.facts.emplace_back("memberships", ranks);
  const auto has_snapshot = [](const StepRecord& step) { return step.snapshot_bytes > 0; };
  const auto last = std::ranges::find_if(steps.rbegin(), steps.rend(), has_snapshot);
  if (last == steps.rend()) return;
  const int64_t host_bytes = cost::kSnapshotCopies * last->snapshot_bytes / std::max<int64_t>(1, last->ranks);
  data.facts.emplace_back(
      "snapshots", text(human_count(std::ranges::count_if(steps, has_snapshot)), " beside steps, ",
                        base::human_bytes(static_cast<double>(last->snapshot_bytes)), " to replicas each, ",
                        base::human_bytes(static_cast<double>(host_bytes)), " of host memory a rank"));
}

// ", membership 2 of 3 ranks" if the step is not in the first membership.
std::string epoch_of(const SystemRun& run, int64_t step) {
  const auto found = std::ranges::find(run.steps, step, &StepRecord::step);
  if (found == run.steps.end() || found->restarts == 0) return "";
  return text(", membership ", found->restarts, " of ", human_count(found->ranks, "rank", "ranks"));
}

void read_timelines(const fs::path& directory, RunData& data) {
  const std::vector<TraceFile> files = trace_files(directory, data);
  std::vector<std::string> left_out;
  for (const TraceFile& file : files) {
    if (data.timelines.size() == kMostTimelines) {
      left_out.push_back(file.path.filename().string());
      continue;
    }
    const graph::Trace trace = graph::parse_chrome_trace(base::read_file(file.path), file.path.string());
    for (const graph::TraceRecord& record : trace.records) data.ranks = std::max(data.ranks, record.rank + 1);
    require_summable(trace, data.ranks, file.path.string());
    Timeline timeline{.step = file.step,
                      .system = data.simulated && !file.suffix.empty() ? file.suffix : "sluice"};
    timeline.measured = !data.simulated && file.suffix.empty();
    const auto system = std::ranges::find(data.systems, timeline.system, &SystemRun::name);
    timeline.title = data.simulated
                         ? text(system->title, ", step ", file.step)
                         : text("Step ", file.step, timeline.measured ? ", measured" : ", predicted",
                                epoch_of(*system, file.step));
    timeline.records = trace.records;
    timeline.counters = trace.counters;
    timeline.peak_bytes = peaks_of(trace, data.ranks);
    data.timelines.push_back(std::move(timeline));
  }
  if (!left_out.empty()) data.notes.push_back("timelines of more steps: " + base::join(left_out, ", "));
}

}  // namespace

RunData read_run(const fs::path& directory) {
  if (!fs::is_directory(directory))
    throw InputError(text(directory.string(), " is no directory: give that of a run"));
  RunData data;
  data.title = fs::weakly_canonical(directory).filename().string();
  if (fs::exists(directory / "simulation.json")) {
    read_simulation(directory / "simulation.json", data);
  } else {
    read_training(directory, data);
  }
  read_metrics(directory / "metrics.jsonl", data);
  data.completions = read_completions(directory);
  if (!data.simulated) add_epochs(data);
  read_timelines(directory, data);
  return data;
}

void write_report(const fs::path& directory, const fs::path& out) {
  base::write_file_atomically(out, report_page(read_run(directory)));
}

}  // namespace sluice::report
