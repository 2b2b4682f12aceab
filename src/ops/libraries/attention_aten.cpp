// Attention from ATen's operators, block by block of query rows, so that scores never take much memory. T:
// rows, N: query heads, K: key/value heads, G = N/K: query heads per key head, D: dimensions per head, R:
// query rows of a block, L: keys that the block sees. Formulas: attention.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "ops/attention.h"
#include "ops/attention_count.h"
#include "ops/attention_merge.h"
#include "ops/device.h"
#include "ops/far_window.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

std::atomic<int64_t> calls{0};

}  // namespace

int64_t unfused_attention_calls() { return calls; }

namespace aten {
namespace {

// The keys that a query sees: by position, the keys of its sequence up to its own or around it; or all keys
// of a part.
enum class Mask { kByPosition, kNone };

// Query rows [first, first + rows) of a part (a sequence or an AttentionBlock); they see some of its keys
// [0, keys).
struct Block {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t keys = 0;
};

// A sequence as a part: its rows see earlier keys as far as the window reaches.
Mask mask_of_blocks(const AttentionInput& input) {
  return input.window > 0 ? Mask::kByPosition : Mask::kNone;
}
Mask mask_of_sequences(const AttentionInput& input) {
  return input.causal ? Mask::kByPosition : mask_of_blocks(input);
}

// The number of keys behind its own that a query sees by position.
int64_t keys_behind(const AttentionInput& input) { return input.causal ? 0 : input.window - 1; }

template <typename Visit>
void for_each_block(const AttentionInput& input, const AttentionBlock& part, Mask mask, Visit visit) {
  const int64_t length = part.queries.size(), keys = part.keys.size();
  const int64_t most_rows = std::max<int64_t>(1, kMostScores / (input.q_TND.size(1) * keys));
  for (int64_t first = 0; first < length; first += most_rows) {
    const int64_t rows = std::min(most_rows, length - first);
    const int64_t seen = std::clamp<int64_t>(part.ahead + first + rows + keys_behind(input), 0, keys);
    visit(Block{first, rows, mask == Mask::kByPosition ? seen : keys});
  }
}

// One part in the accumulators' type, heads first; query heads are grouped by key head.
class Sequence {
 public:
  Sequence(const AttentionInput& input, const AttentionBlock& part, Mask mask)
      : mask_(mask),
        ahead_(part.ahead),
        window_(input.window),
        behind_(keys_behind(input)),
        cap_(input.cap),
        scale_(input.scale),
        keys_(input.k_TKD.size(1)),
        q_KGTD_(by_head(input.q_TND, part.queries)),
        k_KTD_(by_head(input.k_TKD, part.keys).squeeze(1)),
        v_KTD_(by_head(input.v_TKD, part.keys).squeeze(1)) {}

  // Rows of x [T, heads, D] as [K, heads / K, rows, D].
  at::Tensor by_head(const at::Tensor& x, base::Interval rows) const {
    const at::Tensor wide = x.narrow(0, rows.begin, rows.size()).to(accumulator_type(x));
    return wide.reshape({rows.size(), keys_, x.size(1) / keys_, x.size(2)}).permute({1, 2, 0, 3});
  }

  // The block's queries with the two first dimensions joined, for batched products.
  at::Tensor queries(const Block& block) const { return flat(q_KGTD_.narrow(2, block.first, block.rows)); }
  at::Tensor keys(const Block& block) const { return k_KTD_.narrow(1, 0, block.keys); }
  at::Tensor values(const Block& block) const { return v_KTD_.narrow(1, 0, block.keys); }
  static at::Tensor flat(const at::Tensor& x_KGRD) { return x_KGRD.flatten(1, 2); }

  // [K, G, R, L]; minus infinity at keys that a query does not see.
  at::Tensor scores(const Block& block) const {
    at::Tensor scores = at::bmm(queries(block), keys(block).transpose(1, 2)).mul_(scale_);
    // A block of rows may see no key at all.
    scores = scores.view({keys_, q_KGTD_.size(1), block.rows, block.keys});
    if (cap_ > 0) scores.div_(cap_).tanh_().mul_(cap_);
    if (mask_ == Mask::kNone) return scores;
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    const int64_t ahead = ahead_ + block.first;
    const at::Tensor all = at::ones({block.rows, block.keys}, scores.options().dtype(at::kBool));
    scores.masked_fill_(all.triu(ahead + behind_ + 1), kNever);
    if (window_ > 0) scores.masked_fill_(all.tril(ahead - window_), kNever);
    return scores;
  }
  // Turns gradients of capped scores, which are `scores` here, into gradients of uncapped ones.
  void uncap(at::Tensor& dscores, const at::Tensor& scores) const {
    if (cap_ > 0) dscores.mul_(1 - (scores / cap_).clamp_(-1, 1).square_());
  }

 private:
  Mask mask_;
  int64_t ahead_;
  int64_t window_;
  int64_t behind_;
  double cap_;
  double scale_;
  int64_t keys_;
  at::Tensor q_KGTD_, k_KTD_, v_KTD_;
};

// [K, G, R, D] back to rows [R, N, D].
at::Tensor by_row(const at::Tensor& x_KGRD) { return x_KGRD.permute({2, 0, 1, 3}).flatten(1, 2); }

std::vector<AttentionBlock> parts_of(const PackedSequences& sequences) {
  std::vector<AttentionBlock> parts;
  for (size_t i = 0; i + 1 < sequences.begins.size(); ++i) {
    const base::Interval rows{sequences.begins[i], sequences.begins[i + 1]};
    parts.push_back({rows, rows});
  }
  return parts;
}

at::Tensor rows_of(const at::Tensor& x, base::Interval rows) { return x.narrow(0, rows.begin, rows.size()); }
at::Tensor lse_of(const at::Tensor& lse_NT, base::Interval rows) {
  return lse_NT.narrow(1, rows.begin, rows.size());
}

// Writes the part's rows of `result`.
void attend(const AttentionInput& input, const AttentionBlock& part, Mask mask,
            const AttentionResult& result) {
  const Sequence sequence(input, part, mask);
  for_each_block(input, part, mask, [&](const Block& block) {
    const at::Tensor scores_KGRL = sequence.scores(block);
    const at::Tensor lse_KGR = at::logsumexp(scores_KGRL, {-1});
    // A row that sees no key has no probabilities: its NaN become 0.
    const at::Tensor p_KGRL = (scores_KGRL - lse_KGR.unsqueeze(-1)).exp_().nan_to_num_(0.0);
    const at::Tensor out_KGRD = at::bmm(Sequence::flat(p_KGRL), sequence.values(block))
                                    .view({p_KGRL.size(0), p_KGRL.size(1), block.rows, -1});
    const base::Interval rows{part.queries.begin + block.first,
                              part.queries.begin + block.first + block.rows};
    rows_of(result.out_TND, rows).copy_(by_row(out_KGRD));
    lse_of(result.lse_NT, rows).copy_(lse_KGR.flatten(0, 1));
  });
}

// A part's own gradients, by row, in the accumulators' type.
AttentionGradient differentiate(const at::Tensor& dout_TND, const AttentionInput& input,
                                const AttentionResult& saved, const AttentionBlock& part, Mask mask) {
  const Sequence sequence(input, part, mask);
  const at::Tensor dout_KGTD = sequence.by_head(dout_TND, part.queries);
  const at::Tensor delta_KGT = (dout_KGTD * sequence.by_head(saved.out_TND, part.queries)).sum(-1);
  const at::Tensor lse_KGT = lse_of(saved.lse_NT, part.queries).reshape(delta_KGT.sizes());
  const at::Tensor dk_KTD = at::zeros_like(sequence.keys({0, 0, part.keys.size()}));
  const at::Tensor dv_KTD = at::zeros_like(dk_KTD), dq_KGTD = at::empty_like(dout_KGTD);
  for_each_block(input, part, mask, [&](const Block& block) {
    const auto of_block = [&](const at::Tensor& x) { return x.narrow(2, block.first, block.rows); };
    const at::Tensor scores_KGRL = sequence.scores(block);
    const at::Tensor p_KGRL = (scores_KGRL - of_block(lse_KGT).unsqueeze(-1)).exp_();
    const at::Tensor dout = Sequence::flat(of_block(dout_KGTD));
    const at::Tensor dp_KGRL = at::bmm(dout, sequence.values(block).transpose(1, 2)).view_as(p_KGRL);
    at::Tensor ds_KGRL = (dp_KGRL - of_block(delta_KGT).unsqueeze(-1)).mul_(p_KGRL).mul_(input.scale);
    sequence.uncap(ds_KGRL, scores_KGRL);
    const at::Tensor ds = Sequence::flat(ds_KGRL);
    dv_KTD.narrow(1, 0, block.keys).add_(at::bmm(Sequence::flat(p_KGRL).transpose(1, 2), dout));
    dk_KTD.narrow(1, 0, block.keys).add_(at::bmm(ds.transpose(1, 2), sequence.queries(block)));
    of_block(dq_KGTD).copy_(at::bmm(ds, sequence.keys(block)).view_as(of_block(dq_KGTD)));
  });
  return {by_row(dq_KGTD), dk_KTD.transpose(0, 1), dv_KTD.transpose(0, 1)};
}

}  // namespace

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences) {
  ++calls;
  const at::Tensor& q_TND = input.q_TND;
  const int64_t rows = q_TND.size(0), heads = q_TND.size(1);
  AttentionResult result{at::zeros({rows, heads, q_TND.size(2)}, q_TND.options()),
                         at::zeros({heads, rows}, q_TND.options().dtype(accumulator_type(q_TND)))};
  for (const AttentionBlock& part : parts_of(sequences))
    attend(input, part, mask_of_sequences(input), result);
  return result;
}

void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  ++calls;
  for (const AttentionBlock& part : parts_of(sequences)) {
    const AttentionGradient own = differentiate(dout_TND, input, saved, part, mask_of_sequences(input));
    rows_of(gradient.dq_TND, part.queries).copy_(own.dq_TND);
    rows_of(gradient.dk_TKD, part.keys).copy_(own.dk_TKD);
    rows_of(gradient.dv_TKD, part.keys).copy_(own.dv_TKD);
  }
}

namespace {

void extend(const AttentionResult& seen, const AttentionInput& input, const AttentionBlock& block) {
  const AttentionResult more{at::empty_like(seen.out_TND), at::empty_like(seen.lse_NT)};
  attend(input, block, mask_of_blocks(input), more);
  merge({rows_of(seen.out_TND, block.queries), lse_of(seen.lse_NT, block.queries)},
        {rows_of(more.out_TND, block.queries), lse_of(more.lse_NT, block.queries)});
}

}  // namespace

void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen) {
  ++calls;
  for (const AttentionBlock& block : blocks) extend(seen, input, block);
}

AttentionResult attend_pages(const AttentionInput& on_cache, const PagedSequences& paged) {
  AttentionResult seen = nothing_seen(on_cache.q_TND);
  const at::Tensor within_page_P = at::arange(paged.page_rows, at::kLong);
  for (const PagedSequence& sequence : paged.sequences) {
    const at::Tensor page_B = to_device(sequence.pages, at::kCPU);
    const at::Tensor row_K = (page_B.unsqueeze(1) * paged.page_rows + within_page_P)
                                 .flatten()
                                 .narrow(0, 0, sequence.keys)
                                 .to(on_cache.k_TKD.device());
    AttentionInput own = on_cache;
    own.k_TKD = on_cache.k_TKD.index_select(0, row_K);
    own.v_TKD = on_cache.v_TKD.index_select(0, row_K);
    if (own.window == 0) own.window = kFarWindow;
    extend(seen, own, {sequence.queries, {0, sequence.keys}, sequence.keys - sequence.queries.size()});
  }
  seen.out_TND = seen.out_TND.to(on_cache.q_TND.scalar_type());
  return seen;
}

void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient) {
  ++calls;
  for (const AttentionBlock& block : blocks) {
    const AttentionGradient own = differentiate(dout_TND, input, saved, block, mask_of_blocks(input));
    rows_of(gradient.dq_TND, block.queries).add_(own.dq_TND);
    rows_of(gradient.dk_TKD, block.keys).add_(own.dk_TKD);
    rows_of(gradient.dv_TKD, block.keys).add_(own.dv_TKD);
  }
}

}  // namespace aten
}  // namespace sluice::ops
