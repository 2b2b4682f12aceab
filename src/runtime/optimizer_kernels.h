// AdamW on slices in GPU memory, with the gradient's scale and the rounded copy for pulls in the same pass.
// Raw pointers and a stream; no libtorch. Built with CUDA only.
#pragma once

#include <cstdint>
#include <span>

#include "ops/cuda/kernels.h"

namespace sluice::runtime {

// Neighbouring elements of one parameter.
struct AdamWRun {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  uint16_t* copy = nullptr;  // the new master in bfloat16; or null
  int64_t elements = 0;
  float kept = 1;       // factor on the old master: 1 - lr·weight_decay
  float step_size = 0;  // lr / (1 - beta1^update)
};

// One update's numbers, the same for all runs.
struct AdamWStep {
  float gradient_scale = 1;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float inverse_root = 0;  // 1 / √(1 - beta2^update)
};

// Per element, with g = gradient_scale·gradient (which stays as it is):
//   exp_avg = beta1·exp_avg + (1 - beta1)·g,    exp_avg_sq = beta2·exp_avg_sq + (1 - beta2)·g²,
//   master = kept·master - step_size·exp_avg / (√exp_avg_sq·inverse_root + eps).
// Runs may begin anywhere and must not overlap; runs whose arrays lie alike, relative to 16 bytes, are
// several times faster. Returns what the launches returned.
ops::kernels::Status launch_adamw(std::span<const AdamWRun> runs, const AdamWStep& step,
                                  ops::kernels::Stream stream);

}  // namespace sluice::runtime
