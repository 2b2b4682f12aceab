#include "cost/layer_bytes.h"

#include <algorithm>

namespace sluice::cost {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Elements of a row: all, of a shard of rows, and those that other ranks' shards add to it.
struct Widths {
  int64_t hidden = 0;
  int64_t shard = 0;
  int64_t gathered = 0;
  int64_t q = 0;
  int64_t qkv = 0;
  int64_t ffn = 0;
  int64_t wide = 1;  // of an accumulator, as elements
};

void add_work(const Widths& w, int64_t element_bytes, LayerBytes& bytes) {
  // SwiGLU's output beside the product that is summed over the ranks.
  bytes.forward = element_bytes * (w.ffn + w.gathered);
  // SwiGLU's output with its gradient; with the product for the input's gradient; with that, the normed input
  // and the gradient behind the norm. All beside the gathered gradient; gate and up become their gradients.
  const int64_t mlp = w.gathered + std::max({2 * w.ffn, w.ffn + w.gathered + w.shard, w.ffn + 3 * w.shard});
  // Of attention's half, whose gradients take the places of queries, keys and values: the MLP is done then.
  const int64_t attention = w.gathered + std::max({w.q, w.gathered + w.shard, 3 * w.shard}) - 2 * w.ffn;
  bytes.backward = element_bytes * std::max(mlp, attention);
  // In a ring they don't; two blocks of keys and values pass by, and of gradients what this lane adds, what
  // it has sent, what has come, each block as wide as keys and values together.
  const int64_t block = w.qkv - w.q;
  const int64_t narrow = w.wide > 1 ? block + w.wide * w.q : 0;  // a copy to send; wide gradients of queries
  const int64_t ring = w.gathered + w.q + w.qkv + (4 + w.wide) * block + narrow - 2 * w.ffn;
  bytes.ring_backward = std::max(bytes.backward, element_bytes * ring);
  // Its input and the gradient of that; the norm's input and gradient, or a chunk's rows of both.
  bytes.head = element_bytes * 4 * w.hidden;
}

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
  LayerBytes bytes{.saved = saved,
                   .border = border,
                   .deferred = std::max<int64_t>(0, until_weight - saved),
                   .recomputed = recomputed};
  add_work({.hidden = shape.hidden,
            .shard = divide_up(shape.hidden, tp),
            .gathered = tp > 1 ? shape.hidden : 0,
            .q = q,
            .qkv = qkv,
            .ffn = ffn,
            .wide = statistic_bytes / element_bytes},
           element_bytes, bytes);
  return bytes;
}

int64_t LayerBytes::transient() const { return std::max({forward, backward, head}); }

LayerProducts layer_products(const model::Shape& shape) {
  const int64_t attention =
      shape.hidden * (shape.q_width() + 2 * shape.kv_width()) + shape.q_width() * shape.hidden;
  const int64_t gate_up = 2 * shape.hidden * shape.ffn_hidden;
  return {.all = attention + gate_up + shape.ffn_hidden * shape.hidden, .recomputed = attention + gate_up};
}

}  // namespace sluice::cost
