// Reads 16 and writes 14 bytes for each parameter, bound by memory; separate passes for clipping, AdamW and
// the copy take 42. Runs are passed by value with the launch, so nothing is uploaded.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cuda/kernel_parts.h"
#include "runtime/optimizer_kernels.h"

namespace sluice::runtime {
namespace {

using ops::kernels::Floats;
using ops::kernels::kThreads;
using ops::kernels::Status;
using ops::kernels::Stream;

constexpr int kMostRuns = 56;       // a launch's arguments are 4 KiB at most
constexpr int kBlockVectors = 4;    // vectors per thread
constexpr int kWide = 8;            // elements of a vector: 16 bytes of the copy
constexpr int kFloatAlignment = 4;  // elements of 16 bytes

struct Launch {
  AdamWRun runs[kMostRuns];
  int32_t first_block[kMostRuns + 1];
  int32_t count = 0;
  AdamWStep step;
};

template <int kElements>
__device__ void update(const AdamWRun& run, const AdamWStep& step, int64_t i) {
  using ops::kernels::load;
  using ops::kernels::store;
  Floats<kElements> p = load<kElements>(run.master + i), m = load<kElements>(run.exp_avg + i);
  Floats<kElements> v = load<kElements>(run.exp_avg_sq + i);
  const Floats<kElements> gradient = load<kElements>(run.gradient + i);
  SLUICE_UNROLL
  for (int k = 0; k < kElements; ++k) {
    const float g = gradient.at[k] * step.gradient_scale;
    m.at[k] = step.beta1 * m.at[k] + (1.0F - step.beta1) * g;
    v.at[k] = step.beta2 * v.at[k] + (1.0F - step.beta2) * g * g;
    const float deviation = sqrtf(v.at[k]) * step.inverse_root + step.eps;
    p.at[k] = run.kept * p.at[k] - run.step_size * m.at[k] / deviation;
  }
  store<kElements>(run.master + i, p);
  store<kElements>(run.exp_avg + i, m);
  store<kElements>(run.exp_avg_sq + i, v);
  if (run.copy != nullptr) store<kElements>(reinterpret_cast<ops::kernels::BFloat16*>(run.copy) + i, p);
}

// Elements of S from the vector boundary (kWide elements of S) before `address` to `address`.
template <typename S>
__device__ __host__ int64_t behind_boundary(const void* address) {
  return static_cast<int64_t>(reinterpret_cast<uint64_t>(address) / sizeof(S) % kWide);
}

// Vectors begin at memory boundaries, so a run's first and last vector may reach beyond the run.
__device__ void update_vector(const AdamWRun& run, const AdamWStep& step, int64_t begin) {
  if (begin >= 0 && begin + kWide <= run.elements) return update<kWide>(run, step, begin);
  for (int64_t i = begin < 0 ? 0 : begin; i < run.elements && i < begin + kWide; ++i) update<1>(run, step, i);
}

__device__ int run_of_block(const Launch& launch, int32_t block) {
  int run = 0;
  for (int step = 32; step > 0; step /= 2) {
    if (run + step < launch.count && launch.first_block[run + step] <= block) run += step;
  }
  return run;
}

__global__ void adamw(const __grid_constant__ Launch launch) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int index = run_of_block(launch, block);
  const AdamWRun run = launch.runs[index];
  const int64_t before = behind_boundary<float>(run.master);
  const int64_t first = static_cast<int64_t>(block - launch.first_block[index]) * kBlockVectors * kThreads;
  for (int turn = 0; turn < kBlockVectors; ++turn) {
    update_vector(run, launch.step, (first + turn * kThreads + threadIdx.x) * kWide - before);
  }
}

// Element by element, for runs whose arrays are aligned differently.
__global__ void adamw_narrow(const __grid_constant__ Launch launch) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int index = run_of_block(launch, block);
  const AdamWRun run = launch.runs[index];
  const int64_t elements = kBlockVectors * kThreads * kWide;
  const int64_t begin = static_cast<int64_t>(block - launch.first_block[index]) * elements;
  for (int64_t i = begin + threadIdx.x; i < begin + elements && i < run.elements; i += kThreads) {
    update<1>(run, launch.step, i);
  }
}

bool lies_alike(const AdamWRun& run) {
  const int64_t before = behind_boundary<float>(run.master);
  const auto alike = [&](const void* address) {
    return (behind_boundary<float>(address) - before) % kFloatAlignment == 0;
  };
  return alike(run.gradient) && alike(run.exp_avg) && alike(run.exp_avg_sq) &&
         (run.copy == nullptr || behind_boundary<uint16_t>(run.copy) == before);
}

// Misaligned runs are separated, so that the others keep their wide accesses.
struct RunsByLie {
  std::vector<AdamWRun> alike, unlike;
};
RunsByLie by_lie(std::span<const AdamWRun> runs) {
  RunsByLie result;
  for (const AdamWRun& run : runs) (lies_alike(run) ? result.alike : result.unlike).push_back(run);
  return result;
}

Status launch_runs(std::span<const AdamWRun> runs, const AdamWStep& step, void (*kernel)(Launch), Stream stream) {
  for (size_t first = 0; first < runs.size(); first += kMostRuns) {
    Launch launch;
    launch.step = step;
    int64_t blocks = 0;
    for (const AdamWRun& run : runs.subspan(first, std::min<size_t>(kMostRuns, runs.size() - first))) {
      launch.runs[launch.count] = run;
      launch.first_block[launch.count++] = static_cast<int32_t>(blocks);
      // Elements in front of the first boundary take up to one more vector.
      const int64_t vectors = (run.elements + 2 * kWide - 2) / kWide;
      blocks += ops::kernels::blocks_for((vectors + kBlockVectors - 1) / kBlockVectors);
    }
    const Status status = ops::kernels::launch(kernel, blocks, stream, Launch(launch));
    if (status != Status{}) return status;
  }
  return Status{};
}

}  // namespace

Status launch_adamw(std::span<const AdamWRun> runs, const AdamWStep& step, Stream stream) {
  const RunsByLie parts = by_lie(runs);
  const Status status = launch_runs(parts.alike, step, adamw, stream);
  return status != Status{} ? status : launch_runs(parts.unlike, step, adamw_narrow, stream);
}

}  // namespace sluice::runtime
