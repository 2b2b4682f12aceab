// The part of CUDA that the kernels use, for the host: tests run a kernel's own source, thread by thread.
// Only tests include this, before any *_kernels.cu.
//
// A block's threads are fibres that alternate: one runs until it waits for the others (__syncthreads,
// __shfl_xor_sync) or ends. Blocks run one after the other. If threads of a block wait at different places,
// or wait after others have ended, a GPU would hang: here, that throws.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "ops/cuda/grid.h"

#define __device__
#define __global__
#define __host__
#define __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)

namespace sluice::ops::kernels {

struct HostStream {};
using Stream = HostStream;
using Status = int;  // 0: success

namespace on_host {

struct Index {
  unsigned x = 0;
};

// The running block.
class Block {
 public:
  void run(int threads, const std::function<void()>& body) {
    body_ = &body;
    if (fibres_.size() != static_cast<size_t>(threads))
      fibres_ = std::vector<Fibre>(static_cast<size_t>(threads));
    for (current_ = 0; current_ < fibres_.size(); ++current_) start(fibres_[current_]);
    while (step()) {
    }
  }

  unsigned thread() const { return static_cast<unsigned>(current_); }

  // Waits until all threads of the block have come to `place`, which is the same for all.
  void wait(const char* place) {
    fibres_[current_].place = place;
    ::swapcontext(&fibres_[current_].context, &scheduler_);
  }

  // Returns the value from the thread whose number differs by `mask`.
  float exchange(float value, int mask) {
    fibres_[current_].value = value;
    wait("a shuffle begins");
    const float other = fibres_[current_ ^ static_cast<size_t>(mask)].value;
    wait("a shuffle ends");
    return other;
  }

 private:
  struct Fibre {
    ucontext_t context{};
    std::vector<char> stack = std::vector<char>(64 << 10);
    const char* place = nullptr;  // place at which the thread waits; null: it has ended
    float value = 0;
  };

  static Block*& running() {
    static Block* block = nullptr;
    return block;
  }
  static void enter() {
    Block& block = *running();
    (*block.body_)();
    block.fibres_[block.current_].place = nullptr;
  }

  void start(Fibre& fibre) {
    ::getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    fibre.context.uc_link = &scheduler_;
    ::makecontext(&fibre.context, &Block::enter, 0);
  }

  // Runs every thread to its next wait. False if all have ended.
  bool step() {
    running() = this;
    for (current_ = 0; current_ < fibres_.size(); ++current_) {
      ::swapcontext(&scheduler_, &fibres_[current_].context);
    }
    for (const Fibre& fibre : fibres_) {
      if (fibre.place != fibres_.front().place)
        throw std::logic_error("threads of a block wait at different places");
    }
    return fibres_.front().place != nullptr;
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<Fibre> fibres_;
  size_t current_ = 0;
  ucontext_t scheduler_{};
};

inline Block block;

}  // namespace on_host
}  // namespace sluice::ops::kernels

// CUDA's own names are global.
inline sluice::ops::kernels::on_host::Index blockIdx;
#define threadIdx (sluice::ops::kernels::on_host::Index{sluice::ops::kernels::on_host::block.thread()})

inline void __syncthreads() { sluice::ops::kernels::on_host::block.wait("__syncthreads"); }
inline float __shfl_xor_sync(unsigned /*threads*/, float value, int mask) {
  return sluice::ops::kernels::on_host::block.exchange(value, mask);
}

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float __uint_as_float(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __float2bfloat16_rn(float value) { return value; }
// To nearest, ties to even.
inline uint16_t __bfloat16_as_ushort(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// E4M3, to nearest, ties to even; too large magnitudes become 448.
enum __nv_saturation_t { __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3 };
using __nv_fp8_storage_t = uint8_t;
inline uint8_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t /*finite*/,
                                     __nv_fp8_interpretation_t /*format*/) {
  if (std::isnan(value)) return 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fmin(std::fabs(value), 448.0F);
  constexpr int kLeastExponent = -6, kBias = 7, kMantissa = 8;
  const int exponent = magnitude == 0 ? kLeastExponent : std::max(std::ilogb(magnitude), kLeastExponent);
  // In units of the last place; 16 of them are 8 of the next exponent.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  const int code = (exponent + kBias - 1) * kMantissa + units;  // subnormals: below one whole 8
  return static_cast<uint8_t>(sign | code);
}

namespace sluice::ops::kernels {

template <typename... Parameters>
Status launch(void (*kernel)(Parameters...), Grid grid, Stream /*stream*/, Parameters... arguments) {
  for (int64_t b = 0; b < grid.blocks; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    on_host::block.run(grid.threads, [&] { kernel(arguments...); });
  }
  return 0;
}

}  // namespace sluice::ops::kernels
