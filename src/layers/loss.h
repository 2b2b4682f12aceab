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

// −log softmax(target).
std::shared_ptr<const Loss> cross_entropy();

// The same and z · log²Z, Z the softmax's denominator, which keeps logits from drifting (Chowdhery et al.,
// PaLM, 2022, section 5). Its term is in the gradients alone: what is reported stays the cross-entropy, so
// runs compare. REQUIRES: z >= 0; 0 is cross_entropy().
std::shared_ptr<const Loss> with_z_loss(double z);

}  // namespace sluice::layers
