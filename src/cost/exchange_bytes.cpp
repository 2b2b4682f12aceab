#include "cost/exchange_bytes.h"

#include <algorithm>

#include "model/head_parts.h"
#include "model/shape_figures.h"

namespace sluice::cost {

// Elements a token. Forward, while heads travel: queries, keys and values as they are, as they leave and as
// they come; what of the layer is saved later is not there yet. Backward: outputs' gradients as they are,
// leave and come, twice; then all gradients as they leave and come, and sums of copied heads. Both beside
// what the MLP's half, the widest otherwise, has at work.
ExchangeBytes exchange_bytes(const model::Shape& shape, const strategy::Scheme& scheme, int64_t element_bytes,
                             int head_lanes) {
  const int tp = scheme.tp;
  if (head_lanes == 1) return {};
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t wide = statistic_bytes / element_bytes;
  const model::HeadCounts heads = model::head_counts(shape, tp);
  const model::HeadCounts most = model::most_heads(heads, head_lanes);
  const int64_t q = heads.queries * shape.head_dim, block = 2 * heads.keys * shape.head_dim;
  const int64_t run_q = head_lanes * most.queries * shape.head_dim;
  const int64_t run_block = head_lanes * 2 * most.keys * shape.head_dim;
  const int64_t ffn = model::least_ffn(shape, scheme.ep) / tp;
  const int64_t statistics = (head_lanes * most.queries - heads.queries) * statistic_bytes;
  const int64_t attended = run_q + run_block + run_q - (q + block);  // outputs lie there both ways
  const int64_t travels = 2 * (q + block) + run_q + run_block - (3 * ffn + run_q + q);
  const int64_t there = 2 * q + 2 * run_q;
  const int64_t back = run_block + (2 + (wide > 1 ? wide : 0)) * (q + block);
  const int64_t returns = std::max<int64_t>(0, std::max(there, back) - 4 * ffn);
  // A ring's dout and gradients, four blocks and a wide one, a copy to send and wide gradients of queries.
  // Through a window two more, and one more wide.
  const int64_t windowed = shape.window > 0 ? 2 + wide : 0;
  const int64_t ring = 2 * (run_q - q) + (5 + wide + windowed) * (run_block - block) +
                       (wide > 1 ? run_block - block + wide * (run_q - q) : 0);
  return {.saved = attended * element_bytes + statistics,
          .recompute_input = statistics,
          .recomputed = attended * element_bytes,
          .forward = std::max<int64_t>(0, travels) * element_bytes,
          .backward = returns * element_bytes,
          .nested = std::max(returns, ring) * element_bytes};
}

// Elements a token. Of the widest that travels three sets are there, two at hand and one that leaves; what is
// made of it is wide, leaves and comes; backwards the lane's own keys have wide gradients.
ExchangeBytes moving_query_bytes(const model::Shape& shape, const strategy::Scheme& scheme,
                                 int64_t element_bytes) {
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t wide = statistic_bytes / element_bytes;
  const model::HeadCounts heads = model::head_counts(shape, scheme.tp);
  const int64_t keys = 2 * heads.keys * shape.head_dim, queries = heads.queries * shape.head_dim;
  const int64_t made = (2 + wide) * std::max(keys, queries), statistics = 5 * heads.queries * statistic_bytes;
  const int64_t forward = 3 * std::max(keys, queries) + made;
  const int64_t backward = 3 * std::max(keys, 3 * queries) + made + wide * keys;
  const int64_t of_ring = (4 + wide) * keys;
  ExchangeBytes bytes;
  bytes.forward = forward * element_bytes + statistics;
  bytes.backward = bytes.nested = std::max<int64_t>(0, backward - of_ring) * element_bytes + statistics;
  return bytes;
}

int64_t kept_of(const ExchangeBytes& more, const CostModel& cost, base::Interval blocks) {
  if (cost.options().repeat_forward) return 0;
  const int64_t again = cost.recomputed_blocks(blocks);
  return again * more.recompute_input + (blocks.size() - again) * more.saved;
}

}  // namespace sluice::cost
