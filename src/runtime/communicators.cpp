#include "runtime/communicators.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace sluice::runtime {

namespace {

constexpr const char* kActivation = "activation";
constexpr const char* kGradient = "gradient";
constexpr const char* kLanes = "lanes";
constexpr const char* kLinkInter = "link-inter";
constexpr const char* kLinkIntra = "link-intra";

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

bool any_lanes(const std::vector<strategy::Strategy>& candidates) {
  return std::ranges::any_of(candidates, [](const strategy::Strategy& candidate) {
    return std::ranges::any_of(candidate.pipelines,
                               [](const strategy::Pipeline& pipeline) { return pipeline.scheme.cp > 1; });
  });
}

std::string group_name(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (const int rank : ranks) parts.push_back(std::to_string(rank));
  return "tp-" + base::join(parts, ".");
}

}  // namespace

std::map<std::string, int> most_blocks() {
  return {{kActivation, 4}, {kGradient, 4}, {kLanes, 8}, {kLinkInter, 8}, {kLinkIntra, 16}};
}

Communicators::Communicators(comm::Transport& transport, comm::Transport& control,
                             const std::vector<strategy::Strategy>& candidates) {
  std::vector<int> world(static_cast<size_t>(transport.world_size()));
  std::iota(world.begin(), world.end(), 0);
  activation_ = transport.communicator(kActivation, world);
  gradient_ = transport.communicator(kGradient, world);
  if (any_lanes(candidates)) lanes_ = transport.communicator(kLanes, world);
  link_inter_ = transport.communicator(kLinkInter, world);
  link_intra_ = transport.communicator(kLinkIntra, world);
  control_ = control.communicator("step-control", world);
  for (const std::vector<int>& ranks : tensor_parallel_groups(candidates)) {
    const bool member = std::ranges::find(ranks, transport.rank()) != ranks.end();
    if (ranks.size() < 2 || !member) continue;
    SLUICE_ASSERT(std::ranges::is_sorted(ranks),
                  base::text("TP group ", group_name(ranks), " is not ascending"));
    tensor_parallel_[ranks] = transport.communicator(group_name(ranks), ranks);
  }
}

comm::Communicator* Communicators::tensor_parallel(const std::vector<int>& ranks) {
  if (ranks.size() < 2) return nullptr;
  const auto found = tensor_parallel_.find(ranks);
  SLUICE_ASSERT(found != tensor_parallel_.end(), base::text("no communicator for ", group_name(ranks)));
  return found->second.get();
}

}  // namespace sluice::runtime
