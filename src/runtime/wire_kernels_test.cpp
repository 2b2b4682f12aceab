// The wire's GPU kernels, run on the host thread by thread, compared with the CPU codecs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/wire_codec.h"

#define SLUICE_CUDA_ON_HOST
#include "runtime/wire_kernels.cu"

namespace sluice::runtime {
namespace {

using strategy::Codec;

at::Tensor encoded(Codec codec, const at::Tensor& x, Seed seed) {
  const int64_t groups = strategy::codec_groups(x.numel());
  const at::Tensor bytes = at::full({strategy::coded_bytes(codec, x.numel(), 4)}, 99, at::dtype(at::kByte));
  auto* const codes = bytes.mutable_data_ptr<uint8_t>();
  const CodeJob job{.numbers = x.const_data_ptr<float>(),
                    .codes = codes,
                    .factors = codes + bytes.numel() - 4 * groups,
                    .count = x.numel(),
                    .of_4_bits = codec == Codec::kInt4,
                    .by_chance = seed.has_value(),
                    .seed = seed.value_or(0)};
  EXPECT_EQ(launch_encode(job, {}), 0);
  return bytes;
}

at::Tensor decoded(Codec codec, const at::Tensor& bytes, int64_t numbers) {
  at::Tensor x = at::full({numbers}, 99.0F);
  auto* const codes = bytes.mutable_data_ptr<uint8_t>();
  const CodeJob job{.codes = codes,
                    .factors = codes + bytes.numel() - 4 * strategy::codec_groups(numbers),
                    .count = numbers,
                    .of_4_bits = codec == Codec::kInt4};
  EXPECT_EQ(launch_decode(job, x.mutable_data_ptr<float>(), {}), 0);
  return x;
}

TEST(WireKernels, CodeAsCpusDo) {
  at::manual_seed(11);
  for (const int64_t numbers : {1, 127, 128, 129, 5000}) {
    const at::Tensor x = at::randn({numbers}) * at::randn({numbers}).exp();
    for (const Seed seed : {Seed{}, Seed{0x123456789abcdefU}}) {
      EXPECT_TRUE(at::equal(encoded(Codec::kInt8, x, seed), encode(Codec::kInt8, x, seed)));
      // The transform sums in another order: a code may be off by one.
      const at::Tensor of4 = decoded(Codec::kInt4, encoded(Codec::kInt4, x, seed), numbers);
      at::Tensor expected = at::empty({numbers});
      decode(Codec::kInt4, encode(Codec::kInt4, x, seed), expected);
      EXPECT_LE((of4 - expected).norm().item<double>(), 0.02 * x.norm().item<double>());
    }
  }
}

TEST(WireKernels, ReadWhatCpusWrote) {
  at::manual_seed(12);
  for (const Codec codec : {Codec::kInt8, Codec::kInt4}) {
    const at::Tensor x = at::randn({777});
    const at::Tensor bytes = encode(codec, x, {});
    at::Tensor expected = at::empty({777});
    decode(codec, bytes, expected);
    EXPECT_TRUE(at::allclose(decoded(codec, bytes, 777), expected, 1e-5, 1e-6));
  }
}

TEST(WireKernels, WhatIsNotFiniteIsSeen) {
  for (const Codec codec : {Codec::kInt8, Codec::kInt4}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      at::Tensor x = at::ones({256});
      x[3] = bad;
      const at::Tensor back = decoded(codec, encoded(codec, x, {}), 256);
      EXPECT_TRUE(back.narrow(0, 0, 128).isnan().all().item<bool>());
      EXPECT_TRUE(at::allclose(back.narrow(0, 128, 128), at::ones({128})));
    }
  }
}

}  // namespace
}  // namespace sluice::runtime
