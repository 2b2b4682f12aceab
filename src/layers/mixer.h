// A mixer is the computation between the in-products and the out-product of a part on one TP rank. The frame
// around it (frame.h) supplies rows and products.
//
// Row names: S rows of this TP rank's shard, T all rows. Widths: H hidden, A input of the out product, W
// result of an in-product.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "layers/operation.h"
#include "layers/pending_products.h"
#include "layers/product.h"
#include "layers/residual.h"
#include "layers/site.h"

namespace sluice::layers {

// A product with the part's rows, x·wᵀ.
struct InProduct {
  enum class Of : uint8_t { kAllRows, kShard };
  std::string_view role;
  std::string_view bias = {};
  Of of = Of::kAllRows;
  bool narrow = true;  // may be in low precision
};

// The weights around a mixer by role, without norms.
struct Weights {
  std::string_view out = {}, out_bias = {};
  std::vector<InProduct> in;
  std::vector<InProduct> inner = {};  // gradients are added by the mixer itself
};

// State that a mixer keeps from a forward.
class MixerState : public State {
 public:
  // Tensors of this state that restore() recomputes from the part's rows.
  virtual std::vector<at::Tensor*> made_again() = 0;
  // Bytes that restore() allocates besides these.
  virtual int64_t made_beside_bytes() const { return 0; }
};
using MixerStatePtr = std::unique_ptr<MixerState>;

// The matrices of a part: weights, or gradients.
struct BoundWeights {
  NormVectors norm;
  Exit exit;  // its matrix is undefined if the mixer computes the part's sum itself
  std::vector<Matrix> in;
  std::vector<at::Tensor> in_bias;
  std::vector<at::Tensor> in_factor;  // multiply columns of in-products' results; none, or undefined: 1
  std::vector<Matrix> inner;
};

// The rows that a part works on; the norm and the all-gather run when rows are first requested.
class PartRows {
 public:
  PartRows(const LayerContext& context, const model::Part& part, const Weights& roles,
           const BoundWeights& weights, const at::Tensor& x_SH)
      : context_(context), part_(part), roles_(roles), weights_(weights), x_SH_(x_SH) {}

  // The part's input, without the part's norm.
  const at::Tensor& input_SH() const { return x_SH_; }
  const at::Tensor& shard_SH() {
    if (!input_.y_SH.defined()) input_ = enter(part_, x_SH_, weights_.norm);
    return input_.y_SH;
  }
  const at::Tensor& all_TH() {
    if (!all_TH_.defined()) all_TH_ = context_.parallel.all_gather_rows(shard_SH());
    return all_TH_;
  }
  // The result of one in-product, with its bias and factors.
  at::Tensor product(int which) {
    const auto at = static_cast<size_t>(which);
    const bool shard = roles_.in[at].of == InProduct::Of::kShard;
    at::Tensor y_TW = times_transposed(shard ? shard_SH() : all_TH(), weights_.in[at]);
    if (weights_.in_bias[at].defined()) y_TW.add_(weights_.in_bias[at]);
    if (!weights_.in_factor.empty() && weights_.in_factor[at].defined()) y_TW.mul_(weights_.in_factor[at]);
    return y_TW;
  }
  // Frees the rows, which are not requested again.
  void release() {
    all_TH_.reset();
    if (input_.y_SH.defined() && input_.inverse_rms_S.defined()) inverse_rms_S_ = input_.inverse_rms_S;
    input_ = {};
  }
  // The norm's inverse RMS; undefined without a norm.
  at::Tensor inverse_rms_S() const {
    return input_.inverse_rms_S.defined() ? input_.inverse_rms_S : inverse_rms_S_;
  }

 private:
  const LayerContext& context_;
  const model::Part& part_;
  const Weights& roles_;
  const BoundWeights& weights_;
  at::Tensor x_SH_, all_TH_, inverse_rms_S_;
  PartInput input_;
};

// The gradient of those rows, collected during a mixer's backward.
class PartGradient {
 public:
  struct Result {
    int which;
    at::Tensor dy_TW;
  };
  PartGradient(PendingProducts& pending, int first_inner, bool wants_out)
      : pending_(pending), first_inner_(first_inner), wants_out_(wants_out) {}

  // The gradient of an in-product's result.
  void add(int which, at::Tensor dy_TW) { left_.results.push_back({which, std::move(dy_TW)}); }
  // The rows' gradient from the mixer's own products. Gradients of in-products are added to it.
  void start(at::Tensor drows_TH) { left_.start_TH = std::move(drows_TH); }
  // The gradient of input_SH(), for a mixer that reads the unnormed rows itself.
  void add_input(at::Tensor dx_SH) { left_.dinput_SH = std::move(dx_SH); }
  // Inner products' weight gradients: inner weight gradient += aᵀ·b of rows that the pending products keep.
  PendingProducts& pending() { return pending_; }
  void inner_product(int inner, int a, PendingProducts::Side b, std::vector<AdapterRows> narrow = {}) {
    pending_.product(first_inner_ + inner, {a}, b, std::move(narrow));
  }
  void made(int inner, at::Tensor gradient) { pending_.made(first_inner_ + inner, std::move(gradient)); }
  // Whether the out product's weight gradient is wanted, which needs the out product's input.
  bool wants_out() const { return wants_out_; }

  // A matrix of experts: assignments in `a`, multiplied with the part's rows or its sum's gradient.
  struct Visits {
    int inner;
    at::Tensor a_VX;
    bool with_rows;
  };
  void add_visits(int inner, at::Tensor a_VX, bool with_rows) {
    left_.visits.push_back({inner, std::move(a_VX), with_rows});
  }
  void set_visited(PendingProducts::Visited visited) { left_.visited = std::move(visited); }
  // A product with the gradient of the part's sum: inner weight gradient += aᵀ·dsum.
  void add_with_sum(int inner, at::Tensor a_TX, std::vector<AdapterRows> narrow) {
    left_.with_sum.push_back({inner, std::move(a_TX), std::move(narrow)});
  }

  // Gradients that the mixer leaves to the frame.
  struct WithSum {
    int inner;
    at::Tensor a_TX;
    std::vector<AdapterRows> narrow;
  };
  struct Left {
    std::vector<Result> results;  // in the order of add()
    at::Tensor start_TH, dinput_SH;
    std::vector<Visits> visits;
    std::vector<WithSum> with_sum;
    PendingProducts::Visited visited;
  };
  Left take() { return std::move(left_); }

 private:
  PendingProducts& pending_;
  int first_inner_;
  bool wants_out_;
  Left left_;
};

struct Mixed {
  at::Tensor a_TA;            // input of the out product; without one, this TP rank's part of the sum [T, H]
  at::Tensor beside_SH = {};  // added after the sum over TP ranks; undefined: nothing
};

struct Arriving {
  at::Tensor da_TA;           // the gradient of Mixed::a_TA
  const at::Tensor& dsum_SH;  // gradient of the part's sum, on the shard
};

class Mixer {
 public:
  Mixer() = default;
  Mixer(const Mixer&) = delete;
  Mixer& operator=(const Mixer&) = delete;
  virtual ~Mixer() = default;

  // `saved` null: keeps nothing.
  virtual Mixed forward(const RowLayout& layout, PartRows& rows, MixerStatePtr* saved) const = 0;
  // The same result, from the tensors that are not recomputed and the part's rows.
  virtual Mixed again(const RowLayout& layout, PartRows& rows, MixerState& saved) const = 0;
  // Recomputes the tensors of MixerState::made_again() bit for bit.
  virtual void restore(const RowLayout& layout, PartRows& rows, MixerState& saved) const = 0;
  // Returns the out product's input (undefined without an out product, or if not wanted), and leaves
  // gradients in `to`.
  virtual at::Tensor backward(const RowLayout& layout, MixerStatePtr saved, Arriving from, PartRows& rows,
                              PartGradient& to) const = 0;
  virtual void help(const DispatchedRows& /*rows*/, Direction /*direction*/) const {}
};

}  // namespace sluice::layers
