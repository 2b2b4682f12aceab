#include "ranks.h"

#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/test_fake.h"
#include "transport/cuda_check.h"
#include "transport/device_transport.h"

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*function)(DeviceIndex));  // libtorch has no header for it
}

namespace sluice::nccl_stand_in {

void use_device(int rank) {
  // The library with libtorch's kernels sets this function. It is not loaded here.
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  transport::cuda_check(cudaSetDevice(rank), "choosing a device");
}

Outcome run_ranks(int ranks, const NetworkOptions& options, const std::function<void(comm::Transport&)>& body,
                  transport::DeviceTransportKind kind) {
  Network& network = Network::of_process();
  network.reset(options);
  Outcome outcome{.errors = std::vector<std::string>(static_cast<size_t>(ranks)), .fault = "", .counts = {}};
  comm::FakeWorld world(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) network.enter(rank);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      use_device(rank);
      try {
        const auto host = world.transport(rank);
        body(
            *transport::device_transport(*host, {.kind = kind, .device = rank, .most_blocks = {}}).transport);
      } catch (const base::RunError& error) {
        outcome.errors[static_cast<size_t>(rank)] = error.what();
      }
      network.leave(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  outcome.fault = network.fault();
  outcome.counts = network.counts();
  return outcome;
}

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void wait_for_stream() {
  transport::cuda_check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()),
                        "waiting for a stream");
}

}  // namespace sluice::nccl_stand_in
