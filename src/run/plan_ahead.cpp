#include "run/plan_ahead.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/memory.h"
#include "session/sampling.h"
#include "strategy/readable.h"

namespace sluice::run {

namespace {

// The step as an earlier worker planned it, or newly planned.
session::BuiltStep built_step(const StepInputs& inputs, int64_t step,
                              const std::vector<strategy::Sequence>& sequences, graph::Purpose purpose) {
  const graph::BuildOptions options{.purpose = purpose, .link_plans = inputs.link_plans};
  const bool trains = purpose == graph::Purpose::kTrain;
  const session::EarlierActs earlier = trains ? inputs.earlier : session::EarlierActs();
  const bool kept = inputs.plans != nullptr && trains;
  const auto learnt = trains && inputs.step_planners != nullptr ? inputs.step_planners->at(step) : nullptr;
  const plan::Planner& planner = learnt ? learnt->planner : inputs.planner;
  const survive::PlanKey key{learnt ? inputs.planner_hash ^ learnt->hash : inputs.planner_hash, step,
                             sequences};
  if (std::optional<strategy::StepPlan> plan =
          kept ? inputs.plans->find(key, inputs.world_size) : std::nullopt) {
    auto graph = graph::try_build(*plan, inputs.table, planner.cost(), inputs.world_size, options);
    if (graph && earlier.empty())
      return {.plan = std::move(*plan), .graph = std::move(*graph), .fallback = ""};
  }
  session::BuiltStep built = session::build_step(planner, inputs.table, step, sequences, options, earlier);
  if (kept && built.fallback.empty()) inputs.plans->keep(key, built.plan);
  return built;
}

void predict_memory(const StepInputs& inputs, PreparedStep& prepared) {
  const cost::CostModel& cost = inputs.planner.cost();
  std::vector<int64_t> kept(prepared.graph.programs.size());
  if (!prepared.earlier.empty()) {
    const cost::MemoryModel& memory = cost.options().memory;
    kept = session::kept_bytes(inputs.earlier, prepared.graph, memory);
    prepared.earlier_peak_bytes =
        session::peak_bytes(inputs.earlier, prepared.earlier, prepared.graph, memory);
  }
  int64_t most = 0;
  const std::vector<graph::RankMemory> own = graph::predicted_memory(prepared.graph, cost);
  for (size_t rank = 0; rank < own.size(); ++rank) most = std::max(most, own[rank].peak_bytes + kept[rank]);
  prepared.predicted_peak_bytes = most + inputs.beside_bytes;
}

}  // namespace

PreparedStep prepare_step(const StepInputs& inputs, const corpus::Blend& blend, int64_t step,
                          const std::vector<corpus::Sample>& samples, graph::Purpose purpose) {
  const std::unique_ptr<TokenSource> tokens = tokens_of(blend);
  return prepare_step(inputs, session::sequences_of(samples, blend), tokens.get(), step, purpose);
}

PreparedStep prepare_step(const StepInputs& inputs, const std::vector<strategy::Sequence>& sequences,
                          const TokenSource* source, int64_t step, graph::Purpose purpose) {
  const auto begin = std::chrono::steady_clock::now();
  session::BuiltStep built = built_step(inputs, step, sequences, purpose);
  if (!built.fallback.empty() && inputs.rank == 0) {
    const std::string what = purpose == graph::Purpose::kEvaluate ? "evaluation, batch " : "step ";
    base::log_warning(base::text(what, step, ": planning failed (", built.fallback, "); it runs as ",
                                 readable(built.plan.strategy()), " instead"));
  }
  PreparedStep prepared{.plan = std::move(built.plan),
                        .graph = std::move(built.graph),
                        .earlier = std::move(built.earlier),
                        .fallback = std::move(built.fallback)};
  prepared.plan.planning_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  if (source != nullptr) {
    const int64_t bytes_before = source->read_bytes();
    const bool mtp = purpose == graph::Purpose::kTrain && inputs.table.model.has_mtp();
    prepared.tokens = read_step_tokens(*source, prepared.plan, inputs.world_size, inputs.rank,
                                       mtp ? Mtp::kTrains : Mtp::kNone);
    prepared.corpus_bytes = source->read_bytes() - bytes_before;
  }
  predict_memory(inputs, prepared);
  base::CanonicalBytes agreed;
  agreed.add(static_cast<int64_t>(strategy::hash(prepared.plan)))
      .add(static_cast<int64_t>(graph::hash(prepared.graph)));
  for (const graph::StepGraph& earlier : prepared.earlier)
    agreed.add(static_cast<int64_t>(graph::hash(earlier)));
  prepared.agreement = agreed.hash();
  return prepared;
}

PlanAhead::PlanAhead(Source source, size_t depth)
    : source_(std::move(source)), queue_(depth), thread_([this] { plan_all(); }) {}

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

void PlanAhead::plan_all() {
  bool more = true;
  while (more) {
    Outcome outcome;
    try {
      outcome.step = source_();
    } catch (...) {
      outcome.error = std::current_exception();
    }
    more = outcome.step != nullptr;
    if (!more && !outcome.error) break;
    more = queue_.push(std::move(outcome)) && more;
  }
  queue_.close();
}

namespace {

// Rethrows the current exception, with the step in front of a user's message.
[[noreturn]] void rethrow_with_step(int64_t step) {
  try {
    throw;
  } catch (const base::InfeasibleError& error) {
    throw base::InfeasibleError(base::text("step ", step, ": ", error.what()));
  } catch (const base::InputError& error) {
    throw base::InputError(base::text("step ", step, ": ", error.what()));
  }
}

}  // namespace

PlanAhead::Source training_steps(StepInputs inputs, const session::Data& data, session::PhasedSampler sampler,
                                 int64_t end_step) {
  const auto batches = std::make_shared<session::PhasedSampler>(std::move(sampler));
  return [inputs, &data, batches, end_step]() -> std::unique_ptr<PreparedStep> {
    const int64_t step = batches->step();
    if (step >= end_step) return nullptr;
    try {
      const corpus::Batch batch = batches->next();
      const corpus::Blend& blend = data.phases[batches->phase()].training;
      auto prepared = std::make_unique<PreparedStep>(
          prepare_step(inputs, blend, step, batch.samples, graph::Purpose::kTrain));
      prepared->sampler_after = batches->state();
      return prepared;
    } catch (...) {
      rethrow_with_step(step);
    }
  };
}

PlanAhead::Source evaluation_steps(StepInputs inputs, const session::ValidationData& set) {
  return [inputs, &set, next = set.batches.begin()]() mutable -> std::unique_ptr<PreparedStep> {
    if (next == set.batches.end()) return nullptr;
    const corpus::Batch& batch = *next++;
    return std::make_unique<PreparedStep>(
        prepare_step(inputs, set.blend, batch.step, batch.samples, graph::Purpose::kEvaluate));
  };
}

}  // namespace sluice::run
