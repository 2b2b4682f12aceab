#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "runtime/wire_codec.h"
#include "runtime/wire_kernels.h"
#include "transport/cuda_check.h"

namespace sluice::runtime {
namespace {

CodeJob job_of(strategy::Codec codec, const at::Tensor& bytes, int64_t numbers) {
  auto* const codes = bytes.mutable_data_ptr<uint8_t>();
  return {.codes = codes,
          .factors = codes + bytes.numel() - strategy::codec_groups(numbers) * strategy::kFactorBytes,
          .count = numbers,
          .of_4_bits = codec == strategy::Codec::kInt4};
}

cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

}  // namespace

void encode_by_kernel(strategy::Codec codec, const at::Tensor& x_N, Seed seed, const at::Tensor& bytes) {
  const c10::cuda::CUDAGuard guard(x_N.device());
  CodeJob job = job_of(codec, bytes, x_N.numel());
  job.numbers = x_N.const_data_ptr<float>();
  job.by_chance = seed.has_value();
  job.seed = seed.value_or(0);
  transport::cuda_check(launch_encode(job, stream_of(x_N)), "coding what travels");
}

void decode_by_kernel(strategy::Codec codec, const at::Tensor& bytes, const at::Tensor& x_N) {
  const c10::cuda::CUDAGuard guard(x_N.device());
  transport::cuda_check(
      launch_decode(job_of(codec, bytes, x_N.numel()), x_N.mutable_data_ptr<float>(), stream_of(x_N)),
      "reading what travelled");
}

}  // namespace sluice::runtime
