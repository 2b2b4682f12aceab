#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "runtime/optimizer.h"
#include "runtime/optimizer_kernels.h"
#include "transport/cuda_check.h"

namespace sluice::runtime {
namespace {

AdamWStep step_of(const AdamW& options, double gradient_scale) {
  const auto update = static_cast<double>(options.update);
  return {.gradient_scale = static_cast<float>(gradient_scale),
          .beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .eps = static_cast<float>(options.eps),
          .inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, update)))};
}

// Elements `run` of a bucket, all inside one parameter and the slice.
AdamWRun run_of(const OwnerSlice& slice, const at::Tensor& copy, base::Interval run, const AdamW& options,
                const AdamW::Rates& rates, bool copies) {
  const int64_t offset = run.begin - slice.owned.begin;
  const auto at = [&](const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>() + offset; };
  const bool own_copy = copies && !copy.is_alias_of(slice.master);
  return {.master = at(slice.master),
          .gradient = at(slice.gradient),
          .exp_avg = at(slice.exp_avg.read()),
          .exp_avg_sq = at(slice.exp_avg_sq.read()),
          .copy = own_copy ? static_cast<uint16_t*>(copy.mutable_data_ptr()) + offset : nullptr,
          .elements = run.size(),
          .kept = static_cast<float>(1.0 - rates.lr * rates.weight_decay),
          .step_size = static_cast<float>(
              rates.lr / (1.0 - std::pow(options.beta1, static_cast<double>(options.update))))};
}

}  // namespace

bool update_by_kernel(ParameterStore& store, const AdamW& options, double gradient_scale) {
  const ParameterStore::Options& of = store.options();
  if (!of.device.is_cuda() || of.precision.kept_master() != comm::DType::kFloat32 ||
      of.moments != base::MomentFormat::kWide)
    return false;
  std::vector<AdamWRun> runs;
  for (const model::Bucket& bucket : store.table().buckets) {
    if (bucket.trained) store.wait_for_readers(bucket.index);
    const OwnerSlice& slice = store.owner(bucket.index);
    for (const model::ParameterGroupRun& run : store.parameter_groups(bucket.index)) {
      if (!options.updates(run)) continue;
      runs.push_back(run_of(slice, store.compute_copy(bucket.index), run.elements, options,
                            options.rates_of(run), !store.copies_apart()));
    }
  }
  const c10::cuda::CUDAGuard guard(of.device);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(of.device.index()).stream();
  transport::cuda_check(launch_adamw(runs, step_of(options, gradient_scale), stream),
                        "the optimiser's update");
  return true;
}

}  // namespace sluice::runtime
