// How numbers are written where they travel between ranks in fewer bits than they are summed in
// (runtime/wire_codec.h computes it).
#pragma once

#include <cstdint>

namespace sluice::strategy {

// As they are; the nearest number of bfloat16; whole numbers of 8 or 4 bits times a factor that a group
// shares: of gradients rounded up or down by chance, so that none is off in the mean, of parameters to the
// nearest. Those of 4 bits behind a Hadamard transform, which spreads a group's largest over all of it (Jia
// et al., SDP4Bit, 2024, sections 3.2 and 3.3).
enum class Codec : uint8_t { kNone, kBFloat16, kInt8, kInt4 };

// Numbers of a group; the last one may have fewer, and takes as much.
inline constexpr int64_t kCodecGroup = 128;
inline constexpr int64_t kFactorBytes = 4;

constexpr int64_t codec_groups(int64_t numbers) { return (numbers + kCodecGroup - 1) / kCodecGroup; }

// Bytes of so many numbers, each of `wide` bytes as it is.
constexpr int64_t coded_bytes(Codec codec, int64_t numbers, int64_t wide) {
  switch (codec) {
    case Codec::kNone: return numbers * wide;
    case Codec::kBFloat16: return numbers * 2;
    case Codec::kInt8: return codec_groups(numbers) * (kCodecGroup + kFactorBytes);
    case Codec::kInt4: return codec_groups(numbers) * (kCodecGroup / 2 + kFactorBytes);
  }
  return 0;
}

// Of gradients: inside nodes, and of a node's sum to another's.
struct LevelCodecs {
  Codec in_node = Codec::kNone;
  Codec between_nodes = Codec::kNone;
  bool operator==(const LevelCodecs&) const = default;
};

// Of parameters on their way from their owners. As they are, or bfloat16, which whoever computes with them
// then has. A difference, in 8 or 4 bits, is to what holders have from the step before; owners follow with
// the same sum of differences, so that all compute with the same numbers, whatever the strategy (after
// SDP4Bit). Where holders have nothing, that sum travels as it is.
enum class PullCodec : uint8_t { kNone, kBFloat16, kInt8Difference, kInt4Difference };

// Buckets of fewer elements are pulled as they are.
inline constexpr int64_t kLeastDifferences = int64_t{1} << 14;

constexpr bool is_difference(PullCodec codec) {
  return codec == PullCodec::kInt8Difference || codec == PullCodec::kInt4Difference;
}

// Bytes of so many parameters, each of `wide` bytes as it is, where holders have those of the step before.
constexpr int64_t pulled_bytes(PullCodec codec, int64_t numbers, int64_t wide) {
  const int64_t factors = codec_groups(numbers) * kFactorBytes;
  switch (codec) {
    case PullCodec::kNone: return numbers * wide;
    case PullCodec::kBFloat16: return numbers * 2;
    case PullCodec::kInt8Difference: return numbers + factors;
    case PullCodec::kInt4Difference: return (numbers + 1) / 2 + factors;
  }
  return 0;
}

// All that has a codec.
struct WireCodecs {
  PullCodec pull = PullCodec::kNone;
  LevelCodecs push;             // gradients on their way to their owners
  LevelCodecs sums;             // and into the sums of lanes that share their parameters
  Codec gather = Codec::kNone;  // parameters that lanes share, on their way to each other
  bool operator==(const WireCodecs&) const = default;
};

}  // namespace sluice::strategy
