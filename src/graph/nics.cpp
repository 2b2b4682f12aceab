#include "graph/nics.h"

#include <algorithm>

namespace sluice::graph {

Nics::Nics(const StepGraph& graph) : graph_(graph) {
  if (!graph.links || !graph.links->has_inter()) return;
  for (const strategy::PipelinePlan& plan : graph.plan.pipelines) {
    std::vector<char>& crosses = crosses_.emplace_back();
    for (int boundary = 0; boundary + 1 < plan.pipeline.scheme.pp; ++boundary) {
      crosses.push_back(strategy::boundary_level(plan.pipeline, boundary, graph.links->topology) > 0 ? 1 : 0);
      contended_ = contended_ || crosses.back();
    }
  }
  if (!contended_) return;
  sending_.resize(static_cast<size_t>(graph.links->nics()));
  receiving_.resize(sending_.size());
}

int64_t Nics::end_ns(const Node& node, int64_t start_ns) {
  if (!contended_) return start_ns + node.duration_ns;
  if (stream_of(node.kind) == Stream::kLinkInter) return end_of_round(node, start_ns);
  if (is_transfer(node.kind) && crosses(node.transfer())) return end_of_transfer(node, start_ns);
  return start_ns + node.duration_ns;
}

bool Nics::crosses(const Transfer& transfer) const {
  return crosses_[static_cast<size_t>(transfer.pipeline)][static_cast<size_t>(transfer.stage)] != 0;
}

std::vector<Nics::Side*> Nics::sides_of(const Node& node) {
  const Transfer& transfer = node.transfer();
  const LinkPlan& links = *graph_.links;
  const strategy::Pipeline& place = graph_.plan.pipelines[static_cast<size_t>(transfer.pipeline)].pipeline;
  const bool up = node.kind == NodeKind::kSendActivation;
  std::vector<Side*> sides;
  for (int lane = transfer.lane; lane < transfer.lane + transfer.lanes; ++lane) {
    for (int t = 0; t < place.scheme.tp; ++t) {
      const int from = place.rank_of(transfer.stage + (up ? 0 : 1), lane, t);
      const int to = place.rank_of(transfer.stage + (up ? 1 : 0), lane, t);
      if (links.topology.same_node(from, to)) continue;
      sides.push_back(&sending_[static_cast<size_t>(links.topology.nic_of(from))]);
      sides.push_back(&receiving_[static_cast<size_t>(links.topology.nic_of(to))]);
    }
  }
  std::ranges::sort(sides);
  sides.erase(std::unique(sides.begin(), sides.end()), sides.end());
  return sides;
}

int64_t Nics::end_of_round(const Node& round, int64_t start_ns) {
  const auto r = static_cast<size_t>(round.round());
  const bool pull = round.kind == NodeKind::kPullInter;
  const LinkPlan::Way& way = pull ? graph_.links->pull : graph_.links->push;
  const link::Volume& volume = way.nics[r];
  const int64_t busiest = std::max<int64_t>(way.busiest[r].inter_elements, 1);
  int64_t end_ns = start_ns + round.duration_ns;
  const auto take = [&](Side& side, int64_t elements) {
    if (elements == 0) return;
    const auto own_ns = static_cast<int64_t>(static_cast<__int128>(round.duration_ns) * elements / busiest);
    if (own_ns == 0) return;
    side.rounds_until_ns = std::max({start_ns, side.rounds_until_ns, side.transfers_until_ns}) + own_ns;
    end_ns = std::max(end_ns, side.rounds_until_ns);
  };
  for (size_t nic = 0; nic < sending_.size(); ++nic) {
    take(sending_[nic], pull ? volume.sent[nic] : volume.received[nic]);
    take(receiving_[nic], pull ? volume.received[nic] : volume.sent[nic]);
  }
  return end_ns;
}

int64_t Nics::end_of_transfer(const Node& transfer, int64_t start_ns) {
  const std::vector<Side*> sides = sides_of(transfer);
  int64_t slowed_ns = 0;
  for (Side* side : sides) {
    const int64_t left_ns = std::max<int64_t>(0, side->rounds_until_ns - start_ns);
    const int64_t shared_ns = std::min(left_ns, transfer.duration_ns);
    slowed_ns = std::max(slowed_ns, shared_ns);
    side->rounds_until_ns += shared_ns;
  }
  const int64_t end_ns = start_ns + transfer.duration_ns + slowed_ns;
  for (Side* side : sides) side->transfers_until_ns = std::max(side->transfers_until_ns, end_ns);
  return end_ns;
}

}  // namespace sluice::graph
