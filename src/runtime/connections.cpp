#include "runtime/connections.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/communicator_groups.h"
#include "runtime/link_runner.h"

namespace sluice::runtime {
namespace {

// Adds messages between two ranks, if `rank` is one of them.
void add(Partners& partners, int rank, int from, int to) {
  if (from == to) return;
  if (from == rank) partners.to.insert(to);
  if (to == rank) partners.from.insert(from);
}

// Rows and gradients between stages.
void add_stages(const strategy::Pipeline& pipeline, int rank, Connections& connections) {
  const strategy::Scheme& scheme = pipeline.scheme;
  for (int lane = 0; lane < scheme.cp; ++lane) {
    for (int t = 0; t < scheme.tp; ++t) {
      for (int stage = 0; stage + 1 < scheme.pp; ++stage) {
        const int own = pipeline.rank_of(stage, lane, t), next = pipeline.rank_of(stage + 1, lane, t);
        add(connections.activation, rank, own, next);
        add(connections.gradient, rank, next, own);
      }
    }
  }
}

// Any two lanes: rings over any run of lanes, exchanges of heads, experts.
void add_lanes(const strategy::Pipeline& pipeline, const strategy::Topology& topology, int rank,
               Connections& connections) {
  const strategy::Scheme& scheme = pipeline.scheme;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    for (int t = 0; t < scheme.tp; ++t) {
      for (int lane = 0; lane < scheme.cp; ++lane) {
        for (int other = 0; other < scheme.cp; ++other) {
          const int from = pipeline.rank_of(stage, lane, t), to = pipeline.rank_of(stage, other, t);
          add(connections.lanes, rank, from, to);
          if (!topology.same_node(from, to)) add(connections.lanes_between_nodes, rank, from, to);
        }
      }
    }
  }
}

void add_level(const link::WireLevel& level, Partners& partners, int rank) {
  const auto add_peers = [rank](const std::vector<int64_t>& elements, std::set<int>& peers) {
    for (size_t peer = 0; peer < elements.size(); ++peer) {
      if (elements[peer] > 0 && static_cast<int>(peer) != rank) peers.insert(static_cast<int>(peer));
    }
  };
  add_peers(level.send_elements, partners.to);
  add_peers(level.receive_elements, partners.from);
}

void add_links(const LinkWires& wires, int rank, Connections& connections) {
  for (const auto* way : {&wires.pull, &wires.push}) {
    for (const std::vector<link::RoundWire>& round : *way) {
      for (const link::RoundWire& piece : round) {
        add_level(piece.inter, connections.link_inter, rank);
        add_level(piece.intra, connections.link_intra, rank);
      }
    }
  }
}

// Exchanges bytes over communicators. Their buffers are as long as this lives.
class Greetings {
 public:
  Greetings(int ranks, const c10::Device& device)
      : sent_(at::zeros({4 * ranks}, at::TensorOptions().dtype(at::kByte).device(device))),
        received_(sent_.clone()) {}

  void to_partners(comm::Communicator& communicator, const Partners& partners) {
    std::vector<comm::Message> messages;
    for (const int peer : partners.to) messages.push_back({.send = send(), .bytes = 1, .peer = peer});
    for (const int peer : partners.from)
      messages.push_back({.receive = receive() + peer, .bytes = 1, .peer = peer});
    if (!messages.empty()) communicator.exchange(messages)->wait();
  }

  // All members with each other.
  void to_members(comm::Communicator& communicator) {
    Partners others;
    for (int member = 0; member < communicator.size(); ++member) {
      if (member == communicator.rank()) continue;
      others.to.insert(member);
      others.from.insert(member);
    }
    to_partners(communicator, others);
  }

  void gather(comm::Communicator& communicator) { communicator.all_gather(send(), receive(), 1)->wait(); }

  void sum(comm::Communicator& communicator) {
    communicator.reduce_scatter(send(), receive(), 1, comm::DType::kFloat32)->wait();
  }

 private:
  const uint8_t* send() const { return sent_.const_data_ptr<uint8_t>(); }
  uint8_t* receive() { return received_.mutable_data_ptr<uint8_t>(); }

  at::Tensor sent_, received_;
};

}  // namespace

Connections connections(const model::ParameterTable& table, const std::vector<strategy::Strategy>& candidates,
                        const graph::LinkMachine& machine, int rank, graph::LinkPlans& plans) {
  Connections all;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      add_stages(pipeline, rank, all);
      add_lanes(pipeline, machine.topology, rank, all);
    }
    add_links(link_wires(table, *plans.of(table, candidate, machine), rank), rank, all);
  }
  return all;
}

void add_generation(const std::vector<strategy::Strategy>& candidates, int rank, Connections& connections) {
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      const strategy::Scheme& scheme = pipeline.scheme;
      for (int lane = 0; lane < scheme.cp; ++lane) {
        for (int t = 0; t < scheme.tp; ++t) {
          const int last = pipeline.rank_of(scheme.pp - 1, lane, t);
          for (int stage = 0; stage + 1 < scheme.pp; ++stage)
            add(connections.activation, rank, last, pipeline.rank_of(stage, lane, t));
        }
      }
    }
  }
}

void connect(Communicators& communicators, const std::vector<strategy::Strategy>& candidates,
             const Connections& connections, const c10::Device& device) {
  const int rank = communicators.activation().rank();
  Greetings greetings(communicators.activation().size(), device);
  greetings.to_partners(communicators.activation(), connections.activation);
  greetings.to_partners(communicators.gradient(), connections.gradient);
  if (communicators.lanes() != nullptr) {
    greetings.to_partners(*communicators.lanes(), connections.lanes);
    greetings.to_partners(*communicators.lanes_between_nodes(), connections.lanes_between_nodes);
  }
  greetings.to_partners(communicators.link_inter(), connections.link_inter);
  greetings.to_partners(communicators.link_intra(), connections.link_intra);
  const auto is_own = [rank](const std::vector<int>& ranks) {
    return ranks.size() > 1 && std::ranges::find(ranks, rank) != ranks.end();
  };
  for (const std::vector<int>& ranks : tensor_parallel_groups(candidates)) {
    if (!is_own(ranks)) continue;
    greetings.gather(*communicators.tensor_parallel(ranks));
    greetings.sum(*communicators.tensor_parallel(ranks));
  }
  for (const std::vector<int>& ranks : share_groups(candidates)) {
    if (!is_own(ranks)) continue;
    greetings.gather(communicators.fsdp(ranks));
    greetings.to_members(communicators.fsdp(ranks));
  }
}

}  // namespace sluice::runtime
