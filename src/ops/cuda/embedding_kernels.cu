// The operations of ops/embedding.h, all bound by memory. Lookup reads and writes 2 bytes (bfloat16) per
// element of x. The gradient reads 2 bytes per element of dx, and reads and writes 4 per element of a row
// that occurs. Its tokens come sorted by id, so that one thread sums an element over any number of tokens, in
// their order.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

template <typename S, int kWide>
__global__ void look_up(const EmbeddingLookup lookup, int64_t vectors) {
  if (global_thread() >= vectors) return;
  const int64_t in_row = lookup.width / kWide, token = global_thread() / in_row;
  const int64_t column = global_thread() % in_row * kWide, row = lookup.ids[token] - lookup.begin;
  Floats<kWide> values{};
  if (row >= 0 && row < lookup.rows) {
    values = load<kWide>(static_cast<const S*>(lookup.table) + row * lookup.width + column);
  }
  store<kWide>(static_cast<S*>(lookup.x) + token * lookup.width + column, values);
}

// Rows of dx that are loaded concurrently: a frequent id is bound by their latency.
constexpr int kRowsAhead = 4;

// Adds those of the next kRowsAhead sorted tokens that have the id. False: the id's tokens end among them.
template <typename S, int kWide>
__device__ bool add_rows(const EmbeddingGradient& gradient, int64_t id, int64_t place, int64_t column,
                         Floats<kWide>& sum) {
  Floats<kWide> of_row[kRowsAhead];
  bool same[kRowsAhead];
  SLUICE_UNROLL
  for (int ahead = 0; ahead < kRowsAhead; ++ahead) {
    same[ahead] = place + ahead < gradient.tokens && gradient.sorted_ids[place + ahead] == id;
    of_row[ahead] = {};
    if (!same[ahead]) continue;
    const int64_t token = gradient.token_of[place + ahead];
    of_row[ahead] = load<kWide>(static_cast<const S*>(gradient.dx) + token * gradient.width + column);
  }
  SLUICE_UNROLL
  for (int ahead = 0; ahead < kRowsAhead; ++ahead) {
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) sum.at[i] += of_row[ahead].at[i];
  }
  return same[kRowsAhead - 1];
}

// Some columns of the row of one sorted token; only the first token with its id works.
template <typename S, int kWide>
__global__ void add_gradient(const EmbeddingGradient gradient, int64_t column_blocks) {
  const int64_t first = blockIdx.x / column_blocks, id = gradient.sorted_ids[first];
  const int64_t column = (blockIdx.x % column_blocks * kThreads + threadIdx.x) * kWide;
  const int64_t row = id - gradient.begin;
  if (row < 0 || row >= gradient.rows || column >= gradient.width) return;
  if (first > 0 && gradient.sorted_ids[first - 1] == id) return;
  float* of_row = gradient.dtable + row * gradient.width + column;
  Floats<kWide> sum = load<kWide>(of_row);
  for (int64_t place = first; add_rows<S, kWide>(gradient, id, place, column, sum);) place += kRowsAhead;
  store<kWide>(of_row, sum);
}

}  // namespace

Status launch_embedding_lookup(Element element, const EmbeddingLookup& lookup, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    const int64_t elements = lookup.tokens * lookup.width;
    if (can_be_wide<S>(lookup.width, {lookup.table, lookup.x})) {
      const int64_t vectors = elements / kWidest<S>;
      return launch(look_up<S, kWidest<S>>, blocks_for(vectors), stream, EmbeddingLookup(lookup), vectors);
    }
    return launch(look_up<S, 1>, blocks_for(elements), stream, EmbeddingLookup(lookup), int64_t{elements});
  });
}

Status launch_embedding_gradient(Element element, const EmbeddingGradient& gradient, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    const bool wide = can_be_wide<S>(gradient.width, {gradient.dx, gradient.dtable});
    const int64_t column_blocks = blocks_for(gradient.width / (wide ? kWidest<S> : 1));
    return launch(wide ? add_gradient<S, kWidest<S>> : add_gradient<S, 1>, gradient.tokens * column_blocks,
                  stream, EmbeddingGradient(gradient), int64_t{column_blocks});
  });
}

}  // namespace sluice::ops::kernels
