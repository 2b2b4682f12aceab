// What training minimises, as a function of the rows that have a target. The head computes it (head.h) while
// it has their logits; rows' figures are of the whole vocabulary, on every TP rank alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace sluice::layers {

// R rows. By the gradient of their sum with respect to the logits a loss is
// softmax_R · softmax(logits) − target_R · [column is the target]; undefined tensors stand for ones.
struct RowLosses {
  at::Tensor reported_R;  // double: what is told of a row, and summed over all of them
  at::Tensor softmax_R;
  at::Tensor target_R;
  at::Tensor notes_RK;  // double: what else is summed over all rows; undefined where nothing is
};

// Immutable. Every term must be a sum over rows, so that no cut of the batch changes it.
class Loss {
 public:
  Loss() = default;
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;
  virtual ~Loss() = default;

  // `whole_R3`: softmax statistics (ops/cross_entropy.h). `given_RF`, double: what the batch says of each
  // row, as many figures as this loss takes; undefined where that is none.
  virtual RowLosses of(const at::Tensor& whole_R3, const at::Tensor& given_RF) const = 0;
  virtual int64_t notes() const { return 0; }  // K
};

// R rows of a head of numbers (model::HeadKind), K numbers of each.
struct NumberLosses {
  at::Tensor loss_R;       // these are double
  at::Tensor gradient_RK;  // of their sum
  at::Tensor notes_RN;     // as RowLosses::notes_RK
};

// What a head of numbers minimises, of all rows that have a target. Immutable; its terms are sums over rows
// as a Loss's.
class NumberLoss {
 public:
  NumberLoss() = default;
  NumberLoss(const NumberLoss&) = delete;
  NumberLoss& operator=(const NumberLoss&) = delete;
  virtual ~NumberLoss() = default;

  // `numbers_RK` double; `target_R` int64, of losses that know classes the row's; `given_RF` as in Loss::of.
  virtual NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& target_R,
                          const at::Tensor& given_RF) const = 0;
  virtual int64_t notes() const { return 0; }  // N
};

// −log softmax(target).
std::shared_ptr<const Loss> cross_entropy();

// The same and z · log²Z, Z the softmax's denominator, which keeps logits from drifting (Chowdhery et al.,
// PaLM, 2022, section 5). Its term is in the gradients alone: what is reported stays the cross-entropy, so
// runs compare. REQUIRES: z >= 0; 0 is cross_entropy().
std::shared_ptr<const Loss> with_z_loss(double z);

}  // namespace sluice::layers
