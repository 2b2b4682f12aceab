// Detection of slow ranks, links and hosts, in virtual time: which ranks are named. Runs have mixed lengths,
// strategies that change from step to step, and the noise of real steps; half of the runs have a fault.
// Sluice's detector is compared with step times alone, and with itself when a part is left out. Results are
// tables in Markdown; bench/record.py watching writes them.
//
//   watching_bench [DATA_FOLDER [RUNS [CORPUS...]]]
//
// DATA_FOLDER: bench/data; RUNS with a fault, and as many without: 1000; CORPUS: wikipedia system
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "base/thread_time.h"
#include "cases.h"
#include "graph/build.h"
#include "graph/step_times.h"
#include "graph/what_if.h"
#include "model/parameters.h"
#include "session/slow_ranks.h"
#include "watch/detector.h"

namespace {

using namespace sluice;
using watch::Figure;

constexpr int kSteps = 96;        // steps in a run
constexpr int kFaultBegins = 48;  // step at which the fault begins
constexpr int kBatches = 16;      // per setting, used in rotation

// ---- Noise: deviations of real steps' work from plan; logarithms, one row a step, one column a rank.

class Noise {
 public:
  explicit Noise(const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream numbers(line);
      std::vector<double> row;
      for (double value = 0; numbers >> value;) row.push_back(value);
      series_.resize(std::max(series_.size(), row.size()));
      for (size_t rank = 0; rank < row.size(); ++rank) series_[rank].push_back(row[rank]);
    }
    if (series_.empty()) throw base::InputError("no residuals in " + path);
    for (std::vector<double>& of_rank : series_) {
      const double usual = watch::median(of_rank);
      for (double& value : of_rank) value -= usual;
    }
  }
  // A rank of a simulated run: stretches of eight steps of real ranks, joined.
  std::vector<double> draw(base::Rng& rng) const {
    constexpr size_t kStretch = 8;
    std::vector<double> drawn;
    while (drawn.size() < kSteps) {
      const std::vector<double>& from = series_[rng.below(series_.size())];
      const size_t begin = rng.below(from.size() - kStretch);
      drawn.insert(drawn.end(), from.begin() + static_cast<ptrdiff_t>(begin),
                   from.begin() + static_cast<ptrdiff_t>(begin + kStretch));
    }
    return drawn;
  }
  double deviation() const {
    std::vector<double> away;
    for (const auto& of_rank : series_) {
      for (const double value : of_rank) away.push_back(std::abs(value));
    }
    return 1.4826 * watch::median(away);
  }

 private:
  std::vector<std::vector<double>> series_;
};

// ---- Settings: clusters with the steps that they run alternately.

struct Setting {
  int gpus = 0;
  std::string corpus;
  std::vector<graph::StepGraph> steps;
  std::vector<std::vector<int64_t>> planned_awaited;
};

Setting setting(const std::string& folder, int gpus, const std::string& corpus) {
  bench::Case of{
      .model = "llama-7b",
      .machine = {gpus, std::max(100'000, 3'125 * gpus)},
      .corpus = corpus,
      .max_cp = std::min(gpus, 8),
      .lengths = bench::read_lengths(folder + "/" + corpus + "_lengths.txt", 2, bench::kContextTokens),
      .kept = ""};
  const cost::CostModel cost = bench::cost_of(of.model, std::max(8, gpus));
  plan::PlannerOptions options{.world_size = gpus, .candidates = bench::proposed(of, cost)};
  options.selection = plan::Selection::kCycle;
  options.effort = plan::Effort::kQuick;
  const plan::Planner planner(options, cost);
  const auto table = model::parameter_table(cost.options().model);
  graph::LinkPlans links;
  Setting made{.gpus = gpus, .corpus = corpus, .steps = {}, .planned_awaited = {}};
  base::Rng rng(static_cast<uint64_t>(gpus), 17);
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto sequences = bench::draw(of.lengths, of.machine.batch_tokens, rng);
    made.steps.push_back(
        graph::build(planner.plan(batch, sequences), table, planner.cost(), gpus, {.link_plans = &links}));
    made.planned_awaited.push_back(graph::planned_awaited_ns(made.steps.back()));
  }
  return made;
}

// ---- Faults.

struct Fault {
  std::string name;
  std::function<double(int steps)> pace = [](int) { return 1.0; };  // argument: steps since the fault began
  double link = 1;
  double host = 0;  // delay of the rank, as a part of a step
  int ranks = 1;
};

std::vector<Fault> faults() {
  const auto constant = [](double factor) { return [factor](int) { return factor; }; };
  std::vector<Fault> all;
  for (const double factor : {1.1, 1.2, 1.3, 1.5, 2.0, 3.0}) {
    char name[48];
    std::snprintf(name, sizeof name, "compute x %.1f", factor);
    all.push_back({.name = name, .pace = constant(factor)});
  }
  all.push_back({.name = "compute, a ramp to x 1.6 over 30 steps",
                 .pace = [](int steps) { return 1 + 0.6 * std::min(1.0, steps / 30.0); }});
  all.push_back({.name = "compute x 1.6, six steps of twelve",
                 .pace = [](int steps) { return steps % 12 < 6 ? 1.6 : 1.0; }});
  all.push_back(
      {.name = "memory pressure: compute x 1.3, late by a tenth", .pace = constant(1.3), .host = 0.1});
  all.push_back({.name = "link at a half", .link = 2});
  all.push_back({.name = "link at a quarter", .link = 4});
  all.push_back({.name = "link at a tenth", .link = 10});
  all.push_back({.name = "slow disk: late by a quarter of a step", .host = 0.25});
  all.push_back({.name = "two ranks, compute x 1.5", .pace = constant(1.5), .ranks = 2});
  return all;
}

// ---- Runs.

struct Run {
  const Setting* setting = nullptr;
  const Fault* fault = nullptr;           // null: none
  std::set<int> ranks;                    // ranks with the fault
  std::vector<watch::Figures> figures;    // by step
  std::vector<std::vector<double>> busy;  // by step and rank: share of time computing
  std::vector<double> slowdown;           // by step: time over plan
  std::vector<int64_t> planned_ns;        // by step

  double longer() const {
    double before = 0, behind = 0;
    for (int step = 0; step < kSteps; ++step)
      (step < kFaultBegins ? before : behind) += slowdown[static_cast<size_t>(step)];
    return behind / (kSteps - kFaultBegins) / (before / kFaultBegins);
  }
};

// The time of a rank's own cells, as its executor measures it: without exchanges.
watch::Sample sample_of(const graph::StepGraph& graph, const std::vector<graph::NodeTime>& times, size_t rank,
                        const graph::Reality& reality) {
  int64_t measured_ns = 0, planned_ns = 0, stage_ns = 0, inside_ns = 0;
  for (size_t at = 0; at < times.size(); ++at) {
    const graph::Node& node = graph.node(graph.programs[rank][at]);
    if (graph::is_transfer(node.kind)) stage_ns += times[at].end_ns - times[at].reached_ns;
    if (!graph::is_compute_cell(node.kind)) continue;
    inside_ns += times[at].waited_ns;
    const int64_t exchanges_ns = node.cell().cp_exchange_ns + node.cell().fsdp_ns;
    measured_ns += times[at].end_ns - times[at].reached_ns - times[at].waited_ns -
                   static_cast<int64_t>(static_cast<double>(exchanges_ns) * reality.link[rank]);
    planned_ns += node.duration_ns - exchanges_ns;
  }
  watch::Sample sample;
  if (planned_ns > 0)
    sample[Figure::kSlowdown] =
        static_cast<int64_t>(1e6 * static_cast<double>(measured_ns) / static_cast<double>(planned_ns));
  sample[Figure::kCompute] = measured_ns;
  sample[Figure::kHost] = reality.begin_ns[rank];
  sample[Figure::kStageWait] = stage_ns;
  sample[Figure::kTensorWait] = inside_ns;
  return sample;
}

Run simulate(const Setting& setting, const Fault* fault, const Noise& noise, uint64_t seed) {
  Run run{.setting = &setting,
          .fault = fault,
          .ranks = {},
          .figures = {},
          .busy = {},
          .slowdown = {},
          .planned_ns = {}};
  base::Rng rng(seed, 29);
  const auto ranks = static_cast<size_t>(setting.gpus);
  while (fault != nullptr && std::ssize(run.ranks) < fault->ranks)
    run.ranks.insert(static_cast<int>(rng.below(ranks)));
  std::vector<std::vector<double>> compute, links, hosts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    compute.push_back(noise.draw(rng));
    links.push_back(noise.draw(rng));
    hosts.push_back(noise.draw(rng));
  }
  for (int step = 0; step < kSteps; ++step) {
    const size_t batch = rng.below(kBatches);
    const graph::StepGraph& graph = setting.steps[batch];
    graph::Reality reality{.slowdown = std::vector<double>(ranks),
                           .link = std::vector<double>(ranks),
                           .begin_ns = std::vector<int64_t>(ranks)};
    constexpr double kHostPart = 0.01;  // as a part of a step
    const auto makespan = static_cast<double>(graph.makespan_ns);
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<size_t>(step);
      const bool faulty = step >= kFaultBegins && run.ranks.contains(static_cast<int>(rank));
      reality.slowdown[rank] = std::exp(compute[rank][at]) * (faulty ? fault->pace(step - kFaultBegins) : 1);
      reality.link[rank] = std::exp(links[rank][at]) * (faulty ? fault->link : 1);
      const double late = kHostPart * std::exp(hosts[rank][at]) + (faulty ? fault->host : 0);
      reality.begin_ns[rank] = static_cast<int64_t>(makespan * late);
    }
    const graph::StepTimes times = graph::times_in(graph, reality);
    std::vector<int64_t> awaited = graph::awaited_ns(graph, times);
    int64_t end_ns = 1;
    for (const auto& of_rank : times) end_ns = std::max(end_ns, of_rank.back().end_ns);
    std::vector<watch::Sample> samples;
    std::vector<double> busy(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      watch::Sample& sample = samples.emplace_back(sample_of(graph, times[rank], rank, reality));
      sample[Figure::kAwaited] = std::max<int64_t>(0, awaited[rank] - setting.planned_awaited[batch][rank]);
      busy[rank] = static_cast<double>(sample[Figure::kCompute]) / static_cast<double>(end_ns);
    }
    run.figures.emplace_back(samples);
    run.busy.push_back(std::move(busy));
    run.slowdown.push_back(static_cast<double>(end_ns) / makespan);
    run.planned_ns.push_back(graph.makespan_ns);
  }
  return run;
}

// ---- Detectors: the alarms that they raise, step by step.

struct Told {
  int step = 0;
  int rank = -1;  // −1: some rank
};
using Way = std::function<std::vector<Told>(const Run&)>;

std::vector<Told> by_detector(const Run& run, const watch::Detector::Options& options,
                              const std::function<watch::Scores(const Run&, size_t)>& scores) {
  watch::Detector detector(options);
  std::vector<Told> told;
  for (size_t step = 0; step < run.figures.size(); ++step) {
    for (const auto& change : detector.add(static_cast<int64_t>(step), scores(run, step))) {
      if (change.begins) told.push_back({static_cast<int>(step), change.alarm.rank});
    }
  }
  return told;
}

watch::Scores residuals(const Run& run, size_t step) {
  return watch::scores_of(run.figures[step], run.planned_ns[step]);
}

// Computing time itself, instead of its deviation from plan.
watch::Scores raw_times(const Run& run, size_t step) {
  std::vector<double> busy = run.busy[step];
  const double usual = watch::median(busy);
  for (double& value : busy) value /= usual;
  return {busy, {}, {}, {}};
}

std::vector<Told> by_step_time(const Run& run) {
  constexpr int kWindow = 8;
  constexpr double kSlow = 1.15;
  std::vector<Told> told;
  bool on = false;
  for (int step = 2 * kWindow; step < kSteps; ++step) {
    const std::vector<double> before(run.slowdown.begin(), run.slowdown.begin() + kWindow);
    const std::vector<double> window(run.slowdown.begin() + step - kWindow + 1,
                                     run.slowdown.begin() + step + 1);
    const bool slow = watch::median(window) > kSlow * watch::median(before);
    if (slow && !on) told.push_back({step, -1});
    on = slow;
  }
  return told;
}

// ---- Scores.

struct Outcome {
  int faulty = 0;
  double longer = 0;           // time of steps under the fault over that of steps before; summed over runs
  int named = 0;               // runs in which all faulty ranks raised alarms
  int wrong = 0;               // alarms of ranks without a fault, or before the fault
  std::vector<double> delays;  // in steps

  double precision() const { return named + wrong == 0 ? 1 : static_cast<double>(named) / (named + wrong); }
  double recall() const { return faulty == 0 ? 1 : static_cast<double>(named) / faulty; }
  double f1() const {
    const double sum = precision() + recall();
    return sum == 0 ? 0 : 2 * precision() * recall() / sum;
  }
  void add(const Outcome& other) {
    faulty += other.faulty;
    longer += other.longer;
    named += other.named;
    wrong += other.wrong;
    delays.insert(delays.end(), other.delays.begin(), other.delays.end());
  }
};

Outcome judged(const Run& run, const std::vector<Told>& told) {
  Outcome outcome{
      .faulty = run.fault != nullptr ? 1 : 0, .longer = run.longer(), .named = 0, .wrong = 0, .delays = {}};
  std::set<int> found;
  int last = 0;
  for (const Told& one : told) {
    const bool during = run.fault != nullptr && one.step >= kFaultBegins;
    if (!during || (one.rank >= 0 && !run.ranks.contains(one.rank))) {
      ++outcome.wrong;
    } else if (one.rank < 0 || found.insert(one.rank).second) {
      if (one.rank < 0) found = run.ranks;
      last = one.step;
    }
  }
  if (outcome.faulty == 0 || found != run.ranks) return outcome;
  outcome.named = 1;
  outcome.delays.push_back(last - kFaultBegins + 1);
  return outcome;
}

constexpr double kWorthTelling = 1.05;  // a fault that lengthens steps by less may be missed

struct Tally {
  Outcome all;       // faults worth an alarm
  Outcome harmless;  // the other faults
  Outcome clean;
  std::map<std::string, Outcome> by_fault;
  std::map<int, Outcome> by_ranks;
};

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

// ---- Effects of a slow rank on plans.

void print_acting(const std::string& folder) {
  std::printf(
      "\n## A rank at half speed among 8\n\n"
      "LLaMA 7B on 8 H100, 20 batches of each corpus, mean step by the clock.\n\n"
      "| lengths | all alike, ms | one at half speed, not planned for | planned for (`act = \"plan\"`) |\n"
      "| --- | --- | --- | --- |\n");
  for (const char* corpus : {"wikipedia", "code", "system"}) {
    bench::Case of{
        .model = "llama-7b",
        .machine = {8, 100'000},
        .corpus = corpus,
        .max_cp = bench::kAllLanes,
        .lengths = bench::read_lengths(folder + "/" + corpus + "_lengths.txt", 2, bench::kContextTokens),
        .kept = ""};
    const cost::CostModel cost = bench::cost_of(of.model, 8);
    const plan::Planner priced({.world_size = 8, .candidates = bench::proposed(of, cost)}, cost);
    const auto table = model::parameter_table(cost.options().model);
    base::Rng rng(3, 5);
    double alike = 0, unplanned = 0, planned = 0;
    for (int batch = 0; batch < 20; ++batch) {
      const auto sequences = bench::draw(of.lengths, of.machine.batch_tokens, rng);
      const graph::StepGraph graph = graph::build(priced.plan(batch, sequences), table, priced.cost(), 8);
      std::vector<double> half(8, 1);
      std::vector<int> paces(8, 100);
      half[static_cast<size_t>(batch) % 8] = 2;
      paces[static_cast<size_t>(batch) % 8] = 200;
      alike += static_cast<double>(graph.makespan_ns);
      unplanned += static_cast<double>(graph::makespan_at(graph, half));
      const plan::Planner planner = session::decorated(priced, session::slow_rank_candidates(paces));
      planned += static_cast<double>(
          graph::build(planner.plan(batch, sequences), table, planner.cost(), 8).makespan_ns);
    }
    std::printf("| %s | %.0f | x %.2f | x %.2f |\n", corpus, alike / 20e6, unplanned / alike,
                planned / alike);
  }
}

double detection_ms_a_window(const Run& run) {
  watch::Detector detector;
  const int64_t begin_ns = base::thread_time_ns();
  for (size_t step = 0; step < run.figures.size(); ++step)
    detector.add(static_cast<int64_t>(step), residuals(run, step));
  const double ms = static_cast<double>(base::thread_time_ns() - begin_ns) / 1e6;
  return ms * detector.options().window / static_cast<double>(run.figures.size());
}

// ---- The whole benchmark.

// Settings, made on first use.
class Settings {
 public:
  explicit Settings(std::string folder) : folder_(std::move(folder)) {}

  const Setting* of(int gpus, const std::string& corpus) {
    const auto [found, is_new] = settings_.try_emplace({gpus, corpus});
    if (is_new) {
      found->second = setting(folder_, gpus, corpus);
      std::fprintf(stderr, "%d ranks, %s: planned\n", gpus, corpus.c_str());
    }
    return &found->second;
  }

 private:
  std::string folder_;
  std::map<std::pair<int, std::string>, Setting> settings_;
};

using Ways = std::vector<std::pair<std::string, Way>>;

Ways ways_of() {
  const auto changed = [](auto change) {
    watch::Detector::Options options;
    change(options);
    return [options](const Run& run) { return by_detector(run, options, residuals); };
  };
  return {
      {"Sluice", changed([](auto&) {})},
      {"… on raw times instead of residuals", [](const Run& run) { return by_detector(run, {}, raw_times); }},
      {"… a step at a time", changed([](auto& options) { options.enough = options.enough_deviations = 0; })},
      {"… without bounds by noise", changed([](auto& options) {
         options.slack_deviations = options.most_deviations = options.enough_deviations = 0;
       })},
      {"… without what a rank was like at first", changed([](auto& options) { options.most_bias = 1; })},
      {"step times alone (name nobody)", by_step_time}};
}

// A drawn run, and the outcomes of all ways on it.
struct Drawn {
  const Setting* setting = nullptr;
  const Fault* fault = nullptr;
  std::vector<Outcome> outcomes;  // by way
  double rank_hours = 0;
  double detection_ms = 0;
};

// `runs` runs with a fault, one kind after the other, and as many without; clusters at random.
std::vector<Drawn> draw_runs(int runs, const std::vector<Fault>& faults,
                             const std::vector<std::string>& corpora, Settings& settings) {
  constexpr std::pair<int, int> kSizes[] = {{4, 24}, {8, 24}, {16, 20}, {64, 20}, {256, 10}, {1024, 2}};
  std::vector<Drawn> drawn(static_cast<size_t>(2 * runs));
  base::Rng rng(11, 1);
  for (size_t i = 0; i < drawn.size(); ++i) {
    int part = static_cast<int>(rng.below(100));
    size_t size = 0;
    while (part >= kSizes[size].second) part -= kSizes[size++].second;
    drawn[i].setting = settings.of(kSizes[size].first, corpora[rng.below(corpora.size())]);
    if (i % 2 == 0) drawn[i].fault = &faults[i / 2 % faults.size()];
  }
  return drawn;
}

// Makes the runs on as many threads as there are cores.
void make_runs(std::vector<Drawn>& drawn, const Ways& ways, const Noise& noise) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < drawn.size(); i = next++) {
      Drawn& own = drawn[i];
      const Run run = simulate(*own.setting, own.fault, noise, 1000 + i);
      if (own.setting->gpus == 1024) own.detection_ms = detection_ms_a_window(run);
      for (size_t step = 0; step < run.planned_ns.size(); ++step)
        own.rank_hours +=
            static_cast<double>(run.planned_ns[step]) * run.slowdown[step] / 3.6e12 * own.setting->gpus;
      for (const auto& [name, way] : ways) own.outcomes.push_back(judged(run, way(run)));
      if (i % 100 == 99) std::fprintf(stderr, "%zu of %zu runs\n", i + 1, drawn.size());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < std::max(1U, std::thread::hardware_concurrency()); ++thread)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

Tally tally_of(const std::vector<Drawn>& drawn, size_t way) {
  Tally tally;
  for (const Drawn& run : drawn) {
    const Outcome& outcome = run.outcomes[way];
    if (run.fault == nullptr) {
      tally.clean.add(outcome);
      continue;
    }
    tally.by_fault[run.fault->name].add(outcome);
    const bool worth_telling = outcome.longer >= kWorthTelling;
    (worth_telling ? tally.all : tally.harmless).add(outcome);
    if (worth_telling) tally.by_ranks[run.setting->gpus].add(outcome);
  }
  return tally;
}

void print_ways(const std::vector<Drawn>& drawn, const Ways& ways) {
  std::printf(
      "| who looks | precision | recall | F1 | steps to the alarm, median (p90) | false alarms in clean "
      "runs |\n| --- | --- | --- | --- | --- | --- |\n");
  for (size_t way = 0; way < ways.size(); ++way) {
    const Tally tally = tally_of(drawn, way);
    Outcome all = tally.all;
    all.wrong += tally.clean.wrong + tally.harmless.wrong;
    std::printf("| %s | %.3f | %.3f | %.3f | %.0f (%.0f) | %d |\n", ways[way].first.c_str(), all.precision(),
                all.recall(), all.f1(), quantile(all.delays, 0.5), quantile(all.delays, 0.9),
                tally.clean.wrong);
  }
  double rank_hours = 0, detection_ms = 0;
  for (const Drawn& run : drawn) {
    detection_ms = std::max(detection_ms, run.detection_ms);
    if (run.fault == nullptr) rank_hours += run.rank_hours;
  }
  const Tally own = tally_of(drawn, 0);
  std::printf(
      "\nRuns whose steps their fault makes longer by 5 %% at least (%d; of the %d others, %d are named); "
      "precision counts false alarms of all runs. Clean runs are %.0f rank-hours. Looking at 1,024 ranks "
      "takes %.1f ms a window of %d steps.\n",
      own.all.faulty, own.harmless.faulty, own.harmless.named, rank_hours, detection_ms,
      watch::Detector::Options{}.window);
}

void print_faults(const Tally& own, const std::vector<Fault>& faults) {
  std::printf(
      "\n| fault | steps get longer by | recall | steps to the alarm, median (p90) | wrongly named |\n"
      "| --- | --- | --- | --- | --- |\n");
  for (const Fault& fault : faults) {
    const auto found = own.by_fault.find(fault.name);
    if (found == own.by_fault.end()) continue;
    const Outcome& outcome = found->second;
    std::printf("| %s | x %.2f | %.3f | %.0f (%.0f) | %d of %d runs |\n", fault.name.c_str(),
                outcome.longer / std::max(1, outcome.faulty), outcome.recall(), quantile(outcome.delays, 0.5),
                quantile(outcome.delays, 0.9), outcome.wrong, outcome.faulty);
  }
  std::printf("\n| ranks | recall | wrongly named |\n| --- | --- | --- |\n");
  for (const auto& [ranks, outcome] : own.by_ranks)
    std::printf("| %d | %.3f | %d of %d runs |\n", ranks, outcome.recall(), outcome.wrong, outcome.faulty);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string folder = count > 1 ? arguments[1] : "bench/data";
  const int runs = count > 2 ? std::atoi(arguments[2]) : 1000;
  std::vector<std::string> corpora(arguments + std::min(count, 3), arguments + count);
  if (corpora.empty()) corpora = {"wikipedia", "system"};
  const Noise noise(folder + "/watching_residuals.txt");
  Settings settings(folder);
  const Ways ways = ways_of();
  const std::vector<Fault> all_faults = faults();
  std::vector<Drawn> drawn = draw_runs(runs, all_faults, corpora, settings);
  make_runs(drawn, ways, noise);
  std::printf("%d runs with a fault and %d without, %d steps each, 4 to 1,024 ranks; lengths:", runs, runs,
              kSteps);
  for (const std::string& corpus : corpora) std::printf(" %s", corpus.c_str());
  std::printf(". Noise of a rank's step: %.1f %%. Faults begin at step %d.\n\n", 100 * noise.deviation(),
              kFaultBegins);
  print_ways(drawn, ways);
  print_faults(tally_of(drawn, 0), all_faults);
  print_acting(folder);
  return 0;
}
