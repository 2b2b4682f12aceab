#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/float8_format.h"
#include "ops/libraries/proved_on_gpu.h"
#include "ops/libraries/scaled_mm.h"

namespace sluice::ops::scaled_mm {
namespace {

// Rows that fill no tile, and factors that differ.
std::string fault_on(const c10::Device& gpu) {
  const c10::cuda::CUDAGuard guard(gpu);
  const auto options = at::dtype(at::kFloat).device(gpu);
  const at::Tensor left = at::randn({37, 96}, options).to(at::kFloat8_e4m3fn),
                   right = at::randn({48, 96}, options).to(at::kFloat8_e4m3fn);
  const at::Tensor of_left = at::rand({37, 1}, options) + 0.5, of_right = at::rand({48, 1}, options) + 0.5;
  const at::Tensor expected =
      at::mm(left.to(at::kBFloat16), right.to(at::kBFloat16).t(), at::kFloat) * of_left * of_right.t();
  const at::Tensor found =
      at::_scaled_mm(left, right.t(), of_left, of_right.t(), {}, {}, at::kBFloat16, /*use_fast_accum=*/false);
  const double off = (found.to(at::kFloat) - expected).abs().max().item<double>();
  // A rounding to bfloat16, and sums that GPUs truncate.
  return off <= expected.abs().max().item<double>() / 100 ? "" : "products of 8-bit floats differ";
}

ProvedOnGpu& proved() {
  static auto* const proved = new ProvedOnGpu(&fault_on);
  return *proved;
}

}  // namespace

bool takes(const at::Tensor& left_MP, const at::Tensor& right_NP) {
  const bool fits = right_NP.size(0) % kFloat8Multiple == 0 && left_MP.size(1) % kFloat8Multiple == 0;
  return fits && proved().on(left_MP.device());
}

}  // namespace sluice::ops::scaled_mm
