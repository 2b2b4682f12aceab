#include "cost/model_flops.h"

#include "model/kind.h"

namespace sluice::cost {
namespace {

double real(auto value) { return static_cast<double>(value); }

}  // namespace

ModelFlops::ModelFlops(const model::Program& program, int64_t window) : window_(window) {
  for (int64_t i = 0; i < program.size(); ++i) {
    const double walks = i >= program.first_trained() ? 1 : 0;  // forward, and once or twice back
    const double input = i > program.first_trained() ? 1 : 0;   // the input gradient, if it goes on
    for (const model::TokenWork& work : {program.kind_at(i).work(), program.kind_at(i).mtp_work()}) {
      per_token_ += 2 * (real(work.products) * (1 + input) + real(work.trained) * walks);
      per_token_ += 2 * real(work.scanned) * (1 + 2 * walks);
      (work.window > 0 ? per_windowed_square_ : per_square_) += 2 * real(work.attention) * (1 + 2 * walks);
    }
  }
}

double ModelFlops::of_work(const Work& work) const {
  return per_token_ * real(work.tokens) + per_square_ * real(work.squares) +
         per_windowed_square_ * real(work.windowed);
}

double ModelFlops::of_plan(const strategy::StepPlan& plan) const {
  Work all;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      for (const strategy::MicroBatchSequence& sequence : micro_batch.sequences)
        all += Work::of_lane(sequence.length_tokens, sequence, 1, window_);
    }
  }
  return of_work(all);
}

std::optional<double> utilisation(double flops, int64_t step_ns, std::optional<double> peak_flops_per_ns) {
  if (!peak_flops_per_ns || step_ns <= 0) return std::nullopt;
  return flops / real(step_ns) / *peak_flops_per_ns;
}

}  // namespace sluice::cost
