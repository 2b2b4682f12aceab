#include "layers/lane_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "layers/cached_lanes.h"
#include "layers/context_parallel_attention.h"
#include "layers/head_exchange.h"
#include "model/head_parts.h"

namespace sluice::layers {
namespace {

using model::HeadCounts;
using model::HeadPart;

HeadPart all_heads(const HeadsAtWork& heads) { return model::head_part(heads.count, 1, 0); }

// The heads that this lane attends with.
HeadPart own_part(const HeadsAtWork& heads, const RowLayout& layout) {
  if (!layout.heads.exchanges()) return all_heads(heads);
  return model::head_part(heads.count, layout.heads.lanes(), layout.heads.lane);
}

HeadCut query_cut(const HeadsAtWork& heads, const HeadsLayout& layout) {
  HeadCut cut;
  for (int lane = 0; lane < layout.lanes(); ++lane)
    cut.push_back({model::head_part(heads.count, layout.lanes(), lane).queries});
  return cut;
}

// Each lane's part of qkv_TP's heads, which are queries, keys, values.
HeadCut qkv_cut(const HeadsAtWork& heads, const HeadsLayout& layout) {
  const auto [queries, keys] = heads.count;
  HeadCut cut;
  for (int lane = 0; lane < layout.lanes(); ++lane) {
    const HeadPart part = model::head_part({queries, keys}, layout.lanes(), lane);
    const auto behind = [&](int64_t first) {
      return base::Interval{first + part.keys.begin, first + part.keys.end};
    };
    cut.push_back({part.queries, behind(queries), behind(queries + keys)});
  }
  return cut;
}

at::Tensor heads_view(const at::Tensor& x_TW, int64_t dimension) {
  return x_TW.view({x_TW.size(0), -1, dimension});
}

// A run of heads of qkv_AR as kernels take them; `part`: the heads that qkv_AR has.
ops::AttentionInput input_of(const HeadsAtWork& heads, const HeadPart& part, const HeadPart& run,
                             const at::Tensor& qkv_AR) {
  const at::Tensor heads_AHD = heads_view(qkv_AR, heads.dimension);
  const int64_t queries = part.queries.size(), keys = part.keys.size();
  return {.q_TND = heads_AHD.narrow(1, run.queries.begin, run.queries.size()),
          .k_TKD = heads_AHD.narrow(1, queries + run.keys.begin, run.keys.size()),
          .v_TKD = heads_AHD.narrow(1, queries + keys + run.keys.begin, run.keys.size()),
          .scale = heads.scale,
          .window = heads.window,
          .cap = heads.cap,
          .causal = heads.causal,
          .value_dimensions = heads.value_dimensions};
}

// Continues attention of the input's queries with further blocks of its keys.
void attend_more(const ops::AttentionInput& input, std::span<const ops::AttentionBlock> blocks,
                 ops::AttentionResult& result) {
  if (blocks.empty()) return;
  const at::ScalarType type = result.out_TND.scalar_type();
  result.out_TND = result.out_TND.to(result.lse_NT.scalar_type());
  ops::attend_blocks(input, blocks, result);
  result.out_TND = result.out_TND.to(type);
}

const AttendedRows& rows_of(const RowLayout& layout, const ops::AttentionInput& input) {
  return layout.attended_through(input.window);
}

// Writes the rows' keys and values to the cache and attends to cached ones before them, too.
ops::AttentionResult attend_cached(const RowLayout& layout, const ops::AttentionInput& input,
                                   const CachedKeys& cached) {
  const CachedRows& rows = layout.cached;
  at::Tensor k_RKD = cached.k_RKD, v_RKD = cached.v_RKD;
  k_RKD.index_copy_(0, rows.row_T, input.k_TKD.narrow(0, 0, layout.tokens));
  v_RKD.index_copy_(0, rows.row_T, input.v_TKD.narrow(0, 0, layout.tokens));
  ops::AttentionInput on_cache = input;
  on_cache.k_TKD = k_RKD;
  on_cache.v_TKD = v_RKD;
  if (std::optional<ops::AttentionResult> all = ops::attend_pages(on_cache, rows.paged)) return *all;
  ops::AttentionResult result = ops::attention(input, rows_of(layout, input).sequences);
  attend_more(on_cache, layout.cached_through(input.window), result);
  return result;
}

// The run's key heads among this TP rank's.
CachedKeys of_run(const CachedKeys& cached, const HeadPart& part, const HeadPart& run) {
  const int64_t first = part.keys.begin + run.keys.begin, heads = run.keys.size();
  return {cached.k_RKD.narrow(1, first, heads), cached.v_RKD.narrow(1, first, heads)};
}

ops::AttentionResult attend_run(const HeadsAtWork& heads, const RowLayout& layout,
                                const ops::AttentionInput& input, const ExchangedKeys* keys) {
  const AttendedRows& rows = rows_of(layout, input);
  if (rows.transfers.lanes > 1) return context_parallel_attention(*heads.lanes, rows, input, keys);
  ops::AttentionResult result = ops::attention(input, rows.sequences);
  attend_more(input, rows.own_blocks, result);
  return result;
}

void attend_run_backward(const HeadsAtWork& heads, const RowLayout& layout, const at::Tensor& dout_TND,
                         const ops::AttentionInput& input, const ops::AttentionResult& saved,
                         const ops::AttentionGradient& gradient, const ExchangedKeys* keys) {
  const AttendedRows& rows = rows_of(layout, input);
  if (rows.transfers.lanes > 1) {
    context_parallel_attention_backward(*heads.lanes, rows, dout_TND, input, saved, gradient, keys);
    return;
  }
  ops::attention_backward(dout_TND, input, saved, rows.sequences, gradient);
  add_blocks_backward(dout_TND, input, saved, rows.own_blocks, gradient);
}

// A run's part of a vector over this TP rank's query heads.
at::Tensor of_heads(const at::Tensor& x_N, const HeadPart& part, const HeadPart& run) {
  return x_N.narrow(0, part.queries.begin + run.queries.begin, run.queries.size());
}

// Runs of heads attend one after the other: each has its own keys, so nothing travels twice.
ops::AttentionResult attend_rows(const HeadsAtWork& heads, const RowLayout& layout, const HeadPart& part,
                                 const at::Tensor& qkv_AR, const at::Tensor& sinks_N,
                                 const CachedKeys& cached, const ExchangedKeys* keys) {
  std::vector<at::Tensor> out, lse;
  ops::AttentionResult result;
  for (const HeadPart& run : model::uniform_runs(heads.count, part)) {
    const ops::AttentionInput input = input_of(heads, part, run, qkv_AR);
    if (!cached.k_RKD.defined()) {
      result = attend_run(heads, layout, input, keys);
    } else if (layout.cached.lanes.members.empty()) {
      result = attend_cached(layout, input, of_run(cached, part, run));
    } else {
      result = attend_over_lanes(*heads.lanes, layout, input, of_run(cached, part, run));
    }
    if (sinks_N.defined()) ops::add_sinks(result, of_heads(sinks_N, part, run));
    out.push_back(std::move(result.out_TND));
    lse.push_back(std::move(result.lse_NT));
  }
  result.out_TND = out.size() == 1 ? out.front() : at::cat(out, 1);
  result.lse_NT = lse.size() == 1 ? lse.front() : at::cat(lse);
  return result;
}

ops::AttentionResult of_run(const ops::AttentionResult& whole, const HeadPart& run) {
  return {whole.out_TND.narrow(1, run.queries.begin, run.queries.size()),
          whole.lse_NT.narrow(0, run.queries.begin, run.queries.size()), whole.rng};
}

// The gradient of qkv_AR, in the same memory unless its keys and values are needed to the end.
at::Tensor attend_rows_backward(const HeadsAtWork& heads, const RowLayout& layout, const HeadPart& part,
                                const at::Tensor& dout_AND, const at::Tensor& qkv_AR,
                                const ops::AttentionResult& result, const Sinks& sinks,
                                const ExchangedKeys* keys) {
  const bool in_blocks = layout.attended.transfers.lanes > 1 || !layout.attended.own_blocks.empty();
  const at::Tensor dqkv_AR = in_blocks ? at::empty_like(qkv_AR) : qkv_AR;
  for (const HeadPart& run : model::uniform_runs(heads.count, part)) {
    const ops::AttentionInput input = input_of(heads, part, run, qkv_AR);
    const ops::AttentionInput parts = input_of(heads, part, run, dqkv_AR);
    const ops::AttentionGradient gradient{parts.q_TND, parts.k_TKD, parts.v_TKD};
    const at::Tensor dout_run_AND = dout_AND.narrow(1, run.queries.begin, run.queries.size());
    const ops::AttentionResult saved = of_run(result, run);
    if (sinks.gradients_N.defined()) {
      ops::sinks_backward(dout_run_AND, saved, of_heads(sinks.sinks_N, part, run),
                          of_heads(sinks.gradients_N, part, run));
    }
    attend_run_backward(heads, layout, dout_run_AND, input, saved, gradient, keys);
  }
  return dqkv_AR;
}

// From this lane's rows of all heads to all rows of its heads.
at::Tensor exchanged(const HeadsAtWork& heads, const RowLayout& layout, const HeadCut& cut,
                     const at::Tensor& x_TW) {
  return to_heads(*heads.lanes, layout.heads, cut, heads_view(x_TW, heads.dimension));
}

// The reverse; the result is `width` wide.
at::Tensor returned(const HeadsAtWork& heads, const RowLayout& layout, const HeadCut& cut,
                    const at::Tensor& y_AHD, int64_t width) {
  const at::Tensor x_TW = at::empty({layout.rows, width}, y_AHD.options());
  to_tokens(*heads.lanes, layout.heads, cut, y_AHD, heads_view(x_TW, heads.dimension));
  return x_TW;
}

// The rows of the lane's unshared sequences.
at::Tensor own_rows(const RowLayout& layout, const at::Tensor& x_TW) {
  return x_TW.narrow(0, layout.heads.lane_rows[static_cast<size_t>(layout.heads.lane)], layout.own->tokens);
}

void attend_own(const HeadsAtWork& heads, const RowLayout& layout, const at::Tensor& sinks_N,
                Attended& attended) {
  attended.own = attend_rows(heads, *layout.own, all_heads(heads), attended.own_qkv_WP, sinks_N, {}, {});
  own_rows(layout, attended.a_TQ).copy_(attended.own.out_TND.flatten(1));
  attended.own.out_TND.reset();
}

// The gradient of own_qkv_WP, in whose memory it may lie.
at::Tensor attend_own_backward(const HeadsAtWork& heads, const RowLayout& layout, const at::Tensor& da_TQ,
                               Attended& attended, const Sinks& sinks) {
  const int64_t dimension = heads.dimension;
  const at::Tensor qkv_WP = std::exchange(attended.own_qkv_WP, {});
  attended.own.out_TND = heads_view(own_rows(layout, attended.a_TQ), dimension);
  const at::Tensor dout_WND = heads_view(own_rows(layout, da_TQ), dimension);
  return attend_rows_backward(heads, *layout.own, all_heads(heads), dout_WND, qkv_WP, attended.own, sinks,
                              nullptr);
}

}  // namespace

HeadsAtWork heads_at_work(const LayerContext& context, const model::Attention& attention) {
  const int64_t tp = context.parallel.tp;
  return {.lanes = context.lanes,
          // With TP larger than their number, key heads are shared by several ranks.
          .count = {attention.heads / tp, std::max<int64_t>(1, attention.kv_heads / tp)},
          .dimension = attention.head_dim,
          .scale = attention.scale,
          .window = attention.window,
          .cap = attention.cap,
          .causal = attention.causal};
}

HeadsAtWork heads_at_work(const LayerContext& context, const model::LatentAttention& attention) {
  const int64_t heads = attention.heads / context.parallel.tp;
  return {.lanes = context.lanes,
          .count = {heads, heads},
          .dimension = attention.width(),
          .scale = attention.scale,
          .value_dimensions = attention.values};
}

Attended attend(const HeadsAtWork& heads, const RowLayout& layout, at::Tensor qkv_TP,
                const at::Tensor& sinks_N, const CachedKeys& cached, const ExchangedKeys* keys) {
  const HeadPart part = own_part(heads, layout);
  Attended attended;
  const bool exchanges = layout.heads.exchanges();
  attended.qkv_AR = qkv_TP;
  if (exchanges) attended.qkv_AR = exchanged(heads, layout, qkv_cut(heads, layout.heads), qkv_TP).flatten(1);
  if (layout.own) attended.own_qkv_WP = own_rows(layout, qkv_TP).clone();
  qkv_TP.reset();
  attended.result = attend_rows(heads, layout, part, attended.qkv_AR, sinks_N, cached, keys);
  if (!exchanges) return attended;
  const int64_t width = heads.count.queries * heads.dimension;
  attended.a_TQ = returned(heads, layout, query_cut(heads, layout.heads), attended.result.out_TND, width);
  if (layout.own) attend_own(heads, layout, sinks_N, attended);
  return attended;
}

void add_rows(Attended& attended, std::vector<SavedRows>& rows) {
  for (at::Tensor* by_row :
       {&attended.qkv_AR, &attended.result.out_TND, &attended.a_TQ, &attended.own_qkv_WP})
    rows.push_back({*by_row});
  for (at::Tensor* by_column : {&attended.result.lse_NT, &attended.own.lse_NT})
    rows.push_back({*by_column, 1});
}

void restore(const HeadsAtWork& heads, const RowLayout& layout, const at::Tensor& qkv_TP,
             Attended& attended) {
  attended.qkv_AR = qkv_TP;
  if (!layout.heads.exchanges()) return;
  attended.qkv_AR = exchanged(heads, layout, qkv_cut(heads, layout.heads), qkv_TP).flatten(1);
  attended.result.out_TND = exchanged(heads, layout, query_cut(heads, layout.heads), attended.a_TQ);
  if (layout.own) attended.own_qkv_WP = own_rows(layout, qkv_TP).clone();
}

at::Tensor attend_backward(const HeadsAtWork& heads, const RowLayout& layout, at::Tensor da_TQ,
                           Attended& attended, const Sinks& sinks, const ExchangedKeys* keys) {
  const bool exchanges = layout.heads.exchanges();
  const int64_t dimension = heads.dimension;
  at::Tensor dout_AND = heads_view(da_TQ, dimension);
  if (exchanges) dout_AND = exchanged(heads, layout, query_cut(heads, layout.heads), da_TQ);
  at::Tensor own_WP;
  if (layout.own) own_WP = attend_own_backward(heads, layout, da_TQ, attended, sinks);
  da_TQ.reset();
  const at::Tensor dqkv_AR = attend_rows_backward(heads, layout, own_part(heads, layout), dout_AND,
                                                  attended.qkv_AR, attended.result, sinks, keys);
  attended.qkv_AR.reset();
  if (!exchanges) return dqkv_AR;
  attended.result = {};
  dout_AND.reset();
  const int64_t all = heads.count.queries + 2 * heads.count.keys;
  at::Tensor dqkv_TP =
      returned(heads, layout, qkv_cut(heads, layout.heads), heads_view(dqkv_AR, dimension), all * dimension);
  if (layout.own) own_rows(layout, dqkv_TP).copy_(own_WP);
  return dqkv_TP;
}

bool goes_round(const HeadsAtWork& heads, const RowLayout& layout) {
  return layout.attended.transfers.lanes > 1 && !layout.heads.exchanges() && heads.window == 0;
}

}  // namespace sluice::layers
