#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/exchange.h"
#include "transport/cuda_check.h"
#include "transport/nccl.h"
#include "transport/nccl_api.h"
#include "transport/nccl_handle.h"

namespace sluice::transport {
namespace {

ncclDataType_t nccl_type(comm::DType dtype) {
  switch (dtype) {
    case comm::DType::kFloat32: return ncclFloat32;
    case comm::DType::kFloat64: return ncclFloat64;
    case comm::DType::kBFloat16: return ncclBfloat16;
  }
  SLUICE_ASSERT(false, "no NCCL type for a communication type");
}

const std::byte* at(const void* data, int64_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }

class NcclCommunicator final : public comm::Communicator {
 public:
  NcclCommunicator(const std::string& name, const std::vector<int>& ranks, int member,
                   std::shared_ptr<NcclHandle> handle, std::shared_ptr<NcclWatch> watch,
                   const DeviceTransportOptions& options)
      : Communicator(name, ranks, member),
        handle_(std::move(handle)),
        watch_(std::move(watch)),
        device_(static_cast<c10::DeviceIndex>(options.device)),
        timeout_(options.issue_timeout_ns) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override { handle_->close(); }

  comm::PendingPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    return issue("all_gather", [&](ncclComm_t comm, cudaStream_t stream) {
      return nccl_api().all_gather(send, receive, static_cast<size_t>(bytes), ncclUint8, comm, stream);
    });
  }

  comm::PendingPtr reduce_scatter(const void* send, void* receive, int64_t count,
                                  comm::DType dtype) override {
    return issue("reduce_scatter", [&](ncclComm_t comm, cudaStream_t stream) {
      return nccl_api().reduce_scatter(send, receive, static_cast<size_t>(count), nccl_type(dtype), ncclSum,
                                       comm, stream);
    });
  }

  comm::PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                              std::span<const int64_t> receive_bytes) override {
    const auto self = static_cast<size_t>(rank());
    SLUICE_ASSERT(send_bytes.size() == ranks().size() && receive_bytes.size() == ranks().size(),
                  base::text("all_to_all on '", name(), "' needs ", size(), " sizes on both sides"));
    SLUICE_ASSERT(send_bytes[self] == receive_bytes[self],
                  base::text("all_to_all on '", name(), "': a member's part for itself has two sizes"));
    std::vector<comm::Message> messages;
    int64_t sent = 0, received = 0;
    for (size_t member = 0; member < ranks().size(); ++member) {
      const int peer = static_cast<int>(member);
      if (member == self) {
        copy_own(at(receive, received), at(send, sent), send_bytes[self]);
      } else {
        messages.push_back({.send = at(send, sent), .bytes = send_bytes[member], .peer = peer});
        messages.push_back({.receive = at(receive, received), .bytes = receive_bytes[member], .peer = peer});
      }
      sent += send_bytes[member];
      received += receive_bytes[member];
    }
    return point_to_point("all_to_all", messages);
  }

  comm::PendingPtr exchange(std::span<const comm::Message> messages) override {
    for (const comm::Message& message : messages) {
      SLUICE_ASSERT(message.peer >= 0 && message.peer < size() && message.peer != rank(),
                    base::text("exchange on '", name(), "': member ", message.peer, " is no peer"));
    }
    return point_to_point("exchange", messages);
  }

 private:
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device_).stream(); }

  void copy_own(void* to, const void* from, int64_t bytes) const {
    if (bytes == 0) return;
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream()),
               base::text("'", name(), "': copying this rank's own part"));
  }

  // Issues one NCCL group of the messages that are not empty, or nothing if all are: NCCL matches
  // point-to-point operations by pair, so members without messages need not take part.
  comm::PendingPtr point_to_point(const char* kind, std::span<const comm::Message> messages) {
    if (std::ranges::all_of(messages, [](const comm::Message& message) { return message.bytes == 0; })) {
      ++issued_;
      return comm::finished();
    }
    return issue(kind, [&](ncclComm_t comm, cudaStream_t stream) {
      const NcclApi& api = nccl_api();
      ncclResult_t worst = api.group_start();
      for (const comm::Message& message : messages) {
        if (message.bytes == 0) continue;
        const auto bytes = static_cast<size_t>(message.bytes);
        const ncclResult_t result =
            message.send != nullptr
                ? api.send(message.send, bytes, ncclUint8, message.peer, comm, stream)
                : api.receive(message.receive, bytes, ncclUint8, message.peer, comm, stream);
        if (!went_wrong(worst) && went_wrong(result)) worst = result;
      }
      const ncclResult_t ended = api.group_end();
      return went_wrong(worst) ? worst : ended;
    });
  }

  template <typename Operation>
  comm::PendingPtr issue(const char* kind, Operation operation) {
    watch_->check();
    const c10::cuda::CUDAGuard guard(device_);
    const std::string what = base::text("'", name(), "' #", issued_++, " ", kind);
    const std::string failure =
        handle_->call(what, timeout_, [&](ncclComm_t comm) { return operation(comm, stream()); });
    if (!failure.empty()) {
      watch_->fail(failure);
      watch_->check();
    }
    return comm::finished();
  }

  std::shared_ptr<NcclHandle> handle_;
  std::shared_ptr<NcclWatch> watch_;
  c10::DeviceIndex device_;
  std::chrono::nanoseconds timeout_;
  int64_t issued_ = 0;
};

class NcclTransport final : public comm::Transport {
 public:
  NcclTransport(std::unique_ptr<comm::Communicator> host_world, const DeviceTransportOptions& options)
      : host_world_(std::move(host_world)), options_(options), watch_(std::make_shared<NcclWatch>()) {}

  int rank() const override { return host_world_->rank(); }
  int world_size() const override { return host_world_->size(); }
  void check() override { watch_->check(); }

  std::unique_ptr<comm::Communicator> communicator(const std::string& name,
                                                   const std::vector<int>& ranks) override {
    const auto found = std::find(ranks.begin(), ranks.end(), rank());
    SLUICE_ASSERT(found != ranks.end(), base::text("rank ", rank(), " is no member of '", name, "'"));
    const int member = static_cast<int>(found - ranks.begin());
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
    const ncclUniqueId id = shared_id(name, ranks);
    auto handle = std::make_shared<NcclHandle>(nccl_api(),
                                               NcclHandle::Options{.name = name,
                                                                   .members = static_cast<int>(ranks.size()),
                                                                   .member = member,
                                                                   .most_blocks = most_blocks(name)},
                                               id);
    const std::string failure = handle->join(std::chrono::nanoseconds(options_.join_timeout_ns));
    if (!failure.empty()) {
      NcclHandle::cut_off({handle});
      throw base::RunError(failure);
    }
    watch_->add(handle);
    return std::make_unique<NcclCommunicator>(name, ranks, member, std::move(handle), watch_, options_);
  }

 private:
  int most_blocks(const std::string& name) const {
    const auto found = options_.most_blocks.find(name);
    return found == options_.most_blocks.end() ? 0 : found->second;
  }

  // The first member creates the id and sends it to the others. All ranks create communicators in the same
  // order, so ids between two ranks also arrive in order.
  ncclUniqueId shared_id(const std::string& name, const std::vector<int>& ranks) {
    ncclUniqueId id{};
    const int64_t bytes = sizeof id;
    if (rank() != ranks.front()) {
      host_world_->receive(&id, bytes, ranks.front())->wait();
      return id;
    }
    const ncclResult_t result = nccl_api().get_unique_id(&id);
    if (went_wrong(result)) {
      throw base::RunError(base::text("joining '", name, "' failed: ", nccl_api().error_string(result)));
    }
    std::vector<comm::Message> messages;
    for (const int other : ranks) {
      if (other != rank()) messages.push_back({.send = &id, .bytes = bytes, .peer = other});
    }
    host_world_->exchange(messages)->wait();
    return id;
  }

  std::unique_ptr<comm::Communicator> host_world_;
  DeviceTransportOptions options_;
  std::shared_ptr<NcclWatch> watch_;
};

}  // namespace

std::unique_ptr<comm::Transport> nccl_transport(std::unique_ptr<comm::Communicator> host_world,
                                                const DeviceTransportOptions& options) {
  return std::make_unique<NcclTransport>(std::move(host_world), options);
}

}  // namespace sluice::transport
