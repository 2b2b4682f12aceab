#include "session/trunk_planning.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/link_buffers.h"
#include "cost/transferred_prices.h"

namespace sluice::session {
namespace {

// The bytes that a rank owns of the run's model: nothing else of it is there while another model computes.
int64_t owned_of_run(const plan::Planner& trained) {
  const cost::CostModel& cost = trained.cost();
  const model::ParameterTable table = model::parameter_table(cost.options().model);
  const cost::MemoryModel& memory = cost.options().memory;
  int64_t coded = 0;
  for (const model::Bucket& bucket : table.buckets) coded += bucket.coded ? bucket.size : 0;
  return (memory.owner_bytes(table.size(), table.trained_size(), coded) +
          cost::narrow_copies_bytes(memory, table.size() - coded) +
          memory.pull_bytes(cost.options().codecs.pull, table.size(), /*held=*/0)) /
         trained.options().world_size;
}

// The bytes that a rank owns of a trunk. They are subtracted from the device already, and counted again when
// the trunk is planned.
int64_t owned_of_other(const OtherModel& model, const model::ParameterTable& own,
                       const cost::MemoryModel& memory, int world_size) {
  return own.size() / world_size * owned_parameter_bytes(model, memory);
}

// Memory for planning the trunk. A head that leaves rows makes no logits.
cost::AnalyticMemory memory_beside(const plan::Planner& trained, int64_t owned_bytes,
                                   const OtherModel& model) {
  const cost::MemoryModel& memory = trained.cost().options().memory;
  const bool trains = model.trained;
  const int64_t own_bytes = trains ? memory.owner_bytes_per_parameter : memory.element_bytes;
  const int64_t left = memory.device_bytes - owned_of_run(trained) + owned_bytes;
  return {.device_bytes = memory.device_bytes > 0 ? std::max<int64_t>(1, left) : 0,
          .element_bytes = memory.element_bytes,
          .accumulator_bytes = memory.accumulator_bytes,
          .owner_bytes_per_parameter = own_bytes,
          .logits_chunk_bytes = model.leaves_rows ? 0 : memory.logits_chunk_bytes,
          .master_bytes = trains ? memory.master_bytes : 0};
}

std::vector<int> degrees_of(const std::vector<strategy::Strategy>& candidates, const model::Model& model) {
  std::set<int> degrees;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      if (model::tp_fault(model, pipeline.scheme.tp).empty()) degrees.insert(pipeline.scheme.tp);
    }
  }
  return {degrees.begin(), degrees.end()};
}

bool cuts(const strategy::Strategy& candidate, const model::Model& model) {
  return std::ranges::all_of(candidate.pipelines, [&](const strategy::Pipeline& pipeline) {
    return model::cut_fault(model, pipeline.scheme.tp, pipeline.scheme.pp, pipeline.scheme.ep).empty();
  });
}

std::vector<strategy::Strategy> candidates_of(const plan::Planner& trained, const OtherModel& model) {
  std::vector<strategy::Strategy> candidates;
  for (const strategy::Strategy& candidate : trained.options().candidates) {
    if (!cuts(candidate, model.value)) continue;
    candidates.push_back(candidate);
    for (strategy::Pipeline& pipeline : candidates.back().pipelines) {
      // Both name layers and experts of the run's model.
      pipeline.device.low_precision = nullptr;
      pipeline.placement = nullptr;
    }
  }
  if (!candidates.empty()) return candidates;
  throw base::InputError(
      base::text("[config] ", model.key, " names ", model.folder.string(),
                 ", which no strategy of the run can cut: give one with another tp or pp"));
}

}  // namespace

TrunkPlanning plan_beside(const plan::Planner& trained, OtherModel model, int64_t all_beside_bytes) {
  const cost::CostModel::Options& measured = trained.cost().options();
  plan::PlannerOptions options;
  options.world_size = trained.options().world_size;
  options.candidates = candidates_of(trained, model);
  model::ParameterTable table = model::parameter_table(model.value);
  const int64_t owned_bytes = owned_of_other(model, table, measured.memory, options.world_size);
  const std::vector<int> degrees = degrees_of(options.candidates, model.value);
  plan::Planner planner(options, cost::CostModel(cost::transferred_options(
                                     measured, model.value, cost::Rates{},
                                     memory_beside(trained, owned_bytes, model), degrees)));
  table.program = planner.cost().program();
  const int64_t beside_bytes = all_beside_bytes + owned_of_run(trained) - owned_bytes;
  return {std::move(model), std::move(table), std::move(planner), beside_bytes};
}

TrunkPlanning reference_of(const plan::Planner& trained, int64_t all_beside_bytes) {
  const cost::CostModel& cost = trained.cost();
  return {
      .model = {.act = "reference", .key = "rl.kl's reference", .folder = {}, .value = cost.options().model},
      .table = model::parameter_table(cost.options().model, cost.program()),
      .planner = trained,
      .beside_bytes = all_beside_bytes};
}

void require_fit(const TrunkPlanning& trunk, int64_t longest_tokens) {
  const int64_t held = trunk.planner.max_len_tokens();
  if (held >= longest_tokens) return;
  throw base::InfeasibleError(base::text("[config] ", trunk.model.key, " names ", trunk.model.folder.string(),
                                         ", of which no strategy of the run holds ", longest_tokens,
                                         " tokens beside the trained model, but ", held,
                                         ": add one with more tp, pp or fsdp, or give a smaller model"));
}

}  // namespace sluice::session
