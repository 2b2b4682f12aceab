// What an optimiser remembers of each number of a slice: as wide as masters, or in 8 bits.
//
// In 8 bits, groups of strategy::kCodecGroup neighbours have a power of two in common, the least above all of
// them, after the block-wise quantisation of Dettmers et al. (2022, "8-bit Optimizers via Block-wise
// Quantization"); a number is a float of 8 bits times that: 4 of mantissa, and of exponent 4, or 3 and a sign
// where there is one. What lies below the least exponent has even steps; but of second moments, whose roots
// divide, nothing becomes zero in a group that has any other number: a zero comes back as the least one, as
// would what differs from it by rounding alone. The new value of a moment differs from the old one by less
// than such bits can tell, so it is rounded by chance, whose mean is right. What was read and is written
// again has the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/interval.h"
#include "base/moment_format.h"
#include "runtime/chance.h"

namespace sluice::runtime {

class Moment {
 public:
  enum class Sign : uint8_t { kAny, kNone };

  Moment() = default;
  // Zeros. `wide`: what masters are.
  Moment(int64_t numbers, base::MomentFormat format, Sign sign, const at::TensorOptions& wide);

  int64_t numel() const { return numbers_; }
  int64_t nbytes() const;  // that they take
  bool coded() const { return exponents_.defined(); }

  // Numbers of [0, numel()): themselves, or a copy of what is coded.
  at::Tensor read(base::Interval some) const;
  at::Tensor read() const { return read({0, numbers_}); }
  // Those from `first` on; nothing where they are what read() gave. `place`: of the first, for chance.
  // REQUIRES: coded ones begin with a group, and end with one or with the slice.
  void write(int64_t first, const at::Tensor& numbers, Seed seed = {}, int64_t place = 0);

 private:
  int64_t numbers_ = 0;
  Sign sign_ = Sign::kAny;
  at::TensorOptions wide_;
  at::Tensor numbers_or_codes_;  // uint8 where coded
  at::Tensor exponents_;         // uint8, by group: biased, as of a float; undefined where nothing is coded
};

// x [N] of float or double, contiguous, whose first has this place -> codes uint8 [N] and exponents uint8
// [groups]; and back. Groups with infinities, NaN or 2^126 and more come back as NaN.
void encode_moments(Moment::Sign sign, const at::Tensor& x_N, Seed seed, int64_t place,
                    const at::Tensor& codes_N, const at::Tensor& exponents_G);
void decode_moments(Moment::Sign sign, const at::Tensor& codes_N, const at::Tensor& exponents_G,
                    const at::Tensor& x_N);

// The same by ATen's operators, as on GPUs.
namespace aten {
void encode_moments(Moment::Sign sign, const at::Tensor& x_N, Seed seed, int64_t place,
                    const at::Tensor& codes_N, const at::Tensor& exponents_G);
void decode_moments(Moment::Sign sign, const at::Tensor& codes_N, const at::Tensor& exponents_G,
                    const at::Tensor& x_N);
}  // namespace aten

}  // namespace sluice::runtime
