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

// A diagonal is its own transpose.
at::Tensor RecurrencePassage::back_of(const at::Tensor& dend_HKD, int64_t piece,
                                      base::Interval columns) const {
  const bool diagonal = transition.size(3) == 1;
  return RecurrencePassage{added_PHKD, diagonal ? transition : transition.transpose(2, 3)}.of(dend_HKD, piece,
                                                                                              columns);
}

}  // namespace sluice::ops
