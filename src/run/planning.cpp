#include "run/planning.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config_file.h"
#include "model/model_figures.h"
#include "ops/attention.h"
#include "run/calibration.h"
#include "run/precision.h"
#include "session/other_models.h"
#include "session/run_planning.h"
#include "session/unequal_devices.h"

namespace sluice::run {

namespace {

// Warns once per run if no candidate uses all ranks.
void tell_of_idle_ranks(const std::vector<strategy::Strategy>& candidates, int world_size) {
  int most = 0;
  for (const strategy::Strategy& candidate : candidates) most = std::max(most, candidate.ranks());
  const int idle = world_size - most;
  if (idle <= 0) return;
  base::log_warning(base::text(idle, " of ", world_size,
                               " ranks compute nothing: no strategy uses more than ",
                               base::human_count(most, "rank", "ranks"), ": add one of ", world_size,
                               " to parallel.strategies, or set strategies = \"auto\", or start as many"));
}

// A rank's micro-batches hold at most what some candidate holds, and no more than a step has.
ops::RowLimits row_limits(const plan::Planner& planner, const session::Data& data) {
  int64_t most = 0;
  for (const session::DataPhase& phase : data.phases) most = std::max(most, phase.sampling.tokens_per_step);
  const int64_t longest = data.longest_sequence();
  return {.rows = std::max(longest, std::min(most, planner.max_len_tokens())), .longest = longest};
}

}  // namespace

Planning::Planning(const RunOptions& options, const AgreedConfig& agreed, const RunStart& start,
                   RunDevice& device, survive::Control& control)
    : options_(options), start_(start), device_(device), config_(agreed.config), table_(agreed.table) {
  keep_proposal(start.resumed());
  const cost::CostModel::Options prices = priced(control);
  control.together(config_.parallel.strategies.empty() ? "proposing strategies" : "planning", [&] {
    calibrated_.emplace(prices);
    planner_ = planner_of(config_, world_size(),
                          [&](const std::string& how_far) { control.activity().progress(how_far); });
    step_planners_ = std::make_unique<StepPlanners>(*planner_);
    table_.program = planner_->cost().program();
    session::require_context(*planner_, start_.data().longest_sequence());
    config_.parallel.proposed = config_.parallel.proposed || config_.parallel.strategies.empty();
    config_.parallel.strategies.clear();  // "auto" is resolved from here on
    for (const strategy::Strategy& candidate : planner_->options().candidates) {
      config_.parallel.strategies.push_back(strategy::to_text(candidate));
    }
    if (options_.launch.rank == 0 && options_.membership_number() == 0)
      tell_of_idle_ranks(planner_->options().candidates, world_size());
  });
  if (device_.device().is_cuda()) {
    control.together("planning attention", [&] {
      ops::prepare_attention(row_limits(*planner_, start_.data()), options_.cache, device_.device());
    });
  }
}

// A proposal depends on free memory at its time. A run that resumes on as many ranks with the same settings
// therefore keeps its own.
void Planning::keep_proposal(const Resumed& resumed) {
  config::ParallelConfig& own = config_.parallel;
  if (!own.strategies.empty() || !resumed.config() || resumed.ranks() != world_size()) return;
  const config::ParallelConfig& earlier = resumed.config()->parallel;
  if (!earlier.proposed || earlier.method != own.method || earlier.max_cp != own.max_cp ||
      earlier.fsdp != own.fsdp || earlier.exchange != own.exchange)
    return;
  own.strategies = earlier.strategies;
  own.proposed = true;
}

cost::CostModel::Options Planning::priced(survive::Control& control) {
  const CalibrationRequest request{config_, start_.state().calibration, precision_of(config_.train),
                                   device_.device(), device_.memory_bytes()};
  cost::Calibration calibration = calibrate(request, device_.transport(), control);
  devices_ = measured_devices(request, control);
  if (!devices_.empty() && options_.launch.rank == 0)
    base::log_info(base::text("a product takes ", session::to_text(session::runs_of(devices_))));
  cost::MemoryModel& memory = calibration.options.memory;
  memory.device_bytes -= device_.taken_bytes(control);
  memory.host_bytes = device_.host_bytes();
  memory.attention_bytes = device_.attention_scratch().bytes;
  memory.attention_bytes_per_token = device_.attention_scratch().bytes_per_row;
  if (!device_.device().is_cpu()) {
    memory.attention_bytes_per_token =
        std::max(memory.attention_bytes_per_token,
                 model::grouped_experts_bytes(calibration.options.model, memory.element_bytes));
  }
  calibration.options.codecs = config::wire_codecs(config_);
  calibration.options.newton_schulz_steps = config_.optimizer.matrix_steps();
  calibration.options.whole_pulls = config_.parallel.strategies.size() != 1;
  calibration_ = cost::to_json(calibration, {}, world_size());
  // A run that resumes has the same memory figure as before, and subtracts the same bytes again.
  control.together("opening other models",
                   [&] { beside_bytes_ = session::leave_room_beside(config_, memory, world_size()); });
  return calibration.options;
}

plan::Planner Planning::planner_of(const config::RunConfig& config, int ranks,
                                   std::function<void(const std::string&)> progress) const {
  plan::PlannerOptions options =
      session::planner_options(config, start_.data(), *calibrated_, ranks,
                               ranks == world_size() ? devices_ : std::vector<strategy::Device>());
  options.progress = session::told_in_words(std::move(progress));
  options.devices_from = plan::DeviceSource::kMeasured;
  options.offload_saves_lanes = !device_.device().is_cpu();
  return session::make_planner(options, session::cost_of_data(config, start_.data(), *calibrated_));
}

base::Feasible<graph::StepGraph> Planning::step_of_fewer(
    int ranks, const std::vector<strategy::Sequence>& sequences) const {
  config::RunConfig config = config_;
  config.parallel.strategies.clear();
  config.parallel.select = {};
  try {
    const plan::Planner planner = planner_of(config, ranks);
    session::require_context(planner, start_.data().longest_sequence());
    base::Feasible<strategy::StepPlan> plan = planner.try_plan(0, sequences);
    if (!plan) return plan.none();
    return graph::try_build(*plan, table_, planner.cost(), ranks);
  } catch (const base::InfeasibleError& error) {
    return base::Infeasible{error.what()};
  }
}

StepInputs Planning::inputs() {
  base::CanonicalBytes all;
  all.add(world_size()).add(config::to_toml(config_)).add(calibration_.dump());
  return {.planner = *planner_,
          .table = table_,
          .world_size = world_size(),
          .rank = options_.launch.rank,
          .link_plans = &link_plans_,
          .plans = options_.worker_context ? options_.worker_context->plans : nullptr,
          .planner_hash = all.hash(),
          .step_planners = step_planners_.get(),
          .earlier = earlier_,
          .beside_bytes = beside_bytes_};
}

}  // namespace sluice::run
