#include "cost/layer_bytes.h"

#include <algorithm>

namespace sluice::cost {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

LayerBytes layer_bytes_per_token(const model::Shape& shape, int tp, int64_t element_bytes) {
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t heads = divide_up(shape.heads, tp);
  const int64_t q = heads * shape.head_dim;
  // Key heads are not cut below one: with more ranks than heads, several ranks hold the same one.
  const int64_t qkv = q + 2 * std::max<int64_t>(1, shape.kv_heads / tp) * shape.head_dim;
  const int64_t ffn = divide_up(shape.ffn_hidden, tp);
  // Inputs of both halves and their norms' scales; rotated qkv, attention's output and log-sum-exp, gate and
  // up.
  const int64_t saved = divide_up(2 * (shape.hidden * element_bytes + statistic_bytes), tp) +
                        (qkv + q + 2 * ffn) * element_bytes + heads * statistic_bytes;
  // A layer's input, attention's output and log-sum-exp.
  const int64_t border =
      divide_up(shape.hidden * element_bytes, tp) + q * element_bytes + heads * statistic_bytes;
  // Each half is made again on its own: the MLP's input, its norm's scale, gate and up; or a scale and qkv.
  const int64_t scale = divide_up(statistic_bytes, tp);
  const int64_t recomputed =
      std::max(divide_up(shape.hidden * element_bytes, tp) + scale + 2 * ffn * element_bytes,
               scale + qkv * element_bytes);
  // A weight gradient holds both normed inputs and output gradients; dqkv, attention's output, dgate-up and
  // SwiGLU's output.
  const int64_t until_weight =
      divide_up(4 * shape.hidden * element_bytes, tp) + (qkv + q + 3 * ffn) * element_bytes;
  // Gathered input, output and gradient, and a half's inner values with their gradients.
  const int64_t transient = 4 * shape.hidden + std::max(4 * ffn, 2 * qkv + q);
  return {.saved = saved,
          .border = border,
          .deferred = std::max<int64_t>(0, until_weight - saved),
          .transient = element_bytes * transient,
          .recomputed = recomputed};
}

LayerProducts layer_products(const model::Shape& shape) {
  const int64_t attention =
      shape.hidden * (shape.q_width() + 2 * shape.kv_width()) + shape.q_width() * shape.hidden;
  const int64_t gate_up = 2 * shape.hidden * shape.ffn_hidden;
  return {.all = attention + gate_up + shape.ffn_hidden * shape.hidden, .recomputed = attention + gate_up};
}

}  // namespace sluice::cost
