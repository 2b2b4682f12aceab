// A training loss is a function of the rows that have a target. The head computes it (head.h) while it has
// their logits. A row's figures cover the whole vocabulary and are the same on every TP rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace sluice::layers {

// R rows. The gradient of the losses' sum with respect to the logits is
// softmax_R · softmax(logits) − target_R · [column is the target]; undefined tensors stand for ones.
struct RowLosses {
  at::Tensor reported_R;  // double: a row's loss for the report, which sums it over all rows
  at::Tensor softmax_R;
  at::Tensor target_R;
  at::Tensor notes_RK;  // double: further figures to be summed over all rows; undefined: none
};

// Immutable. Every term must be a sum over rows, so that no cut of the batch changes it.
class Loss {
 public:
  Loss() = default;
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;
  virtual ~Loss() = default;

  // `whole_R3`: softmax statistics (ops/cross_entropy.h). `given_RF`: double, the batch's figures for each
  // row, as many as this loss takes; undefined if it takes none.
  virtual RowLosses of(const at::Tensor& whole_R3, const at::Tensor& given_RF) const = 0;
  virtual int64_t notes() const { return 0; }  // K
};

// R rows of a head of numbers (model::HeadKind), K numbers each.
struct NumberLosses {
  at::Tensor loss_R;       // double, as the others
  at::Tensor gradient_RK;  // gradient of the losses' sum
  at::Tensor notes_RN;     // as RowLosses::notes_RK
};

// A head of numbers minimises this loss over all rows with a target. Immutable. As in a Loss, every term is a
// sum over rows.
class NumberLoss {
 public:
  NumberLoss() = default;
  NumberLoss(const NumberLoss&) = delete;
  NumberLoss& operator=(const NumberLoss&) = delete;
  virtual ~NumberLoss() = default;

  // `numbers_RK`: double. `target_R`: int64, the class, for losses with classes. `given_RF`: see Loss::of.
  virtual NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& target_R,
                          const at::Tensor& given_RF) const = 0;
  virtual int64_t notes() const { return 0; }  // N
};

// −log softmax(target).
std::shared_ptr<const Loss> cross_entropy();

// Cross-entropy plus z · log²Z, with Z the softmax's denominator, which keeps logits from drifting (Chowdhery
// et al., PaLM, 2022, section 5). This term is in the gradients alone: the reported loss is still the
// cross-entropy, so that runs compare. REQUIRES: z >= 0; 0 is cross_entropy().
std::shared_ptr<const Loss> with_z_loss(double z);

// Cross-entropy whose gradients have a factor. The reported loss has none.
std::shared_ptr<const Loss> weighted_cross_entropy(double weight);

}  // namespace sluice::layers
