#include "runtime/link_mover.h"

#include "base/error.h"

namespace sluice::runtime {
namespace {

class HostLinkMover final : public LinkMover {
 public:
  void pack(const link::WireLevel& level, const LinkMemories& memories, comm::DType dtype,
            void* send) override {
    visit_element(dtype, [&]<typename Element>() {
      link::pack(level, pointers<Element>(memories), static_cast<Element*>(send));
    });
  }

  void unpack(const link::WireLevel& level, void* receive, const LinkMemories& memories,
              comm::DType dtype) override {
    visit_element(dtype, [&]<typename Element>() {
      link::unpack(level, static_cast<const Element*>(receive), pointers<Element>(memories));
    });
  }
};

}  // namespace

std::unique_ptr<LinkMover> make_link_mover(const c10::Device& device) {
  if (device.is_cpu()) return std::make_unique<HostLinkMover>();
#ifdef SLUICE_CUDA
  return device_link_mover(device, cuda_link_launches(device));
#else
  SLUICE_ASSERT(false, "memory on a GPU in a build without CUDA");
#endif
}

}  // namespace sluice::runtime
