// T: rows of the micro-batch, N: query heads, K: key/value heads, D: dimensions per head. For one task, a key
// head of a sequence or block: L: keys, G = N/K: query heads, M: queries, token by token with a token's heads
// adjacent, R: queries of a tile, C: keys of a tile. Formulas: attention.cpp.
//
// Forward goes over tiles of keys with a running maximum m and a running sum of exp(S - m) for every query.
// It rescales the sums by exp(m_old - m_new) (Milakov and Gimelshein 2018, "Online normalizer calculation for
// softmax"). Backward computes the tiles transposed, P_CR: then all large matrices but one enter products
// without transposition.
#include "ops/cpu/attention_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/cpu/blas.h"
#include "ops/simd.h"

namespace sluice::ops::cpu {
namespace {

// Tiles fit into a core's second-level cache and are large enough for full speed.
constexpr int64_t kTileQueries = 64;
constexpr int64_t kTileKeys = 256;
// Limit on one token's queries that share a key head: so few rows gain nothing from copying the keys.
constexpr int64_t kFewQueries = 16;

// A sequence's task starts from nothing, a block's task continues from its queries' results so far.
enum class Task { kSequence, kBlock };

// The interval of keys that a query sees. Its last key has the query's position and its first one is limited
// by the window; if attention is not causal, the window extends equally far behind the query. Without a
// window, a block's queries stand behind all keys, so they see all.
struct Sight {
  int64_t ahead = 0;  // the first query's position minus the first key's
  int64_t window = 0;
  int64_t behind = 0;  // keys behind the one at the query's position

  // The keys, below `keys`, that query number `token` of the part sees.
  base::Interval of_query(int64_t token, int64_t keys) const {
    const int64_t end = std::clamp<int64_t>(ahead + token + 1 + behind, 0, keys);
    return {std::clamp<int64_t>(ahead + token + 1 - window, 0, end), end};
  }
};

// A sequence's or block's rows.
struct Reach {
  base::Interval queries;
  base::Interval keys;
  Sight sight;
};
using Parts = std::vector<Reach>;

// Longer than any sequence.
constexpr int64_t kUnbounded = int64_t{1} << 40;

// For a part whose first query is `ahead` positions ahead of its first key.
Sight sight_of(const AttentionInput& input, int64_t ahead) {
  const int64_t window = input.window > 0 ? input.window : kUnbounded;
  return {ahead, window, input.causal ? 0 : window - 1};
}

Parts parts_of(const PackedSequences& sequences, const AttentionInput& input) {
  Parts parts;
  for (size_t i = 0; i + 1 < sequences.begins.size(); ++i) {
    const base::Interval rows{sequences.begins[i], sequences.begins[i + 1]};
    parts.push_back({rows, rows, sight_of(input, 0)});
  }
  return parts;
}

Reach reach_of(const AttentionBlock& block, const AttentionInput& input) {
  const Sight all{block.keys.size(), kUnbounded};
  return {block.queries, block.keys, input.window > 0 ? sight_of(input, block.ahead) : all};
}

// The first of `blocks` that share neither queries nor keys; removes them from `blocks`. Tasks of one
// backward run write rows of queries and of keys, so their rows must be disjoint.
Parts next_parts(std::span<const AttentionBlock>& blocks, const AttentionInput& input) {
  Parts parts;
  const auto meets = [](base::Interval a, base::Interval b) { return !base::intersect(a, b).empty(); };
  for (const AttentionBlock& block : blocks) {
    const bool shares = std::ranges::any_of(parts, [&](const Reach& part) {
      return meets(part.queries, block.queries) || meets(part.keys, block.keys);
    });
    if (shares) break;
    parts.push_back(reach_of(block, input));
  }
  blocks = blocks.subspan(parts.size());
  return parts;
}

// Groups blocks by the query rows that they write; groups share none, and a group keeps the order of its
// blocks. Groups with the most work come first, so that threads end together.
std::vector<Parts> parts_by_rows(std::span<const AttentionBlock> blocks, const AttentionInput& input) {
  std::vector<size_t> by_begin(blocks.size());
  std::iota(by_begin.begin(), by_begin.end(), size_t{0});
  std::ranges::stable_sort(by_begin, {}, [&](size_t i) { return blocks[i].queries.begin; });
  std::vector<std::pair<int64_t, Parts>> found;  // with their numbers of query-key pairs
  int64_t end = -1;
  std::vector<size_t> own;
  const auto close = [&] {
    if (own.empty()) return;
    std::ranges::sort(own);
    auto& [pairs, parts] = found.emplace_back();
    for (const size_t i : own) {
      parts.push_back(reach_of(blocks[i], input));
      pairs += blocks[i].queries.size() * blocks[i].keys.size();
    }
    own.clear();
  };
  for (const size_t i : by_begin) {
    if (blocks[i].queries.begin >= end) close();
    own.push_back(i);
    end = std::max(end, blocks[i].queries.end);
  }
  close();
  std::ranges::stable_sort(found, std::greater(), [](const auto& part) { return part.first; });
  std::vector<Parts> parts;
  for (auto& [pairs, of_rows] : found) parts.push_back(std::move(of_rows));
  return parts;
}

struct HeadTask {
  base::Interval queries;
  base::Interval keys;
  Sight sight;
  int64_t key_head = 0;
};

struct Sizes {
  int64_t rows, heads, key_heads, group, dimensions;  // T, N, K, G, D
  int64_t most_tokens = 0, most_keys = 0;             // maxima over the parts

  Sizes(const AttentionInput& input, const Parts& parts)
      : rows(input.q_TND.size(0)),
        heads(input.q_TND.size(1)),
        key_heads(input.k_TKD.size(1)),
        group(heads / key_heads),
        dimensions(input.q_TND.size(2)) {
    for (const Reach& part : parts) {
      most_tokens = std::max(most_tokens, part.queries.size());
      most_keys = std::max(most_keys, part.keys.size());
    }
  }
  int64_t tile_tokens() const { return std::max<int64_t>(1, kTileQueries / group); }
  int64_t tile_queries() const { return tile_tokens() * group; }
};

// Queries of tokens [token, token + tokens) and keys [key, key + keys); the tokens see some of the keys.
struct Tile {
  int64_t token, tokens, key, keys;
};

// Visits a task's key tiles that some of the tokens [token, token + tokens) see.
template <typename Visit>
void for_each_key_tile(const HeadTask& task, int64_t token, int64_t tokens, Visit visit) {
  const int64_t begin = task.sight.of_query(token, task.keys.size()).begin;
  const int64_t end = task.sight.of_query(token + tokens - 1, task.keys.size()).end;
  for (int64_t key = begin; key < end; key += kTileKeys) {
    visit(Tile{token, tokens, key, std::min(kTileKeys, end - key)});
  }
}

// Calls make_worker() once per thread, and the returned worker for every part and key head. A part may be
// several parts, run one after the other.
template <typename Part, typename MakeWorker>
void for_each_task(const std::vector<Part>& parts, int64_t key_heads, MakeWorker make_worker) {
  const int64_t tasks = static_cast<int64_t>(parts.size()) * key_heads;
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), tasks), 1, [&](int64_t, int64_t) {
    auto worker = make_worker();
    const auto run = [&](const Reach& part, int64_t key_head) {
      worker.run(HeadTask{part.queries, part.keys, part.sight, key_head});
    };
    for (int64_t i = next++; i < tasks; i = next++) {
      const Part& part = parts[static_cast<size_t>(i / key_heads)];
      if constexpr (std::is_same_v<Part, Reach>) {
        run(part, i % key_heads);
      } else {
        for (const Reach& each : part) run(each, i % key_heads);
      }
    }
  });
}

// The heads of a task in the memory of a [T, heads, D] tensor: its query heads, or its one key head.
template <typename S>
struct Heads {
  S* first;
  int64_t tokens, group, dimensions, token_stride, head_stride;

  Heads(const at::Tensor& x, S* data, base::Interval rows, int64_t key_head, int64_t heads_of_task)
      : first(data + rows.begin * x.stride(0) + key_head * heads_of_task * x.stride(1)),
        tokens(rows.size()),
        group(heads_of_task),
        dimensions(x.size(2)),
        token_stride(x.stride(0)),
        head_stride(x.stride(1)) {}
  S* at(int64_t token, int64_t head) const { return first + token * token_stride + head * head_stride; }
};

template <typename S>
Heads<const S> queries_of(const at::Tensor& x, const HeadTask& task, const Sizes& sizes) {
  return {x, x.const_data_ptr<S>(), task.queries, task.key_head, sizes.group};
}
template <typename S>
Heads<S> mutable_queries_of(const at::Tensor& x, const HeadTask& task, const Sizes& sizes) {
  return {x, x.mutable_data_ptr<S>(), task.queries, task.key_head, sizes.group};
}
template <typename S>
Heads<const S> keys_of(const at::Tensor& x, const HeadTask& task) {
  return {x, x.const_data_ptr<S>(), task.keys, task.key_head, 1};
}
template <typename S>
Heads<S> mutable_keys_of(const at::Tensor& x, const HeadTask& task) {
  return {x, x.mutable_data_ptr<S>(), task.keys, task.key_head, 1};
}

// Copies the heads to dense rows [tokens · group, D], times `factor`.
template <typename S, typename A>
SLUICE_SIMD void gather(const Heads<const S>& heads, A factor, A* rows) {
  for (int64_t token = 0; token < heads.tokens; ++token) {
    for (int64_t head = 0; head < heads.group; ++head, rows += heads.dimensions) {
      const S* x = heads.at(token, head);
#pragma omp simd
      for (int64_t i = 0; i < heads.dimensions; ++i) rows[i] = static_cast<A>(x[i]) * factor;
    }
  }
}

template <typename S, typename A>
SLUICE_SIMD void scatter(const A* rows, A factor, const Heads<S>& heads) {
  for (int64_t token = 0; token < heads.tokens; ++token) {
    for (int64_t head = 0; head < heads.group; ++head, rows += heads.dimensions) {
      S* x = heads.at(token, head);
#pragma omp simd
      for (int64_t i = 0; i < heads.dimensions; ++i) x[i] = narrow<S>(rows[i] * factor);
    }
  }
}

template <typename A>
SLUICE_SIMD void scatter_add(const A* rows, A factor, const Heads<A>& heads) {
  for (int64_t token = 0; token < heads.tokens; ++token) {
    for (int64_t head = 0; head < heads.group; ++head, rows += heads.dimensions) {
      A* x = heads.at(token, head);
#pragma omp simd
      for (int64_t i = 0; i < heads.dimensions; ++i) x[i] += rows[i] * factor;
    }
  }
}

// Turns a query's scores into exp(score - maximum). Raises the maximum, rescales the sum, and returns the
// factor that rescales earlier results.
template <typename A>
SLUICE_SIMD_WIDE A exponentiate(A* scores, int64_t keys, A* maximum, A* sum) {
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

// cap·tanh(s/cap) of scores.
template <typename A>
SLUICE_SIMD_WIDE void cap_scores(A* scores, int64_t count, A cap) {
  const A narrower = A(1) / cap;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) scores[i] = cap * vector_tanh(scores[i] * narrower);
}

// Products of a query with `count` keys in place; below, the sum of values with such factors.
template <typename S, typename A>
SLUICE_SIMD void score_keys(const A* q, const Heads<const S>& keys, int64_t first, int64_t count, A* scores) {
  int64_t key = 0;
  for (; key + 4 <= count; key += 4) {  // four sums at once hide latency
    const S *a = keys.at(first + key, 0), *b = keys.at(first + key + 1, 0), *c = keys.at(first + key + 2, 0),
            *d = keys.at(first + key + 3, 0);
    A sum_a = 0, sum_b = 0, sum_c = 0, sum_d = 0;
#pragma omp simd reduction(+ : sum_a, sum_b, sum_c, sum_d)
    for (int64_t i = 0; i < keys.dimensions; ++i) {
      sum_a += q[i] * static_cast<A>(a[i]);
      sum_b += q[i] * static_cast<A>(b[i]);
      sum_c += q[i] * static_cast<A>(c[i]);
      sum_d += q[i] * static_cast<A>(d[i]);
    }
    scores[key] = sum_a, scores[key + 1] = sum_b, scores[key + 2] = sum_c, scores[key + 3] = sum_d;
  }
  for (; key < count; ++key) {
    const S* k = keys.at(first + key, 0);
    A sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < keys.dimensions; ++i) sum += q[i] * static_cast<A>(k[i]);
    scores[key] = sum;
  }
}
template <typename S, typename A>
SLUICE_SIMD void add_values(const A* factors, const Heads<const S>& values, int64_t first, int64_t count,
                            A* to) {
  for (int64_t key = 0; key < count; ++key) {
    const S* v = values.at(first + key, 0);
    const A factor = factors[key];
#pragma omp simd
    for (int64_t i = 0; i < values.dimensions; ++i) to[i] += factor * static_cast<A>(v[i]);
  }
}

// S: type of q, k and v. A sequence's task writes out as S; a block's out is of type A.
template <typename S, typename A, Task kTask>
class ForwardWorker {
  using Out = std::conditional_t<kTask == Task::kSequence, S, A>;

 public:
  ForwardWorker(const AttentionInput& input, const AttentionResult& result, const Sizes& sizes)
      : input_(input),
        result_(result),
        lse_NT_(result.lse_NT.mutable_data_ptr<A>()),
        sizes_(sizes),
        q_MD_(sizes.most_tokens * sizes.group * sizes.dimensions),
        k_LD_(copies_keys(sizes.most_tokens) ? sizes.most_keys * sizes.dimensions : 0),
        v_LD_(k_LD_.size()),
        out_MD_(q_MD_.size()),
        maximum_R_(sizes.tile_queries()),
        sum_R_(sizes.tile_queries()),
        p_RC_(sizes.tile_queries() * kTileKeys) {}

  void run(const HeadTask& task) {
    sight_ = task.sight;
    gather(queries_of<S>(input_.q_TND, task, sizes_), static_cast<A>(input_.scale), q_MD_.data());
    const bool copied = copies_keys(task.queries.size());
    if (copied) {
      gather(keys_of<S>(input_.k_TKD, task), A(1), k_LD_.data());
      gather(keys_of<S>(input_.v_TKD, task), A(1), v_LD_.data());
    }
    if constexpr (kTask == Task::kSequence) {
      std::fill_n(out_MD_.data(), task.queries.size() * sizes_.group * sizes_.dimensions, A(0));
    } else {
      gather(queries_of<A>(result_.out_TND, task, sizes_), A(1), out_MD_.data());
    }
    for (int64_t token = 0; token < task.queries.size(); token += sizes_.tile_tokens()) {
      const int64_t tokens = std::min(sizes_.tile_tokens(), task.queries.size() - token);
      begin(task, token, tokens);
      for_each_key_tile(task, token, tokens,
                        [&](const Tile& tile) { copied ? add(tile) : add_where_they_lie(task, tile); });
      finish(task, token, tokens);
    }
    scatter(out_MD_.data(), A(1), mutable_queries_of<Out>(result_.out_TND, task, sizes_));
  }

 private:
  bool copies_keys(int64_t tokens) const {
    return kTask == Task::kSequence || tokens > 1 || sizes_.group > kFewQueries;
  }
  A* out_of(int64_t token) { return out_MD_.data() + token * sizes_.group * sizes_.dimensions; }
  A& lse_of(const HeadTask& task, int64_t token, int64_t query) {
    const int64_t head = task.key_head * sizes_.group + query % sizes_.group;
    return lse_NT_[head * sizes_.rows + task.queries.begin + token + query / sizes_.group];
  }

  // A normalized out equals an unnormalized one with sum 1 and maximum lse.
  void begin(const HeadTask& task, int64_t token, int64_t tokens) {
    if constexpr (kTask == Task::kSequence) {
      std::ranges::fill(maximum_R_, -std::numeric_limits<A>::infinity());
      std::ranges::fill(sum_R_, A(0));
    } else {
      for (int64_t i = 0; i < tokens * sizes_.group; ++i) maximum_R_[i] = lse_of(task, token, i);
      std::ranges::fill(sum_R_, A(1));
    }
  }

  // The interval of the tile's keys that one of its queries sees.
  base::Interval seen_of(const Tile& tile, int64_t query) const {
    const base::Interval seen = sight_.of_query(tile.token + query / sizes_.group, tile.key + tile.keys);
    const int64_t begin = std::max<int64_t>(0, seen.begin - tile.key);
    return {begin, std::max(begin, seen.end - tile.key)};
  }

  void add(const Tile& tile) {
    const int64_t queries = tile.tokens * sizes_.group, dimensions = sizes_.dimensions;
    multiply<Form::kPlain, Form::kTransposed>(
        {queries, tile.keys, dimensions}, q_MD_.data() + tile.token * sizes_.group * dimensions,
        k_LD_.data() + tile.key * dimensions, p_RC_.data(), Result::kReplaced);
    for (int64_t i = 0; i < queries; ++i) {
      const base::Interval seen = seen_of(tile, i);
      A* scores = p_RC_.data() + i * tile.keys;
      std::fill(scores, scores + seen.begin, A(0));
      std::fill(scores + seen.end, scores + tile.keys, A(0));
      if (seen.empty()) continue;
      if (input_.cap > 0) cap_scores(scores + seen.begin, seen.size(), static_cast<A>(input_.cap));
      const A factor = exponentiate(scores + seen.begin, seen.size(), &maximum_R_[i], &sum_R_[i]);
      scale(out_of(tile.token) + i * dimensions, dimensions, factor);
    }
    multiply<Form::kPlain, Form::kPlain>({queries, dimensions, tile.keys}, p_RC_.data(),
                                         v_LD_.data() + tile.key * dimensions, out_of(tile.token),
                                         Result::kAddedTo);
  }

  // The queries of one token that sees all keys of the tile read the keys in place: copying them first would
  // take longer.
  void add_where_they_lie(const HeadTask& task, const Tile& tile) {
    const Heads<const S> keys = keys_of<S>(input_.k_TKD, task), values = keys_of<S>(input_.v_TKD, task);
    const int64_t dimensions = sizes_.dimensions;
    A* scores = p_RC_.data();
    for (int64_t i = 0; i < sizes_.group; ++i) {
      A* out = out_MD_.data() + i * dimensions;
      score_keys(q_MD_.data() + i * dimensions, keys, tile.key, tile.keys, scores);
      if (input_.cap > 0) cap_scores(scores, tile.keys, static_cast<A>(input_.cap));
      scale(out, dimensions, exponentiate(scores, tile.keys, &maximum_R_[i], &sum_R_[i]));
      add_values(scores, values, tile.key, tile.keys, out);
    }
  }

  void finish(const HeadTask& task, int64_t token, int64_t tokens) {
    for (int64_t i = 0; i < tokens * sizes_.group; ++i) {
      scale(out_of(token) + i * sizes_.dimensions, sizes_.dimensions, A(1) / sum_R_[i]);
      lse_of(task, token, i) = maximum_R_[i] + std::log(sum_R_[i]);
    }
  }

  const AttentionInput& input_;
  const AttentionResult& result_;
  A* lse_NT_;
  const Sizes& sizes_;
  Sight sight_;
  std::vector<A> q_MD_, k_LD_, v_LD_, out_MD_, maximum_R_, sum_R_, p_RC_;
};

// Turns scores into P and dP into dS for one key's row; the queries `seen` see the key.
template <typename A>
SLUICE_SIMD_WIDE void differentiate(A* p, A* ds, base::Interval seen, const A* lse, const A* delta) {
#pragma omp simd
  for (int64_t i = seen.begin; i < seen.end; ++i) {
    const A probability = vector_exp(p[i] - lse[i]);
    p[i] = probability;
    ds[i] = probability * (ds[i] - delta[i]);
  }
}

// Likewise for capped scores, whose derivative is 1 − (capped ÷ cap)².
template <typename A>
SLUICE_SIMD_WIDE void differentiate_capped(A* p, A* ds, base::Interval seen, const A* lse, const A* delta,
                                           A cap) {
  const A narrower = A(1) / cap;
#pragma omp simd
  for (int64_t i = seen.begin; i < seen.end; ++i) {
    const A share = vector_tanh(p[i] * narrower);
    const A probability = vector_exp(cap * share - lse[i]);
    p[i] = probability;
    ds[i] = probability * (ds[i] - delta[i]) * (A(1) - share * share);
  }
}

template <typename A>
SLUICE_SIMD A dot(const A* a, const A* b, int64_t count) {
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// A sequence's task writes its gradients as S. A block's task adds its gradients, of type A, to those of
// other keys and queries.
template <typename S, typename A, Task kTask>
class BackwardWorker {
 public:
  BackwardWorker(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                 const AttentionGradient& gradient, const Sizes& sizes)
      : dout_TND_(dout_TND),
        input_(input),
        saved_(saved),
        gradient_(gradient),
        sizes_(sizes),
        q_MD_(sizes.most_tokens * sizes.group * sizes.dimensions),
        dout_MD_(q_MD_.size()),
        dq_MD_(q_MD_.size()),
        k_LD_(sizes.most_keys * sizes.dimensions),
        v_LD_(k_LD_.size()),
        dk_LD_(k_LD_.size()),
        dv_LD_(k_LD_.size()),
        lse_M_(sizes.most_tokens * sizes.group),
        delta_M_(lse_M_.size()),
        p_CR_(sizes.tile_queries() * kTileKeys),
        ds_CR_(p_CR_.size()) {}

  void run(const HeadTask& task) {
    sight_ = task.sight;
    load(task);
    for (int64_t token = 0; token < task.queries.size(); token += sizes_.tile_tokens()) {
      const int64_t tokens = std::min(sizes_.tile_tokens(), task.queries.size() - token);
      for_each_key_tile(task, token, tokens, [&](const Tile& tile) { add(tile); });
    }
    store(task);
  }

 private:
  // q is stored scaled, so dSᵀ·q is dk; dq is scaled at the end.
  void load(const HeadTask& task) {
    const int64_t group = sizes_.group, dimensions = sizes_.dimensions;
    const int64_t queries = task.queries.size() * group;
    gather(queries_of<S>(saved_.out_TND, task, sizes_), A(1), q_MD_.data());
    gather(queries_of<S>(dout_TND_, task, sizes_), A(1), dout_MD_.data());
    const A* lse_NT = saved_.lse_NT.const_data_ptr<A>();
    for (int64_t i = 0; i < queries; ++i) {
      delta_M_[i] = dot(q_MD_.data() + i * dimensions, dout_MD_.data() + i * dimensions, dimensions);
      lse_M_[i] = lse_NT[(task.key_head * group + i % group) * sizes_.rows + task.queries.begin + i / group];
    }
    gather(queries_of<S>(input_.q_TND, task, sizes_), static_cast<A>(input_.scale), q_MD_.data());
    gather(keys_of<S>(input_.k_TKD, task), A(1), k_LD_.data());
    gather(keys_of<S>(input_.v_TKD, task), A(1), v_LD_.data());
    std::fill_n(dq_MD_.data(), queries * dimensions, A(0));
    std::fill_n(dk_LD_.data(), task.keys.size() * dimensions, A(0));
    std::fill_n(dv_LD_.data(), task.keys.size() * dimensions, A(0));
  }

  void store(const HeadTask& task) {
    const A factor = static_cast<A>(input_.scale);
    if constexpr (kTask == Task::kSequence) {
      scatter(dq_MD_.data(), factor, mutable_queries_of<S>(gradient_.dq_TND, task, sizes_));
      scatter(dk_LD_.data(), A(1), mutable_keys_of<S>(gradient_.dk_TKD, task));
      scatter(dv_LD_.data(), A(1), mutable_keys_of<S>(gradient_.dv_TKD, task));
    } else {
      scatter_add(dq_MD_.data(), factor, mutable_queries_of<A>(gradient_.dq_TND, task, sizes_));
      scatter_add(dk_LD_.data(), A(1), mutable_keys_of<A>(gradient_.dk_TKD, task));
      scatter_add(dv_LD_.data(), A(1), mutable_keys_of<A>(gradient_.dv_TKD, task));
    }
  }

  // The tile's queries that see a given key of the task.
  base::Interval seeing(const Tile& tile, int64_t key) const {
    const auto query = [&](int64_t token) {
      return std::clamp<int64_t>(token - sight_.ahead - tile.token, 0, tile.tokens) * sizes_.group;
    };
    return {query(key - sight_.behind), query(key + sight_.window)};
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
      const base::Interval seen = seeing(tile, tile.key + key);
      std::fill(p, p + seen.begin, A(0));
      std::fill(ds, ds + seen.begin, A(0));
      std::fill(p + seen.end, p + queries, A(0));
      std::fill(ds + seen.end, ds + queries, A(0));
      if (input_.cap > 0) {
        differentiate_capped(p, ds, seen, lse_M_.data() + query, delta_M_.data() + query,
                             static_cast<A>(input_.cap));
      } else {
        differentiate(p, ds, seen, lse_M_.data() + query, delta_M_.data() + query);
      }
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
  Sight sight_;
  std::vector<A> q_MD_, dout_MD_, dq_MD_, k_LD_, v_LD_, dk_LD_, dv_LD_, lse_M_, delta_M_, p_CR_, ds_CR_;
};

}  // namespace

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences) {
  const Parts parts = parts_of(sequences, input);
  const Sizes sizes(input, parts);
  const at::TensorOptions options = input.q_TND.options();
  const AttentionResult result{
      at::empty({sizes.rows, sizes.heads, sizes.dimensions}, options),
      at::empty({sizes.heads, sizes.rows}, options.dtype(accumulator_type(input.q_TND)))};
  SLUICE_DISPATCH(input.q_TND, "attention", [&] {
    for_each_task(parts, sizes.key_heads, [&] {
      return ForwardWorker<scalar_t, at::opmath_type<scalar_t>, Task::kSequence>(input, result, sizes);
    });
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
  const Parts parts = parts_of(sequences, input);
  const Sizes sizes(input, parts);
  SLUICE_DISPATCH(input.q_TND, "attention_backward", [&] {
    for_each_task(parts, sizes.key_heads, [&] {
      return BackwardWorker<scalar_t, at::opmath_type<scalar_t>, Task::kSequence>(dout_TND, input, saved,
                                                                                  gradient, sizes);
    });
  });
}

void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen) {
  const std::vector<Parts> parts = parts_by_rows(blocks, input);
  Parts all;
  for (const AttentionBlock& block : blocks) all.push_back(reach_of(block, input));
  const Sizes sizes(input, all);
  SLUICE_DISPATCH(input.q_TND, "attend_blocks", [&] {
    for_each_task(parts, sizes.key_heads, [&] {
      return ForwardWorker<scalar_t, at::opmath_type<scalar_t>, Task::kBlock>(input, seen, sizes);
    });
  });
}

void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient) {
  while (!blocks.empty()) {
    const Parts parts = next_parts(blocks, input);
    const Sizes sizes(input, parts);
    SLUICE_DISPATCH(input.q_TND, "attend_blocks_backward", [&] {
      for_each_task(parts, sizes.key_heads, [&] {
        return BackwardWorker<scalar_t, at::opmath_type<scalar_t>, Task::kBlock>(dout_TND, input, saved,
                                                                                 gradient, sizes);
      });
    });
  }
}

}  // namespace sluice::ops::cpu
