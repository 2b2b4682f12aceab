#include "session/serving_plan.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "graph/ping_pong.h"
#include "inference/expert_serving.h"

namespace sluice::session {
namespace {

using base::text;
using Of = ServingRow::LayoutKind;

constexpr size_t kShown = 3;  // rows for each kind of expert layout

std::string text_of(const inference::ExpertLayout& layout) {
  const auto lanes = [](int count, int tp) { return text(count, "x<", tp, ">"); };
  const std::string groups = layout.groups > 1 ? text(layout.groups, " times ") : "";
  if (!layout.disaggregated)
    return text(groups, lanes(layout.attention_lanes, layout.attention_tp), " that divide experts");
  return text(groups, "attention ", lanes(layout.attention_lanes, layout.attention_tp), ", experts ",
              lanes(layout.expert_lanes, layout.expert_tp), ", ",
              base::human_count(layout.micro_batches, "micro-batch", "micro-batches"));
}

// The engine step's time by the clock.
int64_t clocked_ns(const inference::ExpertServing& serving) {
  std::vector<graph::PingPongLayer> layers;
  for (const inference::LayerTimes& times : serving.layers)
    layers.push_back({times.attention_ns, times.transfer_ns, times.experts_ns, times.transfer_ns});
  layers.front().attention_ns += serving.ends_ns;
  return graph::ping_pong(layers, serving.layout.micro_batches).makespan_ns;
}

ServingRow row_of(const inference::ExpertServing& serving) {
  ServingRow row{.layout_kind = serving.layout.disaggregated ? Of::kDisaggregated : Of::kExpertParallel,
                 .layout = text_of(serving.layout),
                 .sequences = serving.all_sequences(),
                 .engine_step_ns = serving.engine_step_ns,
                 .bytes = std::max(serving.attention_bytes, serving.expert_bytes)};
  if (serving.layout.disaggregated) row.engine_step_ns = clocked_ns(serving);
  row.tokens_per_s = 1e9 * static_cast<double>(row.sequences) / static_cast<double>(row.engine_step_ns);
  return row;
}

void add_best(std::vector<inference::ExpertServing> servings, std::vector<ServingRow>& rows) {
  std::ranges::stable_sort(servings, std::greater(), &inference::ExpertServing::tokens_per_s);
  for (size_t i = 0; i < std::min(kShown, servings.size()); ++i) rows.push_back(row_of(servings[i]));
}

}  // namespace

const char* name_of(Of of) {
  switch (of) {
    case Of::kPipelines: return "pipelines";
    case Of::kExpertParallel: return "experts divided";
    case Of::kDisaggregated: return "experts apart";
  }
  return "";
}

std::string ServingRow::fault(const inference::Demand& demand, int64_t device_bytes) const {
  if (sequences > 0) return "";
  if (bytes > device_bytes) {
    return text("one text needs ", base::human_bytes(bytes), " of a device's ",
                base::human_bytes(device_bytes));
  }
  return text("one text's tokens are ", base::human_duration(engine_step_ns), " apart, more than ",
              base::human_duration(demand.tpot_ns));
}

std::vector<ServingRow> serving_rows(const PlanningInputs& inputs, const inference::Demand& demand) {
  const cost::CostModel cost = inputs.cost();
  const int gpus = inputs.options.gpus;
  std::vector<ServingRow> rows;
  for (const inference::ServingLayout& layout : inference::serving_layouts(cost, demand, gpus)) {
    rows.push_back({.layout = text(layout.pipelines, "x", to_text(layout.scheme)),
                    .sequences = layout.sequences * layout.pipelines,
                    .engine_step_ns = layout.engine_step_ns,
                    .tokens_per_s = layout.tokens_per_s(),
                    .bytes = layout.bytes});
  }
  const model::Model& model = cost.options().model;
  if (model.experts().count > 0) {
    const inference::ExpertServer server(model,
                                         {.rates = cost::rates_of(inputs.cluster),
                                          .device_bytes = cost.options().memory.device_bytes,
                                          .element_bytes = cost.options().memory.element_bytes,
                                          .topology = inputs.cluster.topology()},
                                         demand);
    for (const auto& layouts : {server.expert_parallel_layouts(gpus), server.disaggregated_layouts(gpus)}) {
      std::vector<inference::ExpertServing> servings;
      for (const inference::ExpertLayout& layout : layouts) servings.push_back(server.serve(layout));
      add_best(std::move(servings), rows);
    }
  }
  std::ranges::stable_sort(rows, std::greater(), &ServingRow::tokens_per_s);
  return rows;
}

base::Json to_json(const ServingRow& row, int gpus) {
  return {{"kind", name_of(row.layout_kind)},
          {"layout", row.layout},
          {"sequences", row.sequences},
          {"tpot_ms", static_cast<double>(row.engine_step_ns) / 1e6},
          {"tokens_per_s", row.tokens_per_s},
          {"tokens_per_s_gpu", row.tokens_per_s / gpus},
          {"bytes", row.bytes}};
}

}  // namespace sluice::session
