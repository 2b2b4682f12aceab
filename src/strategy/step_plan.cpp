#include "strategy/step_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

// A ring exchange and an FSDP degree of 1 add no bytes: hashes are as before other values existed.
void add_micro_batch(base::CanonicalBytes& bytes, const PipelineMicroBatch& micro_batch,
                     const LanePart& lane_part) {
  bytes.add(int64_t{micro_batch.lanes > 1 ? micro_batch.number : -1})
      .add(static_cast<int64_t>(lane_part.pieces.size()));
  for (const Piece& scheduled : lane_part.pieces) {
    bytes.add(int64_t{scheduled.sequence}).add(scheduled.begin).add(scheduled.end);
  }
  bytes.add((int64_t{micro_batch.nested_lanes} << 40) + (static_cast<int64_t>(micro_batch.exchange) << 32) +
            (int64_t{micro_batch.memory.recompute_dispatch} << 48) +
            int64_t{micro_batch.memory.offload_permille} * 2 + (micro_batch.memory.recomputes() ? 1 : 0));
  if (micro_batch.memory.recomputes_some()) bytes.add(int64_t{micro_batch.memory.recompute_permille});
  if (micro_batch.pass) bytes.add(int64_t{*micro_batch.pass});
}

void add_pipeline(base::CanonicalBytes& bytes, const PipelinePlan& plan) {
  const Scheme& scheme = plan.pipeline.scheme;
  bytes.add(int64_t{scheme.tp}).add(int64_t{scheme.pp});
  bytes.add((int64_t{scheme.fsdp - 1} << 32) + scheme.cp);
  if (scheme.ep > 1) bytes.add(int64_t{scheme.ep});
  bytes.add(static_cast<int64_t>(plan.pipeline.ranks.size()));
  for (const int rank : plan.pipeline.ranks) bytes.add(int64_t{rank});
  for (const int64_t layers : plan.stage_layers) bytes.add(layers);
  const std::vector<std::vector<LanePart>> lanes = lane_parts(plan);
  bytes.add(plan.max_len_tokens).add(static_cast<int64_t>(lanes.size()));
  for (const std::vector<LanePart>& lane : lanes) {
    bytes.add(static_cast<int64_t>(lane.size()));
    for (const LanePart& each : lane)
      add_micro_batch(bytes, plan.micro_batches[static_cast<size_t>(each.micro_batch)], each);
  }
}

}  // namespace

int64_t Sequence::prefix_tokens() const {
  return length_tokens - std::accumulate(branches.begin(), branches.end(), int64_t{0});
}

MicroBatchSequence micro_batch_sequence(int32_t index, const Sequence& sequence) {
  MicroBatchSequence micro_batch{.sequence = index, .length_tokens = sequence.length_tokens};
  if (sequence.branches.empty()) return micro_batch;
  micro_batch.prefix_tokens = sequence.prefix_tokens();
  const int64_t all = sequence.length_tokens - micro_batch.prefix_tokens;
  __int128 squares = 0;
  for (const int64_t branch : sequence.branches) squares += static_cast<__int128>(branch) * branch;
  micro_batch.branch_tokens = static_cast<int64_t>((squares + all / 2) / all);
  return micro_batch;
}

std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences) {
  std::vector<int64_t> lengths;
  for (const Sequence& sequence : sequences) lengths.push_back(sequence.length_tokens);
  return lengths;
}

int64_t LanePart::tokens() const {
  int64_t total = 0;
  for (const Piece& scheduled : pieces) total += scheduled.tokens();
  return total;
}

std::string stages_text(const std::vector<int64_t>& stage_layers) {
  std::vector<std::string> parts;
  for (const int64_t layers : stage_layers) parts.push_back(base::text(layers));
  return base::join(parts, ", ");
}

Strategy StepPlan::strategy() const {
  Strategy result;
  for (const PipelinePlan& plan : pipelines) result.pipelines.push_back(plan.pipeline);
  return result;
}

int64_t StepPlan::tokens() const {
  int64_t total = 0;
  for (const Sequence& sequence : sequences) total += sequence.length_tokens;
  return total;
}

int64_t StepPlan::targets() const {
  int64_t last = 0;  // positions without a target; a prefix's last one has its branches'
  for (const Sequence& sequence : sequences) last += std::max<int64_t>(1, std::ssize(sequence.branches));
  return tokens() - last;
}

int64_t StepPlan::gap_ppm() const {
  if (lower_bound_ns <= 0) return 0;
  const __int128 gap = (static_cast<__int128>(estimated_ns) - lower_bound_ns) * 1'000'000 / lower_bound_ns;
  return static_cast<int64_t>(std::min<__int128>(gap, std::numeric_limits<int64_t>::max()));
}

std::string canonical_bytes(const StepPlan& plan) {
  // The salt is version 1's: key names are not in the bytes, so a plan keeps its hash in version 2.
  constexpr std::string_view kSalt =
      "sluice.plan/"
      "1";
  base::CanonicalBytes bytes;
  bytes.add(kSalt).add(plan.step).add(static_cast<int64_t>(plan.sequences.size()));
  for (const Sequence& sequence : plan.sequences) {
    bytes.add(sequence.document).add(sequence.begin_token).add(sequence.length_tokens);
    if (sequence.branches.empty()) continue;
    bytes.add("branches").add(std::ssize(sequence.branches));
    for (const int64_t branch : sequence.branches) bytes.add(branch);
  }
  bytes.add(static_cast<int64_t>(plan.pipelines.size()));
  for (const PipelinePlan& pipeline : plan.pipelines) add_pipeline(bytes, pipeline);
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Device& device = plan.pipelines[p].pipeline.device;
    if (device != Device{})
      bytes.add("device").add(static_cast<int64_t>(p)).add(device.slowdown_percent).add(device.memory_bytes);
    if (device.low_precision) {
      bytes.add("narrow").add(static_cast<int64_t>(device.low_precision->format));
      for (const int layer : device.low_precision->layers) bytes.add(layer);
    }
    const int pace = plan.pipelines[p].pipeline.slowdown_percent;
    if (pace != 100) bytes.add("pace").add(static_cast<int64_t>(p)).add(pace);
    if (const auto& placement = plan.pipelines[p].pipeline.placement)
      placement->add_to(bytes.add("placement").add(static_cast<int64_t>(p)));
  }
  return bytes.bytes();
}

uint64_t hash(const StepPlan& plan) { return base::hash_bytes(canonical_bytes(plan)); }

std::vector<std::vector<LanePart>> lane_parts(const PipelinePlan& plan) {
  std::vector<std::vector<LanePart>> lanes(static_cast<size_t>(plan.pipeline.scheme.cp));
  for (size_t u = 0; u < plan.micro_batches.size(); ++u) {
    const PipelineMicroBatch& micro_batch = plan.micro_batches[u];
    SLUICE_ASSERT(
        micro_batch.first_lane >= 0 && micro_batch.end_lane() <= plan.pipeline.scheme.cp,
        base::text("micro-batch ", u, " lies on lanes ", micro_batch.first_lane, " + ", micro_batch.lanes));
    for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane) {
      lanes[static_cast<size_t>(lane)].push_back({static_cast<int>(u), micro_batch.pieces_on(lane)});
    }
  }
  return lanes;
}

}  // namespace sluice::strategy
