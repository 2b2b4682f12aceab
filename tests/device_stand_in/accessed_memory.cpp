#include "accessed_memory.h"

#include "base/text.h"

namespace sluice::stand_in {

void AccessedMemory::made(const void* begin, size_t bytes, int stream) {
  memory_[static_cast<const char*>(begin)] = block(bytes, stream);
}

AccessedMemory::Block* AccessedMemory::find(const void* address) {
  auto found = memory_.upper_bound(static_cast<const char*>(address));
  if (found == memory_.begin()) return nullptr;
  --found;
  return static_cast<const char*>(address) < found->first + found->second.bytes ? &found->second : nullptr;
}

void AccessedMemory::access(const Access& access, const Clock& now, const void* begin, int64_t bytes,
                            Mode mode) {
  ++accesses_;
  Block* const block = find(begin);
  if (block == nullptr)
    return say_(
        base::text(*access.by, " on ", stream_name(access.stream), " uses memory that is not the device's"));
  const char* const first = static_cast<const char*>(begin);
  const Range range{first, first + bytes, mode, access};
  const auto word = [](Mode of) { return of == Mode::kWrite ? "write of " : "read of "; };
  for (const Range& other : block->ranges) {
    const bool apart = other.begin >= range.end || range.begin >= other.end;
    const bool both_read = other.mode == Mode::kRead && mode == Mode::kRead;
    if (apart || both_read || other.by.before(now)) continue;
    say_(base::text(word(mode), *access.by, " on ", stream_name(access.stream), " races with the ",
                    word(other.mode), *other.by.by, " on ", stream_name(other.by.stream)));
  }
  // Later accesses that are behind this one are behind those that it is behind.
  std::erase_if(block->ranges, [&](const Range& other) {
    if (other.begin < range.begin || other.end > range.end) return false;
    if (mode == Mode::kWrite) return other.by.before(now);
    return other.mode == Mode::kRead && other.by.stream == access.stream;
  });
  block->ranges.push_back(range);
}

void AccessedMemory::freed(const void* begin, const std::function<const Clock&(int stream)>& clock) {
  const auto found = memory_.find(static_cast<const char*>(begin));
  if (found == memory_.end()) return;
  const Block& block = found->second;
  for (const Range& range : block.ranges) {
    const int user = range.by.stream;
    const bool known = user == block.made_on || block.told.contains(user);
    if (known || range.by.before(clock(block.made_on))) continue;
    say_(base::text("memory made on ", stream_name(block.made_on), " is freed while ", *range.by.by, " on ",
                    stream_name(user), " may use it"));
  }
  memory_.erase(found);
}

int AccessedMemory::made_on(const void* address) {
  const Block* const block = find(address);
  return block != nullptr ? block->made_on : -1;
}

void AccessedMemory::tell_allocator(const void* address, int stream) {
  if (Block* const block = find(address)) block->told.insert(stream);
}

void AccessedMemory::clear() {
  memory_.clear();
  accesses_ = 0;
}

}  // namespace sluice::stand_in
