#include "inference/expert_serving.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "cost/token_dispatch_cost.h"

namespace sluice::inference {
namespace {

constexpr int64_t kMillion = 1'000'000;

bool has_experts(const model::Kind& kind) {
  return std::ranges::any_of(kind.parameters(),
                             [](const model::Parameter& each) { return each.experts > 0 && !each.of_mtp; });
}

// A rank's parameter bytes: experts, and all others.
struct ParameterBytes {
  int64_t experts = 0;
  int64_t others = 0;
};
ParameterBytes bytes_of(const model::Program& program, const ExpertLayout& layout, int64_t element_bytes) {
  ParameterBytes bytes;
  for (int64_t position = 0; position < program.size(); ++position) {
    for (const model::Parameter& parameter : program.kind_at(position).parameters()) {
      const int64_t size = parameter.size() * element_bytes;
      if (parameter.experts > 0 && !parameter.of_mtp) {
        bytes.experts += size / (layout.expert_tp * layout.expert_lanes);
      } else {
        bytes.others += size / (parameter.replicated ? 1 : layout.attention_tp);
      }
    }
  }
  return bytes;
}

std::vector<int> tp_degrees(const model::Model& model, int most) {
  std::vector<int> degrees;
  for (int tp = 1; tp <= most; tp *= 2) {
    if (model::tp_fault(model, tp).empty()) degrees.push_back(tp);
  }
  return degrees;
}

}  // namespace

ExpertServer::ExpertServer(const model::Model& model, const ServingMachine& machine, const Demand& demand)
    : model_(model), program_(model), machine_(machine), demand_(demand) {
  SLUICE_ASSERT(model.experts().count > 0, "a model without experts");
}

// The time of a micro-batch's rows from all attention lanes, at the rank that sends or receives most.
int64_t ExpertServer::transfer_ns(const ExpertLayout& layout, int64_t rows) const {
  const int lanes = layout.expert_lanes;
  const int level = machine_.topology.level_of_first(layout.ranks() / layout.groups);
  const strategy::LinkSpeed& link = machine_.rates.link(level);
  const int sharers = level == 0 ? 1 : machine_.topology.nic_ranks();
  const int64_t visited_ppm =
      cost::dispatched_lanes_ppm(model_.experts().count, model_.experts().per_token, lanes);
  int64_t copies = rows * visited_ppm / kMillion;  // arriving at one expert lane
  if (!layout.disaggregated) copies = copies * (lanes - 1) / lanes;
  const int64_t row_bytes = model_.hidden() * machine_.element_bytes;
  const int64_t received = copies * row_bytes / layout.expert_tp;
  const int64_t sent = copies * lanes / layout.attention_lanes * row_bytes / layout.attention_tp;
  if (copies == 0) return 0;
  return std::llround(link.latency_ns +
                      static_cast<double>(std::max(received, sent) * sharers) / link.bytes_per_ns);
}

LayerTimes ExpertServer::times_of(const model::Kind& kind, const ExpertLayout& layout, int64_t texts) const {
  const cost::DecodeWork work = steady_work(demand_, texts, model_.window());
  const bool experts = has_experts(kind);
  const auto cost_of = [&](cost::DecodeShare share, int tp, int lanes) {
    return cost::analytic_decode(kind, model_, machine_.rates, machine_.element_bytes, tp, share, lanes);
  };
  const cost::DecodeCost attention =
      cost_of(experts ? cost::DecodeShare::kBesideExperts : cost::DecodeShare::kAll, layout.attention_tp, 1);
  LayerTimes times;
  times.attention_ns =
      cost::decode_ns(attention, work, work.rows, kind.work().window > 0) / work.engine_steps;
  if (!experts) return times;
  const int64_t rows = work.rows * layout.attention_lanes;
  const cost::DecodeCost own = cost_of(cost::DecodeShare::kExperts, layout.expert_tp, layout.expert_lanes);
  times.experts_ns = cost::of_rows_ns(own.by_rows, rows);
  if (layout.expert_lanes > 1) times.experts_ns = times.experts_ns * cost::kExpertImbalancePercent / 100;
  times.transfer_ns = transfer_ns(layout, rows);
  return times;
}

ExpertServing ExpertServer::with_sequences(const ExpertLayout& layout, int64_t texts) const {
  ExpertServing serving{.layout = layout, .sequences = texts};
  std::map<const model::Kind*, LayerTimes> by_kind;
  const base::Interval blocks = program_.blocks();
  const int64_t m = layout.micro_batches;
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    const model::Kind& kind = program_.kind_at(position);
    const auto [found, added] = by_kind.try_emplace(&kind);
    if (added) found->second = times_of(kind, layout, texts);
    const LayerTimes& times = found->second;
    serving.layers.push_back(times);
    const int64_t trip = times.attention_ns + times.experts_ns + 2 * times.transfer_ns;
    serving.engine_step_ns += std::max(m * std::max(times.attention_ns, times.experts_ns), trip);
  }
  const cost::DecodeWork work = steady_work(demand_, texts, model_.window());
  for (const int64_t end : {program_.embedding(), program_.head()}) {
    const cost::DecodeCost cost =
        cost::analytic_decode(program_.kind_at(end), model_, machine_.rates, machine_.element_bytes,
                              layout.attention_tp, cost::DecodeShare::kAll);
    serving.ends_ns += cost::of_rows_ns(cost.by_rows, end == program_.head() ? work.sampled_rows : work.rows);
  }
  serving.engine_step_ns += m * serving.ends_ns;
  const ParameterBytes parameters = bytes_of(program_, layout, machine_.element_bytes);
  const ModelSharding attention{program_, layout.attention_tp, /*stages=*/1, machine_.element_bytes};
  const int64_t text_bytes = demand_.sequence_bytes(cache_of(attention, 0));
  serving.attention_bytes =
      parameters.others + m * texts * text_bytes + (layout.disaggregated ? 0 : parameters.experts);
  serving.expert_bytes = parameters.experts;
  return serving;
}

ExpertServing ExpertServer::serve(const ExpertLayout& layout) const {
  const int64_t texts = max_sequences([&](int64_t texts) {
    const ExpertServing serving = with_sequences(layout, texts);
    return std::max(serving.attention_bytes, serving.expert_bytes) <= machine_.device_bytes &&
           serving.engine_step_ns <= demand_.tpot_ns;
  });
  ExpertServing serving = with_sequences(layout, std::max<int64_t>(1, texts));
  serving.sequences = texts;
  return serving;
}

std::vector<ExpertLayout> ExpertServer::expert_parallel_layouts(int world_size) const {
  std::vector<ExpertLayout> layouts;
  for (const int tp : tp_degrees(model_, machine_.topology.node_ranks())) {
    for (int lanes = 2; tp * lanes <= world_size; lanes *= 2) {
      if (world_size % (tp * lanes) != 0 || model_.experts().count % lanes != 0) continue;
      layouts.push_back({.attention_tp = tp,
                         .attention_lanes = lanes,
                         .expert_tp = tp,
                         .expert_lanes = lanes,
                         .groups = world_size / (tp * lanes)});
    }
  }
  return layouts;
}

std::vector<ExpertLayout> ExpertServer::disaggregated_layouts(int world_size) const {
  constexpr int kMostMicroBatches = 4;
  std::vector<ExpertLayout> layouts;
  const std::vector<int> degrees = tp_degrees(model_, machine_.topology.node_ranks());
  for (int groups = 1; groups <= world_size; groups *= 2) {
    if (world_size % groups != 0) break;
    const int ranks = world_size / groups;
    for (const int expert_tp : degrees) {
      for (int lanes = 1; lanes <= model_.experts().count && lanes * expert_tp < ranks; ++lanes) {
        if (model_.experts().count % lanes != 0) continue;
        for (const int attention_tp : degrees) {
          const int left = ranks - lanes * expert_tp;
          if (left % attention_tp != 0) continue;
          for (int m = 1; m <= kMostMicroBatches; ++m) {
            layouts.push_back({.disaggregated = true,
                               .attention_tp = attention_tp,
                               .attention_lanes = left / attention_tp,
                               .expert_tp = expert_tp,
                               .expert_lanes = lanes,
                               .micro_batches = m,
                               .groups = groups});
          }
        }
      }
    }
  }
  return layouts;
}

}  // namespace sluice::inference
