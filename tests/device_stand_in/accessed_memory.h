// A device's memory, and which of its accesses nothing orders.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "order.h"

namespace sluice::stand_in {

// Not thread-safe.
class AccessedMemory {
 public:
  using Say = std::function<void(const std::string& fault)>;
  explicit AccessedMemory(Say say) : say_(std::move(say)) {}

  // `bytes` at `begin`, an allocation of work on `stream`; pinned memory belongs to no stream.
  void made(const void* begin, size_t bytes, int stream);
  void pinned(const void* begin, size_t bytes) {
    memory_.try_emplace(static_cast<const char*>(begin), block(bytes, 0));
  }
  // Pinned memory is handed on by other rules.
  void pinned_freed(const void* begin) { memory_.erase(static_cast<const char*>(begin)); }
  // The caching allocator hands memory on at once when it is freed, to work of the stream that it was made
  // on: all other streams that use it must be behind that stream, `clock`, or the allocator must have been
  // told of them.
  void freed(const void* begin, const std::function<const Clock&(int stream)>& clock);
  // The stream that memory was made on; −1: it is not the device's.
  int made_on(const void* address);
  void tell_allocator(const void* address, int stream);

  // `access` comes when its stream is at `now`.
  void access(const Access& access, const Clock& now, const void* begin, int64_t bytes, Mode mode);
  int64_t accesses() const { return accesses_; }
  void clear();

 private:
  struct Range {
    const char* begin;
    const char* end;
    Mode mode;
    Access by;
  };
  struct Block {
    int64_t bytes = 0;
    int made_on = 0;
    std::set<int> told;
    std::vector<Range> ranges;
  };
  static Block block(size_t bytes, int stream) { return {static_cast<int64_t>(bytes), stream, {}, {}}; }
  Block* find(const void* address);

  Say say_;
  std::map<const char*, Block> memory_;
  int64_t accesses_ = 0;
};

}  // namespace sluice::stand_in
