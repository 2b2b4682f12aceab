// Moves slices between a rank's memories and the wire's buffers, and sums received slices. Executes the lists
// of link/wire.h on the host or on a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/transport.h"
#include "link/wire.h"
#include "runtime/link_launches.h"

namespace sluice::runtime {

// Pull: compute copies of the owner slices, and parameter shards. Push: owner gradients, and gradient shards.
// All share one dtype and device. By bucket; undefined if the rank holds none.
struct LinkMemories {
  std::vector<at::Tensor> compute;
  std::vector<at::Tensor> owner;
};

// The first elements of the memories, for link::pack and the like.
template <typename Element>
link::BucketMemory<Element> pointers(const LinkMemories& memories) {
  const auto first = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<Element*>(tensor.mutable_data_ptr()) : nullptr;
  };
  link::BucketMemory<Element> result;
  for (const at::Tensor& tensor : memories.compute) result.compute.push_back(first(tensor));
  for (const at::Tensor& tensor : memories.owner) result.owner.push_back(first(tensor));
  return result;
}

// Calls `visit` with the type of an element of the wire: visit.template operator()<Element>(). 16-bit
// elements are copied as they are.
template <typename Visit>
void visit_element(comm::DType dtype, Visit visit) {
  switch (dtype) {
    case comm::DType::kFloat32: return visit.template operator()<float>();
    case comm::DType::kFloat64: return visit.template operator()<double>();
    case comm::DType::kBFloat16: return visit.template operator()<uint16_t>();
  }
}

// Used by one thread at a time; on a device in the order of the current stream.
class LinkMover {
 public:
  virtual ~LinkMover() = default;
  virtual void pack(const link::WireLevel& level, const LinkMemories& memories, comm::DType dtype,
                    void* send) = 0;
  virtual void unpack(const link::WireLevel& level, void* receive, const LinkMemories& memories,
                      comm::DType dtype) = 0;
};

// For memories on `device`: the host or a GPU.
std::unique_ptr<LinkMover> make_link_mover(const c10::Device& device);
// The same for a device, with its launches given. The mover keeps its lists in the device's memory from step
// to step.
std::unique_ptr<LinkMover> device_link_mover(const c10::Device& device,
                                             std::unique_ptr<LinkLaunches> launches);
using MakeLinkMover = std::function<std::unique_ptr<LinkMover>(const c10::Device&)>;

}  // namespace sluice::runtime
