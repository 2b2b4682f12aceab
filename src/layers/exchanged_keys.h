// Rows that travel between lanes in place of keys and values, one row per token. Any lane that has a row
// makes the token's keys and values from it.
//
// Row and width names: B rows of a block, W width of a travelling row, K key heads, D their dimensions, J =
// 2K: a token's key heads followed by its value heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/interval.h"
#include "ops/attention.h"

namespace sluice::layers {

class ExchangedKeys {
 public:
  ExchangedKeys() = default;
  ExchangedKeys(const ExchangedKeys&) = delete;
  ExchangedKeys& operator=(const ExchangedKeys&) = delete;
  virtual ~ExchangedKeys() = default;

  virtual int64_t width() const = 0;
  // Writes the travelling rows of the lane's own `rows`.
  virtual void put(base::Interval rows, const at::Tensor& to_BW) const = 0;
  // Keys and values of received rows, [B, J, D].
  virtual at::Tensor keys_of(const at::Tensor& rows_BW) const = 0;
  // The gradient of received rows from that of their keys and values, in the latter's type. Also adds the
  // gradients of the parameters that make keys and values from the rows.
  virtual at::Tensor gradient(const at::Tensor& rows_BW, const at::Tensor& dkeys_BJD) const = 0;
  // Adds the gradient of the lane's own rows from all other lanes' queries.
  virtual void add(base::Interval rows, const at::Tensor& drows_BW) const = 0;
};

// Keys and values travel as they are.
class WholeKeys final : public ExchangedKeys {
 public:
  // `gradient`: where a backward adds gradients of keys and values; null in a forward.
  explicit WholeKeys(const ops::AttentionInput& input, const ops::AttentionGradient* gradient = nullptr)
      : input_(input), gradient_(gradient) {}

  int64_t width() const override { return 2 * heads() * dimension(); }
  void put(base::Interval rows, const at::Tensor& to_BW) const override {
    const at::Tensor to_BJD = as_heads(to_BW);
    keys_in(to_BJD).copy_(input_.k_TKD.narrow(0, rows.begin, rows.size()));
    values_in(to_BJD).copy_(input_.v_TKD.narrow(0, rows.begin, rows.size()));
  }
  at::Tensor keys_of(const at::Tensor& rows_BW) const override { return as_heads(rows_BW); }
  at::Tensor gradient(const at::Tensor& /*rows_BW*/, const at::Tensor& dkeys_BJD) const override {
    return dkeys_BJD.flatten(1);
  }
  void add(base::Interval rows, const at::Tensor& drows_BW) const override {
    const at::Tensor d_BJD = as_heads(drows_BW);
    gradient_->dk_TKD.narrow(0, rows.begin, rows.size()).add_(keys_in(d_BJD));
    gradient_->dv_TKD.narrow(0, rows.begin, rows.size()).add_(values_in(d_BJD));
  }

 private:
  int64_t heads() const { return input_.k_TKD.size(1); }
  int64_t dimension() const { return input_.k_TKD.size(2); }
  at::Tensor as_heads(const at::Tensor& rows_BW) const {
    return rows_BW.view({rows_BW.size(0), 2 * heads(), dimension()});
  }
  at::Tensor keys_in(const at::Tensor& x_BJD) const { return x_BJD.narrow(1, 0, heads()); }
  at::Tensor values_in(const at::Tensor& x_BJD) const { return x_BJD.narrow(1, heads(), heads()); }

  const ops::AttentionInput& input_;
  const ops::AttentionGradient* gradient_;  // borrowed; null: none is added
};

}  // namespace sluice::layers
