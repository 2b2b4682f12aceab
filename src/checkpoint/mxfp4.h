// Matrices in MXFP4, as gpt-oss' experts come: four-bit floats (E2M1) in blocks of 32 along a row, which
// share a power of two (OCP Microscaling Formats, 1.0).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::checkpoint {

inline constexpr int64_t kMxfp4Block = 32;

// `blocks` has [experts, out, in / 32, 16] bytes; the lower half of a byte is its first value. `scales` has
// [experts, out, in / 32] bytes, exponents of two plus 127.
struct Mxfp4Matrix {
  const std::byte* blocks = nullptr;
  const std::byte* scales = nullptr;
  int64_t in = 0;
  int64_t out = 0;

  // Element (i, o) of an expert's matrix. Exact.
  float value(int64_t expert, int64_t i, int64_t o) const;
};

}  // namespace sluice::checkpoint
