// T: rows of the pack, N: query heads, K: key/value heads, D: dimensions of a head; of one task, a key head
// of a sequence: L: its tokens, G = N/K: its query heads, M = L·G: its queries, token by token and a token's
// heads side by side, R: queries of a tile, C: keys of a tile. The formulas stand in attention.cpp.
//
// Forward keeps a running maximum m and sum of exp(S - m) of every query while it goes over tiles of keys,
// and scales what it has by exp(m_old - m_new) (Milakov and Gimelshein 2018, "Online normalizer calculation
// for softmax"). Backward makes the tiles transposed, P_CR: then all large matrices but one enter products
// plain.
#include "ops/attention_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/blas.h"
#include "ops/simd.h"

namespace sluice::ops::cpu {
namespace {

// Tiles fit into a core's second-level cache and are large enough for full speed.
constexpr int64_t kTileQueries = 64;
constexpr int64_t kTileKeys = 256;

struct Task {
  int64_t begin = 0;   // the sequence's first row
  int64_t length = 0;  // L
  int64_t key_head = 0;
};

struct Sizes {
  int64_t rows, heads, key_heads, group, dimensions;  // T, N, K, G, D
  int64_t longest;                                    // L of the longest sequence

  Sizes(const AttentionInput& input, const PackedSequences& sequences)
      : rows(input.q_TND.size(0)),
        heads(input.q_TND.size(1)),
        key_heads(input.k_TKD.size(1)),
        group(heads / key_heads),
        dimensions(input.q_TND.size(2)),
        longest(sequences.longest) {}
  int64_t tile_tokens() const { return std::max<int64_t>(1, kTileQueries / group); }
  int64_t tile_queries() const { return tile_tokens() * group; }
};

// Queries of the tokens [token, token + tokens) and the keys [key, key + keys), of which the tokens see some.
struct Tile {
  int64_t token, tokens, key, keys;
};

template <typename Visit>
void for_each_key_tile(int64_t token, int64_t tokens, Visit visit) {
  for (int64_t key = 0; key < token + tokens; key += kTileKeys) {
    visit(Tile{token, tokens, key, std::min(kTileKeys, token + tokens - key)});
  }
}

// Calls make_worker() once a thread and what it returns for every task.
template <typename MakeWorker>
void for_each_task(const PackedSequences& sequences, int64_t key_heads, MakeWorker make_worker) {
  const int64_t tasks = static_cast<int64_t>(sequences.begins.size() - 1) * key_heads;
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), tasks), 1, [&](int64_t, int64_t) {
    auto worker = make_worker();
    for (int64_t i = next++; i < tasks; i = next++) {
      const size_t sequence = static_cast<size_t>(i / key_heads);
      const int64_t begin = sequences.begins[sequence];
      worker.run(Task{begin, sequences.begins[sequence + 1] - begin, i % key_heads});
    }
  });
}

// The task's `group` heads of a [T, heads, D] tensor, in memory.
template <typename S>
struct Heads {
  S* first;
  int64_t group, dimensions, token_stride, head_stride;

  Heads(const at::Tensor& x, S* data, const Task& task, int64_t heads_of_task)
      : first(data + task.begin * x.stride(0) + task.key_head * heads_of_task * x.stride(1)),
        group(heads_of_task),
        dimensions(x.size(2)),
        token_stride(x.stride(0)),
        head_stride(x.stride(1)) {}
  S* at(int64_t token, int64_t head) const { return first + token * token_stride + head * head_stride; }
};

template <typename S>
Heads<const S> heads_of(const at::Tensor& x, const Task& task, int64_t group) {
  return {x, x.const_data_ptr<S>(), task, group};
}

template <typename S>
Heads<S> mutable_heads_of(const at::Tensor& x, const Task& task, int64_t group) {
  return {x, x.mutable_data_ptr<S>(), task, group};
}

// `length` tokens of the heads as dense rows [length · group, D], times `factor`.
template <typename S, typename A>
SLUICE_SIMD void gather(const Heads<const S>& heads, int64_t length, A factor, A* rows) {
  for (int64_t token = 0; token < length; ++token) {
    for (int64_t head = 0; head < heads.group; ++head, rows += heads.dimensions) {
      const S* x = heads.at(token, head);
#pragma omp simd
      for (int64_t i = 0; i < heads.dimensions; ++i) rows[i] = static_cast<A>(x[i]) * factor;
    }
  }
}

template <typename S, typename A>
SLUICE_SIMD void scatter(const A* rows, int64_t length, A factor, const Heads<S>& heads) {
  for (int64_t token = 0; token < length; ++token) {
    for (int64_t head = 0; head < heads.group; ++head, rows += heads.dimensions) {
      S* x = heads.at(token, head);
#pragma omp simd
      for (int64_t i = 0; i < heads.dimensions; ++i) x[i] = narrow<S>(rows[i] * factor);
    }
  }
}

// A query's scores of the keys it sees, turned into exp(score - maximum); the maximum grows, the sum is
// scaled to it, and the factor of what was summed before is returned.
template <typename A>
SLUICE_SIMD A exponentiate(A* scores, int64_t keys, A* maximum, A* sum) {
  A highest = *maximum;
#pragma omp simd reduction(max : highest)
  for (int64_t i = 0; i < keys; ++i) highest = scores[i] > highest ? scores[i] : highest;
  A total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < keys; ++i) {
    const A e = vector_exp(scores[i] - highest);
    scores[i] = e;
    total += e;
  }
  const A factor = std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + total;
  return factor;
}

template <typename A>
SLUICE_SIMD void scale(A* values, int64_t count, A factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

template <typename S, typename A>
class ForwardWorker {
 public:
  ForwardWorker(const AttentionInput& input, const AttentionResult& result, const Sizes& sizes)
      : input_(input),
        result_(result),
        sizes_(sizes),
        q_MD_(sizes.longest * sizes.group * sizes.dimensions),
        k_LD_(sizes.longest * sizes.dimensions),
        v_LD_(sizes.longest * sizes.dimensions),
        out_MD_(q_MD_.size()),
        maximum_R_(sizes.tile_queries()),
        sum_R_(sizes.tile_queries()),
        p_RC_(sizes.tile_queries() * kTileKeys) {}

  void run(const Task& task) {
    gather(heads_of<S>(input_.q_TND, task, sizes_.group), task.length, static_cast<A>(input_.scale),
           q_MD_.data());
    gather(heads_of<S>(input_.k_TKD, task, 1), task.length, A(1), k_LD_.data());
    gather(heads_of<S>(input_.v_TKD, task, 1), task.length, A(1), v_LD_.data());
    std::fill_n(out_MD_.data(), task.length * sizes_.group * sizes_.dimensions, A(0));
    for (int64_t token = 0; token < task.length; token += sizes_.tile_tokens()) {
      const int64_t tokens = std::min(sizes_.tile_tokens(), task.length - token);
      std::ranges::fill(maximum_R_, -std::numeric_limits<A>::infinity());
      std::ranges::fill(sum_R_, A(0));
      for_each_key_tile(token, tokens, [&](const Tile& tile) { add(tile); });
      finish(task, token, tokens);
    }
    scatter(out_MD_.data(), task.length, A(1), mutable_heads_of<S>(result_.out_TND, task, sizes_.group));
  }

 private:
  A* out_of(int64_t token) { return out_MD_.data() + token * sizes_.group * sizes_.dimensions; }

  void add(const Tile& tile) {
    const int64_t queries = tile.tokens * sizes_.group, dimensions = sizes_.dimensions;
    multiply<Form::kPlain, Form::kTransposed>(
        {queries, tile.keys, dimensions}, q_MD_.data() + tile.token * sizes_.group * dimensions,
        k_LD_.data() + tile.key * dimensions, p_RC_.data(), Result::kReplaced);
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t seen = std::clamp<int64_t>(tile.token + i / sizes_.group + 1 - tile.key, 0, tile.keys);
      A* scores = p_RC_.data() + i * tile.keys;
      const A factor = exponentiate(scores, seen, &maximum_R_[i], &sum_R_[i]);
      std::fill(scores + seen, scores + tile.keys, A(0));
      if (tile.key > 0) scale(out_of(tile.token) + i * dimensions, dimensions, factor);
    }
    multiply<Form::kPlain, Form::kPlain>({queries, dimensions, tile.keys}, p_RC_.data(),
                                         v_LD_.data() + tile.key * dimensions, out_of(tile.token),
                                         Result::kAddedTo);
  }

  void finish(const Task& task, int64_t token, int64_t tokens) {
    A* lse_NT = result_.lse_NT.mutable_data_ptr<A>();
    for (int64_t i = 0; i < tokens * sizes_.group; ++i) {
      scale(out_of(token) + i * sizes_.dimensions, sizes_.dimensions, A(1) / sum_R_[i]);
      const int64_t head = task.key_head * sizes_.group + i % sizes_.group;
      lse_NT[head * sizes_.rows + task.begin + token + i / sizes_.group] =
          maximum_R_[i] + std::log(sum_R_[i]);
    }
  }

  const AttentionInput& input_;
  const AttentionResult& result_;
  const Sizes& sizes_;
  std::vector<A> q_MD_, k_LD_, v_LD_, out_MD_, maximum_R_, sum_R_, p_RC_;
};

// The tile's scores become P and dP becomes dS: one key's row, of which queries from `first` on see the key.
template <typename A>
SLUICE_SIMD void differentiate(A* p, A* ds, int64_t first, int64_t queries, const A* lse, const A* delta) {
#pragma omp simd
  for (int64_t i = first; i < queries; ++i) {
    const A probability = vector_exp(p[i] - lse[i]);
    p[i] = probability;
    ds[i] = probability * (ds[i] - delta[i]);
  }
}

template <typename A>
SLUICE_SIMD A dot(const A* a, const A* b, int64_t count) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename S, typename A>
class BackwardWorker {
 public:
  BackwardWorker(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                 const AttentionGradient& gradient, const Sizes& sizes)
      : dout_TND_(dout_TND),
        input_(input),
        saved_(saved),
        gradient_(gradient),
        sizes_(sizes),
        q_MD_(sizes.longest * sizes.group * sizes.dimensions),
        dout_MD_(q_MD_.size()),
        dq_MD_(q_MD_.size()),
        k_LD_(sizes.longest * sizes.dimensions),
        v_LD_(k_LD_.size()),
        dk_LD_(k_LD_.size()),
        dv_LD_(k_LD_.size()),
        lse_M_(sizes.longest * sizes.group),
        delta_M_(lse_M_.size()),
        p_CR_(sizes.tile_queries() * kTileKeys),
        ds_CR_(p_CR_.size()) {}

  void run(const Task& task) {
    const int64_t group = sizes_.group;
    load(task);
    for (int64_t token = 0; token < task.length; token += sizes_.tile_tokens()) {
      const int64_t tokens = std::min(sizes_.tile_tokens(), task.length - token);
      for_each_key_tile(token, tokens, [&](const Tile& tile) { add(tile); });
    }
    scatter(dq_MD_.data(), task.length, static_cast<A>(input_.scale),
            mutable_heads_of<S>(gradient_.dq_TND, task, group));
    scatter(dk_LD_.data(), task.length, A(1), mutable_heads_of<S>(gradient_.dk_TKD, task, 1));
    scatter(dv_LD_.data(), task.length, A(1), mutable_heads_of<S>(gradient_.dv_TKD, task, 1));
  }

 private:
  // q comes scaled, so that dSᵀ·q is dk; dq takes the factor at its end.
  void load(const Task& task) {
    const int64_t group = sizes_.group, queries = task.length * group, dimensions = sizes_.dimensions;
    gather(heads_of<S>(saved_.out_TND, task, group), task.length, A(1), q_MD_.data());
    gather(heads_of<S>(dout_TND_, task, group), task.length, A(1), dout_MD_.data());
    const A* lse_NT = saved_.lse_NT.const_data_ptr<A>();
    for (int64_t i = 0; i < queries; ++i) {
      delta_M_[i] = dot(q_MD_.data() + i * dimensions, dout_MD_.data() + i * dimensions, dimensions);
      lse_M_[i] = lse_NT[(task.key_head * group + i % group) * sizes_.rows + task.begin + i / group];
    }
    gather(heads_of<S>(input_.q_TND, task, group), task.length, static_cast<A>(input_.scale), q_MD_.data());
    gather(heads_of<S>(input_.k_TKD, task, 1), task.length, A(1), k_LD_.data());
    gather(heads_of<S>(input_.v_TKD, task, 1), task.length, A(1), v_LD_.data());
    std::fill_n(dq_MD_.data(), queries * dimensions, A(0));
    std::fill_n(dk_LD_.data(), task.length * dimensions, A(0));
    std::fill_n(dv_LD_.data(), task.length * dimensions, A(0));
  }

  void add(const Tile& tile) {
    const int64_t dimensions = sizes_.dimensions, query = tile.token * sizes_.group;
    const int64_t queries = tile.tokens * sizes_.group;
    const A *q = q_MD_.data() + query * dimensions, *dout = dout_MD_.data() + query * dimensions;
    const int64_t keys = tile.key * dimensions;
    A *p = p_CR_.data(), *ds = ds_CR_.data();
    const ProductShape scores{tile.keys, queries, dimensions}, sums{tile.keys, dimensions, queries};
    multiply<Form::kPlain, Form::kTransposed>(scores, k_LD_.data() + keys, q, p, Result::kReplaced);
    multiply<Form::kPlain, Form::kTransposed>(scores, v_LD_.data() + keys, dout, ds, Result::kReplaced);
    for (int64_t key = 0; key < tile.keys; ++key, p += queries, ds += queries) {
      const int64_t first = std::clamp<int64_t>((tile.key + key - tile.token) * sizes_.group, 0, queries);
      std::fill_n(p, first, A(0));
      std::fill_n(ds, first, A(0));
      differentiate(p, ds, first, queries, lse_M_.data() + query, delta_M_.data() + query);
    }
    multiply<Form::kPlain, Form::kPlain>(sums, p_CR_.data(), dout, dv_LD_.data() + keys, Result::kAddedTo);
    multiply<Form::kPlain, Form::kPlain>(sums, ds_CR_.data(), q, dk_LD_.data() + keys, Result::kAddedTo);
    multiply<Form::kTransposed, Form::kPlain>({queries, dimensions, tile.keys}, ds_CR_.data(),
                                              k_LD_.data() + keys, dq_MD_.data() + query * dimensions,
                                              Result::kAddedTo);
  }

  const at::Tensor& dout_TND_;
  const AttentionInput& input_;
  const AttentionResult& saved_;
  const AttentionGradient& gradient_;
  const Sizes& sizes_;
  std::vector<A> q_MD_, dout_MD_, dq_MD_, k_LD_, v_LD_, dk_LD_, dv_LD_, lse_M_, delta_M_, p_CR_, ds_CR_;
};

}  // namespace

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences) {
  const Sizes sizes(input, sequences);
  const at::TensorOptions options = input.q_TND.options();
  const AttentionResult result{
      at::empty({sizes.rows, sizes.heads, sizes.dimensions}, options),
      at::empty({sizes.heads, sizes.rows}, options.dtype(accumulator_type(input.q_TND)))};
  SLUICE_DISPATCH(input.q_TND, "attention", [&] {
    for_each_task(sequences, sizes.key_heads,
                  [&] { return ForwardWorker<scalar_t, at::opmath_type<scalar_t>>(input, result, sizes); });
  });
  const int64_t used = sequences.begins.back(), unused = sizes.rows - used;
  if (unused > 0) {
    result.out_TND.narrow(0, used, unused).zero_();
    result.lse_NT.narrow(1, used, unused).zero_();
  }
  return result;
}

void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  const Sizes sizes(input, sequences);
  SLUICE_DISPATCH(input.q_TND, "attention_backward", [&] {
    for_each_task(sequences, sizes.key_heads, [&] {
      return BackwardWorker<scalar_t, at::opmath_type<scalar_t>>(dout_TND, input, saved, gradient, sizes);
    });
  });
}

}  // namespace sluice::ops::cpu
