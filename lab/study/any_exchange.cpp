#include "study/any_exchange.h"

#include <algorithm>
#include <utility>

#include "schedule/pipeline_schedule.h"

namespace sluice::study {
namespace {

class AnyExchange : public System {
 public:
  AnyExchange(std::unique_ptr<System> system, int world_size)
      : system_(std::move(system)), world_size_(world_size) {}

  std::string configuration() const override { return system_->configuration(); }
  const cost::CostModel& cost() const override { return system_->cost(); }
  SystemStep step(int64_t number, const std::vector<strategy::Sequence>& sequences) override {
    SystemStep step = system_->step(number, sequences);
    step.plan.estimated_ns = 0;
    for (strategy::PipelinePlan& pipeline : step.plan.pipelines) {
      const schedule::MicroBatchTimes times(pipeline.pipeline, cost());
      for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
        if (micro_batch.lanes == 1) continue;
        const cost::ExchangeChoice choice = times.cheapest_exchange(micro_batch, pipeline.max_len_tokens);
        micro_batch.exchange = choice.exchange;
        micro_batch.nested_lanes = choice.nested_lanes;
      }
      const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost(), world_size_);
      step.plan.estimated_ns =
          std::max(step.plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
    return step;
  }

 private:
  std::unique_ptr<System> system_;
  int world_size_;
};

}  // namespace

std::unique_ptr<System> with_any_exchange(std::unique_ptr<System> system, int world_size) {
  return std::make_unique<AnyExchange>(std::move(system), world_size);
}

}  // namespace sluice::study
