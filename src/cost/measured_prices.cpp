#include "cost/measured_prices.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/range.h"
#include "base/text.h"
#include "model/outline.h"

namespace sluice::cost {
namespace {

// Made-up memory figures: as many bytes as make micro-batches of max_tokens the longest.
constexpr int64_t kTokenBytes = int64_t{1} << 20;
constexpr base::Range<int64_t> kMicroBatch{1, int64_t{1} << 30};
constexpr double kMostNs = 0x1p40;

void require_time(const char* name, double value, double most) {
  if (value >= 0 && value <= most) return;  // no NaN is
  throw base::InputError(base::text("prices: ", name, " is ", value, " ns: give 0 to ", most));
}

void validate(const MeasuredPrices& prices) {
  require_time("a", prices.a, 0x1p20);
  require_time("b", prices.b, 0x1p30);
  require_time("c", prices.c, kMostNs);
  if (prices.a + prices.b <= 0)
    throw base::InputError("prices: a and b are 0, so tokens take no time: measure longer micro-batches");
  base::require_in_range("prices: max_tokens", prices.max_tokens, kMicroBatch);
  if (prices.scheme.cp != 1 || prices.scheme.fsdp != 1) {
    throw base::InputError(base::text("prices: the scheme is ", to_text(prices.scheme),
                                      ": give that of one lane, as <4,2,1>; several are computed from it"));
  }
}

// The smallest model that such a scheme cuts.
model::Model least_model(const strategy::Scheme& scheme) {
  return model::Outline{.layers = scheme.pp,
                        .hidden = 2 * scheme.tp,
                        .heads = scheme.tp,
                        .kv_heads = scheme.tp,
                        .head_dim = 2,
                        .ffn_hidden = scheme.tp,
                        .vocab = scheme.tp};
}

}  // namespace

Calibration calibration_of(const MeasuredPrices& prices) {
  validate(prices);
  const strategy::Scheme& scheme = prices.scheme;
  // Lower bounds and lanes divide squares, so a is above 0: half a nanosecond for the longest micro-batch.
  const double longest = static_cast<double>(prices.max_tokens);
  const double a = std::max(prices.a, 0.5 / (longest * longest));
  CostModel::Options options;
  options.model = least_model(scheme);
  options.intra = options.inter = {.latency_ns = 0, .bytes_per_s = int64_t{1} << 40};
  options.memory = {.device_bytes = kTokenBytes * prices.max_tokens * scheme.pp + kTokenBytes / 2,
                    .element_bytes = 2,
                    .accumulator_bytes = 2,
                    .owner_bytes_per_parameter = 12,
                    .layer_parameters = 1,
                    .end_parameters = 1};
  options.scheme_times[{scheme.tp, scheme.pp}] = {.stage = Quadratic::from_ns(a, prices.b, prices.c),
                                                  .saved_bytes_per_token = kTokenBytes,
                                                  .util_len_tokens = 1};
  return {"a training program's ranks", "measured in it", std::move(options)};
}

}  // namespace sluice::cost
