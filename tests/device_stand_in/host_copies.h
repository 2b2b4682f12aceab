// Copies between a device and pinned memory that the host has not waited for. The host finds 0xff where it
// reads too early, and a fault where it writes too early.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "order.h"

namespace sluice::stand_in {

// Of one device. Not thread-safe.
class HostCopies {
 public:
  using Say = std::function<void(const std::string& fault)>;
  explicit HostCopies(Say say) : say_(std::move(say)) {}

  void from_host(const Access& access, const void* host, int64_t bytes);
  void to_host(const Access& access, const void* device, void* host, int64_t bytes);
  // The host is behind all of this.
  void host_is_at(const Clock& clock);
  // What is on its way to this memory is there before the device reads it. REQUIRES: the reader is behind it.
  void land(const void* begin, int64_t bytes);
  // Pinned memory is handed on when the copies are done that the allocator was told of: libtorch tells it of
  // all.
  void freed(const void* begin, int64_t bytes);
  void clear();

 private:
  struct Copy {
    const char* begin;
    int64_t bytes;
    Access by;
    uint64_t sum = 0;            // from the host
    std::vector<char> arriving;  // to the host
  };
  static void arrive(Copy& copy);
  void check_unchanged(const Copy& copy) const;

  Say say_;
  std::vector<Copy> from_host_, to_host_;
};

}  // namespace sluice::stand_in
