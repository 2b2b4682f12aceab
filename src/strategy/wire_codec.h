// How numbers are written where they travel between ranks in fewer bits than they are summed in
// (runtime/wire_codec.h computes it).
#pragma once

#include <cstdint>

namespace sluice::strategy {

// As they are; the nearest number of bfloat16; whole numbers of 8 or 4 bits times a factor that a group
// shares, rounded up or down by chance so that none is off in the mean, those of 4 bits after a Hadamard
// transform, which spreads a group's largest over all of it (Jia et al., SDP4Bit, 2024, sections 3.2
// and 3.3).
enum class Codec : uint8_t { kNone, kBFloat16, kInt8, kInt4 };

// Numbers of a group; the last one may have fewer, and takes as much.
inline constexpr int64_t kCodecGroup = 128;

// Bytes of so many numbers, each of `wide` bytes as it is.
constexpr int64_t coded_bytes(Codec codec, int64_t numbers, int64_t wide) {
  constexpr int64_t kFactor = 4;
  const int64_t groups = (numbers + kCodecGroup - 1) / kCodecGroup;
  switch (codec) {
    case Codec::kNone: return numbers * wide;
    case Codec::kBFloat16: return numbers * 2;
    case Codec::kInt8: return groups * (kCodecGroup + kFactor);
    case Codec::kInt4: return groups * (kCodecGroup / 2 + kFactor);
  }
  return 0;
}

// Of gradients on their way to their owners: inside nodes, and of a node's sum to another's.
struct PushCodecs {
  Codec in_node = Codec::kNone;
  Codec between_nodes = Codec::kNone;
  bool operator==(const PushCodecs&) const = default;
};

}  // namespace sluice::strategy
