#include "study/rival_traits.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cost/execution.h"
#include "cost/fsdp_cost.h"
#include "cost/measured_passes.h"
#include "model/program.h"

namespace sluice::study {
namespace {

// Prices of passes as a program with these traits runs them.
class RivalExecution : public cost::Execution {
 public:
  explicit RivalExecution(const RivalTraits& traits) : traits_(traits) {}

  bool defers_weight_gradients() const override { return !traits_.one_backward_cell; }
  int repeated_forwards() const override { return traits_.repeats_forward ? 1 : 0; }
  int parameter_holders(const strategy::Scheme& scheme) const override {
    return traits_.holds_whole ? 1 : scheme.fsdp;
  }
  bool gathers_in_passes() const override { return !traits_.keeps_gathered; }
  bool sums_in_runs() const override { return !traits_.sums_in_ring; }
  bool keeps_dispatched() const override { return traits_.keeps_dispatched; }
  cost::Wide exposed_dispatch(cost::Wide moving, cost::Wide products) const override {
    return traits_.dispatch_waits ? moving : Execution::exposed_dispatch(moving, products);
  }
  const RivalTraits& traits() const { return traits_; }

 private:
  RivalTraits traits_;
};

// Bytes that a token's input of each layer takes on one of tp·pp ranks.
int64_t inputs_bytes(const cost::CostModel::Options& options, int64_t blocks, int tp) {
  return options.model.hidden() * options.memory.element_bytes * blocks / tp;
}

}  // namespace

RivalTraits traits_of(const cost::CostModel& cost) {
  const auto* rival = dynamic_cast<const RivalExecution*>(cost.options().execution.get());
  return rival == nullptr ? RivalTraits{} : rival->traits();
}

cost::CostModel with_traits(const cost::CostModel& cost, const RivalTraits& traits) {
  cost::CostModel::Options options = cost.options();
  options.execution = std::make_shared<RivalExecution>(traits);
  return cost.with(std::move(options));
}

cost::CostModel one_backward_cell(const cost::CostModel& cost) {
  RivalTraits traits = traits_of(cost);
  traits.one_backward_cell = true;
  return with_traits(cost, traits);
}

cost::CostModel full_recompute(const cost::CostModel& cost) {
  cost::CostModel::Options options = cost.options();
  const model::Program& program = cost.program();
  const int64_t blocks = program.blocks().size();
  int64_t transient = 0;
  for (auto& [degrees, row] : options.scheme_times) {
    const int64_t of_stage = blocks / degrees.second;
    transient = std::max(transient, row.saved_bytes_per_token / of_stage);
    row.saved_bytes_per_token = inputs_bytes(options, of_stage, degrees.first);
  }
  for (auto& [tp, kinds] : options.kinds_by_tp) {
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const base::Interval all = program.blocks();
      bool is_block = false;
      for (int64_t block = all.begin; block < all.end; ++block)
        is_block = is_block || program.at(block).kind == static_cast<int>(kind);
      if (!is_block) continue;
      transient = std::max(transient, kinds[kind].saved_bytes_per_token);
      kinds[kind].saved_bytes_per_token = inputs_bytes(options, 1, tp);
      kinds[kind].deferred_bytes_per_token = 0;
    }
  }
  options.memory.transient_bytes_per_token += transient;
  RivalTraits traits = traits_of(cost);
  traits.repeats_forward = true;
  return with_traits(cost.with(std::move(options)), traits);
}

const char* name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::kZero1: return "ZeRO-1";
    case Sharding::kZero2: return "ZeRO-2";
    case Sharding::kZero3: return "ZeRO-3";
    case Sharding::kHsdp: return "HSDP";
  }
  return "";
}

published::GroupProgram sharded_program(Sharding sharding, const strategy::Scheme& degrees,
                                        strategy::Exchange exchange, const cost::CostModel& cost,
                                        int world_size) {
  strategy::Scheme scheme = degrees;
  scheme.cp = scheme.fsdp = world_size / (scheme.tp * scheme.pp);
  if (sharding == Sharding::kZero1) scheme.fsdp = scheme.ep;
  if (sharding == Sharding::kHsdp) {
    scheme.fsdp = std::clamp(cost.options().topology.lanes_of_node(scheme.tp), scheme.ep, scheme.cp);
    while (scheme.cp % scheme.fsdp != 0 || scheme.fsdp % scheme.ep != 0) --scheme.fsdp;
  }
  return {.scheme = scheme, .exchange = exchange};
}

std::vector<int> expert_degrees(const model::Model& model, int lanes) {
  std::vector<int> degrees = {1};
  for (int lanes_of = 2; model.experts().count > 0 && lanes % lanes_of == 0; lanes_of *= 2) {
    if (model::experts_fault(model, lanes_of).empty()) degrees.push_back(lanes_of);
  }
  return degrees;
}

cost::CostModel sharded_cost(const cost::CostModel& cost, Sharding sharding, bool recompute, int world_size) {
  const cost::CostModel kept = recompute ? full_recompute(cost) : cost;
  RivalTraits traits = traits_of(kept);
  traits.one_backward_cell = traits.sums_in_ring = traits.keeps_dispatched = true;
  traits.keeps_gathered = sharding == Sharding::kZero2;
  traits.holds_whole = sharding == Sharding::kZero1;
  cost::CostModel::Options options = kept.options();
  if (sharding == Sharding::kHsdp)
    options.memory.owner_bytes_per_parameter *= std::max(1, world_size / options.topology.node_ranks());
  return with_traits(cost.with(std::move(options)), traits);
}

int64_t gather_once_ns(Sharding sharding, const published::GroupProgram& program,
                       const cost::CostModel& cost) {
  if (sharding != Sharding::kZero2) return 0;
  RivalTraits traits = traits_of(cost);
  traits.keeps_gathered = false;
  const strategy::FsdpRuns runs = strategy::fsdp_runs(program.scheme, cost.options().topology);
  const cost::FsdpCost gathering(with_traits(cost, traits), program.scheme, runs);
  int64_t longest_ns = 0;
  for (int stage = 0; stage < program.scheme.pp; ++stage) {
    const base::Interval run = cost.stage_run(program.scheme, stage);
    int64_t stage_ns = 0;
    for (int64_t position = run.begin; position < run.end; ++position)
      stage_ns += gathering.at(position).gather_ns;
    longest_ns = std::max(longest_ns, stage_ns);
  }
  return longest_ns;
}

bool gathers_between_nodes(const strategy::StepPlan& plan, const strategy::Topology& topology) {
  return std::ranges::any_of(plan.pipelines, [&](const strategy::PipelinePlan& pipeline) {
    return !pipeline.micro_batches.empty() && cost::gathers_between_nodes(pipeline.pipeline, topology);
  });
}

}  // namespace sluice::study
