#include "runtime/communicators.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "runtime/communicator_groups.h"

namespace sluice::runtime {

namespace {

constexpr const char* kActivation = "activation";
constexpr const char* kGradient = "gradient";
constexpr const char* kLanes = "lanes";
constexpr const char* kLanesBetweenNodes = "lanes-between-nodes";
constexpr const char* kLinkInter = "link-inter";
constexpr const char* kLinkIntra = "link-intra";

bool any_lanes(const std::vector<strategy::Strategy>& candidates) {
  return std::ranges::any_of(candidates, [](const strategy::Strategy& candidate) {
    return std::ranges::any_of(candidate.pipelines,
                               [](const strategy::Pipeline& pipeline) { return pipeline.scheme.cp > 1; });
  });
}

std::string group_name(const std::string& kind, const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (const int rank : ranks) parts.push_back(std::to_string(rank));
  return kind + "-" + base::join(parts, ".");
}

}  // namespace

std::set<std::vector<int>> tensor_parallel_groups(const std::vector<strategy::Strategy>& candidates) {
  std::set<std::vector<int>> groups;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
        for (int lane = 0; lane < pipeline.scheme.cp; ++lane) groups.insert(pipeline.tp_group(stage, lane));
      }
    }
  }
  return groups;
}

std::set<std::vector<int>> share_groups(const std::vector<strategy::Strategy>& candidates) {
  std::set<std::vector<int>> groups;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      const strategy::Scheme& scheme = pipeline.scheme;
      if (scheme.fsdp == 1) continue;
      for (int stage = 0; stage < scheme.pp; ++stage) {
        for (int lane = 0; lane < scheme.cp; lane += scheme.fsdp) {
          for (int t = 0; t < scheme.tp; ++t) groups.insert(pipeline.fsdp_group(stage, lane, t));
        }
      }
    }
  }
  return groups;
}

std::map<std::string, int> most_blocks() {
  return {{kActivation, 4},        {kGradient, 4},  {kLanes, 8},
          {kLanesBetweenNodes, 8}, {kLinkInter, 8}, {kLinkIntra, 16}};
}

Communicators::Communicators(comm::Transport& transport, comm::Transport& control,
                             const std::vector<strategy::Strategy>& candidates) {
  std::vector<int> world(static_cast<size_t>(transport.world_size()));
  std::iota(world.begin(), world.end(), 0);
  using graph::Stream;
  const auto of_world = [&](comm::Transport& by, const char* name, Stream stream) {
    return comm::counting_waits(by.communicator(name, world), between_cells_[stream] = clock());
  };
  activation_ = of_world(transport, kActivation, Stream::kActivation);
  gradient_ = of_world(transport, kGradient, Stream::kGradient);
  if (any_lanes(candidates)) {
    lanes_ = comm::counting_waits(transport.communicator(kLanes, world), lane_waits_);
    lanes_between_nodes_ =
        comm::counting_waits(transport.communicator(kLanesBetweenNodes, world), lane_waits_);
  }
  link_inter_ = of_world(transport, kLinkInter, Stream::kLinkInter);
  link_intra_ = of_world(transport, kLinkIntra, Stream::kLinkIntra);
  control_ = of_world(control, "step-control", Stream::kControl);
  const auto make = [&](const std::string& kind, const std::set<std::vector<int>>& groups, const Clock& waits,
                        ByRanks& made) {
    for (const std::vector<int>& ranks : groups) {
      const bool member = std::ranges::find(ranks, transport.rank()) != ranks.end();
      if (ranks.size() < 2 || !member) continue;
      SLUICE_ASSERT(std::ranges::is_sorted(ranks),
                    base::text("group ", group_name(kind, ranks), " is not ascending"));
      made[ranks] = comm::counting_waits(transport.communicator(group_name(kind, ranks), ranks), waits);
    }
  };
  make("tp", tensor_parallel_groups(candidates), tensor_waits_, tensor_parallel_);
  make("share", share_groups(candidates), share_waits_, share_);
}

Waits Communicators::waits() const {
  Waits waits;
  waits[WaitCause::kLanes] = lane_waits_->waited_ns;
  waits[WaitCause::kFsdp] = share_waits_->waited_ns;
  waits[WaitCause::kTensor] = tensor_waits_->waited_ns;
  return waits;
}

int Communicators::awaited_rank(graph::Stream stream) const {
  const auto found = between_cells_.find(stream);
  return found == between_cells_.end() ? -1 : found->second->awaited_rank;
}

comm::Communicator& Communicators::fsdp(const std::vector<int>& ranks) {
  const auto found = share_.find(ranks);
  SLUICE_ASSERT(found != share_.end(), base::text("no communicator for ", group_name("share", ranks)));
  return *found->second;
}

comm::Communicator* Communicators::tensor_parallel(const std::vector<int>& ranks) {
  if (ranks.size() < 2) return nullptr;
  const auto found = tensor_parallel_.find(ranks);
  SLUICE_ASSERT(found != tensor_parallel_.end(), base::text("no communicator for ", group_name("tp", ranks)));
  return found->second.get();
}

}  // namespace sluice::runtime
