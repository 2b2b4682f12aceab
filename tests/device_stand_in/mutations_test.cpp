// The checker itself: each way in which the order of a device's work has been lost somewhere is found.
#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <ostream>

#include "cluster.h"
#include "graph/node.h"

namespace sluice::stand_in {
namespace {

using Kind = Ordering::Kind;
using runtime::RunOptions;

// Streams by number: DeviceExecutor makes its own first.
constexpr int id_of(graph::Stream stream) { return 1 + static_cast<int>(stream); }
constexpr int kCaller = 0;
constexpr int kCompute = id_of(graph::Stream::kCompute);
bool is_link(int stream) {
  return stream == id_of(graph::Stream::kLinkInter) || stream == id_of(graph::Stream::kLinkIntra);
}
bool is_side(int stream) { return stream > graph::kStreams; }

RunOptions two_steps(std::vector<std::string> strategies) {
  RunOptions options;
  options.world_size = 4;
  options.gpus_per_node = 2;
  options.strategies = std::move(strategies);
  options.steps = 2;
  options.sequences = 6;
  return options;
}
RunOptions stages() { return two_steps({"<1,2,1> + <2,1,1>"}); }
RunOptions rings() {
  RunOptions options = two_steps({"<1,1,4>"});
  options.plan = runtime::ringed_plan;
  return options;
}
RunOptions offloaded() {
  RunOptions options = stages();
  options.policies = {{.offload_permille = 700}};
  return options;
}

struct Lost {
  const char* name;
  RunOptions (*run)();
  Mutation mutation;
};
void PrintTo(const Lost& lost, std::ostream* stream) { *stream << lost.name; }

const Lost kLost[] = {
    {"ComputeWaitsForNoPull", stages,
     [](const Ordering& o) { return o.kind == Kind::kBlock && o.stream == kCompute && is_link(o.other); }},
    {"PushWaitsForNoBackward", stages,
     [](const Ordering& o) { return o.kind == Kind::kBlock && is_link(o.stream) && o.other == kCompute; }},
    {"StageWaitsForNoActivations", stages,
     [](const Ordering& o) {
       return o.kind == Kind::kBlock && o.stream == kCompute && o.other == id_of(graph::Stream::kActivation);
     }},
    {"BackwardWaitsForNoFetch", offloaded,
     [](const Ordering& o) {
       return o.kind == Kind::kBlock && o.stream == kCompute && o.other == id_of(graph::Stream::kHost);
     }},
    {"StepWaitsForNoCaller", stages,
     [](const Ordering& o) { return o.kind == Kind::kBlock && o.other == kCaller; }},
    {"CallerWaitsForNoStep", stages, [](const Ordering& o) { return o.kind == Kind::kSynchronizeStream; }},
    {"RingWaitsForNoKeys", rings,
     [](const Ordering& o) { return o.kind == Kind::kBlock && is_side(o.stream) && o.other == kCompute; }},
    {"ComputeWaitsForNoRing", rings,
     [](const Ordering& o) { return o.kind == Kind::kBlock && o.stream == kCompute && is_side(o.other); }},
    {"AllocatorIsNotToldOfTransfers", offloaded,
     [](const Ordering& o) { return o.kind == Kind::kTellAllocator && !is_side(o.stream); }},
    {"EventsAreThoseOfTheStepBefore", stages,
     [](const Ordering& o) { return o.kind == Kind::kRecord && o.stream == kCompute; }},
    {"TransfersRunOnTheCallersStream", stages,
     [](const Ordering& o) {
       return o.kind == Kind::kEnterStream && o.stream == id_of(graph::Stream::kActivation);
     }},
    {"HostReadsNumbersTooEarly", stages, [](const Ordering& o) { return o.kind == Kind::kCopyToHost; }},
};

class Mutations : public testing::TestWithParam<Lost> {};

// By a fault, by what the device answers, or by numbers that the host read too early.
TEST_P(Mutations, AreFound) {
  Devices devices;
  devices.mutation = GetParam().mutation;
  const RunOptions options = GetParam().run();
  DeviceRun mutated;
  try {
    mutated = run_on_stand_ins(options, devices);
  } catch (const std::exception&) {
    return;
  }
  if (!mutated.faults.empty()) return;
  const runtime::RunRecord host = runtime::run_in_process(options);
  bool same = true;
  for (size_t step = 0; step < host.losses.size(); ++step) {
    same = same && std::abs(mutated.record.losses[step] - host.losses[step]) <= 1e-12;
    same = same && std::abs(mutated.record.gradient_norms[step] - host.gradient_norms[step]) <= 1e-9;
  }
  EXPECT_FALSE(same) << "nothing was found in " << mutated.accesses << " accesses";
}
INSTANTIATE_TEST_SUITE_P(DeviceStandIn, Mutations, testing::ValuesIn(kLost),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::stand_in
