#include "ops/recurrence_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/chunk_rows.h"
#include "ops/cuda/gpu.h"
#include "ops/simd.h"
#include "ops/state_pass.h"

namespace sluice::ops {
namespace {

// Rows of the smallest blocks into which a chunk is divided if it decays by channel.
constexpr int64_t kBlock = 16;

at::Tensor turned(const at::Tensor& x) { return x.transpose(-1, -2); }

// exp(sum_i − sum_j) if j <= i; else 0. [B, C, C]
at::Tensor decays_between(const at::Tensor& sum_BC1) {
  const int64_t rows = sum_BC1.size(1);
  const at::Tensor behind_CC = at::ones({rows, rows}, sum_BC1.options().dtype(at::kBool)).triu(1);
  return (sum_BC1 - turned(sum_BC1)).masked_fill_(behind_CC, -INFINITY).exp_();
}

// Σ_k a_ik·b_jk·exp(sum_ik − sum_jk) over rows j <= i. Decays by channel are split into two factors, relative
// to the first row of the block of i. For rows j before the block neither factor exceeds 1; for the block's
// own rows the second does, so blocks are only as large as decays allow. If decays are too strong even for
// the smallest blocks, each pair of rows within a block gets its own exponential.
class Decayed {
 public:
  // `between_BCC`: decays_between() for decays by head.
  Decayed(const at::Tensor& sum_BCW, const at::Tensor& between_BCC) : sum_(sum_BCW), between_(between_BCC) {
    if (between_.defined() || !sum_.is_cpu()) return;
    for (const int64_t size : {rows(), kBlock}) {
      block_ = size;
      mild_ = is_mild();
      if (mild_) return;
    }
  }

  at::Tensor products(const at::Tensor& a_BCK, const at::Tensor& b_BCK) const {
    if (between_.defined()) return at::bmm(a_BCK, turned(b_BCK)).mul_(between_);
    at::Tensor all_BCC = at::zeros({a_BCK.size(0), rows(), rows()}, a_BCK.options());
    RECORD_USER_SCOPE("sluice::decayed_products");
    if constexpr (gpu::kBuilt) {
      if (gpu::decayed_products(a_BCK, b_BCK, sum_, all_BCC)) return all_BCC;
    }
    for_each_block([&](base::Interval late) {
      const at::Tensor a = part(a_BCK, late), to_BLC = part(all_BCC, late);
      const base::Interval early = factored(late);
      if (!early.empty()) {
        const at::Tensor b = part(b_BCK, early) * from_early(late, early);
        to_BLC.narrow(2, 0, early.end).copy_(at::bmm(a * to_late(late), turned(b)));
      }
      if (mild_) return;
      const at::Tensor b_BLLK = part(b_BCK, late).unsqueeze(1) * within(late);
      to_BLC.narrow(2, late.begin, late.size()).copy_(at::matmul(b_BLLK, a.unsqueeze(3)).squeeze(3));
    });
    return mild_ ? all_BCC.tril_() : all_BCC;
  }

  // Adds the gradients of a, of b and of the sums; that of the products is zero for j > i. A pair's decay is
  // a factor of its product, so that the gradient of its logarithm is product · dproduct. By channel this is
  // a·da − b·db, channel by channel.
  void backward(const at::Tensor& dproducts_BCC, const at::Tensor& products_BCC, const at::Tensor& a_BCK,
                const at::Tensor& b_BCK, at::Tensor da_BCK, at::Tensor db_BCK, at::Tensor dsum_BCW) const {
    if (between_.defined()) {
      const at::Tensor d_BCC = dproducts_BCC * between_, dlog_BCC = dproducts_BCC * products_BCC;
      da_BCK.baddbmm_(d_BCC, b_BCK);
      db_BCK.baddbmm_(turned(d_BCC), a_BCK);
      dsum_BCW.add_(dlog_BCC.sum(2, /*keepdim=*/true)).sub_(turned(dlog_BCC.sum(1, /*keepdim=*/true)));
      return;
    }
    at::Tensor own_da_BCK = at::zeros_like(a_BCK), own_db_BCK = at::zeros_like(b_BCK);
    through_factors(dproducts_BCC, a_BCK, b_BCK, own_da_BCK, own_db_BCK);
    dsum_BCW.addcmul_(a_BCK, own_da_BCK).addcmul_(b_BCK, own_db_BCK, -1);
    da_BCK.add_(own_da_BCK);
    db_BCK.add_(own_db_BCK);
  }

 private:
  // Adds the gradients of a and b for decays by channel.
  void through_factors(const at::Tensor& dproducts_BCC, const at::Tensor& a_BCK, const at::Tensor& b_BCK,
                       at::Tensor da_BCK, at::Tensor db_BCK) const {
    RECORD_USER_SCOPE("sluice::decayed_products_backward");
    if constexpr (gpu::kBuilt) {
      if (gpu::decayed_products_backward(dproducts_BCC, a_BCK, b_BCK, sum_, da_BCK, db_BCK)) return;
    }
    for_each_block([&](base::Interval late) {
      const at::Tensor a = part(a_BCK, late), d_BLC = part(dproducts_BCC, late);
      const base::Interval early = factored(late);
      if (!early.empty()) {
        const at::Tensor d = d_BLC.narrow(2, 0, early.end), to = to_late(late),
                         from = from_early(late, early);
        part(da_BCK, late).add_(at::bmm(d, part(b_BCK, early) * from).mul_(to));
        part(db_BCK, early).add_(at::bmm(turned(d), a * to).mul_(from));
      }
      if (mild_) return;
      const at::Tensor d = d_BLC.narrow(2, late.begin, late.size());
      at::Tensor decay_BLLK = within(late);
      const at::Tensor b_BLLK = part(b_BCK, late).unsqueeze(1) * decay_BLLK;
      part(da_BCK, late).add_(at::matmul(d.unsqueeze(2), b_BLLK).squeeze(2));
      part(db_BCK, late).add_(decay_BLLK.mul_(a.unsqueeze(2)).mul_(d.unsqueeze(3)).sum(1));
    });
  }

  int64_t rows() const { return sum_.size(1); }
  static at::Tensor part(const at::Tensor& x_BCX, base::Interval some) {
    return x_BCX.narrow(1, some.begin, some.size());
  }
  template <typename Visit>
  void for_each_block(Visit visit) const {
    for (int64_t begin = 0; begin < rows(); begin += block_)
      visit(base::Interval{begin, std::min(begin + block_, rows())});
  }
  // Whether the inverse decays within blocks stay far from overflow.
  bool is_mild() const {
    const double most = sum_.scalar_type() == at::kDouble ? 300 : 40;
    bool mild = true;
    for_each_block([&](base::Interval block) {
      const at::Tensor lost = sum_.narrow(1, block.begin, 1) - sum_.narrow(1, block.end - 1, 1);
      mild = mild && lost.max().item<double>() <= most;
    });
    return mild;
  }
  // The rows whose products with a block's rows are computed from two factors.
  base::Interval factored(base::Interval late) const { return {0, mild_ ? late.end : late.begin}; }
  at::Tensor to_late(base::Interval late) const {
    return (part(sum_, late) - sum_.narrow(1, late.begin, 1)).exp_();
  }
  at::Tensor from_early(base::Interval late, base::Interval early) const {
    return (sum_.narrow(1, late.begin, 1) - part(sum_, early)).exp_();
  }
  at::Tensor within(base::Interval late) const {
    const at::Tensor sum = part(sum_, late);
    const at::Tensor behind =
        at::ones({late.size(), late.size()}, sum.options().dtype(at::kBool)).triu(1).unsqueeze(2);
    return (sum.unsqueeze(2) - sum.unsqueeze(1)).masked_fill_(behind, -INFINITY).exp_();
  }

  const at::Tensor& sum_;
  const at::Tensor& between_;
  int64_t block_ = kBlock;
  bool mild_ = false;
};

// Sums over channels if decays are by head.
at::Tensor as_decays(const at::Tensor& x_BCK, int64_t width) {
  return width == 1 ? x_BCK.sum(2, /*keepdim=*/true) : x_BCK;
}

}  // namespace

at::Tensor HeadsRecurrence::gathered(const at::Tensor& x_THW) const {
  return rows_in_chunks(x_THW, chunks_, heads_);
}
at::Tensor HeadsRecurrence::scattered(const at::Tensor& x_BCW) const {
  return rows_of_chunks(x_BCW, chunks_, heads_);
}
at::Tensor HeadsRecurrence::by_key_heads(const at::Tensor& x_BCK) const {
  return rows_of_chunks(x_BCK, chunks_, heads_, heads_ / key_heads_);
}

HeadsRecurrence::HeadsRecurrence(const RecurrenceInput& input, const RecurrenceChunks& chunks)
    : chunks_(chunks),
      heads_(input.v_THD.size(1)),
      key_heads_(input.k_TGK.size(1)),
      key_width_(input.k_TGK.size(2)),
      width_(input.v_THD.size(2)),
      delta_(input.delta),
      rated_(input.rate_TH.defined()) {
  q_BCK = gathered(input.q_TGK);
  k_BCK = gathered(input.k_TGK);
  v_BCD = gathered(input.v_THD);
  if (rated_) rate_BC1 = gathered(input.rate_TH.unsqueeze(2));
  sum_BCW = gathered(input.log_decay.dim() == 2 ? input.log_decay.unsqueeze(2) : input.log_decay).cumsum(1);
  const at::Tensor whole_B1W = sum_BCW.narrow(1, chunks_.chunk - 1, 1);
  in_BCW = sum_BCW.exp();
  left_BCW = (whole_B1W - sum_BCW).exp_();
  end_BW1 = turned(whole_B1W.exp());
  if (sum_BCW.size(2) == 1) between_BCC = decays_between(sum_BCW);
  left_BCK = k_BCK * left_BCW;
  const Decayed decayed(sum_BCW, between_BCC);
  score_BCC = decayed.products(q_BCK, k_BCK);
  if (!delta_) return;
  overlap_BCC = decayed.products(k_BCK, k_BCK).tril_(-1);
  at::Tensor system_BCC = rated_ ? overlap_BCC * rate_BC1 : overlap_BCC.clone();
  const at::Tensor one_CC = at::eye(chunks_.chunk, system_BCC.options());
  system_BCC.add_(one_CC);
  inverse_BCC = at::linalg_solve_triangular(system_BCC, one_CC.expand_as(system_BCC), /*upper=*/false,
                                            /*left=*/true, /*unitriangular=*/true)
                    .contiguous();
  at::Tensor read_BCK = k_BCK * in_BCW;
  if (rated_) read_BCK.mul_(rate_BC1);
  reads_BCK = at::bmm(inverse_BCC, read_BCK);
}

at::Tensor HeadsRecurrence::updates(const at::Tensor& value_BCX) const {
  const at::Tensor u_BCX = rated_ ? value_BCX * rate_BC1 : value_BCX.clone();
  return delta_ ? at::bmm(inverse_BCC, u_BCX) : u_BCX;
}

at::Tensor HeadsRecurrence::states(const at::Tensor& given_PHKD, int64_t columns) const {
  const int64_t pieces = chunks_.pieces();
  if (!given_PHKD.defined()) return at::zeros({pieces * heads_, key_width_, columns}, v_BCD.options());
  return given_PHKD.index_select(0, chunks_.piece_of_state_P).reshape({pieces * heads_, key_width_, columns});
}

at::Tensor HeadsRecurrence::by_piece(const at::Tensor& state_SKX) const {
  return state_SKX.view({chunks_.pieces(), heads_, key_width_, -1}).index_select(0, chunks_.state_of_piece_P);
}

void HeadsRecurrence::pass(const at::Tensor& state_SKX, const at::Tensor& u_BCX,
                           const at::Tensor& came_BKX) const {
  pass_states({.chunks = chunks_,
               .heads = heads_,
               .state_SKX = state_SKX,
               .rows_BCX = u_BCX,
               .read_BCK = reads_BCK,
               .read_factor = -1,
               .end_BW1 = end_BW1,
               .added_BKX = {},
               .left_BCK = left_BCK,
               .came_BKX = came_BKX});
}

void HeadsRecurrence::pass_back(const at::Tensor& dstate_SKX, const at::Tensor& du_BCX,
                                const at::Tensor& came_BKX, const at::Tensor& added_BKX) const {
  pass_states({.chunks = chunks_,
               .heads = heads_,
               .back = true,
               .state_SKX = dstate_SKX,
               .rows_BCX = du_BCX,
               .read_BCK = left_BCK,
               .end_BW1 = end_BW1,
               .added_BKX = added_BKX,
               .left_BCK = reads_BCK,
               .left_factor = -1,
               .came_BKX = came_BKX});
}

at::Tensor HeadsRecurrence::forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD) const {
  const at::Tensor state_SKD = states(begin_PHKD, width_);
  at::Tensor u_BCD = updates(v_BCD),
             came_BKD = at::empty({v_BCD.size(0), key_width_, width_}, v_BCD.options());
  pass(state_SKD, u_BCD, came_BKD);
  if (end_PHKD != nullptr) *end_PHKD = by_piece(state_SKD);
  const at::Tensor out_BCD = at::bmm(score_BCC, u_BCD).baddbmm_(q_BCK * in_BCW, came_BKD);
  u_BCD.reset();
  came_BKD.reset();
  return scattered(out_BCD);
}

// Columns of a state are independent, so a state that begins as [0 | I] ends as [added |
// transition].
RecurrencePassage HeadsRecurrence::passage() const {
  const int64_t pieces = chunks_.pieces();
  at::Tensor state_SKX = states({}, width_);
  if (!delta_) {
    pass(state_SKX, updates(v_BCD), {});
    at::Tensor decay_SK1 = at::ones({pieces * heads_, key_width_, 1}, v_BCD.options());
    for (const base::Interval& level : chunks_.levels)
      decay_SK1.narrow(0, 0, level.size() * heads_)
          .mul_(end_BW1.narrow(0, level.begin * heads_, level.size() * heads_));
    return {by_piece(state_SKX), by_piece(decay_SK1)};
  }
  const at::Tensor one_SKK =
      at::eye(key_width_, v_BCD.options()).expand({pieces * heads_, key_width_, key_width_});
  state_SKX = at::cat({state_SKX, one_SKK}, 2);
  pass(state_SKX, at::constant_pad_nd(updates(v_BCD), {0, key_width_}), {});
  const at::Tensor both = by_piece(state_SKX);
  return {both.narrow(3, 0, width_), both.narrow(3, width_, key_width_)};
}

// Backward over chunks: du of the updates, dr = inverseᵀ·du, and the gradient of a chunk's initial state,
// directly and through the rows.
at::Tensor HeadsRecurrence::begin_gradient(const at::Tensor& dout_THD) const {
  const at::Tensor dout_BCD = gathered(dout_THD), dstate_SKD = states({}, width_);
  pass_back(dstate_SKD, at::bmm(turned(score_BCC), dout_BCD), {}, at::bmm(turned(q_BCK * in_BCW), dout_BCD));
  return by_piece(dstate_SKD);
}

RecurrenceGradient HeadsRecurrence::backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                                             const at::Tensor& dend_PHKD) const {
  const at::Tensor dout_BCD = gathered(dout_THD);
  // Recompute forward: the chunks' initial states and their updates.
  at::Tensor state_BKD = at::empty({v_BCD.size(0), key_width_, width_}, v_BCD.options());
  const at::Tensor u_BCD = updates(v_BCD);
  pass(states(begin_PHKD, width_), u_BCD, state_BKD);

  // Backward through states: gradients of the right sides solved for u, of left_BCK and of the decay of a
  // chunk's state.
  at::Tensor dr_BCD = at::bmm(turned(score_BCC), dout_BCD);
  at::Tensor dstate_BKD = at::bmm(turned(q_BCK * in_BCW), dout_BCD);
  pass_back(states(dend_PHKD, width_), dr_BCD, dstate_BKD, dstate_BKD);
  if (delta_) dr_BCD = at::bmm(turned(inverse_BCC), dr_BCD);
  const at::Tensor dleft_BCK = at::bmm(u_BCD, turned(dstate_BKD));
  const at::Tensor dend_BK1 = dstate_BKD.mul_(state_BKD).sum(2, /*keepdim=*/true);
  dstate_BKD.reset();

  RecurrenceGradient gradient;
  const int64_t decays = sum_BCW.size(2);
  // Through the rows' reads of states and their additions to states.
  const at::Tensor dvalue_BCD = rated_ ? dr_BCD * rate_BC1 : dr_BCD;
  at::Tensor drate_BC1;
  if (rated_) {
    drate_BC1 = (dr_BCD * v_BCD).sum(2, /*keepdim=*/true);
    if (delta_) drate_BC1.sub_((dr_BCD * at::bmm(k_BCK * in_BCW, state_BKD)).sum(2, /*keepdim=*/true));
  }
  at::Tensor dq_BCK = at::bmm(dout_BCD, turned(state_BKD)).mul_(in_BCW);
  at::Tensor dsum_BCW = as_decays(q_BCK * dq_BCK, decays);
  at::Tensor dk_BCK = dleft_BCK.mul_(left_BCW);
  const at::Tensor dleft_BCW = as_decays(k_BCK * dk_BCK, decays);
  dsum_BCW.sub_(dleft_BCW);
  at::Tensor dwhole_B1W = turned(end_BW1 * dend_BK1);
  if (decays == 1) dwhole_B1W = dwhole_B1W.sum(2, /*keepdim=*/true);
  dsum_BCW.narrow(1, chunks_.chunk - 1, 1).add_(dwhole_B1W).add_(dleft_BCW.sum(1, /*keepdim=*/true));
  if (delta_) {
    const at::Tensor dread_BCK = at::bmm(dvalue_BCD, turned(state_BKD)).mul_(in_BCW).neg_();
    dsum_BCW.add_(as_decays(k_BCK * dread_BCK, decays));
    dk_BCK.add_(dread_BCK);
  }
  state_BKD.reset();
  // Through the decayed products of rows.
  const Decayed decayed(sum_BCW, between_BCC);
  decayed.backward(at::bmm(dout_BCD, turned(u_BCD)).tril_(), score_BCC, q_BCK, k_BCK, dq_BCK, dk_BCK,
                   dsum_BCW);
  if (delta_) {
    at::Tensor dsystem_BCC = at::bmm(dr_BCD, turned(u_BCD)).neg_().tril_(-1);
    if (rated_) {
      drate_BC1.add_((dsystem_BCC * overlap_BCC).sum(2, /*keepdim=*/true));
      dsystem_BCC.mul_(rate_BC1);
    }
    decayed.backward(dsystem_BCC, overlap_BCC, k_BCK, k_BCK, dk_BCK, dk_BCK, dsum_BCW);
  }

  gradient.dq_TGK = by_key_heads(dq_BCK);
  gradient.dk_TGK = by_key_heads(dk_BCK);
  gradient.dv_THD = scattered(dvalue_BCD);
  if (rated_) gradient.drate_TH = scattered(drate_BC1).squeeze(2);
  // A row's own decay is in its sum and in the sums of all rows behind it.
  const at::Tensor all_B1W = dsum_BCW.sum(1, /*keepdim=*/true);
  gradient.dlog_decay = scattered(all_B1W - dsum_BCW.cumsum(1) + dsum_BCW);
  if (decays == 1) gradient.dlog_decay = gradient.dlog_decay.squeeze(2);
  return gradient;
}

}  // namespace sluice::ops
