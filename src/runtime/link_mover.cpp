#include "runtime/link_mover.h"

#include "base/error.h"

namespace sluice::runtime {
namespace {

class HostLinkMover final : public LinkMover {
 public:
  void pack(const link::WireLevel& level, const LinkMemories& memories, comm::DType dtype,
            void* send) override {
    switch (dtype) {
      case comm::DType::kFloat32: return pack_as<float>(level, memories, send);
      case comm::DType::kFloat64: return pack_as<double>(level, memories, send);
      case comm::DType::kBFloat16: return pack_as<uint16_t>(level, memories, send);
    }
  }

  void unpack(const link::WireLevel& level, void* receive, const LinkMemories& memories,
              comm::DType dtype) override {
    switch (dtype) {
      case comm::DType::kFloat32: return unpack_as<float>(level, receive, memories);
      case comm::DType::kFloat64: return unpack_as<double>(level, receive, memories);
      case comm::DType::kBFloat16: return unpack_as<uint16_t>(level, receive, memories);
    }
  }

 private:
  template <typename Element>
  static void pack_as(const link::WireLevel& level, const LinkMemories& memories, void* send) {
    link::pack(level, pointers<Element>(memories), static_cast<Element*>(send));
  }
  template <typename Element>
  static void unpack_as(const link::WireLevel& level, const void* receive, const LinkMemories& memories) {
    link::unpack(level, static_cast<const Element*>(receive), pointers<Element>(memories));
  }
};

}  // namespace

std::unique_ptr<LinkMover> make_link_mover(const c10::Device& device) {
  if (device.is_cpu()) return std::make_unique<HostLinkMover>();
#ifdef SLUICE_CUDA
  return device_link_mover(device);
#else
  SLUICE_ASSERT(false, "memory on a GPU in a build without CUDA");
#endif
}

}  // namespace sluice::runtime
