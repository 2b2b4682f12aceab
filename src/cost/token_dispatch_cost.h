// The cost of expert parallelism: lanes divide a layer's experts between them.
#pragma once

#include <cstdint>

#include "cost/cell_kind.h"
#include "cost/link_times.h"
#include "model/model.h"
#include "strategy/scheme.h"
#include "strategy/topology.h"

namespace sluice::cost {

// The time of the busiest lane's experts in hundredths of the mean lane's. Routers that a balance loss or
// biases keep even stay within it; `expert_load_imbalance` in metrics shows a run's own figure.
inline constexpr int64_t kExpertImbalancePercent = 125;
// Dispatch chunks of a usual micro-batch; all but one of them hide behind products.
inline constexpr int64_t kUsualDispatchChunks = 4;

// The share of lanes, in millionths, on which a token visits at least one expert. The lanes divide `experts`,
// of which a token visits `per_token`, all equally likely.
int64_t dispatched_lanes_ppm(int64_t experts, int64_t per_token, int lanes);

// Moving a token's rows of one layer to its experts' lanes and back, in nanoseconds with Quadratic's fixed
// point. Forward, a row goes there and a sum back; backward, rows and their gradients go there and gradients
// back. The slower of the links inside a node and between nodes that its group crosses counts. Groups fill
// nodes from the first rank on.
struct TokenDispatchCost {
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t latency_ns = 0;  // an exchange's; a micro-batch and layer has kUsualDispatchChunks + 2 of them
};
struct TokenDispatchLinks {
  LinkTimes intra, inter;  // `inter`: between the nodes of an expert group
  strategy::Topology topology;
};
TokenDispatchCost token_dispatch_cost(const model::Model& model, int64_t element_bytes,
                                      const strategy::Scheme& scheme, const TokenDispatchLinks& links);

// A lane's working memory while rows of a layer travel, forward or in a backward, beside what it keeps. The
// lane has `tokens` rows, all lanes of its expert group have `rows`, and routers may send all rows to one
// expert of each lane. `keeps_visits`: as in model::Cut.
int64_t travel_working_bytes(const model::Model& model, int64_t element_bytes, const strategy::Scheme& scheme,
                             CellKind kind, int64_t tokens, int64_t rows, bool keeps_visits);

}  // namespace sluice::cost
