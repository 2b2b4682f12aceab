// Connects the ranks that steps exchange with, before the first step.
//
// Between GPUs two ranks connect at their first message, which takes milliseconds and memory, and holds up
// both hosts until both have come. Steps under changing strategies use new pairs for hundreds of steps.
#pragma once

#include <c10/core/Device.h>

#include <set>
#include <vector>

#include "graph/link_plan.h"
#include "runtime/communicators.h"

namespace sluice::runtime {

// Ranks that a rank sends messages to and receives messages from.
struct Partners {
  std::set<int> to;
  std::set<int> from;
  bool operator==(const Partners&) const = default;
};

// A rank's partners on the world's communicators, in steps of any candidate.
struct Connections {
  Partners activation;
  Partners gradient;
  Partners lanes;
  Partners lanes_between_nodes;
  Partners link_inter;
  Partners link_intra;
};

// Muon's matrices, and rows that go from one trunk to another, are not among them: their pairs connect when
// they are first used.
Connections connections(const model::ParameterTable& table, const std::vector<strategy::Strategy>& candidates,
                        const graph::LinkMachine& machine, int rank, graph::LinkPlans& plans);

// Adds partners of text generation: the last stage tells all others which tokens it sampled.
void add_generation(const std::vector<strategy::Strategy>& candidates, int rank, Connections& connections);

// Collective: exchanges a byte with each partner, and one with all members of each group of the candidates.
// The communicators were made for these candidates. Messages lie in memory of `device`.
void connect(Communicators& communicators, const std::vector<strategy::Strategy>& candidates,
             const Connections& connections, const c10::Device& device);

}  // namespace sluice::runtime
