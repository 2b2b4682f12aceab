#include "ops/recurrence.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/recurrence_heads.h"

namespace sluice::ops {
namespace {

// Number of value heads processed at once. Their places and states (two per chunk) take at most the memory of
// all heads with chunks of the usual size. Whole key heads, or a divisor of one's value heads; at least one.
int64_t heads_at_once(const RecurrenceInput& input, const RecurrenceChunks& chunks) {
  const int64_t heads = input.v_THD.size(1), shared = heads / input.k_TGK.size(1);
  const int64_t keys = input.k_TGK.size(2), values = input.v_THD.size(2);
  const int64_t places = chunks.row_M.size(0), of_place = 8 * (keys + values), of_state = 2 * keys * values;
  const auto taken = static_cast<double>(places * of_place + places / chunks.chunk * of_state);
  const auto usual = static_cast<double>(places * of_place + places / kUsualChunk * of_state);
  const auto most = static_cast<int64_t>(static_cast<double>(heads) * std::min(1.0, usual / taken));
  if (most >= shared) return most / shared * shared;
  int64_t at_once = std::max<int64_t>(1, most);
  while (shared % at_once != 0) --at_once;
  return at_once;
}

at::Tensor some(const at::Tensor& x, int64_t dimension, base::Interval of) {
  return x.defined() ? x.narrow(dimension, of.begin, of.size()) : x;
}

// Joins results of parts of the heads.
class Parts {
 public:
  void add(const at::Tensor& part) {
    if (part.defined()) parts_.push_back(part);
  }
  // Adds to the last part, if that has the same heads.
  void add(const at::Tensor& part, bool same) {
    if (same) {
      parts_.back().add_(part);
    } else {
      add(part);
    }
  }
  at::Tensor along(int64_t dimension) const {
    if (parts_.empty()) return {};
    return parts_.size() == 1 ? parts_.front() : at::cat(parts_, dimension);
  }

 private:
  std::vector<at::Tensor> parts_;
};

}  // namespace

Recurrence::Recurrence(RecurrenceInput input, const RecurrenceChunks& chunks)
    : input_(std::move(input)), chunks_(chunks), at_once_(heads_at_once(input_, chunks)) {
  if (at_once_ == input_.v_THD.size(1)) whole_ = std::make_shared<const HeadsRecurrence>(input_, chunks);
}

template <typename Visit>
void Recurrence::for_each_part(Visit visit) const {
  const int64_t heads = input_.v_THD.size(1), shared = heads / input_.k_TGK.size(1);
  if (whole_ != nullptr) {
    visit(*whole_, base::Interval{0, heads});
    return;
  }
  for (int64_t begin = 0; begin < heads; begin += at_once_) {
    const base::Interval own{begin, std::min(begin + at_once_, heads)};
    const base::Interval keys{own.begin / shared, (own.end + shared - 1) / shared};
    visit(
        HeadsRecurrence({some(input_.q_TGK, 1, keys), some(input_.k_TGK, 1, keys), some(input_.v_THD, 1, own),
                         some(input_.log_decay, 1, own), some(input_.rate_TH, 1, own), input_.delta},
                        chunks_),
        own);
  }
}

at::Tensor Recurrence::forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD) const {
  Parts out, ends;
  for_each_part([&](const HeadsRecurrence& part, base::Interval heads) {
    at::Tensor end;
    out.add(part.forward(some(begin_PHKD, 1, heads), end_PHKD == nullptr ? nullptr : &end));
    ends.add(end);
  });
  if (end_PHKD != nullptr) *end_PHKD = ends.along(1);
  return out.along(1);
}

RecurrencePassage Recurrence::passage() const {
  Parts added, transitions;
  for_each_part([&](const HeadsRecurrence& part, base::Interval) {
    const RecurrencePassage own = part.passage();
    added.add(own.added_PHKD);
    transitions.add(own.transition);
  });
  return {added.along(1), transitions.along(1)};
}

at::Tensor Recurrence::begin_gradient(const at::Tensor& dout_THD) const {
  Parts all;
  for_each_part([&](const HeadsRecurrence& part, base::Interval heads) {
    all.add(part.begin_gradient(some(dout_THD, 1, heads)));
  });
  return all.along(1);
}

RecurrenceGradient Recurrence::backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                                        const at::Tensor& dend_PHKD) const {
  const int64_t shared = input_.v_THD.size(1) / input_.k_TGK.size(1);
  Parts dq, dk, dv, dlog_decay, drate;
  for_each_part([&](const HeadsRecurrence& part, base::Interval heads) {
    const RecurrenceGradient own =
        part.backward(some(dout_THD, 1, heads), some(begin_PHKD, 1, heads), some(dend_PHKD, 1, heads));
    const bool same = heads.begin % shared != 0;
    dq.add(own.dq_TGK, same);
    dk.add(own.dk_TGK, same);
    dv.add(own.dv_THD);
    dlog_decay.add(own.dlog_decay);
    drate.add(own.drate_TH);
  });
  return {dq.along(1), dk.along(1), dv.along(1), dlog_decay.along(1), drate.along(1)};
}

}  // namespace sluice::ops
