#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "transport/cuda_check.h"
#include "transport/device_transport.h"
#include "transport/host_staged.h"
#include "transport/nccl.h"
#include "transport/nccl_api.h"
#include "transport/nccl_finding.h"

namespace sluice::transport {
namespace {

// Data that each rank sends to all others before they choose a transport.
struct GpuCard {
  std::array<std::byte, 16> gpu{};  // the GPU's UUID: equal for all ranks on the same GPU
  std::byte has_nccl{};
};

GpuCard own_card(int device) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device), base::text("reading GPU ", device));
  GpuCard card;
  static_assert(sizeof properties.uuid == sizeof card.gpu);
  std::memcpy(card.gpu.data(), &properties.uuid, sizeof card.gpu);
  card.has_nccl = std::byte{nccl_fault().empty()};
  return card;
}

std::vector<GpuCard> all_cards(comm::Communicator& world, const GpuCard& own) {
  std::vector<GpuCard> cards(static_cast<size_t>(world.size()));
  world.all_gather(&own, cards.data(), sizeof own)->wait();
  return cards;
}

// Why these ranks cannot use NCCL; empty if they can. The answer is the same on all ranks.
std::string fault(const std::vector<GpuCard>& cards) {
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].has_nccl == std::byte{0}) return base::text("rank ", rank, " has no NCCL");
    for (size_t other = 0; other < rank; ++other) {
      if (cards[rank].gpu == cards[other].gpu) {
        return base::text("ranks ", other, " and ", rank, " share a GPU");
      }
    }
  }
  return "";
}

}  // namespace

NcclFinding find_nccl() {
  if (!nccl_fault().empty()) return {"", nccl_fault()};
  int version = 0;
  nccl_api().get_version(&version);
  return {base::text("NCCL ", version / 10'000, ".", version / 100 % 100, ".", version % 100), ""};
}

DeviceTransport device_transport(comm::Transport& host, const DeviceTransportOptions& options) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options.device));
  std::vector<int> ranks(static_cast<size_t>(host.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<comm::Communicator> world = host.communicator("device-transport", ranks);
  const std::string why_not = fault(all_cards(*world, own_card(options.device)));
  if (options.kind == DeviceTransportKind::kNccl && !why_not.empty()) {
    throw base::InputError(base::text("NCCL cannot be used: ", why_not, " (", nccl_fault(),
                                      "): start one rank for each GPU, or let them go through the host"));
  }
  if (!why_not.empty()) return {host_staged_transport(host, options.device), why_not};
  if (options.kind == DeviceTransportKind::kHostStaged)
    return {host_staged_transport(host, options.device), ""};
  return {nccl_transport(std::move(world), options), ""};
}

}  // namespace sluice::transport
