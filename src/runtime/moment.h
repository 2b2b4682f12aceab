// An optimizer's running mean of each number of a slice: as wide as masters, or in 8 bits.
//
// In 8 bits, kCodecGroup neighbours share a power of two, the least above all of them, after the block-wise
// quantisation of Dettmers et al. (2022, "8-bit Optimizers via Block-wise Quantization"). A number is that
// power times a float of 8 bits: 4 of mantissa, and 4 of exponent, or 3 and a sign for signed numbers.
// Magnitudes below the least exponent have even steps. Second moments are an exception, since their roots
// divide: no number becomes zero in a group that has any other. A zero comes back as the least number, as
// would a number that differs from zero by rounding alone. An update changes a moment by less than a step
// of 8 bits, so rounding is stochastic: its mean is right.
// A number that was read and is written again keeps its bits.
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
  // Zeros. `wide`: dtype and device of masters.
  Moment(int64_t numbers, base::MomentFormat format, Sign sign, const at::TensorOptions& wide);

  int64_t numel() const { return numbers_; }
  int64_t nbytes() const;  // size of codes and exponents, or of wide numbers
  bool coded() const { return exponents_.defined(); }

  // Numbers of [0, numel()): the stored tensor itself, or a decoded copy.
  at::Tensor read(base::Interval some) const;
  at::Tensor read() const { return read({0, numbers_}); }
  // Stores numbers from `first` on; no effect on numbers that read() gave uncopied. `place`: the first one's,
  // for rounding. REQUIRES: coded numbers begin with a group and end with a group or the slice.
  void write(int64_t first, const at::Tensor& numbers, Seed seed = {}, int64_t place = 0);

 private:
  int64_t numbers_ = 0;
  Sign sign_ = Sign::kAny;
  at::TensorOptions wide_;
  at::Tensor numbers_or_codes_;  // uint8 where coded
  at::Tensor exponents_;         // uint8, by group: biased, as of a float; undefined where nothing is coded
};

// Codes x [N], float or double, contiguous: codes uint8 [N] and exponents uint8 [groups]; and back. `place`:
// the first number's. Groups with infinities, NaN or magnitudes of 2^126 and more come back as NaN.
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
