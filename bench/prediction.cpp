// Predicted against measured step time: probes this machine and trains a few steps under each strategy in
// real processes. Both times are printed, step by step and by kind of node. Usage:
//
//   prediction_bench [STEPS [RANKS]]   starts its own ranks; one line a strategy, then its nodes
//
// A run without SLUICE_RANK in its environment is the launcher.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "graph/build.h"
#include "model/test_outline.h"
#include "plan/planner.h"
#include "profile/machine.h"
#include "profile/probe.h"
#include "profile/ranks.h"
#include "profile/timing.h"
#include "runtime/engine.h"
#include "runtime/make_executor.h"
#include "transport/gloo.h"
#include "transport/local_launcher.h"

namespace {

using namespace sluice;

constexpr int kKinds = static_cast<int>(graph::NodeKind::kFetch) + 1;
constexpr int64_t kContextTokens = 2048;
constexpr int64_t kTokensPerStep = 8192;
constexpr int kWarmUpSteps = 1;

struct Case {
  int ranks;
  std::vector<std::string> strategies;
};
const std::vector<Case> kCases = {
    {1, {"<1,1,1>"}},
    {2, {"2x<1,1,1>", "<2,1,1>", "<1,2,1>"}},
    {4, {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "2x<2,1,1>", "<1,2,1> + <2,1,1>", "<1,4,1>"}}};

// Long-tailed lengths: two of three short, a few of the whole context.
std::vector<strategy::Sequence> batch(int64_t step) {
  base::Rng rng(5, static_cast<uint64_t>(step));
  std::vector<strategy::Sequence> sequences;
  int64_t tokens = 0;
  while (true) {
    const int64_t length = std::min(kContextTokens, int64_t{64} << rng.between(0, 6)) - rng.between(0, 31);
    if (tokens + length > kTokensPerStep) return sequences;
    sequences.push_back({static_cast<int64_t>(sequences.size()), 0, length});
    tokens += length;
  }
}

runtime::StepTokens tokens_of(const strategy::StepPlan& plan, int world_size, int rank, int64_t vocab) {
  const strategy::Place place = strategy::places(plan.strategy(), world_size)[static_cast<size_t>(rank)];
  runtime::StepTokens step;
  if (place.pipeline < 0) return step;
  for (const strategy::PipelineMicroBatch& micro_batch :
       plan.pipelines[static_cast<size_t>(place.pipeline)].micro_batches) {
    if (!micro_batch.covers(place.lane)) continue;
    runtime::LanePartTokens& rows = step.emplace_back();
    for (const strategy::Piece& scheduled : micro_batch.pieces_on(place.lane)) {
      for (int64_t i = scheduled.begin; i < scheduled.end; ++i) {
        rows.tokens.push_back(i * 31 % vocab);
        rows.targets.push_back(i + 1 < scheduled.end ? (i + 1) * 31 % vocab : -1);
      }
    }
  }
  return step;
}

// One strategy's steps: predicted and measured nanoseconds, by step; by kind over all steps and members
// (compute: this rank's alone).
struct Record {
  std::vector<double> predicted, measured, span;
  std::array<double, kKinds> predicted_of{}, measured_of{};
  std::array<int, kKinds> nodes{};
};

class RankBench {
 public:
  explicit RankBench(const transport::Launch& launch, int steps) : launch_(launch), steps_(steps) {
    at::set_num_threads(std::max(1, profile::this_machine().cores / launch.local_size));
    transport_ = transport::gloo_transport({.launch = launch});
    ranks_ = std::make_unique<profile::Ranks>(*transport_, "bench", c10::kCPU);
    table_ = model::parameter_table(model::test_outline());
    for (const Case& one : kCases) {
      if (one.ranks != launch.world_size) continue;
      for (const std::string& text : one.strategies) {
        strategies_.push_back(strategy::parse_strategy(text, launch.world_size));
      }
    }
  }

  void run() {
    runtime::Engine::Options options;
    options.context_length = kContextTokens;
    runtime::Engine engine(table_, strategies_, *transport_, runtime::make_executor(c10::kCPU, {}), options);
    runtime::initialize(engine.store(), 7);
    std::vector<Record> records(strategies_.size());
    // Probes and steps alternate, so that a machine whose load drifts is compared with itself.
    for (int step = 0; step < steps_ + kWarmUpSteps; ++step) {
      const cost::CostModel cost(probe().options);
      for (size_t s = 0; s < strategies_.size(); ++s) train(engine, cost, s, step, records[s]);
    }
    if (launch_.rank == 0) {
      std::printf("\n%d ranks, %d cores; a probe took %.2f s (median)\n", launch_.world_size,
                  profile::this_machine().cores, profile::median(probe_ns_) / 1e9);
    }
    for (size_t s = 0; s < strategies_.size(); ++s) print(strategies_[s], records[s]);
  }

 private:
  cost::Calibration probe() {
    profile::ProbeOptions options;
    options.model = table_.model;
    options.context_length = kContextTokens;
    options.device_bytes = int64_t{1} << 30;
    options.tp_degrees = launch_.world_size > 1 ? std::vector<int>{1, 2} : std::vector<int>{1};
    options.name = base::text("probe", probe_ns_.size());
    profile::Stopwatch stopwatch(c10::kCPU);
    const cost::Calibration calibration = profile::probe(options, *transport_).calibration;
    probe_ns_.push_back(stopwatch.lap_ns());
    return calibration;
  }

  void train(runtime::Engine& engine, const cost::CostModel& cost, size_t s, int step, Record& record) {
    plan::PlannerOptions options;
    options.world_size = launch_.world_size;
    options.candidates = strategies_;
    options.selection = plan::Selection::kFixed;
    options.fixed_candidate = static_cast<int>(s);
    const strategy::StepPlan plan = plan::Planner(options, cost).plan(step, batch(step));
    graph::BuildOptions build;
    build.link_plans = &link_plans_;
    const graph::StepGraph graph = graph::build(plan, table_, cost, launch_.world_size, build);
    const runtime::StepTokens tokens =
        tokens_of(plan, launch_.world_size, launch_.rank, table_.model.vocab());
    runtime::AdamW optimizer;
    optimizer.update = ++updates_;
    ranks_->barrier();
    profile::Stopwatch stopwatch(c10::kCPU);
    const runtime::StepResult result = engine.train(graph, tokens, optimizer);
    const double span = stopwatch.lap_ns();
    if (step < kWarmUpSteps) return;
    record.span.push_back(span);
    record.predicted.push_back(static_cast<double>(graph.makespan_ns));
    record.measured.push_back(static_cast<double>(result.timing.step_ns));
    for (const runtime::Measurement& measurement : result.timing.nodes) {
      const graph::Node& node = graph.node(measurement.node);
      const auto kind = static_cast<size_t>(node.kind);
      record.predicted_of[kind] += static_cast<double>(node.duration_ns);
      record.measured_of[kind] += static_cast<double>(measurement.end_ns - measurement.start_ns);
      ++record.nodes[kind];
    }
  }

  void print(const strategy::Strategy& strategy, const Record& record) {
    if (launch_.rank != 0) return;
    std::vector<double> errors, sizes;
    for (size_t i = 0; i < record.predicted.size(); ++i) {
      errors.push_back(record.predicted[i] / record.measured[i] - 1);
      sizes.push_back(std::abs(errors.back()));
    }
    std::printf(
        "%-22s predicted %7.1f ms  measured %7.1f ms (with set-up %7.1f)  error %+5.1f %%, |error| %4.1f "
        "%%\n",
        strategy::to_text(strategy).c_str(), profile::median(record.predicted) / 1e6,
        profile::median(record.measured) / 1e6, profile::median(record.span) / 1e6,
        100 * profile::median(errors), 100 * profile::median(sizes));
    const auto steps = static_cast<double>(record.predicted.size());
    for (size_t kind = 0; kind < kKinds; ++kind) {
      if (record.nodes[kind] == 0) continue;
      std::printf("    %-16s %5.1f nodes a step  predicted %7.2f ms  measured %7.2f ms  %+6.1f %%\n",
                  graph::name_of(static_cast<graph::NodeKind>(kind)), record.nodes[kind] / steps,
                  record.predicted_of[kind] / steps / 1e6, record.measured_of[kind] / steps / 1e6,
                  100 * (record.predicted_of[kind] / record.measured_of[kind] - 1));
    }
  }

  transport::Launch launch_;
  int steps_;
  std::unique_ptr<comm::Transport> transport_;
  std::unique_ptr<profile::Ranks> ranks_;
  model::ParameterTable table_;
  std::vector<strategy::Strategy> strategies_;
  graph::LinkPlans link_plans_;
  std::vector<double> probe_ns_;
  int64_t updates_ = 0;
};

transport::Environment environment() {
  transport::Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) result[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  transport::use_batch_scheduling();
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const transport::Launch launch = transport::launch_from(environment());
  if (launch.launcher != transport::Launcher::kNone) {
    RankBench(launch, argc > 1 ? std::atoi(argv[1]) : 10).run();
    std::fflush(stdout);
    return 0;
  }
  const int only_ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  for (const Case& one : kCases) {
    if (only_ranks != 0 && one.ranks != only_ranks) continue;
    transport::LocalLaunch local;
    local.work = [&] { ::execv("/proc/self/exe", argv); };
    local.ranks = one.ranks;
    const transport::LocalResult result = transport::launch_locally(local);
    if (result.exit_status != 0) return result.exit_status;
  }
  return 0;
}
