#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "comm/exchange.h"
#include "transport/cuda_check.h"
#include "transport/host_staged.h"

namespace sluice::transport {
namespace {

// Page-locked (pinned) memory that grows: the GPU copies to and from it directly.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() { (void)cudaFreeHost(data_); }

  // REQUIRES: no copy to or from the memory returned before is in progress.
  std::byte* at_least(int64_t bytes) {
    if (bytes <= bytes_) return data_;
    // Allocation synchronizes the whole GPU. Doubling keeps it rare while micro-batches grow slowly.
    bytes = std::max(bytes, 2 * bytes_);
    (void)cudaFreeHost(std::exchange(data_, nullptr));
    bytes_ = 0;
    void* memory = nullptr;
    cuda_check(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable),
               base::text("allocating ", bytes, " bytes of pinned memory"));
    data_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
    return data_;
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

int64_t total(std::span<const int64_t> parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

class HostStagedCommunicator final : public comm::Communicator {
 public:
  HostStagedCommunicator(std::unique_ptr<comm::Communicator> host, int device)
      : Communicator(host->name(), host->ranks(), host->rank()), host_(std::move(host)), device_(device) {}

  comm::PendingPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    return staged(send, bytes, receive, size() * bytes,
                  [&](const void* from, void* to) { return host_->all_gather(from, to, bytes); });
  }

  comm::PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                              std::span<const int64_t> receive_bytes) override {
    return staged(send, total(send_bytes), receive, total(receive_bytes), [&](const void* from, void* to) {
      return host_->all_to_all(from, send_bytes, to, receive_bytes);
    });
  }

  comm::PendingPtr reduce_scatter(const void* send, void* receive, int64_t count,
                                  comm::DType dtype) override {
    const int64_t bytes = count * comm::size_of(dtype);
    return staged(send, size() * bytes, receive, bytes,
                  [&](const void* from, void* to) { return host_->reduce_scatter(from, to, count, dtype); });
  }

  comm::PendingPtr exchange(std::span<const comm::Message> all) override {
    // An empty message has no place in a buffer that may not exist yet.
    std::vector<comm::Message> messages(all.begin(), all.end());
    std::erase_if(messages, [](const comm::Message& message) { return message.bytes == 0; });
    const auto bytes_of = [&](auto member) {
      int64_t bytes = 0;
      for (const comm::Message& message : messages) bytes += message.*member != nullptr ? message.bytes : 0;
      return bytes;
    };
    std::byte* next_send = send_.at_least(bytes_of(&comm::Message::send));
    std::byte* next_receive = receive_.at_least(bytes_of(&comm::Message::receive));
    std::vector<comm::Message> staged = messages;
    for (comm::Message& message : staged) {
      if (message.send != nullptr) {
        copy(next_send, message.send, message.bytes);
        message.send = std::exchange(next_send, next_send + message.bytes);
      } else {
        message.receive = std::exchange(next_receive, next_receive + message.bytes);
      }
    }
    synchronize();
    host_->exchange(staged)->wait();
    for (size_t i = 0; i < staged.size(); ++i) {
      if (staged[i].receive != nullptr) copy(messages[i].receive, staged[i].receive, staged[i].bytes);
    }
    synchronize();
    return comm::finished();
  }

 private:
  template <typename Operation>
  comm::PendingPtr staged(const void* send, int64_t send_bytes, void* receive, int64_t receive_bytes,
                          Operation operation) {
    std::byte* from = send_.at_least(send_bytes);
    std::byte* to = receive_.at_least(receive_bytes);
    copy(from, send, send_bytes);
    synchronize();
    operation(from, to)->wait();
    copy(receive, to, receive_bytes);
    synchronize();
    return comm::finished();
  }

  cudaStream_t stream() const {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)).stream();
  }
  void copy(void* to, const void* from, int64_t bytes) const {
    if (bytes == 0) return;
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream()),
               base::text("'", name(), "': copying ", bytes, " bytes"));
  }
  void synchronize() const {
    cuda_check(cudaStreamSynchronize(stream()), base::text("'", name(), "': work before an operation"));
  }

  std::unique_ptr<comm::Communicator> host_;
  int device_;
  PinnedBuffer send_;
  PinnedBuffer receive_;
};

class HostStagedTransport final : public comm::Transport {
 public:
  HostStagedTransport(comm::Transport& host, int device) : host_(host), device_(device) {}

  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    return std::make_unique<HostStagedCommunicator>(host_.communicator("staged-" + name, ranks), device_);
  }

 private:
  comm::Transport& host_;
  int device_;
};

}  // namespace

std::unique_ptr<comm::Transport> host_staged_transport(comm::Transport& host, int device) {
  return std::make_unique<HostStagedTransport>(host, device);
}

}  // namespace sluice::transport
