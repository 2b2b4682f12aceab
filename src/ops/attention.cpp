// T: rows (tokens of packed sequences), N: query heads, K: key/value heads, D: dimensions per head.
//
// Per head and sequence: S = scale·q·kᵀ (over the keys that a query sees), P = softmax(S), out = P·v. With
// lse = log Σ exp S and δ = Σ_D dout·out:  dv = Pᵀ·dout,  dS = P ∘ (dout·vᵀ - δ),  dq = scale·dS·k,  dk =
// scale·dSᵀ·q. Backward recomputes P = exp(S - lse) from q and k; a key head sums over its query heads.
#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "ops/cpu/attention_cpu.h"
#include "ops/cuda/gpu.h"
#include "ops/device.h"
#include "ops/libraries/attention_cudnn.h"
#include "ops/libraries/flash_attention.h"
#include "ops/simd.h"

namespace sluice::ops {

namespace {

void zero_rows_from(const at::Tensor& x, int64_t begin) {
  if (begin < x.size(0)) x.narrow(0, begin, x.size(0) - begin).zero_();
}

// Runs cuDNN if it takes the input and has a plan. False: nothing is done.
bool attention_backward_cudnn(const at::Tensor& dout_TND, const AttentionInput& input,
                              const AttentionResult& saved, const PackedSequences& sequences,
                              const AttentionGradient& gradient) {
  if constexpr (cudnn::kBuilt) {
    return cudnn::takes(input) && cudnn::attention_backward(dout_TND, input, saved, sequences, gradient);
  }
  return false;
}

// The same for blocks.
bool attend_blocks_cudnn(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                         const AttentionResult& seen) {
  if constexpr (cudnn::kBuilt) return cudnn::attend_blocks(input, blocks, seen);
  return false;
}
bool attend_blocks_backward_cudnn(const at::Tensor& dout_TND, const AttentionInput& input,
                                  const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                                  const AttentionGradient& gradient) {
  if constexpr (cudnn::kBuilt) {
    return cudnn::attend_blocks_backward(dout_TND, input, saved, blocks, gradient);
  }
  return false;
}

// Whether libtorch's flash attention for GPUs takes these types and shapes.
bool is_narrow(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }
bool has_fused_dimensions(int64_t dimensions) { return dimensions <= 256 && dimensions % 8 == 0; }
bool has_fused_kernel(const AttentionInput& input) {
  return input.q_TND.is_cuda() && is_narrow(input.q_TND.scalar_type()) &&
         has_fused_dimensions(input.q_TND.size(2)) && input.cap == 0;
}

// A block's window is a band that flash attention cannot express: its window makes the last query see the
// last key.
bool has_fused_kernel_of_blocks(const AttentionInput& input) {
  return has_fused_kernel(input) && input.window == 0;
}

}  // namespace

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences) {
  RECORD_USER_SCOPE("sluice::attention");
  if (input.q_TND.is_cpu()) return cpu::attention(input, sequences);
  if constexpr (cudnn::kBuilt) {
    if (cudnn::takes(input)) {
      if (std::optional<AttentionResult> result = cudnn::attention(input, sequences)) return *result;
    }
  }
  return has_fused_kernel(input) ? flash::attention(input, sequences) : aten::attention(input, sequences);
}

void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  RECORD_USER_SCOPE("sluice::attention_backward");
  if (input.q_TND.is_cpu()) {
    cpu::attention_backward(dout_TND, input, saved, sequences, gradient);
  } else if (!attention_backward_cudnn(dout_TND, input, saved, sequences, gradient)) {
    const auto backward = has_fused_kernel(input) ? flash::attention_backward : aten::attention_backward;
    backward(dout_TND, input, saved, sequences, gradient);
  }
  zero_rows_from(gradient.dq_TND, sequences.begins.back());
  zero_rows_from(gradient.dk_TKD, sequences.begins.back());
  zero_rows_from(gradient.dv_TKD, sequences.begins.back());
}

std::string unfused_because(const AttentionShape& shape, at::ScalarType type, const at::Device& device) {
  if (!device.is_cuda()) return "";
  if (!is_narrow(type)) {
    return base::text("attention in ", type == at::kDouble ? "float64" : "float32",
                      " has no fused kernel on GPUs: train.dtype = \"bfloat16\" has one");
  }
  if (shape.capped) return "attention with capped scores has no fused kernel on GPUs";
  if (has_fused_dimensions(shape.dimensions)) return "";
  return base::text("attention with heads of ", shape.dimensions, " dimensions has no fused kernel on GPUs");
}

AttentionScratch attention_scratch(const AttentionShape& shape, at::ScalarType type,
                                   const at::Device& device) {
  if (!device.is_cuda()) return {};
  const int64_t q = shape.heads * shape.dimensions, kv = shape.kv_heads * shape.dimensions;
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(type));
  const bool unfused = !unfused_because(shape, type, device).empty();
  // Dense gradients of queries, keys and values, the output's, and two numbers a head in float.
  AttentionScratch scratch{.bytes_per_row = (2 * q + 2 * kv) * element_bytes + 8 * shape.heads};
  // Scores of a block, their softmax and the gradients of both; also for windows between lanes.
  if (unfused || shape.windowed) scratch.bytes = 4 * aten::kMostScores * std::max<int64_t>(4, element_bytes);
  if (unfused) {
    scratch.bytes_per_row += 3 * (q + kv) * std::max<int64_t>(4, element_bytes);  // wide copies
  } else if (cudnn::kBuilt && (cudnn::takes_dimensions(shape.dimensions) ||
                               cudnn::has_narrow_values(shape.dimensions, shape.value_dimensions))) {
    scratch.bytes += cudnn::kWorkspaceBytes * q * kLeastPlannedRows;
    scratch.bytes_per_row += 2 * cudnn::kWorkspaceBytes * q;  // rows are rounded up to a power of two
  } else {
    scratch.bytes_per_row += 4 * q + 2 * q * element_bytes;  // sums in float; each query head's dk and dv
  }
  return scratch;
}

void prepare_attention(const RowLimits& limits, const std::filesystem::path& cache,
                       const at::Device& device) {
  if constexpr (cudnn::kBuilt) {
    if (device.is_cuda()) cudnn::make_ahead(limits, cache);
  }
}

std::string attention_report() {
  if constexpr (cudnn::kBuilt) return cudnn::report();
  return "not used: built without cuDNN's headers";
}

void add_sinks(const AttentionResult& result, const at::Tensor& sinks_N) {
  const at::Tensor lse_NT =
      at::logaddexp(result.lse_NT, sinks_N.to(result.lse_NT.scalar_type()).unsqueeze(1));
  const at::Tensor share_NT = (result.lse_NT - lse_NT).exp_();
  result.out_TND.mul_(share_NT.transpose(0, 1).unsqueeze(-1).to(result.out_TND.scalar_type()));
  result.lse_NT.copy_(lse_NT);
}

void sinks_backward(const at::Tensor& dout_TND, const AttentionResult& saved, const at::Tensor& sinks_N,
                    const at::Tensor& dsinks_N) {
  const at::ScalarType wide = saved.lse_NT.scalar_type();
  const at::Tensor delta_TN = (dout_TND.to(wide) * saved.out_TND.to(wide)).sum(-1);
  const at::Tensor share_NT = (sinks_N.to(wide).unsqueeze(1) - saved.lse_NT).exp_();
  dsinks_N.sub_((share_NT * delta_TN.transpose(0, 1)).sum(1));
}

void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen) {
  RECORD_USER_SCOPE("sluice::attend_blocks");
  if (input.q_TND.is_cpu()) {
    cpu::attend_blocks(input, blocks, seen);
  } else if (!has_fused_kernel_of_blocks(input)) {
    aten::attend_blocks(input, blocks, seen);
  } else if (!attend_blocks_cudnn(input, blocks, seen)) {
    flash::attend_blocks(input, blocks, seen);
  }
}

std::optional<AttentionResult> attend_pages(const AttentionInput& on_cache, const PagedSequences& paged) {
  if (paged.empty() || on_cache.q_TND.is_cpu() || on_cache.cap != 0) return std::nullopt;
  RECORD_USER_SCOPE("sluice::attend_pages");
  if (!on_cache.q_TND.is_cuda()) return aten::attend_pages(on_cache, paged);
  if constexpr (cudnn::kBuilt) return cudnn::attend_pages(on_cache, paged);
  return std::nullopt;
}

void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient) {
  RECORD_USER_SCOPE("sluice::attend_blocks_backward");
  if (input.q_TND.is_cpu()) {
    cpu::attend_blocks_backward(dout_TND, input, saved, blocks, gradient);
  } else if (!has_fused_kernel_of_blocks(input)) {
    aten::attend_blocks_backward(dout_TND, input, saved, blocks, gradient);
  } else if (!attend_blocks_backward_cudnn(dout_TND, input, saved, blocks, gradient)) {
    flash::attend_blocks_backward(dout_TND, input, saved, blocks, gradient);
  }
}

}  // namespace sluice::ops
