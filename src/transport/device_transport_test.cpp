#include "transport/device_transport.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/test_fake.h"

#ifdef SLUICE_CUDA
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <thread>

#include "transport/nccl.h"
#include "transport/nccl_finding.h"
#endif

namespace sluice::transport {
namespace {

#ifndef SLUICE_CUDA

TEST(DeviceTransport, WithoutCudaIsTheUsersMistake) {
  comm::FakeWorld world(1);
  const auto host = world.transport(0);
  EXPECT_THROW(device_transport(*host, {}), base::InputError);
}

#else

int gpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}
bool has_gpu() { return gpus() > 0; }

// Floats in the current GPU's memory, copied in and out on the current stream.
class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyDefault, stream()), cudaSuccess);
  }
  ~DeviceFloats() { (void)cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  void* data() { return data_; }
  std::vector<float> values() const {
    std::vector<float> result(size_);
    EXPECT_EQ(cudaMemcpyAsync(result.data(), data_, bytes(), cudaMemcpyDefault, stream()), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
    return result;
  }

 private:
  static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }
  size_t bytes() const { return size_ * sizeof(float); }
  size_t size_;
  void* data_ = nullptr;
};

TEST(DeviceTransport, NcclServesAWorldOfOne) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  ASSERT_EQ(nccl_fault(), "");
  comm::FakeWorld world(1);
  const auto host = world.transport(0);
  const auto transport = device_transport(*host, {.kind = DeviceTransportKind::kNccl}).transport;
  const auto lone = transport->communicator("lone", {0});
  DeviceFloats from({1, 2, 3}), to({0, 0, 0});
  lone->reduce_scatter(from.data(), to.data(), 3, comm::DType::kFloat32)->wait();
  EXPECT_EQ(to.values(), (std::vector<float>{1, 2, 3}));
  const std::vector<int64_t> bytes{8};
  DeviceFloats other({7, 8, 9});
  lone->all_to_all(other.data(), bytes, to.data(), bytes)->wait();
  EXPECT_EQ(to.values(), (std::vector<float>{7, 8, 3}));
  EXPECT_NO_THROW(transport->check());
}

// Runs every operation between two ranks; this rank uses the given GPU.
void use_every_operation(comm::Transport& host, int device, const std::string& expected_detour) {
  ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
  const int rank = host.rank(), other = 1 - rank;
  const auto own = static_cast<float>(rank + 1);
  const auto [transport, detour] = device_transport(host, {.device = device});
  EXPECT_EQ(detour, expected_detour);
  const auto pair = transport->communicator("pair", {0, 1});

  DeviceFloats one({own}), both({0, 0});
  pair->all_gather(one.data(), both.data(), 4)->wait();
  EXPECT_EQ(both.values(), (std::vector<float>{1, 2}));

  DeviceFloats terms({own, 10 * own}), sum({0});
  pair->reduce_scatter(terms.data(), sum.data(), 1, comm::DType::kFloat32)->wait();
  EXPECT_EQ(sum.values(), (std::vector<float>{rank == 0 ? 3.0F : 30.0F}));

  DeviceFloats received({0});
  const std::vector<comm::Message> swap{{.send = one.data(), .bytes = 4, .peer = other},
                                        {.receive = received.data(), .bytes = 4, .peer = other}};
  pair->exchange(swap)->wait();
  EXPECT_EQ(received.values(), (std::vector<float>{3 - own}));

  const std::vector<int64_t> send_bytes{rank == 0 ? 0 : 8, rank == 0 ? 4 : 0};  // 0 sends 4, 1 sends 8
  const std::vector<int64_t> receive_bytes{rank == 0 ? 0 : 4, rank == 0 ? 8 : 0};
  DeviceFloats parts({0, 0});
  pair->all_to_all(terms.data(), send_bytes, parts.data(), receive_bytes)->wait();
  EXPECT_EQ(parts.values(), (rank == 0 ? std::vector<float>{2, 20} : std::vector<float>{1, 0}));
}

void use_between_two_ranks(const std::vector<int>& devices, const std::string& expected_detour) {
  comm::FakeWorld world(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      use_every_operation(*world.transport(rank), devices[static_cast<size_t>(rank)], expected_detour);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(DeviceTransport, RanksThatShareAGpuGoThroughTheHost) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  use_between_two_ranks({0, 0}, "ranks 0 and 1 share a GPU");
}

TEST(DeviceTransport, NcclServesTwoGpus) {
  if (gpus() < 2) GTEST_SKIP() << "no GPU beside another";
  use_between_two_ranks({0, 1}, "");
}

#endif

}  // namespace
}  // namespace sluice::transport
