// Codecs for numbers that travel between ranks in fewer bits than they are summed in (runtime/wire_codec.h
// implements them).
#pragma once

#include <cstdint>

namespace sluice::strategy {

// Codec kNone leaves numbers unchanged, kBFloat16 rounds to nearest. Codecs kInt8 and kInt4 write integers
// times a factor that a group shares. Gradients are rounded stochastically, so that they are unbiased,
// parameters to nearest. Codec kInt4 first applies a Hadamard transform, which spreads a group's largest
// number over the group (Jia et al., SDP4Bit, 2024, sections 3.2 and 3.3).
enum class Codec : uint8_t { kNone, kBFloat16, kInt8, kInt4 };

// Numbers in a group; the last group may have fewer, but takes as many bytes.
inline constexpr int64_t kCodecGroup = 128;
inline constexpr int64_t kFactorBytes = 4;

constexpr int64_t codec_groups(int64_t numbers) { return (numbers + kCodecGroup - 1) / kCodecGroup; }

// Bytes of `numbers` numbers that take `wide` bytes each without a codec.
constexpr int64_t coded_bytes(Codec codec, int64_t numbers, int64_t wide) {
  switch (codec) {
    case Codec::kNone: return numbers * wide;
    case Codec::kBFloat16: return numbers * 2;
    case Codec::kInt8: return codec_groups(numbers) * (kCodecGroup + kFactorBytes);
    case Codec::kInt4: return codec_groups(numbers) * (kCodecGroup / 2 + kFactorBytes);
  }
  return 0;
}

// Codecs of gradients: inside nodes, and for a node's sum on its way to another node.
struct LevelCodecs {
  Codec in_node = Codec::kNone;
  Codec between_nodes = Codec::kNone;
  bool operator==(const LevelCodecs&) const = default;
};

// Codecs of parameters on their way from owners (pull). kBFloat16: receivers compute with the rounded
// numbers. Differences, in 8 or 4 bits, are to the receivers' parameters of the step before. Owners keep the
// same sum of differences, so all ranks compute with the same numbers under every strategy (after SDP4Bit).
// Receivers that hold nothing yet get that sum unchanged.
enum class PullCodec : uint8_t { kNone, kBFloat16, kInt8Difference, kInt4Difference };

// Buckets with fewer elements are pulled without a codec.
inline constexpr int64_t kLeastDifferences = int64_t{1} << 14;

constexpr bool is_difference(PullCodec codec) {
  return codec == PullCodec::kInt8Difference || codec == PullCodec::kInt4Difference;
}

// Bytes of `numbers` parameters, `wide` each without a codec, if receivers hold the step before's.
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

// The codecs of all kinds of transfers.
struct WireCodecs {
  PullCodec pull = PullCodec::kNone;
  LevelCodecs push;             // gradients on their way to their owners
  LevelCodecs sums;             // gradients on their way into the sums of a share group
  Codec gather = Codec::kNone;  // parameters in all-gathers of a share group
  bool operator==(const WireCodecs&) const = default;
};

}  // namespace sluice::strategy
