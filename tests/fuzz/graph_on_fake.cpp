#include "graph_on_fake.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "comm/test_fake.h"

namespace sluice::fuzz {

using graph::Node;
using graph::StepGraph;

namespace {

bool share_rank(const Node& a, const Node& b) {
  std::vector<int> both;
  std::ranges::set_intersection(a.members, b.members, std::back_inserter(both));
  return !both.empty();
}

// The progress of one rank's program, shared by the threads of its streams.
class Rank {
 public:
  Rank(const StepGraph& graph, int rank, comm::FakeWorld& world, const std::vector<int>& communicator_of)
      : graph_(graph), rank_(rank), communicator_of_(communicator_of), done_(graph.nodes.size(), 0) {
    const std::vector<int>& program = graph.programs[static_cast<size_t>(rank)];
    const auto transport = world.transport(rank);
    std::map<int, const Node*> mine;
    for (const int id : program) {
      const int communicator = communicator_of[static_cast<size_t>(id)];
      if (communicator >= 0) mine.emplace(communicator, &graph.node(id));
    }
    for (const auto& [communicator, node] : mine) {
      communicators_[communicator] = transport->communicator(base::text("c", communicator), node->members);
    }
  }

  // The nodes of one stream, in order.
  void run(graph::Stream stream) {
    for (const int id : graph_.programs[static_cast<size_t>(rank_)]) {
      const Node& node = graph_.node(id);
      if (graph::stream_of(node.kind) != stream) continue;
      if (!wait_for(node)) return;
      try {
        exchange(node);
      } catch (const std::exception& error) {
        return fail(base::text("rank ", rank_, " at '", label(node), "': ", error.what()));
      }
      const std::lock_guard lock(mutex_);
      done_[static_cast<size_t>(id)] = 1;
      changed_.notify_all();
    }
  }

  std::string failure() const { return failure_; }

 private:
  bool wait_for(const Node& node) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return !failure_.empty() || std::ranges::all_of(node.dependencies, [&](int on) {
        const bool local = std::ranges::binary_search(graph_.node(on).members, rank_);
        return !local || done_[static_cast<size_t>(on)];
      });
    });
    return failure_.empty();
  }

  void exchange(const Node& node) {
    const int communicator = communicator_of_[static_cast<size_t>(node.id)];
    if (communicator < 0) return;
    const auto sent = static_cast<int32_t>(node.id);
    std::vector<int32_t> received(node.members.size(), -1);
    communicators_.at(communicator)->all_gather(&sent, received.data(), sizeof(sent))->wait();
    for (const int32_t id : received) {
      if (id != sent) throw std::runtime_error(base::text("met '", label(graph_.node(id)), "'"));
    }
  }

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    changed_.notify_all();
  }

  const StepGraph& graph_;
  const int rank_;
  const std::vector<int>& communicator_of_;
  std::map<int, std::unique_ptr<comm::Communicator>> communicators_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> done_;
  std::string failure_;
};

}  // namespace

std::vector<int> communicators(const StepGraph& graph) {
  std::map<std::pair<graph::Stream, std::vector<int>>, int> ids;
  std::vector<int> result;
  for (const Node& node : graph.nodes) {
    const auto key = std::pair(graph::stream_of(node.kind), node.members);
    const bool alone = node.members.size() == 1;
    result.push_back(alone ? comm::kNoCommunicator
                           : ids.emplace(key, static_cast<int>(ids.size())).first->second);
  }
  return result;
}

comm::VirtualProgram virtual_program(const StepGraph& graph) {
  comm::VirtualProgram program;
  const std::vector<int> communicator_of = communicators(graph);
  for (const Node& node : graph.nodes) {
    // As long as the clock says: transfers that share an adapter take longer than alone.
    program.events.push_back({node.members, communicator_of[static_cast<size_t>(node.id)],
                              node.end_ns - node.start_ns, label(node)});
  }
  for (int rank = 0; rank < graph.world_size; ++rank) {
    auto& operations = program.ranks.emplace_back();
    for (const int id : graph.programs[static_cast<size_t>(rank)]) {
      const Node& node = graph.node(id);
      comm::VirtualOperation operation{id, static_cast<int>(graph::stream_of(node.kind)), {}};
      for (const int on : node.dependencies) {
        const bool local = std::ranges::binary_search(graph.node(on).members, rank);
        if (local) operation.dependencies.push_back(on);
      }
      operations.push_back(std::move(operation));
    }
  }
  return program;
}

bool is_local(const StepGraph& graph) {
  return std::ranges::all_of(graph.nodes, [&](const Node& node) {
    return std::ranges::all_of(node.dependencies, [&](int on) { return share_rank(node, graph.node(on)); });
  });
}

bool run_in_virtual_time(const StepGraph& graph, uint64_t seed) {
  const comm::VirtualProgram program = virtual_program(graph);
  const bool local = is_local(graph);
  for (const int64_t delay_ns : {0, 100, 10'000, 1'000'000}) {
    const auto result = comm::run_virtually(program, {.seed = seed, .max_delay_ns = delay_ns});
    if (!result.deadlock.empty()) {
      throw base::RunError(base::text("deadlock under delays of up to ", delay_ns, " ns: ", result.deadlock));
    }
    if (delay_ns > 0) continue;
    if (result.makespan_ns > graph.makespan_ns || (local && result.makespan_ns != graph.makespan_ns)) {
      throw base::RunError(
          base::text("the interpreter takes ", result.makespan_ns, " ns, the clock ", graph.makespan_ns));
    }
  }
  return local;
}

std::string run_on_threads(const StepGraph& graph, uint64_t seed) {
  comm::FakeWorld world(graph.world_size, {.seed = seed, .max_delay_ns = 200'000});
  const std::vector<int> communicator_of = communicators(graph);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < graph.world_size; ++rank) {
    ranks.push_back(std::make_unique<Rank>(graph, rank, world, communicator_of));
  }
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    for (int stream = 0; stream < graph::kStreams; ++stream) {
      threads.emplace_back([&rank, stream] { rank->run(static_cast<graph::Stream>(stream)); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& rank : ranks) {
    if (!rank->failure().empty()) return rank->failure();
  }
  return "";
}

}  // namespace sluice::fuzz
