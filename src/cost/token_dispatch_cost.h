// What lanes that divide a layer's experts between them pay for it.
#pragma once

#include <cstdint>

#include "cost/cell_kind.h"
#include "cost/link_times.h"
#include "model/shape.h"
#include "strategy/scheme.h"
#include "strategy/topology.h"

namespace sluice::cost {

// How much longer the busiest lane's experts take than the mean one's, in hundredths. Routers that a balance
// loss or biases keep even stay within it; `expert_load_imbalance` in metrics says how a run's do.
inline constexpr int64_t kExpertImbalancePercent = 125;
// The waves that a usual micro-batch travels in: all but one of them hide behind products.
inline constexpr int64_t kUsualDispatchChunks = 4;

// Of lanes that divide `experts` of which a token visits `per_token`, all equally likely: the share that it
// visits at least one expert of, in millionths.
int64_t dispatched_lanes_ppm(int64_t experts, int64_t per_token, int lanes);

// Moving a token's rows of one layer to its experts' lanes and back, in nanoseconds with Quadratic's fixed
// point: forward a row there and a sum back, backward rows and their gradients there and gradients back. On
// the slower of the links inside a node and between nodes that its group crosses, where groups fill nodes
// from the first rank on.
struct TokenDispatchCost {
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t latency_ns = 0;  // of an exchange; once a micro-batch and layer there are kUsualDispatchChunks + 2
};
struct TokenDispatchLinks {
  LinkTimes intra, inter;  // the latter between the nodes that its group lies on
  strategy::Topology topology;
};
TokenDispatchCost token_dispatch_cost(const model::Shape& shape, int64_t element_bytes,
                                      const strategy::Scheme& scheme, const TokenDispatchLinks& links);

// Bytes that a lane has at work while rows of a layer travel, forward or in a backward, beside what it keeps:
// the lane has `tokens` of them, all lanes that divide the experts have `rows`, and routers may send all rows
// to one expert of each lane. `keeps_visits`: as of model::Cut.
int64_t travel_working_bytes(const model::Shape& shape, int64_t element_bytes, const strategy::Scheme& scheme,
                             CellKind kind, int64_t tokens, int64_t rows, bool keeps_visits);

}  // namespace sluice::cost
