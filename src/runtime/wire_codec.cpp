#include "runtime/wire_codec.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/simd.h"

namespace sluice::runtime {
namespace {

using strategy::Codec;
using strategy::codec_groups;
using strategy::kCodecGroup;

// The largest code; codes below zero mirror those above.
int64_t largest(Codec codec) { return codec == Codec::kInt8 ? 127 : 7; }

// On CPUs a group stays in registers and the L1 cache.

// Replaces elements `half` apart by their sums and differences, for each power of two from `half` on.
template <typename T>
[[gnu::always_inline]] inline void butterflies(T* group, int64_t half) {
  for (; half < kCodecGroup; half *= 2) {
    for (int64_t begin = 0; begin < kCodecGroup; begin += 2 * half) {
      T *low = group + begin, *high = low + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const T a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

// In place: twice is the identity. Neighbours are moved apart first, so that all butterflies are vectorised.
template <typename T>
SLUICE_SIMD void transform(T* group) {
  constexpr int64_t kNear = 8, kFar = kCodecGroup / kNear;
  butterflies(group, kNear);
  T turned[kCodecGroup];
  for (int64_t near = 0; near < kNear; ++near) {
    for (int64_t far = 0; far < kFar; ++far) turned[near * kFar + far] = group[far * kNear + near];
  }
  butterflies(turned, kFar);
  const T scale = T(1) / std::sqrt(static_cast<T>(kCodecGroup));
  for (int64_t far = 0; far < kFar; ++far) {
    for (int64_t near = 0; near < kNear; ++near)
      group[far * kNear + near] = turned[near * kFar + far] * scale;
  }
}

// Added to element i before its fraction is cut off: uniform in [0, 1), or a half.
[[gnu::always_inline]] inline uint32_t added(int64_t element, Seed seed) {
  return seed ? hashed(salted(element, *seed)) >> 8 : 1U << 23;
}

// Codes a group as whole numbers and returns the factor that decodes them: NaN if any number is not finite.
template <typename T>
SLUICE_SIMD float whole_numbers(const T* group, int64_t first, Seed seed, int most, int8_t* whole) {
  T largest = 0, check = 0;
#pragma omp simd reduction(max : largest) reduction(+ : check)
  for (int64_t i = 0; i < kCodecGroup; ++i) {
    largest = std::max(largest, std::abs(group[i]));
    check += group[i] - group[i];
  }
  if (check != 0) {
    std::fill_n(whole, kCodecGroup, int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const auto factor = static_cast<float>(largest / static_cast<T>(most));
  const T divisor = factor == 0 ? T(1) : static_cast<T>(factor);
#pragma omp simd
  for (int64_t i = 0; i < kCodecGroup; ++i) {
    const T chance = static_cast<T>(added(first + i, seed)) * T(1.0 / (1 << 24));
    const T rounded = std::floor(group[i] / divisor + chance);
    whole[i] = static_cast<int8_t>(std::clamp(rounded, static_cast<T>(-most), static_cast<T>(most)));
  }
  return factor;
}

// Decodes a group's numbers, before they are transformed back.
template <typename T>
SLUICE_SIMD void of_8_bits(const uint8_t* codes, T factor, T* group) {
#pragma omp simd
  for (int64_t i = 0; i < kCodecGroup; ++i) group[i] = static_cast<T>(static_cast<int8_t>(codes[i])) * factor;
}
template <typename T>
SLUICE_SIMD void of_4_bits(const uint8_t* codes, T factor, T* group) {
  constexpr int64_t kHalf = kCodecGroup / 2;
#pragma omp simd
  for (int64_t i = 0; i < kHalf; ++i) {
    group[i] = static_cast<T>((codes[i] & 15) - 8) * factor;
    group[kHalf + i] = static_cast<T>((codes[i] >> 4) - 8) * factor;
  }
}

template <typename T>
void encode_groups(Codec codec, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes) {
  const int64_t numbers = x_N.numel(), groups = codec_groups(numbers), half = kCodecGroup / 2;
  const T* const x = x_N.const_data_ptr<T>();
  auto* const codes = bytes.mutable_data_ptr<uint8_t>();
  const int64_t wide = codec == Codec::kInt8 ? kCodecGroup : half;
  at::parallel_for(0, groups, 64, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      std::array<T, kCodecGroup> group{};
      std::array<int8_t, kCodecGroup> whole;
      const int64_t first = g * kCodecGroup;
      std::copy_n(x + first, std::min(kCodecGroup, numbers - first), group.data());
      if (codec == Codec::kInt4) transform(group.data());
      const float factor =
          whole_numbers(group.data(), first, seed, static_cast<int>(largest(codec)), whole.data());
      uint8_t* const to = codes + g * wide;
      if (codec == Codec::kInt8) {
        std::memcpy(to, whole.data(), static_cast<size_t>(kCodecGroup));
      } else {
        for (int64_t i = 0; i < half; ++i)
          to[i] = static_cast<uint8_t>((whole[static_cast<size_t>(i)] + 8) |
                                       (whole[static_cast<size_t>(half + i)] + 8) << 4);
      }
      std::memcpy(codes + groups * wide + g * 4, &factor, sizeof factor);
    }
  });
}

template <typename T>
void decode_groups(Codec codec, const at::Tensor& bytes, const at::Tensor& x_N) {
  const int64_t numbers = x_N.numel(), groups = codec_groups(numbers);
  T* const x = x_N.mutable_data_ptr<T>();
  const auto* const codes = bytes.const_data_ptr<uint8_t>();
  const int64_t wide = codec == Codec::kInt8 ? kCodecGroup : kCodecGroup / 2;
  at::parallel_for(0, groups, 64, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      std::array<T, kCodecGroup> group;
      float factor = 0;
      std::memcpy(&factor, codes + groups * wide + g * 4, sizeof factor);
      const uint8_t* const from = codes + g * wide;
      if (codec == Codec::kInt8) {
        of_8_bits(from, static_cast<T>(factor), group.data());
      } else {
        of_4_bits(from, static_cast<T>(factor), group.data());
        transform(group.data());
      }
      const int64_t first = g * kCodecGroup;
      std::copy_n(group.data(), std::min(kCodecGroup, numbers - first), x + first);
    }
  });
}

// On other devices, the same by ATen's operators.

// Sylvester's Hadamard matrix over the root of its size, its own inverse: [kCodecGroup, kCodecGroup].
at::Tensor hadamard(const at::TensorOptions& options) {
  at::Tensor matrix = at::ones({1, 1}, options);
  while (matrix.size(0) < kCodecGroup)
    matrix = at::cat({at::cat({matrix, matrix}, 1), at::cat({matrix, -matrix}, 1)});
  return matrix / std::sqrt(static_cast<double>(kCodecGroup));
}

// added() of each element.
at::Tensor all_added(int64_t numbers, Seed seed, const at::Tensor& like) {
  if (!seed) return at::full({numbers}, 0.5, like.options());
  return all_hashed(0, numbers, *seed, 8, like.device()).to(like.scalar_type()).mul_(1.0 / (1 << 24));
}

at::Tensor as_bytes(const at::Tensor& x) { return x.contiguous().flatten().view(at::kByte); }

}  // namespace

#ifdef SLUICE_CUDA
namespace {
bool is_for_kernels(Codec codec, const at::Tensor& x_N) {
  return x_N.is_cuda() && x_N.scalar_type() == at::kFloat && codec != Codec::kBFloat16;
}
}  // namespace
#endif

at::Tensor encode(Codec codec, const at::Tensor& x_N, Seed seed) {
#ifdef SLUICE_CUDA
  if (is_for_kernels(codec, x_N)) {
    const int64_t bytes = strategy::coded_bytes(codec, x_N.numel(), x_N.element_size());
    at::Tensor coded = at::empty({bytes}, x_N.options().dtype(at::kByte));
    encode_by_kernel(codec, x_N, seed, coded);
    return coded;
  }
#endif
  if (!x_N.is_cpu() || codec == Codec::kBFloat16) return aten::encode(codec, x_N, seed);
  const int64_t bytes = strategy::coded_bytes(codec, x_N.numel(), x_N.element_size());
  at::Tensor coded = at::empty({bytes}, at::dtype(at::kByte));
  AT_DISPATCH_FLOATING_TYPES(x_N.scalar_type(), "encode",
                             [&] { encode_groups<scalar_t>(codec, x_N, seed, coded); });
  return coded;
}

void decode(Codec codec, const at::Tensor& bytes, const at::Tensor& x_N) {
#ifdef SLUICE_CUDA
  if (is_for_kernels(codec, x_N)) return decode_by_kernel(codec, bytes, x_N);
#endif
  if (!x_N.is_cpu() || codec == Codec::kBFloat16) return aten::decode(codec, bytes, x_N);
  AT_DISPATCH_FLOATING_TYPES(x_N.scalar_type(), "decode",
                             [&] { decode_groups<scalar_t>(codec, bytes, x_N); });
}

at::Tensor aten::encode(Codec codec, const at::Tensor& x_N, Seed seed) {
  if (codec == Codec::kBFloat16) return as_bytes(x_N.to(at::kBFloat16));
  SLUICE_ASSERT(codec != Codec::kNone, "numbers that travel as they are are not coded");
  const int64_t groups = codec_groups(x_N.numel());
  at::Tensor x_GC =
      at::constant_pad_nd(x_N, {0, groups * kCodecGroup - x_N.numel()}).view({groups, kCodecGroup});
  if (codec == Codec::kInt4) x_GC = at::matmul(x_GC, hadamard(x_GC.options()));
  const int64_t most = largest(codec);
  const at::Tensor factor_G1 = (x_GC.abs().amax(1, /*keepdim=*/true) / most).to(at::kFloat);
  const at::Tensor divisor_G1 = at::where(factor_G1 == 0, 1.0, factor_G1).to(x_GC.scalar_type());
  const at::Tensor whole_GC = (x_GC / divisor_G1)
                                  .add_(all_added(x_GC.numel(), seed, x_GC).view_as(x_GC))
                                  .floor_()
                                  .nan_to_num_(0)
                                  .clamp_(-most, most);
  if (codec == Codec::kInt8) return at::cat({as_bytes(whole_GC.to(at::kChar)), as_bytes(factor_G1)});
  const at::Tensor nibble_GC = whole_GC.add(8).to(at::kByte);
  const int64_t half = kCodecGroup / 2;
  const at::Tensor both = nibble_GC.narrow(1, 0, half) + nibble_GC.narrow(1, half, half) * 16;
  return at::cat({as_bytes(both), as_bytes(factor_G1)});
}

void aten::decode(Codec codec, const at::Tensor& bytes, const at::Tensor& x_N) {
  if (codec == Codec::kBFloat16) {
    x_N.copy_(bytes.view(at::kBFloat16));
    return;
  }
  const int64_t groups = codec_groups(x_N.numel()),
                wide = codec == Codec::kInt8 ? kCodecGroup : kCodecGroup / 2;
  const at::Tensor codes = bytes.narrow(0, 0, groups * wide).view({groups, wide});
  // The bytes may be misaligned for floats, so they are cloned.
  const at::Tensor factor_G1 =
      bytes.narrow(0, groups * wide, groups * 4).clone().view(at::kFloat).view({groups, 1});
  at::Tensor whole_GC;
  if (codec == Codec::kInt8) {
    whole_GC = codes.view(at::kChar).to(x_N.scalar_type());
  } else {
    whole_GC = at::cat({codes.bitwise_and(15), codes.__rshift__(4)}, 1).to(x_N.scalar_type()).sub_(8);
  }
  whole_GC.mul_(factor_G1.to(x_N.scalar_type()));
  if (codec == Codec::kInt4) whole_GC = at::matmul(whole_GC, hadamard(whole_GC.options()));
  x_N.copy_(whole_GC.flatten().narrow(0, 0, x_N.numel()));
}

int64_t CodedPart::coded() const { return strategy::coded_bytes(codec, numbers, /*wide=*/0); }

int64_t CodedPart::bytes(int64_t wide) const {
  int64_t bytes = coded();
  for (const base::Interval& some : exact) bytes += some.size() * wide;
  return bytes;
}

std::vector<base::Interval> exact_in(const std::vector<base::Interval>& exact, base::Interval some) {
  std::vector<base::Interval> found;
  for (auto next = std::ranges::upper_bound(exact, some.begin, {}, &base::Interval::end);
       next != exact.end() && next->begin < some.end; ++next) {
    const base::Interval own = base::intersect(*next, some);
    found.push_back({own.begin - some.begin, own.end - some.begin});
  }
  return found;
}

namespace {

at::Tensor numbers_of(const at::Tensor& x_N, base::Interval some) {
  return x_N.narrow(0, some.begin, some.size());
}

}  // namespace

// Numbers that keep their bits count as zero among the coded ones, so they affect no group's factor.
void encode(const CodedPart& part, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes) {
  at::Tensor numbers_N = x_N;
  if (x_N.scalar_type() == at::kBFloat16 && part.codec != Codec::kBFloat16) numbers_N = x_N.to(at::kFloat);
  if (!part.exact.empty() && numbers_N.is_same(x_N)) numbers_N = x_N.clone();
  int64_t at = part.coded();
  for (const base::Interval& some : part.exact) {
    const at::Tensor as_they_are = numbers_of(x_N, some);
    const auto size = static_cast<int64_t>(as_they_are.nbytes());
    bytes.narrow(0, at, size).copy_(as_they_are.view(at::kByte));
    numbers_of(numbers_N, some).zero_();
    at += size;
  }
  bytes.narrow(0, 0, part.coded()).copy_(encode(part.codec, numbers_N, seed));
}

// The bytes may be misaligned for wider numbers, so they are cloned.
void decode(const CodedPart& part, const at::Tensor& bytes, const at::Tensor& x_N) {
  const bool narrow = x_N.scalar_type() == at::kBFloat16 && part.codec != Codec::kBFloat16;
  const at::Tensor numbers_N = narrow ? at::empty({x_N.numel()}, x_N.options().dtype(at::kFloat)) : x_N;
  decode(part.codec, bytes.narrow(0, 0, part.coded()).clone(), numbers_N);
  if (narrow) x_N.copy_(numbers_N);
  int64_t at = part.coded();
  for (const base::Interval& some : part.exact) {
    const at::Tensor as_they_are = numbers_of(x_N, some);
    const auto size = static_cast<int64_t>(as_they_are.nbytes());
    as_they_are.copy_(bytes.narrow(0, at, size).clone().view(x_N.scalar_type()));
    at += size;
  }
}

}  // namespace sluice::runtime
