#include "ops/recurrence.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
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

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "ops/device.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

// Blocks of a chunk between whose rows decays by channel multiply element by element.
constexpr int64_t kBlock = 16;

// The size that costs least: its places, and for each chunk as much as so many for the state that it updates.
// At most a quarter more places than rows, which is what is counted on (model/recurrent_kind.cpp).
int64_t best_chunk(const std::vector<int64_t>& lengths) {
  constexpr int64_t kSizes[] = {64, 32, 16, 8, 4, 2, 1};
  constexpr int64_t kStateRows = 48;
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  int64_t best = 0, least = 0;
  for (const int64_t size : kSizes) {
    int64_t chunks = 0;
    for (const int64_t length : lengths) chunks += (length + size - 1) / size;
    const int64_t cost = chunks * (size + kStateRows);
    if (4 * chunks * size > 5 * rows || (best != 0 && cost >= least)) continue;
    best = size;
    least = cost;
  }
  return best;
}

at::Tensor turned(const at::Tensor& x) { return x.transpose(-1, -2); }

// exp(sum_i − sum_j) where j is not behind i; else 0. [B, C, C]
at::Tensor decays_between(const at::Tensor& sum_BC1) {
  const int64_t rows = sum_BC1.size(1);
  const at::Tensor behind_CC = at::ones({rows, rows}, sum_BC1.options().dtype(at::kBool)).triu(1);
  return (sum_BC1 - turned(sum_BC1)).masked_fill_(behind_CC, -INFINITY).exp_();
}

// Σ_k a_ik·b_jk·exp(sum_ik − sum_jk) over rows j that are not behind i. Between blocks of rows both factors
// are taken from the later block's first row, so that neither grows; within one each pair has its own.
class Decayed {
 public:
  // `between_BCC`: decays_between() of decays by head.
  Decayed(const at::Tensor& sum_BCW, const at::Tensor& between_BCC) : sum_(sum_BCW), between_(between_BCC) {}

  at::Tensor products(const at::Tensor& a_BCK, const at::Tensor& b_BCK) const {
    if (between_.defined()) return at::bmm(a_BCK, turned(b_BCK)).mul_(between_);
    at::Tensor all_BCC = at::zeros({a_BCK.size(0), rows(), rows()}, a_BCK.options());
    for_each_block([&](base::Interval late) {
      const at::Tensor a = part(a_BCK, late), to_BLC = part(all_BCC, late);
      if (late.begin > 0) {
        const at::Tensor b = part(b_BCK, {0, late.begin}) * from_early(late);
        to_BLC.narrow(2, 0, late.begin).copy_(at::bmm(a * to_late(late), turned(b)));
      }
      const at::Tensor b_BLLK = part(b_BCK, late).unsqueeze(1) * within(late);
      to_BLC.narrow(2, late.begin, late.size()).copy_(at::matmul(b_BLLK, a.unsqueeze(3)).squeeze(3));
    });
    return all_BCC;
  }

  // Adds what a gradient of the products, zero where j is behind i, gives their factors.
  void backward(const at::Tensor& dproducts_BCC, const at::Tensor& a_BCK, const at::Tensor& b_BCK,
                at::Tensor da_BCK, at::Tensor db_BCK) const {
    if (between_.defined()) {
      const at::Tensor d_BCC = dproducts_BCC * between_;
      da_BCK.baddbmm_(d_BCC, b_BCK);
      db_BCK.baddbmm_(turned(d_BCC), a_BCK);
      return;
    }
    for_each_block([&](base::Interval late) {
      const at::Tensor a = part(a_BCK, late), d_BLC = part(dproducts_BCC, late);
      if (late.begin > 0) {
        const base::Interval early{0, late.begin};
        const at::Tensor d = d_BLC.narrow(2, 0, late.begin), to = to_late(late), from = from_early(late);
        part(da_BCK, late).add_(at::bmm(d, part(b_BCK, early) * from).mul_(to));
        part(db_BCK, early).add_(at::bmm(turned(d), a * to).mul_(from));
      }
      const at::Tensor d = d_BLC.narrow(2, late.begin, late.size());
      at::Tensor decay_BLLK = within(late);
      const at::Tensor b_BLLK = part(b_BCK, late).unsqueeze(1) * decay_BLLK;
      part(da_BCK, late).add_(at::matmul(d.unsqueeze(2), b_BLLK).squeeze(2));
      part(db_BCK, late).add_(decay_BLLK.mul_(a.unsqueeze(2)).mul_(d.unsqueeze(3)).sum(1));
    });
  }

 private:
  int64_t rows() const { return sum_.size(1); }
  static at::Tensor part(const at::Tensor& x_BCX, base::Interval some) {
    return x_BCX.narrow(1, some.begin, some.size());
  }
  template <typename Visit>
  void for_each_block(Visit visit) const {
    for (int64_t begin = 0; begin < rows(); begin += kBlock)
      visit(base::Interval{begin, std::min(begin + kBlock, rows())});
  }
  at::Tensor to_late(base::Interval late) const {
    return (part(sum_, late) - sum_.narrow(1, late.begin, 1)).exp_();
  }
  at::Tensor from_early(base::Interval late) const {
    return (sum_.narrow(1, late.begin, 1) - part(sum_, {0, late.begin})).exp_();
  }
  at::Tensor within(base::Interval late) const {
    const at::Tensor sum = part(sum_, late);
    const at::Tensor behind =
        at::ones({late.size(), late.size()}, sum.options().dtype(at::kBool)).triu(1).unsqueeze(2);
    return (sum.unsqueeze(2) - sum.unsqueeze(1)).masked_fill_(behind, -INFINITY).exp_();
  }

  const at::Tensor& sum_;
  const at::Tensor& between_;
};

at::Tensor with_row_of_zeros(const at::Tensor& x_TX) {
  std::vector<int64_t> one = x_TX.sizes().vec();
  one.front() = 1;
  return at::cat({x_TX, at::zeros(one, x_TX.options())});
}

// Over channels where decays have none.
at::Tensor as_decays(const at::Tensor& x_BCK, int64_t width) {
  return width == 1 ? x_BCK.sum(2, /*keepdim=*/true) : x_BCK;
}

}  // namespace

RecurrenceChunks recurrence_chunks(const std::vector<int64_t>& lengths, int64_t rows,
                                   const at::Device& device, int64_t chunk) {
  SLUICE_ASSERT(!lengths.empty(), "a recurrence over no pieces");
  RecurrenceChunks chunks;
  chunks.chunk = chunk > 0 ? chunk : best_chunk(lengths);
  chunks.rows = rows;
  const auto count = [&](int64_t piece) {
    return (lengths[static_cast<size_t>(piece)] + chunks.chunk - 1) / chunks.chunk;
  };
  std::vector<int64_t> begins{0}, order(lengths.size());
  for (const int64_t length : lengths) begins.push_back(begins.back() + length);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), count);
  std::vector<int64_t> row_of_place, place_of_row(static_cast<size_t>(rows), -1),
      state_of_piece(order.size());
  for (size_t state = 0; state < order.size(); ++state)
    state_of_piece[static_cast<size_t>(order[state])] = static_cast<int64_t>(state);
  int64_t made = 0;
  for (int64_t level = 0; level < count(order.front()); ++level) {
    const int64_t first = made;
    for (const int64_t piece : order) {
      if (count(piece) <= level) break;
      const int64_t begin = begins[static_cast<size_t>(piece)] + level * chunks.chunk;
      for (int64_t place = 0; place < chunks.chunk; ++place) {
        const bool there = begin + place < begins[static_cast<size_t>(piece) + 1];
        if (there) place_of_row[static_cast<size_t>(begin + place)] = made * chunks.chunk + place;
        row_of_place.push_back(there ? begin + place : rows);
      }
      ++made;
    }
    chunks.levels.push_back({first, made});
  }
  std::ranges::replace(place_of_row, -1, made * chunks.chunk);
  chunks.row_M = to_device(row_of_place, device);
  chunks.place_T = to_device(place_of_row, device);
  chunks.piece_of_state_P = to_device(order, device);
  chunks.state_of_piece_P = to_device(state_of_piece, device);
  return chunks;
}

at::Tensor Recurrence::gathered(const at::Tensor& x_TX) const {
  const int64_t heads = x_TX.size(1);
  at::Tensor all = with_row_of_zeros(x_TX).index_select(0, chunks_.row_M);
  const int64_t chunks = all.size(0) / chunks_.chunk;
  all = all.view({chunks, chunks_.chunk, heads, -1}).transpose(1, 2);
  if (heads != heads_) all = all.repeat_interleave(heads_ / heads, 1);
  return all.to(accumulator_type(x_TX)).reshape({chunks * heads_, chunks_.chunk, -1});
}

at::Tensor Recurrence::scattered(const at::Tensor& x_BCW) const {
  const int64_t chunks = x_BCW.size(0) / heads_;
  const at::Tensor rows =
      x_BCW.view({chunks, heads_, chunks_.chunk, -1}).transpose(1, 2).reshape({-1, heads_, x_BCW.size(2)});
  return with_row_of_zeros(rows).index_select(0, chunks_.place_T);
}

at::Tensor Recurrence::by_key_heads(const at::Tensor& x_BCK) const {
  const at::Tensor all_THK = scattered(x_BCK);
  if (heads_ == key_heads_) return all_THK;
  return all_THK.view({all_THK.size(0), key_heads_, heads_ / key_heads_, key_width_}).sum(2);
}

Recurrence::Recurrence(const RecurrenceInput& input, const RecurrenceChunks& chunks)
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

at::Tensor Recurrence::updates(const at::Tensor& value_BCX) const {
  at::Tensor u_BCX = rated_ ? value_BCX * rate_BC1 : value_BCX;
  return delta_ ? at::bmm(inverse_BCC, u_BCX) : u_BCX;
}

at::Tensor Recurrence::states(const at::Tensor& given_PHKD, int64_t columns) const {
  const int64_t pieces = chunks_.pieces();
  if (!given_PHKD.defined()) return at::zeros({pieces * heads_, key_width_, columns}, v_BCD.options());
  return given_PHKD.index_select(0, chunks_.piece_of_state_P).reshape({pieces * heads_, key_width_, columns});
}

at::Tensor Recurrence::by_piece(const at::Tensor& state_SKX) const {
  return state_SKX.view({chunks_.pieces(), heads_, key_width_, -1}).index_select(0, chunks_.state_of_piece_P);
}

template <typename Visit>
void Recurrence::pass(const at::Tensor& state_SKX, const at::Tensor& u_BCX, Visit visit) const {
  for (const base::Interval& level : chunks_.levels) {
    at::Tensor now = state_SKX.narrow(0, 0, level.size() * heads_);
    at::Tensor u = of_level(u_BCX, level);
    if (delta_) u = at::baddbmm(u, of_level(reads_BCK, level), now, /*beta=*/1, /*alpha=*/-1);
    visit(level, now, u);
    now.mul_(of_level(end_BW1, level)).baddbmm_(turned(of_level(left_BCK, level)), u);
  }
}

at::Tensor Recurrence::forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD) const {
  const at::Tensor out_BCD = at::empty_like(v_BCD), in_BCK = q_BCK * in_BCW;
  const at::Tensor state_SKD = states(begin_PHKD, width_);
  pass(state_SKD, updates(v_BCD), [&](base::Interval level, const at::Tensor& state, const at::Tensor& u) {
    at::Tensor out = of_level(out_BCD, level);
    at::bmm_out(out, of_level(score_BCC, level), u);
    out.baddbmm_(of_level(in_BCK, level), state);
  });
  if (end_PHKD != nullptr) *end_PHKD = by_piece(state_SKD);
  return scattered(out_BCD);
}

// Columns of a state don't know of each other, so a state that begins as [0 | I] ends as [added |
// transition].
Recurrence::Passage Recurrence::passage() const {
  const int64_t pieces = chunks_.pieces();
  const auto nothing = [](base::Interval, const at::Tensor&, const at::Tensor&) {};
  at::Tensor state_SKX = states({}, width_);
  if (!delta_) {
    pass(state_SKX, updates(v_BCD), nothing);
    at::Tensor decay_SK1 = at::ones({pieces * heads_, key_width_, 1}, v_BCD.options());
    for (const base::Interval& level : chunks_.levels)
      decay_SK1.narrow(0, 0, level.size() * heads_).mul_(of_level(end_BW1, level));
    return {by_piece(state_SKX), by_piece(decay_SK1)};
  }
  const at::Tensor one_SKK =
      at::eye(key_width_, v_BCD.options()).expand({pieces * heads_, key_width_, key_width_});
  state_SKX = at::cat({state_SKX, one_SKK}, 2);
  pass(state_SKX, at::constant_pad_nd(updates(v_BCD), {0, key_width_}), nothing);
  const at::Tensor both = by_piece(state_SKX);
  return {both.narrow(3, 0, width_), both.narrow(3, width_, key_width_)};
}

at::Tensor Recurrence::Passage::of(const at::Tensor& begin_HKD, int64_t piece, base::Interval columns) const {
  const at::Tensor added = added_PHKD[piece].narrow(2, columns.begin, columns.size());
  if (!begin_HKD.defined()) return added.contiguous();
  const at::Tensor by = transition[piece];
  return by.size(2) == 1 ? at::addcmul(added, by, begin_HKD) : at::baddbmm(added, by, begin_HKD);
}

at::Tensor Recurrence::Passage::back_of(const at::Tensor& dend_HKD, int64_t piece,
                                        base::Interval columns) const {
  const at::Tensor added = added_PHKD[piece].narrow(2, columns.begin, columns.size());
  if (!dend_HKD.defined()) return added.contiguous();
  const at::Tensor by = transition[piece];
  return by.size(2) == 1 ? at::addcmul(added, by, dend_HKD) : at::baddbmm(added, turned(by), dend_HKD);
}

// A chunk's rows backward: du of its updates, dr = inverseᵀ·du, and what its begin gets past and through
// them.
at::Tensor Recurrence::begin_gradient(const at::Tensor& dout_THD) const {
  const at::Tensor dout_BCD = gathered(dout_THD), in_BCK = q_BCK * in_BCW;
  at::Tensor dstate_SKD = states({}, width_);
  for (auto level = chunks_.levels.rbegin(); level != chunks_.levels.rend(); ++level) {
    at::Tensor now = dstate_SKD.narrow(0, 0, level->size() * heads_);
    const at::Tensor dout = of_level(dout_BCD, *level);
    at::Tensor du = at::bmm(turned(of_level(score_BCC, *level)), dout);
    if (delta_) du.baddbmm_(of_level(left_BCK, *level), now);
    now.mul_(of_level(end_BW1, *level)).baddbmm_(turned(of_level(in_BCK, *level)), dout);
    if (delta_) now.baddbmm_(turned(of_level(reads_BCK, *level)), du, /*beta=*/1, /*alpha=*/-1);
  }
  return by_piece(dstate_SKD);
}

RecurrenceGradient Recurrence::backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                                        const at::Tensor& dend_PHKD) const {
  const at::Tensor dout_BCD = gathered(dout_THD);
  // Forward again: what chunks begin with and what they add.
  at::Tensor state_BKD = at::empty({v_BCD.size(0), key_width_, width_}, v_BCD.options());
  const at::Tensor u_BCD = at::empty_like(v_BCD);
  pass(states(begin_PHKD, width_), updates(v_BCD),
       [&](base::Interval level, const at::Tensor& state, const at::Tensor& u) {
         of_level(state_BKD, level).copy_(state);
         of_level(u_BCD, level).copy_(u);
       });

  // Backward through states: the gradients of what u are the solution to, of what rows leave and of what of a
  // state is left.
  const at::Tensor dr_BCD = at::empty_like(v_BCD), dleft_BCK = at::empty_like(k_BCK);
  const at::Tensor dend_BK1 = at::empty({v_BCD.size(0), key_width_, 1}, v_BCD.options());
  at::Tensor dstate_SKD = states(dend_PHKD, width_);
  for (auto level = chunks_.levels.rbegin(); level != chunks_.levels.rend(); ++level) {
    at::Tensor now = dstate_SKD.narrow(0, 0, level->size() * heads_);
    const at::Tensor dout = of_level(dout_BCD, *level), state = of_level(state_BKD, *level);
    at::Tensor du = at::bmm(turned(of_level(score_BCC, *level)), dout);
    du.baddbmm_(of_level(left_BCK, *level), now);
    at::Tensor dleft = of_level(dleft_BCK, *level);
    at::bmm_out(dleft, of_level(u_BCD, *level), turned(now));
    of_level(dend_BK1, *level).copy_((state * now).sum(2, /*keepdim=*/true));
    const at::Tensor asked = of_level(q_BCK, *level) * of_level(in_BCW, *level);
    now.mul_(of_level(end_BW1, *level)).baddbmm_(turned(asked), dout);
    if (delta_) {
      now.baddbmm_(turned(of_level(reads_BCK, *level)), du, /*beta=*/1, /*alpha=*/-1);
      du = at::bmm(turned(of_level(inverse_BCC, *level)), du);
    }
    of_level(dr_BCD, *level).copy_(du);
  }
  dstate_SKD.reset();

  RecurrenceGradient gradient;
  const int64_t decays = sum_BCW.size(2);
  // Through what rows take of states and leave them.
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
  // Through the decayed products of rows: what factors get is also what their decays do, a·da − b·db.
  const Decayed decayed(sum_BCW, between_BCC);
  const auto through = [&](const at::Tensor& dproducts_BCC, const at::Tensor& a_BCK,
                           const at::Tensor& da_sum_BCK) {
    at::Tensor da_BCK = at::zeros_like(a_BCK), db_BCK = at::zeros_like(k_BCK);
    decayed.backward(dproducts_BCC, a_BCK, k_BCK, da_BCK, db_BCK);
    dsum_BCW.add_(as_decays(a_BCK * da_BCK, decays)).sub_(as_decays(k_BCK * db_BCK, decays));
    at::Tensor sum_BCK = da_sum_BCK;
    sum_BCK.add_(da_BCK);
    dk_BCK.add_(db_BCK);
  };
  through(at::bmm(dout_BCD, turned(u_BCD)).tril_(), q_BCK, dq_BCK);
  if (delta_) {
    at::Tensor dsystem_BCC = at::bmm(dr_BCD, turned(u_BCD)).neg_().tril_(-1);
    if (rated_) {
      drate_BC1.add_((dsystem_BCC * overlap_BCC).sum(2, /*keepdim=*/true));
      dsystem_BCC.mul_(rate_BC1);
    }
    through(dsystem_BCC, k_BCK, dk_BCK);
  }

  gradient.dq_TGK = by_key_heads(dq_BCK);
  gradient.dk_TGK = by_key_heads(dk_BCK);
  gradient.dv_THD = scattered(dvalue_BCD);
  if (rated_) gradient.drate_TH = scattered(drate_BC1).squeeze(2);
  // A row's own decay is in its sum and in all behind it.
  const at::Tensor all_B1W = dsum_BCW.sum(1, /*keepdim=*/true);
  gradient.dlog_decay = scattered(all_B1W - dsum_BCW.cumsum(1) + dsum_BCW);
  if (decays == 1) gradient.dlog_decay = gradient.dlog_decay.squeeze(2);
  return gradient;
}

}  // namespace sluice::ops
