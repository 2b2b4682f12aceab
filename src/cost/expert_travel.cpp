#include "cost/expert_travel.h"

#include <algorithm>

#include "cost/fixed_point.h"
#include "cost/quadratic.h"

namespace sluice::cost {

int64_t visited_lanes_ppm(int64_t experts, int64_t per_token, int lanes) {
  constexpr int64_t kAll = 1'000'000;
  const int64_t elsewhere = experts - experts / lanes;
  int64_t missed = kAll;  // by all visits so far
  for (int64_t visit = 0; visit < per_token; ++visit)
    missed = missed * std::max<int64_t>(0, elsewhere - visit) / (experts - visit);
  return kAll - missed;
}

ExpertTravel expert_travel(const model::Shape& shape, int64_t element_bytes, const strategy::Scheme& scheme,
                           const TravelLinks& links) {
  if (scheme.experts == 1 || shape.experts.count == 0) return {};
  const int64_t in_node = std::min(links.topology.lanes_of_node(scheme.tp), scheme.experts);
  const int64_t away = scheme.experts - in_node;
  const int64_t sharers = std::min<int64_t>(in_node * scheme.tp, links.topology.nic_ranks());
  const int64_t ppm = visited_lanes_ppm(shape.experts.count, shape.experts.per_token, scheme.experts);
  const int64_t row_bytes = shape.hidden * element_bytes;
  const auto over = [&](const LinkTimes& link, int64_t lanes, int64_t rows) {
    const Wide bytes = Wide{lanes * rows * row_bytes} * ppm;  // millionths
    return narrow(divide((bytes * 1000) << Quadratic::kFractionBits, link.bytes_per_s));
  };
  const auto of_rows = [&](int64_t rows) {
    return std::max(over(links.intra, in_node - 1, rows), over(links.inter, away * sharers, rows));
  };
  return {of_rows(2), of_rows(3), (away > 0 ? links.inter : links.intra).latency_ns};
}

}  // namespace sluice::cost
