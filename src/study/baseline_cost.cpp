#include "study/baseline_cost.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cost/derived_rows.h"

namespace sluice::study {
namespace {

constexpr int64_t kGradientBufferBytes = 1'000'000'000;  // reduce_bucket_size: 5·10⁸ elements
constexpr int64_t kGatheredBytes = 2'000'000'000;        // stage3_max_live_parameters: 10⁹ elements

// Layers and ends of <1,1,1> as a row. With one stage only the sum of its cells counts.
cost::SchemeTimes measured_row(const cost::CostModel& cost) {
  const strategy::Scheme one_rank;
  const base::Interval blocks = cost.program().blocks();
  int64_t saved = cost.options().shape.hidden * cost.options().memory.element_bytes;
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    saved += cost.saved_bytes_per_token(one_rank, block);
  }
  return {.stage = cost.stage_times(one_rank, 0),
          .saved_bytes_per_token = saved,
          .util_len_tokens = cost.util_len_tokens(one_rank)};
}

// The one row of <1,1,1>.
cost::SchemeTimes one_rank_row(const cost::CostModel& cost) {
  if (cost.options().scheme_times.empty()) return measured_row(cost);
  cost::CostModel::Options options = cost.options();
  cost::add_derived_rows(options);
  return options.scheme_times.at({1, 1});
}

void recompute_layers(int64_t blocks, cost::CostModel::Options& options) {
  options.repeat_forward = true;
  int64_t& saved = options.scheme_times.begin()->second.saved_bytes_per_token;
  options.memory.transient_bytes_per_token += saved / blocks;
  saved = options.shape.hidden * options.memory.element_bytes * blocks;
}

int64_t parameters_of(const cost::CostModel& cost) {
  const cost::MemoryModel& memory = cost.options().memory;
  if (memory.layer_parameters == 0) return cost.options().shape.parameters();
  return memory.layer_parameters * cost.program().blocks().size() + 2 * memory.end_parameters;
}

int64_t sharded_away(int64_t bytes, int world_size) { return bytes - bytes / world_size; }

}  // namespace

cost::CostModel one_backward_cell(const cost::CostModel& cost) {
  cost::CostModel::Options options = cost.options();
  options.backward_cells = cost::BackwardCells::kOne;
  return cost::CostModel(std::move(options));
}

std::vector<UlyssesOptions> ulysses_choices(int world_size) {
  std::vector<UlyssesOptions> choices;
  for (const ZeroStage zero : {ZeroStage::kOne, ZeroStage::kTwo, ZeroStage::kThree}) {
    for (const bool recompute : {false, true}) choices.push_back({world_size, zero, recompute});
  }
  return choices;
}

cost::CostModel ulysses_cost(const cost::CostModel& cost, const UlyssesOptions& options) {
  const int64_t parameters = parameters_of(cost);
  cost::CostModel::Options own = cost.options();
  own.backward_cells = cost::BackwardCells::kOne;
  own.lane_exchange = cost::LaneExchange::kAllToAll;
  own.scheme_times = {{{1, 1}, one_rank_row(cost)}};
  if (options.recompute) recompute_layers(cost.program().blocks().size(), own);
  const auto give_back = [&](int64_t bytes, int64_t buffer_bytes) {
    own.memory.device_bytes += sharded_away(bytes, options.world_size) - std::min(bytes, buffer_bytes);
  };
  if (options.zero >= ZeroStage::kTwo) {
    give_back(parameters * own.memory.accumulator_bytes, kGradientBufferBytes);
  }
  if (options.zero >= ZeroStage::kThree) give_back(parameters * own.memory.element_bytes, kGatheredBytes);
  return cost::CostModel(std::move(own));
}

int most_ulysses_ranks(const cost::CostModel& cost, int most_ranks) {
  int ranks = 1;
  while (2 * ranks <= most_ranks && cost.options().shape.heads % (2 * ranks) == 0) ranks *= 2;
  return ranks;
}

ZeroTimes zero_times(const cost::CostModel& cost, const UlyssesOptions& options) {
  const cost::CostModel::Options& own = cost.options();
  const int64_t pass_bytes = sharded_away(parameters_of(cost) * own.memory.element_bytes, options.world_size);
  const cost::LinkTimes node{.latency_ns = own.inter.latency_ns,
                             .bytes_per_s = own.inter.bytes_per_s * own.gpus_per_node};
  const auto passes_ns = [&](int64_t passes) {
    if (passes == 0) return int64_t{0};
    const int64_t bytes = passes * pass_bytes;
    if (options.world_size <= own.gpus_per_node) return own.intra.of_bytes(bytes);
    return std::max(own.intra.of_bytes(bytes), node.of_bytes(bytes));
  };
  switch (options.zero) {
    case ZeroStage::kOne: return {};
    case ZeroStage::kTwo: return {.first_ns = 0, .later_ns = passes_ns(1)};
    case ZeroStage::kThree: return {.first_ns = passes_ns(1), .later_ns = passes_ns(3)};
  }
  return {};
}

}  // namespace sluice::study
