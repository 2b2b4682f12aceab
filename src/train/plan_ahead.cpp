#include "train/plan_ahead.h"

#include <chrono>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::train {

PreparedStep prepare_step(const PlanningInputs& inputs, int64_t step,
                          const std::vector<corpus::Sample>& samples, graph::Purpose purpose) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<strategy::Sequence> sequences;
  for (const corpus::Sample& sample : samples) {
    sequences.push_back({sample.document, sample.begin_token, sample.length_tokens});
  }
  PreparedStep prepared;
  prepared.plan = inputs.planner.plan(step, sequences);
  graph::BuildOptions options;
  options.purpose = purpose;
  options.link_plans = inputs.link_plans;
  prepared.graph =
      graph::build(prepared.plan, inputs.table, inputs.planner.cost(), inputs.world_size, options);
  prepared.plan.planning_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  prepared.tokens = read_step_tokens(inputs.blend, prepared.plan, inputs.world_size, inputs.rank);
  prepared.agreement = base::CanonicalBytes()
                           .add(static_cast<int64_t>(strategy::hash(prepared.plan)))
                           .add(static_cast<int64_t>(graph::hash(prepared.graph)))
                           .hash();
  return prepared;
}

PlanAhead::PlanAhead(PlanningInputs inputs, corpus::Sampler sampler, int64_t end_step, size_t depth)
    : inputs_(inputs), sampler_(std::move(sampler)), end_step_(end_step), queue_(depth), thread_([this] {
        plan_all();
      }) {}

PlanAhead::~PlanAhead() {
  queue_.close();
  thread_.join();
}

std::unique_ptr<PreparedStep> PlanAhead::next() {
  std::optional<Outcome> outcome = queue_.pop();
  if (!outcome) return nullptr;
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(outcome->step);
}

namespace {

// The error under way, with the step in front of a user's message.
std::exception_ptr with_step(int64_t step) {
  try {
    throw;
  } catch (const base::InfeasibleError& error) {
    return std::make_exception_ptr(base::InfeasibleError(base::text("step ", step, ": ", error.what())));
  } catch (const base::InputError& error) {
    return std::make_exception_ptr(base::InputError(base::text("step ", step, ": ", error.what())));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

void PlanAhead::plan_all() {
  while (sampler_.step() < end_step_) {
    const int64_t step = sampler_.step();
    Outcome outcome;
    try {
      const corpus::Batch batch = sampler_.next();
      outcome.step =
          std::make_unique<PreparedStep>(prepare_step(inputs_, step, batch.samples, graph::Purpose::kTrain));
      outcome.step->sampler_after = sampler_.state();
    } catch (...) {
      outcome.error = with_step(step);
    }
    const bool failed = outcome.error != nullptr;
    if (!queue_.push(std::move(outcome)) || failed) break;
  }
  queue_.close();
}

}  // namespace sluice::train
