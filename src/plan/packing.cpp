#include "plan/packing.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "strategy/pass.h"

namespace sluice::plan {

MicroBatchTimer::MicroBatchTimer(const strategy::Pipeline& pipeline, const SchemeCost& scheme)
    : pipeline_(pipeline), scheme_(scheme), times_(pipeline, scheme.cost()), table_(pipeline.scheme.pp) {}

int64_t MicroBatchTimer::makespan_ns(std::span<const strategy::PipelineMicroBatch> micro_batches,
                                     int64_t limit_ns) {
  order_.clear();
  if (scheme_.scheme().fsdp > 1) {
    table_.resize(0);
    strategy::PipelinePlan plan{.pipeline = pipeline_,
                                .micro_batches = {micro_batches.begin(), micro_batches.end()}};
    for (strategy::PipelineMicroBatch& micro_batch : plan.micro_batches) choose_exchange(micro_batch);
    for (const strategy::Pass& pass : strategy::passes(plan)) {
      order_.push_back(table_.micro_batches());
      table_.append(times_.of(plan, pass));
    }
  } else {
    for (const strategy::PipelineMicroBatch& micro_batch : micro_batches)
      order_.push_back(row_of(micro_batch));
  }
  return recurrence_.makespan_ns(table_, order_, scheme_.scheme().cp, scheme_.credit_tokens(), limit_ns);
}

int MicroBatchTimer::row_of(const strategy::PipelineMicroBatch& micro_batch) {
  content_.assign({micro_batch.first_lane, micro_batch.lanes});
  const auto add = [&](const std::vector<strategy::MicroBatchSequence>& sequences) {
    content_.push_back(std::ssize(sequences));
    for (const strategy::MicroBatchSequence& sequence : sequences) content_.push_back(sequence.length_tokens);
  };
  add(micro_batch.sequences);
  std::ranges::for_each(micro_batch.own, add);
  const auto [known, added] = rows_.try_emplace(content_, table_.micro_batches());
  if (added) {
    table_.resize(known->second + 1);
    times_.write(micro_batch, exchange_of(micro_batch), table_, known->second);
  }
  return known->second;
}

void MicroBatchTimer::choose_exchange(strategy::PipelineMicroBatch& micro_batch) const {
  const cost::ExchangeChoice choice = exchange_of(micro_batch);
  micro_batch.exchange = choice.exchange;
  micro_batch.nested_lanes = choice.nested_lanes;
}

strategy::PipelinePlan MicroBatchTimer::plan(std::vector<strategy::PipelineMicroBatch> micro_batches) const {
  strategy::PipelinePlan plan{.pipeline = pipeline_,
                              .max_len_tokens = scheme_.lane_max_len_tokens(),
                              .micro_batches = std::move(micro_batches)};
  for (size_t u = 0; u < plan.micro_batches.size(); ++u) {
    strategy::PipelineMicroBatch& micro_batch = plan.micro_batches[u];
    std::ranges::sort(micro_batch.sequences, {}, &strategy::MicroBatchSequence::sequence);
    for (auto& own : micro_batch.own) std::ranges::sort(own, {}, &strategy::MicroBatchSequence::sequence);
    plan.max_len_tokens = std::max(plan.max_len_tokens, micro_batch.tokens());
    if (micro_batch.lanes == 1) continue;
    choose_exchange(micro_batch);
    micro_batch.number = static_cast<int>(u);
  }
  plan.micro_batches = strategy::in_injection_order(std::move(plan.micro_batches), scheme_.scheme().cp);
  return plan;
}

Packing::Packing(const strategy::Pipeline& on, const SchemeCost& of, std::span<const int64_t> all_lengths,
                 std::span<const int> members, const PackOptions& with)
    : pipeline(on),
      scheme(of),
      options(with),
      nodes(node_runs(on, of.cost().options().topology)),
      timer(on, of) {
  for (const LaneRun& node : nodes) node_lanes = std::max(node_lanes, node.lanes);
  for (const int member : members) sequences.push_back({member, all_lengths[static_cast<size_t>(member)]});
  std::ranges::stable_sort(sequences, std::greater<>(), &strategy::MicroBatchSequence::length_tokens);
  for (const strategy::MicroBatchSequence& sequence : sequences) lengths.push_back(sequence.length_tokens);
}

}  // namespace sluice::plan
