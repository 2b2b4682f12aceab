#include "plan/hide_links.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/never.h"
#include "plan/bins.h"

namespace sluice::plan {
namespace {

using strategy::PipelineMicroBatch;

int64_t micro_batch_ns(const SchemeCost& scheme, const PipelineMicroBatch& micro_batch) {
  cost::Work work;
  for (const strategy::MicroBatchSequence& of : micro_batch.sequences)
    work += scheme.share_of(of.length_tokens, micro_batch.lanes);
  return scheme.micro_batch_work_ns(work, micro_batch.lanes);
}

// Whether the shortest first micro-batch of a lane is shorter than the shortest last one.
bool begin_shorter(const SchemeCost& scheme, const std::vector<PipelineMicroBatch>& micro_batches) {
  int64_t first_ns = cost::kLongestNs, last_ns = cost::kLongestNs;
  for (const std::vector<int>& lane : strategy::micro_batches_by_lane(micro_batches, scheme.scheme().cp)) {
    if (lane.empty()) continue;
    first_ns = std::min(first_ns, micro_batch_ns(scheme, micro_batches[static_cast<size_t>(lane.front())]));
    last_ns = std::min(last_ns, micro_batch_ns(scheme, micro_batches[static_cast<size_t>(lane.back())]));
  }
  return first_ns < last_ns;
}

std::vector<PipelineMicroBatch> reversed(std::vector<PipelineMicroBatch> micro_batches) {
  std::ranges::reverse(micro_batches);
  int last = 0;
  for (const PipelineMicroBatch& micro_batch : micro_batches)
    last = std::max(last, micro_batch.pass.value_or(0));
  for (PipelineMicroBatch& micro_batch : micro_batches) {
    if (micro_batch.pass) micro_batch.pass = last - *micro_batch.pass;
  }
  return micro_batches;
}

// Evens out some micro-batches of one lane; unchanged if even ones have no room.
void even_out(std::span<const int> some, const SchemeCost& scheme,
              std::vector<PipelineMicroBatch>& micro_batches) {
  std::vector<PackItem> items;
  std::vector<strategy::MicroBatchSequence> sequences;
  for (const int u : some) {
    for (const strategy::MicroBatchSequence& of : micro_batches[static_cast<size_t>(u)].sequences) {
      const auto index = static_cast<int>(sequences.size());
      items.push_back({index, of.length_tokens, scheme.sequence_ns(of.length_tokens)});
      sequences.push_back(of);
    }
  }
  std::ranges::stable_sort(items, std::greater<>(), &PackItem::work_ns);
  const std::optional<Bins> even =
      balance(items, static_cast<int>(some.size()), scheme.lane_max_len_tokens());
  if (!even) return;
  for (size_t bin = 0; bin < even->size(); ++bin) {
    PipelineMicroBatch& micro_batch = micro_batches[static_cast<size_t>(some[bin])];
    micro_batch.sequences.clear();
    for (const int item : (*even)[bin]) {
      const int index = items[static_cast<size_t>(item)].sequence;
      micro_batch.sequences.push_back(sequences[static_cast<size_t>(index)]);
    }
  }
}

void even_out_lanes(const SchemeCost& scheme, std::vector<PipelineMicroBatch>& micro_batches) {
  for (const std::vector<int>& lane : strategy::micro_batches_by_lane(micro_batches, scheme.scheme().cp)) {
    const auto alone = [&](int u) { return micro_batches[static_cast<size_t>(u)].lanes == 1; };
    for (auto begin = lane.begin(); begin != lane.end();) {
      const auto end = std::find_if_not(begin, lane.end(), alone);
      if (end - begin > 1) even_out(std::span(begin, end), scheme, micro_batches);
      begin = std::find_if(end, lane.end(), alone);
    }
  }
}

}  // namespace

void hide_links(Packing& packing, TimedMicroBatches& packed) {
  if (packing.scheme.scheme().pp > 1 || packed.micro_batches.size() < 2) return;
  TimedMicroBatches next{.micro_batches = packed.micro_batches};
  if (begin_shorter(packing.scheme, next.micro_batches))
    next.micro_batches = reversed(std::move(next.micro_batches));
  if (packing.scheme.scheme().fsdp == 1) even_out_lanes(packing.scheme, next.micro_batches);
  next.micro_batches = strategy::in_injection_order(std::move(next.micro_batches), packing.lanes());
  const int64_t rounding_ns = 3 * std::ssize(next.micro_batches);  // rounding of cells
  next.makespan_ns = packing.timer.makespan_ns(next.micro_batches, packed.makespan_ns + rounding_ns);
  if (next.makespan_ns != base::kNever) packed = std::move(next);
}

}  // namespace sluice::plan
