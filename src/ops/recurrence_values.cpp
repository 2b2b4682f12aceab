#include "ops/recurrence_values.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>

namespace sluice::ops {

at::Tensor RecurrencePassage::of(const at::Tensor& begin_HKD, int64_t piece, base::Interval columns) const {
  const at::Tensor added = added_PHKD[piece].narrow(2, columns.begin, columns.size());
  if (!begin_HKD.defined()) return added.contiguous();
  const at::Tensor by = transition[piece];
  return by.size(2) == 1 ? at::addcmul(added, by, begin_HKD) : at::baddbmm(added, by, begin_HKD);
}

at::Tensor RecurrencePassage::back_of(const at::Tensor& dend_HKD, int64_t piece,
                                      base::Interval columns) const {
  const at::Tensor added = added_PHKD[piece].narrow(2, columns.begin, columns.size());
  if (!dend_HKD.defined()) return added.contiguous();
  const at::Tensor by = transition[piece];
  return by.size(2) == 1 ? at::addcmul(added, by, dend_HKD)
                         : at::baddbmm(added, by.transpose(1, 2), dend_HKD);
}

}  // namespace sluice::ops
