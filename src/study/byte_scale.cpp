#include "study/byte_scale.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/published/byte_scale.h"
#include "study/baseline_cost.h"
#include "study/lengths_of.h"

namespace sluice::study {
namespace {

class ByteScale : public System {
 public:
  ByteScale(const SystemInputs& inputs, const plan::ByteScaleOptions& options)
      : cost_(one_backward_cell(inputs.cost)), world_size_(inputs.world_size), options_(options) {
    plan::byte_scale_plan(options_, std::vector<int64_t>{inputs.context_length}, cost_, world_size_);
  }

  std::string configuration() const override {
    return base::text(to_text(options_.scheme), ", ", options_.lane_tokens, " tokens a lane");
  }
  const cost::CostModel& cost() const override { return cost_; }

  SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) override {
    strategy::StepPlan plan = plan::byte_scale_plan(options_, lengths_of(sequences), cost_, world_size_);
    plan.step = step;
    plan.sequences = sequences;
    return {.plan = std::move(plan)};
  }

 private:
  cost::CostModel cost_;
  int world_size_;
  plan::ByteScaleOptions options_;
};

}  // namespace

std::unique_ptr<System> make_byte_scale(const SystemInputs& inputs, ByteScaleStep step,
                                        const LaneLayout& layout, plan::OffloadRule offload) {
  const plan::ByteScaleRule balance =
      layout.pp == 1 ? plan::ByteScaleRule::kDpBalance : plan::ByteScaleRule::kPpBalance;
  const int lanes = inputs.world_size / (layout.tp * layout.pp);
  return std::make_unique<ByteScale>(
      inputs,
      plan::ByteScaleOptions{.scheme = {.tp = layout.tp, .pp = layout.pp, .cp = lanes},
                             .rule = step == ByteScaleStep::kLanes ? plan::ByteScaleRule::kNaive : balance,
                             .offload = offload,
                             .lane_tokens = layout.tokens});
}

plan::StaticStrategy static_cp(const SystemInputs& inputs, const LaneLayout& layout) {
  strategy::Scheme scheme{.tp = layout.tp, .pp = layout.pp};
  const int64_t lane = std::min(layout.tokens, inputs.cost.max_len_tokens(scheme, inputs.world_size));
  while (scheme.ranks() <= inputs.world_size && inputs.context_length > lane * scheme.cp) scheme.cp *= 2;
  if (lane < 2 || scheme.ranks() > inputs.world_size) {
    throw base::InfeasibleError(base::text("static lanes of ", lane, " tokens on ", inputs.world_size,
                                           " ranks do not hold context_length ", inputs.context_length,
                                           ": shorten it"));
  }
  return {.scheme = scheme,
          .pipelines = inputs.world_size / scheme.ranks(),
          .micro_batch_tokens = (inputs.context_length + scheme.cp - 1) / scheme.cp,
          .dealing = plan::Dealing::kTurns};
}

}  // namespace sluice::study
