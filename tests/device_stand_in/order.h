// What orders a device's work: how far streams and the host had come.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace sluice::stand_in {

inline constexpr int kMostStreams = 32;  // of a device
inline constexpr int kMostDevices = 16;

// A vector clock, by stream.
class Clock {
 public:
  int64_t& operator[](int stream) { return at_[static_cast<size_t>(stream)]; }
  int64_t operator[](int stream) const { return at_[static_cast<size_t>(stream)]; }
  void join(const Clock& other) {
    for (size_t stream = 0; stream < at_.size(); ++stream)
      at_[stream] = std::max(at_[stream], other.at_[stream]);
  }
  // Whether all that the other knows is known here.
  bool has(const Clock& other) const {
    return std::ranges::equal(at_, other.at_, std::ranges::greater_equal());
  }

 private:
  std::array<int64_t, kMostStreams> at_{};
};

// Work of a stream, at its time there.
struct Access {
  int stream = 0;
  int64_t at = 0;
  const std::string* by = nullptr;

  bool before(const Clock& clock) const { return clock[stream] >= at; }
};

// Whether an access reads or writes.
enum class Mode : uint8_t { kRead, kWrite };

// A step that orders work. A mutation leaves some of them out.
struct Ordering {
  enum class Kind : uint8_t {
    kRecord,             // an event on `stream`
    kBlock,              // `stream` waits for an event of `other`
    kTellAllocator,      // record_stream of memory of `other` on `stream`
    kSynchronizeEvent,   // the host waits for an event of `stream`
    kSynchronizeStream,  // the host waits for `stream`
    kEnterStream,        // `stream` becomes current
    kCopyToHost,         // a copy on `stream` that the host waits for
  };
  Kind kind{};
  int stream = 0;
  int other = -1;
};
// Whether this one is left out.
using Mutation = std::function<bool(const Ordering&)>;

// "stream 'compute'": DeviceExecutor makes its streams first, behind the default stream 0.
std::string stream_name(int stream);

}  // namespace sluice::stand_in
