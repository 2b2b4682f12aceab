// Training over NCCL gives what it gives over the host's transport, and its steps connect nothing.
#include <gtest/gtest.h>

#include <utility>

#include "cluster.h"
#include "ranks.h"
#include "transport/device_transport.h"

namespace sluice::nccl_stand_in {
namespace {

// Waits on the host for each operation: the device in host memory computes at once.
class AwaitedPending final : public comm::Pending {
 public:
  explicit AwaitedPending(comm::PendingPtr inner) : inner_(std::move(inner)) {}
  void wait() override {
    inner_->wait();
    wait_for_stream();
  }

 private:
  comm::PendingPtr inner_;
};

class AwaitedCommunicator final : public comm::Communicator {
 public:
  explicit AwaitedCommunicator(std::unique_ptr<comm::Communicator> inner)
      : Communicator(inner->name(), inner->ranks(), inner->rank()), inner_(std::move(inner)) {}

  comm::PendingPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    return std::make_unique<AwaitedPending>(inner_->all_gather(send, receive, bytes));
  }
  comm::PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                              std::span<const int64_t> receive_bytes) override {
    return std::make_unique<AwaitedPending>(inner_->all_to_all(send, send_bytes, receive, receive_bytes));
  }
  comm::PendingPtr reduce_scatter(const void* send, void* receive, int64_t count,
                                  comm::DType dtype) override {
    return std::make_unique<AwaitedPending>(inner_->reduce_scatter(send, receive, count, dtype));
  }
  comm::PendingPtr exchange(std::span<const comm::Message> messages) override {
    return std::make_unique<AwaitedPending>(inner_->exchange(messages));
  }

 private:
  std::unique_ptr<comm::Communicator> inner_;
};

class AwaitedTransport final : public comm::Transport {
 public:
  explicit AwaitedTransport(std::unique_ptr<comm::Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    return std::make_unique<AwaitedCommunicator>(inner_->communicator(name, ranks));
  }
  void check() override { inner_->check(); }

 private:
  std::unique_ptr<comm::Transport> inner_;
};

// The device in host memory over NCCL. A rank has entered the network as long as it has a transport.
class RankTransport final : public comm::Transport {
 public:
  RankTransport(comm::Transport& host, stand_in::Devices& devices)
      : awaited_(transport::device_transport(host, {.kind = transport::DeviceTransportKind::kNccl,
                                                    .device = host.rank(),
                                                    .most_blocks = {}})
                     .transport),
        checked_(devices.transport(awaited_)) {
    Network::of_process().enter(rank());
  }
  ~RankTransport() override { Network::of_process().leave(rank()); }
  RankTransport(const RankTransport&) = delete;
  RankTransport& operator=(const RankTransport&) = delete;

  int rank() const override { return awaited_.rank(); }
  int world_size() const override { return awaited_.world_size(); }
  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    return checked_->communicator(name, ranks);
  }
  void check() override { awaited_.check(); }

 private:
  AwaitedTransport awaited_;
  std::unique_ptr<comm::Transport> checked_;
};

class NcclDevices final : public runtime::DeviceStandIn {
 public:
  c10::Device device(int rank) override {
    use_device(rank);
    return devices_.device(rank);
  }
  std::unique_ptr<comm::Transport> transport(comm::Transport& host) override {
    return std::make_unique<RankTransport>(host, devices_);
  }
  std::unique_ptr<runtime::LinkMover> link_mover(const c10::Device& device) override {
    return devices_.link_mover(device);
  }
  runtime::NodeWatch* watch(int rank) override { return devices_.watch(rank); }

 private:
  stand_in::Devices devices_;
};

// Trains on the host and over NCCL. The sums of TP are NCCL's, so last bits differ.
NetworkCounts train_both(runtime::RunOptions options) {
  options.world_size = 4;
  options.gpus_per_node = 2;
  options.steps = 2 * std::ssize(options.strategies);
  const runtime::RunRecord host = runtime::run_in_process(options);
  Network::of_process().reset({});
  NcclDevices devices;
  options.stand_in = &devices;
  const runtime::RunRecord run = runtime::run_in_process(options);
  EXPECT_STREQ(Network::of_process().fault(), "");
  for (size_t step = 0; step < host.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], host.losses[step], 1e-11) << "step " << step;
    EXPECT_NEAR(run.gradient_norms[step], host.gradient_norms[step], 1e-9) << "step " << step;
  }
  return Network::of_process().counts();
}

struct Strategies {
  const char* name;
  std::vector<std::string> strategies;
  decltype(runtime::RunOptions::plan) plan = runtime::dealt_plan;
  std::vector<runtime::LaneExchange> exchanges = {{}};
};
void PrintTo(const Strategies& strategies, std::ostream* stream) { *stream << strategies.name; }

class NcclRuns : public testing::TestWithParam<Strategies> {};

TEST_P(NcclRuns, EqualTheHostsAndConnectBeforeTheFirstStep) {
  runtime::RunOptions options;
  options.strategies = GetParam().strategies;
  options.plan = GetParam().plan;
  options.exchanges = GetParam().exchanges;
  const NetworkCounts counts = train_both(options);
  EXPECT_EQ(counts.late, 0) << "of " << counts.connections << " connections";
  EXPECT_GT(counts.connections, 0);
  EXPECT_EQ(counts.communicators, 0);
}

INSTANTIATE_TEST_SUITE_P(
    NcclStandIn, NcclRuns,
    testing::Values(Strategies{"ChangingStrategies",
                               {"<1,2,1> + <2,1,1>", "<2,2,1>", "4x<1,1,1>", "<1,1,4>"}},
                    Strategies{"Rings", {"<1,1,4>", "2x<1,1,2>", "<1,2,2>"}, runtime::ringed_plan},
                    Strategies{"HeadsAndRings", {"<1,1,4>"}, runtime::packed_plan, {{2}, {4}, {1}}},
                    Strategies{"SharedParameters", {"<1,1,4,4>", "<1,1,4,2>", "<2,1,2,2>"}},
                    Strategies{"Stages", {"<1,4,1>", "2x<1,2,1>"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::nccl_stand_in
