#include <ATen/TensorOperators.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "ops/libraries/grouped_mm.h"
#include "ops/libraries/proved_on_gpu.h"

namespace sluice::ops::grouped_mm {
namespace {

constexpr int64_t kMostGroups = 1023;  // of the kernel that lays out a launch

// libtorch 2.11 has its kernels for these; elsewhere it reads the sizes and multiplies group by group.
bool has_kernels(const c10::Device& gpu) {
  int major = 0;
  const bool known =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu.index()) == cudaSuccess;
  return known && (major == 9 || major == 10);
}

// "" if x·w and xᵀ·y by group are products group by group; the second group is empty.
std::string fault_on(const c10::Device& gpu) {
  if (!has_kernels(gpu)) return "no kernels for grouped products";
  const c10::cuda::CUDAGuard guard(gpu);
  constexpr std::array<int64_t, 4> kEnds = {40, 40, 104, 128};
  const auto options = at::dtype(at::kBFloat16).device(gpu);
  const at::Tensor x = at::randn({128, 64}, options), y = at::randn({128, 32}, options),
                   w = at::randn({4, 32, 64}, options);
  const at::Tensor end = at::tensor({40, 40, 104, 128}, at::kInt).to(gpu);
  const at::Tensor product = at::_grouped_mm(x, w.transpose(1, 2), end),
                   gradient = at::_grouped_mm(x.t(), y, end);
  int64_t begin = 0;
  for (int64_t group = 0; group < 4; ++group) {
    const int64_t size = kEnds[static_cast<size_t>(group)] - begin;
    const auto rows = [&](const at::Tensor& all) { return all.narrow(0, begin, size); };
    const at::Tensor expected = at::zeros({64, 32}, options).addmm_(rows(x).t(), rows(y));
    const auto differ = [](const at::Tensor& a, const at::Tensor& b) {
      return b.numel() > 0 && (a.to(at::kFloat) - b.to(at::kFloat)).abs().max().item<float>() > 0.25F;
    };
    if (differ(gradient[group], expected)) return base::text("the gradient of group ", group, " differs");
    if (size > 0 && differ(rows(product), rows(x).mm(w[group].t())))
      return base::text("the product of group ", group, " differs");
    begin += size;
  }
  return "";
}

ProvedOnGpu& proved() {
  static auto* const proved = new ProvedOnGpu(&fault_on);
  return *proved;
}

bool is_aligned(const at::Tensor& tensor) {
  constexpr int64_t kElements = 8;  // of 16 bytes
  const int64_t last = tensor.dim() - 1;
  if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 != 0) return false;
  const int64_t inner = std::min(tensor.stride(last), tensor.stride(last - 1)),
                outer = std::max(tensor.stride(last), tensor.stride(last - 1));
  return inner == 1 && outer % kElements == 0 && tensor.size(last) % kElements == 0;
}

}  // namespace

bool takes(const at::Tensor& x, const at::Tensor& w, int64_t groups) {
  const bool is_narrow = x.scalar_type() == at::kBFloat16 && w.scalar_type() == at::kBFloat16;
  if (!is_narrow || groups > kMostGroups) return false;
  return is_aligned(x) && is_aligned(w) && proved().on(x.device());
}

}  // namespace sluice::ops::grouped_mm
