#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/error.h"
#include "runtime/link_kernels.h"
#include "runtime/link_launches.h"
#include "transport/cuda_check.h"

namespace sluice::runtime {
namespace {

class CudaLinkLaunches final : public LinkLaunches {
 public:
  explicit CudaLinkLaunches(const c10::Device& device) : device_(device) {}

  void copies(const CopyJob* jobs, int64_t count) override {
    const c10::cuda::CUDAGuard guard(device_);
    transport::cuda_check(launch_copies(jobs, count, stream()), "copying slices of pull or push");
  }

  void sums(const SumJob* jobs, int64_t count, const void* const* sources, comm::DType dtype) override {
    const c10::cuda::CUDAGuard guard(device_);
    const auto launch = [&]<typename Element>(Element) {
      const auto* terms = reinterpret_cast<const Element* const*>(sources);
      transport::cuda_check(launch_sums(jobs, count, terms, stream()), "adding up gradients");
    };
    SLUICE_ASSERT(dtype != comm::DType::kBFloat16, "16-bit elements are copied, never summed");
    dtype == comm::DType::kFloat32 ? launch(float{}) : launch(double{});
  }

 private:
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device_.index()).stream(); }

  c10::Device device_;
};

}  // namespace

std::unique_ptr<LinkLaunches> cuda_link_launches(const c10::Device& device) {
  return std::make_unique<CudaLinkLaunches>(device);
}

}  // namespace sluice::runtime
