#include "cost/token_dispatch_cost.h"

#include <algorithm>
#include <array>

#include "cost/fixed_point.h"
#include "cost/quadratic.h"
#include "model/dispatch_chunk_rows.h"

namespace sluice::cost {

int64_t dispatched_lanes_ppm(int64_t experts, int64_t per_token, int lanes) {
  constexpr int64_t kAll = 1'000'000;
  const int64_t elsewhere = experts - experts / lanes;
  int64_t missed = kAll;  // by all visits so far
  for (int64_t visit = 0; visit < per_token; ++visit)
    missed = missed * std::max<int64_t>(0, elsewhere - visit) / (experts - visit);
  return kAll - missed;
}

TokenDispatchCost token_dispatch_cost(const model::Model& model, int64_t element_bytes,
                                      const strategy::Scheme& scheme, const TokenDispatchLinks& links) {
  if (scheme.ep == 1 || model.experts().count == 0) return {};
  const int64_t in_node = std::min(links.topology.lanes_of_node(scheme.tp), scheme.ep);
  const int64_t away = scheme.ep - in_node;
  const int64_t sharers = std::min<int64_t>(in_node * scheme.tp, links.topology.nic_ranks());
  const int64_t ppm = dispatched_lanes_ppm(model.experts().count, model.experts().per_token, scheme.ep);
  const int64_t row_bytes = model.hidden() * element_bytes;
  const auto over = [&](const LinkTimes& link, int64_t lanes, int64_t rows) {
    const Wide bytes = Wide{lanes * rows * row_bytes} * ppm;  // millionths
    return narrow(divide((bytes * 1000) << Quadratic::kFractionBits, link.bytes_per_s));
  };
  const auto of_rows = [&](int64_t rows) {
    return std::max(over(links.intra, in_node - 1, rows), over(links.inter, away * sharers, rows));
  };
  return {of_rows(2), of_rows(3), (away > 0 ? links.inter : links.intra).latency_ns};
}

namespace {

// Bytes of `now` rows that visit one expert of a lane, beside its gate and up.
int64_t expert_working_bytes(int64_t hidden, int64_t width, int64_t element_bytes, bool forward,
                             int64_t now) {
  if (forward) return element_bytes * (width + hidden) * now;  // SwiGLU's output and its product
  // A backward has rows and gradients, and with them SwiGLU's inner values, the rows' gradient, or the copies
  // of products with a gradient in FP32 (ops/linear.cpp).
  constexpr int64_t kFloatBytes = 4, kWideAtOnce = int64_t{1} << 18;
  const int64_t inner = element_bytes * std::max(3 * width, width + hidden) * now;
  const int64_t copied = kFloatBytes * (hidden * now + std::min(kWideAtOnce, 2 * width * now));
  const int64_t products = element_bytes < kFloatBytes ? element_bytes * width * now + copied : 0;
  return element_bytes * 2 * hidden * now + std::max(inner, products);
}

// While a wave is computed the next one comes and the one before goes home (layers/token_dispatcher.h): rows
// of each, and how many have come by then, the wave's own included.
struct ChunksUnderWay {
  int64_t now = 0;
  int64_t next = 0;
  int64_t before = 0;
  int64_t come = 0;
};

// A wave between others, where there are three or more, the first and the last, each as full as it may be.
std::array<ChunksUnderWay, 3> fullest_chunks(int64_t rows, int64_t most) {
  const int64_t now = std::min(rows, most), next = std::min(rows - now, most);
  const ChunksUnderWay first{.now = now, .next = next, .come = now};
  const ChunksUnderWay last{.now = now, .before = next, .come = rows};
  const int64_t before = std::min(rows - now - next, most);
  if (before == 0) return {first, last, last};
  return {first, last, {.now = now, .next = next, .before = before, .come = rows}};
}

}  // namespace

// Counts three chunks. At work: rows as received, in a backward also their sums' gradients, and results.
// Next: the same as received and as sent. Before: results and what comes home. A lane sends its own rows to
// each other lane, within the bound of a chunk.
int64_t travel_working_bytes(const model::Model& model, int64_t element_bytes, const strategy::Scheme& scheme,
                             CellKind kind, int64_t tokens, int64_t rows, bool keeps_visits) {
  const model::Experts& experts = model.experts();
  const int64_t most = model::dispatch_chunk_rows(scheme.ep).most, hidden = model.hidden();
  const int64_t width = divide_up(experts.hidden, scheme.tp);
  const int64_t others = scheme.ep - 1;
  const auto sent = [&](int64_t chunk) {
    return std::min(std::min(tokens, chunk) * others, divide_up(most * others, scheme.ep));
  };
  const bool forward = kind == CellKind::kForward;
  const int64_t coming = forward ? 1 : 2;  // tensors of rows
  // Visits that a row makes of this lane. Gate and up of an expert are made in a wave that the lane's room
  // for visits does not reach.
  const int64_t visits = std::min(divide_up(experts.count, scheme.ep), experts.per_token);
  int64_t chunks = 0;  // elements
  for (const auto& [now, next, before, come] : fullest_chunks(rows, most)) {
    const bool kept = keeps_visits && visits * come <= experts.per_token * tokens;
    const int64_t gate_up = kept ? 0 : 2 * width * now;
    chunks = std::max(
        chunks,
        hidden * ((coming + 1) * now + coming * (next + sent(next)) + before + sent(before)) + gate_up);
  }
  const int64_t now = std::min(rows, most);
  // The lane's rows, normed, and their sums; in a backward also gradients if TP gathers them.
  const int64_t own = (scheme.tp > 1 && !forward ? 3 : 2) * hidden;
  constexpr int64_t kVisitBytes = 64;  // numbers, places and weights, in several orders
  // Routes of all rows: the experts that they visit, their weights, and their numbers by lane, twice.
  const int64_t route_bytes = experts.per_token * (4 + std::max<int64_t>(4, element_bytes)) + 16;
  const int64_t statistic = std::max<int64_t>(4, element_bytes);
  return element_bytes * (chunks + own * tokens) +
         expert_working_bytes(hidden, width, element_bytes, forward, now) +
         experts.per_token * kVisitBytes * now + route_bytes * rows +
         (forward ? 2 : 4) * experts.count * statistic * tokens;
}

}  // namespace sluice::cost
