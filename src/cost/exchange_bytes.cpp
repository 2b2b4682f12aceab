#include "cost/exchange_bytes.h"

#include <algorithm>

#include "model/head_parts.h"
#include "model/model_figures.h"

namespace sluice::cost {

namespace {

// Elements a token. Forward, while heads travel: queries, keys and values as they are, as they leave and as
// they come; what of the layer is saved later is not there yet. Backward: outputs' gradients as they are,
// leave and come, twice; then all gradients as they leave and come, and sums of copied heads. Both beside
// what the MLP's half, the widest otherwise, has at work.
ExchangeBytes exchange_bytes(const model::AttendingHeads& own, const CostModel& cost,
                             const strategy::Scheme& scheme, int head_lanes) {
  const model::Model& model = cost.options().model;
  const int64_t element_bytes = cost.options().memory.element_bytes;
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t wide = statistic_bytes / element_bytes;
  const model::HeadCounts heads = own.counts;
  const model::HeadCounts most = model::most_heads(heads, head_lanes);
  const int64_t q = heads.queries * own.width, block = 2 * heads.keys * own.width;
  const int64_t run_q = head_lanes * most.queries * own.width;
  const int64_t run_block = head_lanes * 2 * most.keys * own.width;
  const int64_t ffn = model::least_ffn(model, scheme.ep) / scheme.tp;
  const int64_t statistics = (head_lanes * most.queries - heads.queries) * statistic_bytes;
  const int64_t attended = run_q + run_block + run_q - (q + block);  // outputs in both layouts
  const int64_t travels = 2 * (q + block) + run_q + run_block - (3 * ffn + run_q + q);
  const int64_t there = 2 * q + 2 * run_q;
  const int64_t back = run_block + (2 + (wide > 1 ? wide : 0)) * (q + block);
  const int64_t returns = std::max<int64_t>(0, std::max(there, back) - 4 * ffn);
  // The ring's output gradients and queries' gradients, four blocks and a wide one, a copy to send, and wide
  // gradients of queries. A window needs two more, and one more wide.
  const int64_t windowed = model.window() > 0 ? 2 + wide : 0;
  const int64_t ring = 2 * (run_q - q) + (5 + wide + windowed) * (run_block - block) +
                       (wide > 1 ? run_block - block + wide * (run_q - q) : 0);
  return {.saved = attended * element_bytes + statistics,
          .recompute_input = statistics,
          .recomputed = attended * element_bytes,
          .forward = std::max<int64_t>(0, travels) * element_bytes,
          .backward = returns * element_bytes,
          .nested = std::max(returns, ring) * element_bytes};
}

// Elements of a token. The widest moving tensor is there three times: two sets at hand and one that leaves.
// Results are wide, leave and come. In a backward the lane's own keys have wide gradients, too.
ExchangeBytes moving_query_bytes(const model::AttendingHeads& own, int64_t element_bytes) {
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t wide = statistic_bytes / element_bytes;
  const model::HeadCounts heads = own.counts;
  const int64_t keys = 2 * heads.keys * own.width, queries = heads.queries * own.width;
  const int64_t made = (2 + wide) * std::max(keys, queries), statistics = 5 * heads.queries * statistic_bytes;
  const int64_t forward = 3 * std::max(keys, queries) + made;
  const int64_t backward = 3 * std::max(keys, 3 * queries) + made + wide * keys;
  const int64_t of_ring = (4 + wide) * keys;
  ExchangeBytes bytes;
  bytes.forward = forward * element_bytes + statistics;
  bytes.backward = bytes.nested = std::max<int64_t>(0, backward - of_ring) * element_bytes + statistics;
  return bytes;
}

model::AttendingHeads heads_at(const CostModel& cost, int64_t position, int tp) {
  return model::attending_heads(cost.options().model, cost.program().kind_at(position), tp);
}

bool like_before(const CostModel& cost, int64_t position) {
  return cost.program().at(position).kind == cost.program().at(position - 1).kind;
}

// Number by number, of all blocks, as `of` says of each.
template <typename Of>
ExchangeBytes most_of_blocks(const CostModel& cost, Of of) {
  const model::Program& program = cost.program();
  ExchangeBytes most;
  for (int64_t position = program.blocks().begin; position < program.blocks().end; ++position) {
    if (position > program.blocks().begin && like_before(cost, position)) continue;
    const ExchangeBytes next = of(position);
    most = {.saved = std::max(most.saved, next.saved),
            .recompute_input = std::max(most.recompute_input, next.recompute_input),
            .recomputed = std::max(most.recomputed, next.recomputed),
            .forward = std::max(most.forward, next.forward),
            .backward = std::max(most.backward, next.backward),
            .nested = std::max(most.nested, next.nested)};
  }
  return most;
}

}  // namespace

ExchangeBytes exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, int64_t position,
                             int head_lanes) {
  if (head_lanes == 1) return {};
  return exchange_bytes(heads_at(cost, position, scheme.tp), cost, scheme, head_lanes);
}

ExchangeBytes most_exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, int head_lanes) {
  return most_of_blocks(cost,
                        [&](int64_t position) { return exchange_bytes(cost, scheme, position, head_lanes); });
}

ExchangeBytes most_moving_query_bytes(const CostModel& cost, const strategy::Scheme& scheme) {
  return most_of_blocks(cost, [&](int64_t position) {
    return moving_query_bytes(heads_at(cost, position, scheme.tp), cost.options().memory.element_bytes);
  });
}

int64_t kept_exchange_bytes(const CostModel& cost, const strategy::Scheme& scheme, base::Interval blocks,
                            int head_lanes) {
  if (cost.options().execution->repeated_forwards() > 0) return 0;
  int64_t kept = 0;
  ExchangeBytes more;
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    if (position == blocks.begin || !like_before(cost, position))
      more = exchange_bytes(cost, scheme, position, head_lanes);
    kept += cost.recomputes(position) ? more.recompute_input : more.saved;
  }
  return kept;
}

}  // namespace sluice::cost
