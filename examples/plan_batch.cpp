// Proposes strategies for 16 A800 GPUs and plans one batch with them: what a trainer does before its first
// step, and in each step on every rank.
//
//   plan_batch LENGTH...      lengths of the batch's sequences in tokens
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "cost/shipped.h"
#include "plan/planner.h"
#include "plan/propose.h"

using namespace sluice;

namespace {

void print(const strategy::StepPlan& plan) {
  std::cout << strategy::to_text(plan.strategy()) << ", " << plan.estimated_ns / 1'000'000 << " ms, at most "
            << plan.gap_ppm() << " ppm longer than the best\n";
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    std::cout << strategy::to_text(pipeline.pipeline.scheme) << " from rank "
              << pipeline.pipeline.ranks.front() << ":";
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      std::cout << " " << micro_batch.tokens() << " tokens";
    std::cout << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<int64_t> lengths;
  for (int i = 1; i < argc; ++i) lengths.push_back(std::atoll(argv[i]));
  constexpr int kGpus = 16;
  const cost::CostModel cost(cost::shipped("a800-7b").options);
  // A trainer gives many batches of its corpus, not the one that it is about to plan.
  const std::vector<plan::Proposal> proposals =
      plan::propose({.world_size = kGpus, .context_length = 32'768, .sample_batches = {lengths}}, cost)
          .or_throw();

  const plan::Planner planner({.world_size = kGpus, .candidates = plan::strategies_of(proposals)}, cost);
  std::vector<strategy::Sequence> batch;
  for (const int64_t length : lengths) {
    batch.push_back({.document = static_cast<int64_t>(batch.size()), .length_tokens = length});
  }
  print(planner.plan(0, batch));
} catch (const base::Error& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
