// Operations between GPUs give what they give over the host's transport.
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "base/text.h"
#include "comm/test_fake.h"
#include "ranks.h"

namespace sluice::nccl_stand_in {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kRanks = 4;
constexpr int kOperations = 60;

// Bytes that only this rank has for this operation: small numbers, whose sums are exact in any order.
Bytes numbers(uint64_t seed, int rank, int64_t bytes, comm::DType dtype) {
  base::Rng rng(seed, static_cast<uint64_t>(rank));
  Bytes data(static_cast<size_t>(bytes));
  const int64_t size = comm::size_of(dtype);
  for (int64_t i = 0; i + size <= bytes; i += size) {
    const double number = static_cast<double>(rng.below(16)) - 8;
    const auto narrow = static_cast<float>(number);
    const auto top = static_cast<uint16_t>(std::bit_cast<uint32_t>(narrow) >> 16);
    const void* source = &number;
    if (dtype == comm::DType::kFloat32) source = &narrow;
    if (dtype == comm::DType::kBFloat16) source = &top;
    std::memcpy(data.data() + i, source, static_cast<size_t>(size));
  }
  return data;
}

// A rank's buffers of one operation. They stay until all operations are done.
struct Buffers {
  Bytes send, receive;
  comm::PendingPtr pending;
};

// Sizes of what members send each other in an exchange, about a third of them empty.
int64_t message_bytes(uint64_t seed, int from, int to) {
  const uint64_t drawn = base::Rng(seed, static_cast<uint64_t>(100 + from * kRanks + to)).below(60);
  return drawn < 20 ? 0 : 8 * static_cast<int64_t>(drawn);
}

void all_to_all(comm::Communicator& group, uint64_t seed, Buffers& buffers) {
  std::vector<int64_t> sent, received;
  int64_t sent_bytes = 0, received_bytes = 0;
  for (int member = 0; member < group.size(); ++member) {
    sent_bytes += sent.emplace_back(message_bytes(seed, group.rank(), member));
    received_bytes += received.emplace_back(message_bytes(seed, member, group.rank()));
  }
  buffers.send = numbers(seed, group.rank(), sent_bytes, comm::DType::kFloat64);
  buffers.receive.resize(static_cast<size_t>(received_bytes));
  buffers.pending = group.all_to_all(buffers.send.data(), sent, buffers.receive.data(), received);
}

// To the next member twice, with other sizes, and to the one behind it.
void exchange(comm::Communicator& group, uint64_t seed, Buffers& buffers) {
  const int size = group.size();
  constexpr int64_t kLargest = 8 * 60;
  buffers.send = numbers(seed, group.rank(), 3 * kLargest, comm::DType::kFloat64);
  buffers.receive.resize(3 * kLargest);
  std::vector<comm::Message> messages;
  for (int i = 0; i < 3; ++i) {
    const int step = i == 2 ? 2 : 1;
    if (step % size == 0) continue;
    const int to = (group.rank() + step) % size, from = (group.rank() + size - step) % size;
    const uint64_t draw = seed + static_cast<uint64_t>(i);
    messages.push_back({.send = buffers.send.data() + i * kLargest,
                        .bytes = message_bytes(draw, group.rank(), to),
                        .peer = to});
    messages.push_back({.receive = buffers.receive.data() + i * kLargest,
                        .bytes = message_bytes(draw, from, group.rank()),
                        .peer = from});
  }
  buffers.pending = group.exchange(messages);
}

void operate(comm::Communicator& group, uint64_t seed, Buffers& buffers) {
  base::Rng rng(seed, 77);
  const int64_t count = rng.between(0, 50);
  const auto dtype = static_cast<comm::DType>(rng.below(3));
  const int64_t bytes = count * comm::size_of(dtype);
  switch (rng.below(4)) {
    case 0:
      buffers.send = numbers(seed, group.rank(), bytes, dtype);
      buffers.receive.resize(static_cast<size_t>(bytes * group.size()));
      buffers.pending = group.all_gather(buffers.send.data(), buffers.receive.data(), bytes);
      break;
    case 1:
      buffers.send = numbers(seed, group.rank(), bytes * group.size(), dtype);
      buffers.receive.resize(static_cast<size_t>(bytes));
      buffers.pending = group.reduce_scatter(buffers.send.data(), buffers.receive.data(), count, dtype);
      break;
    case 2: all_to_all(group, seed, buffers); break;
    default: exchange(group, seed, buffers);
  }
}

using Received = std::vector<Bytes>;

// One global order of operations on several communicators. `stream` is called before each; `end` waits for
// what is not waited for at once.
Received run_program(comm::Transport& transport, uint64_t seed, const std::function<void(base::Rng&)>& stream,
                     const std::function<void()>& end) {
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1}, {1, 2, 3}, {0, 3}};
  std::vector<std::unique_ptr<comm::Communicator>> members;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool own = std::ranges::find(groups[i], transport.rank()) != groups[i].end();
    members.push_back(own ? transport.communicator(base::text("group ", i), groups[i]) : nullptr);
  }
  std::vector<Buffers> buffers(kOperations);
  base::Rng rng(seed), streams(seed, 100 + static_cast<uint64_t>(transport.rank()));
  for (Buffers& each : buffers) {
    const size_t group = rng.below(groups.size());
    const uint64_t operation = rng.below(1'000'000);
    if (members[group] == nullptr) continue;
    stream(streams);
    operate(*members[group], operation, each);
    each.pending->wait();
  }
  end();
  Received received;
  for (Buffers& each : buffers) received.push_back(std::move(each.receive));
  return received;
}

std::vector<Received> on_host(uint64_t seed) {
  std::vector<Received> received(kRanks);
  comm::FakeWorld world(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      received[static_cast<size_t>(rank)] = run_program(
          *world.transport(rank), seed, [](base::Rng&) {}, [] {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return received;
}

// The program on three streams of each GPU.
Received on_streams(comm::Transport& transport, uint64_t seed) {
  const auto device = static_cast<c10::DeviceIndex>(transport.rank());
  std::vector<c10::cuda::CUDAStream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(c10::cuda::getStreamFromPool(false, device));
  const auto choose = [&](base::Rng& rng) {
    c10::cuda::setCurrentCUDAStream(streams[rng.below(streams.size())]);
  };
  const auto wait_for_all = [&] {
    for (const auto& stream : streams) {
      c10::cuda::setCurrentCUDAStream(stream);
      wait_for_stream();
    }
    c10::cuda::setCurrentCUDAStream(c10::cuda::getDefaultCUDAStream(device));
  };
  return run_program(transport, seed, choose, wait_for_all);
}

Outcome expect_the_hosts(uint64_t seed, transport::DeviceTransportKind kind) {
  std::vector<Received> received(kRanks);
  const auto run = [&](comm::Transport& transport) {
    received[static_cast<size_t>(transport.rank())] = on_streams(transport, seed);
  };
  Outcome outcome = run_ranks(kRanks, {.polls = static_cast<int>(seed % 4)}, run, kind);
  EXPECT_EQ(outcome.errors, std::vector<std::string>(kRanks)) << "seed " << seed;
  EXPECT_EQ(outcome.fault, "") << "seed " << seed;
  EXPECT_EQ(outcome.counts.communicators, 0) << "seed " << seed;
  EXPECT_TRUE(received == on_host(seed)) << "seed " << seed;
  return outcome;
}

TEST(NcclStandIn, RandomOperationsGiveWhatTheyGiveOnTheHost) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Outcome outcome = expect_the_hosts(seed, transport::DeviceTransportKind::kNccl);
    EXPECT_GT(outcome.counts.kernels, kOperations) << "seed " << seed;
  }
}

TEST(NcclStandIn, RandomOperationsThroughTheHostGiveTheSame) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Outcome outcome = expect_the_hosts(seed, transport::DeviceTransportKind::kHostStaged);
    EXPECT_EQ(outcome.counts.kernels, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sluice::nccl_stand_in
