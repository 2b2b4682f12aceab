#include "host_copies.h"

#include <cstring>
#include <string_view>

#include "base/text.h"

namespace sluice::stand_in {
namespace {

uint64_t sum_of(const char* begin, int64_t bytes) {
  return std::hash<std::string_view>{}({begin, static_cast<size_t>(bytes)});
}

bool overlap(const char* begin, int64_t bytes, const void* other, int64_t other_bytes) {
  const char* const second = static_cast<const char*>(other);
  return begin < second + other_bytes && second < begin + bytes;
}

}  // namespace

void HostCopies::from_host(const Access& access, const void* host, int64_t bytes) {
  const char* begin = static_cast<const char*>(host);
  from_host_.push_back({begin, bytes, access, sum_of(begin, bytes), {}});
}

void HostCopies::to_host(const Access& access, const void* device, void* host, int64_t bytes) {
  const char* from = static_cast<const char*>(device);
  to_host_.push_back(
      {static_cast<const char*>(host), bytes, access, 0, std::vector<char>(from, from + bytes)});
  std::memset(host, 0xff, static_cast<size_t>(bytes));
}

void HostCopies::host_is_at(const Clock& clock) {
  std::erase_if(from_host_, [&](const Copy& copy) {
    if (!copy.by.before(clock)) return false;
    check_unchanged(copy);
    return true;
  });
  std::erase_if(to_host_, [&](Copy& copy) {
    if (!copy.by.before(clock)) return false;
    arrive(copy);
    return true;
  });
}

void HostCopies::land(const void* begin, int64_t bytes) {
  std::erase_if(to_host_, [&](Copy& copy) {
    if (!overlap(copy.begin, copy.bytes, begin, bytes)) return false;
    arrive(copy);
    return true;
  });
}

void HostCopies::freed(const void* begin, int64_t bytes) {
  std::erase_if(from_host_, [&](const Copy& copy) {
    if (!overlap(copy.begin, copy.bytes, begin, bytes)) return false;
    check_unchanged(copy);
    return true;
  });
  std::erase_if(to_host_, [&](const Copy& copy) { return overlap(copy.begin, copy.bytes, begin, bytes); });
}

void HostCopies::clear() {
  from_host_.clear();
  to_host_.clear();
}

void HostCopies::arrive(Copy& copy) {
  std::memcpy(const_cast<char*>(copy.begin), copy.arriving.data(), copy.arriving.size());
}

void HostCopies::check_unchanged(const Copy& copy) const {
  if (sum_of(copy.begin, copy.bytes) != copy.sum)
    say_(base::text("the host wrote what ", *copy.by.by, " on ", stream_name(copy.by.stream),
                    " may still read"));
}

}  // namespace sluice::stand_in
