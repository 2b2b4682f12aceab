// Attention from ATen's operators, block by block of query rows so that scores never take much memory.
// T: rows, N: query heads, K: key/value heads, G = N/K: query heads of a key head, D: dimensions of a head,
// R: query rows of a block, L: keys that the block sees. The formulas stand in attention.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "ops/attention.h"
#include "ops/simd.h"

namespace sluice::ops::aten {
namespace {

constexpr int64_t kMostScores = int64_t{1} << 26;  // elements of a block's scores

// Query rows [first, first + rows) of a sequence; they see its keys [0, first + rows).
struct Block {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t keys() const { return first + rows; }
};

template <typename Visit>
void for_each_block(int64_t length, int64_t heads, Visit visit) {
  const int64_t most_rows = std::max<int64_t>(1, kMostScores / (heads * length));
  for (int64_t first = 0; first < length; first += most_rows) {
    visit(Block{first, std::min(most_rows, length - first)});
  }
}

// One sequence in the accumulators' type, heads first; query heads are grouped by their key head.
class Sequence {
 public:
  Sequence(const AttentionInput& input, int64_t begin, int64_t length)
      : scale_(input.scale),
        keys_(input.k_TKD.size(1)),
        q_KGTD_(by_head(input.q_TND, begin, length)),
        k_KTD_(by_head(input.k_TKD, begin, length).squeeze(1)),
        v_KTD_(by_head(input.v_TKD, begin, length).squeeze(1)) {}

  // Rows [begin, begin + length) of x [T, heads, D] as [K, heads / K, length, D].
  at::Tensor by_head(const at::Tensor& x, int64_t begin, int64_t length) const {
    const at::Tensor rows = x.narrow(0, begin, length).to(accumulator_type(x));
    return rows.reshape({length, keys_, -1, x.size(2)}).permute({1, 2, 0, 3});
  }

  // Of a block, its two first dimensions of queries as one: what products want.
  at::Tensor queries(const Block& block) const { return flat(q_KGTD_.narrow(2, block.first, block.rows)); }
  at::Tensor keys(const Block& block) const { return k_KTD_.narrow(1, 0, block.keys()); }
  at::Tensor values(const Block& block) const { return v_KTD_.narrow(1, 0, block.keys()); }
  static at::Tensor flat(const at::Tensor& x_KGRD) { return x_KGRD.flatten(1, 2); }

  // [K, G, R, L]; minus infinity for keys behind the query.
  at::Tensor scores(const Block& block) const {
    at::Tensor scores = at::bmm(queries(block), keys(block).transpose(1, 2)).mul_(scale_);
    scores = scores.view({keys_, -1, block.rows, block.keys()});
    const at::Tensor behind = at::ones({block.rows, block.keys()}, scores.options().dtype(at::kBool));
    return scores.masked_fill_(behind.triu(block.first + 1), -std::numeric_limits<double>::infinity());
  }

 private:
  double scale_;
  int64_t keys_;
  at::Tensor q_KGTD_, k_KTD_, v_KTD_;
};

// [K, G, R, D] back to rows [R, N, D].
at::Tensor by_row(const at::Tensor& x_KGRD) { return x_KGRD.permute({2, 0, 1, 3}).flatten(1, 2); }

template <typename Visit>
void for_each_sequence(const AttentionInput& input, const PackedSequences& sequences, Visit visit) {
  for (size_t i = 0; i + 1 < sequences.begins.size(); ++i) {
    const int64_t begin = sequences.begins[i], length = sequences.begins[i + 1] - begin;
    visit(Sequence(input, begin, length), begin, length);
  }
}

}  // namespace

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences) {
  const at::Tensor& q_TND = input.q_TND;
  const int64_t rows = q_TND.size(0), heads = q_TND.size(1);
  AttentionResult result{at::zeros({rows, heads, q_TND.size(2)}, q_TND.options()),
                         at::zeros({heads, rows}, q_TND.options().dtype(accumulator_type(q_TND)))};
  for_each_sequence(input, sequences, [&](const Sequence& sequence, int64_t begin, int64_t length) {
    for_each_block(length, heads, [&](const Block& block) {
      const at::Tensor scores_KGRL = sequence.scores(block);
      const at::Tensor lse_KGR = at::logsumexp(scores_KGRL, {-1});
      const at::Tensor p_KGRL = (scores_KGRL - lse_KGR.unsqueeze(-1)).exp_();
      const at::Tensor out_KGRD = at::bmm(Sequence::flat(p_KGRL), sequence.values(block))
                                      .view({p_KGRL.size(0), p_KGRL.size(1), block.rows, -1});
      result.out_TND.narrow(0, begin + block.first, block.rows).copy_(by_row(out_KGRD));
      result.lse_NT.narrow(1, begin + block.first, block.rows).copy_(lse_KGR.flatten(0, 1));
    });
  });
  return result;
}

void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  const int64_t heads = input.q_TND.size(1);
  for_each_sequence(input, sequences, [&](const Sequence& sequence, int64_t begin, int64_t length) {
    const at::Tensor dout_KGTD = sequence.by_head(dout_TND, begin, length);
    const at::Tensor delta_KGT = (dout_KGTD * sequence.by_head(saved.out_TND, begin, length)).sum(-1);
    const at::Tensor lse_KGT = saved.lse_NT.narrow(1, begin, length).view_as(delta_KGT);
    const Block whole{0, length};
    const at::Tensor dk_KTD = at::zeros_like(sequence.keys(whole)), dv_KTD = at::zeros_like(dk_KTD);
    const at::Tensor dq_KGTD = at::empty_like(dout_KGTD);
    for_each_block(length, heads, [&](const Block& block) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(2, block.first, block.rows); };
      const at::Tensor p_KGRL = (sequence.scores(block) - part(lse_KGT).unsqueeze(-1)).exp_();
      const at::Tensor dout = Sequence::flat(part(dout_KGTD));
      const at::Tensor dp_KGRL = at::bmm(dout, sequence.values(block).transpose(1, 2)).view_as(p_KGRL);
      const at::Tensor ds_KGRL = (dp_KGRL - part(delta_KGT).unsqueeze(-1)).mul_(p_KGRL).mul_(input.scale);
      const at::Tensor ds = Sequence::flat(ds_KGRL);
      dv_KTD.narrow(1, 0, block.keys()).add_(at::bmm(Sequence::flat(p_KGRL).transpose(1, 2), dout));
      dk_KTD.narrow(1, 0, block.keys()).add_(at::bmm(ds.transpose(1, 2), sequence.queries(block)));
      part(dq_KGTD).copy_(at::bmm(ds, sequence.keys(block)).view_as(part(dq_KGTD)));
    });
    gradient.dq_TND.narrow(0, begin, length).copy_(by_row(dq_KGTD));
    gradient.dk_TKD.narrow(0, begin, length).copy_(dk_KTD.transpose(0, 1));
    gradient.dv_TKD.narrow(0, begin, length).copy_(dv_KTD.transpose(0, 1));
  });
}

}  // namespace sluice::ops::aten
