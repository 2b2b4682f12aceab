// T: rows (tokens of packed sequences), N: query heads, K: key/value heads, D: dimensions per head.
//
// Per head and sequence: S = scale·q·kᵀ (over the keys that a query sees), P = softmax(S), out = P·v. With
// lse = log Σ exp S and δ = Σ_D dout·out:  dv = Pᵀ·dout,  dS = P ∘ (dout·vᵀ - δ),  dq = scale·dS·k,  dk =
// scale·dSᵀ·q. Backward recomputes P = exp(S - lse) from q and k; a key head sums over its query heads.
#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "ops/cpu/attention_cpu.h"
#include "ops/cuda/gpu.h"
#include "ops/device.h"
#include "ops/libraries/attention_cudnn.h"
#include "ops/simd.h"

namespace sluice::ops {

AttentionInput AttentionInput::on(const at::Tensor& kv_TJD) const {
  AttentionInput input = *this;
  const int64_t heads = k_TKD.size(1);
  input.k_TKD = kv_TJD.narrow(1, 0, heads);
  input.v_TKD = kv_TJD.narrow(1, heads, heads);
  return input;
}

PackedSequences packed_sequences(const std::vector<int64_t>& lengths, const at::Device& device) {
  PackedSequences sequences{.begins = {0}};
  for (const int64_t length : lengths) {
    SLUICE_ASSERT(length > 0, "a packed sequence is empty");
    sequences.begins.push_back(sequences.begins.back() + length);
    sequences.longest = std::max(sequences.longest, length);
  }
  if (device.is_cpu()) return sequences;
  const int64_t count = static_cast<int64_t>(sequences.begins.size());
  const at::Tensor host = upload_buffer(count, at::kInt, device);
  std::copy(sequences.begins.begin(), sequences.begins.end(), host.mutable_data_ptr<int32_t>());
  sequences.begins_device = upload(host, device);
  sequences.table = sequence_table(sequences.begins);
  const at::Tensor words =
      upload_buffer(static_cast<int64_t>(sequences.table.words.size()), at::kLong, device);
  std::ranges::copy(sequences.table.words, words.mutable_data_ptr<int64_t>());
  sequences.table_device = upload(words, device);
  return sequences;
}

namespace {

void zero_rows_from(const at::Tensor& x, int64_t begin) {
  if (begin < x.size(0)) x.narrow(0, begin, x.size(0) - begin).zero_();
}

}  // namespace

namespace flash {
namespace {

// Number of tokens before itself that a token sees, as flash attention's argument; nullopt: no limit but
// causality.
std::optional<int64_t> tokens_before(const AttentionInput& input) {
  return input.window > 0 ? std::optional(input.window - 1) : std::nullopt;
}
std::optional<int64_t> tokens_behind(const AttentionInput& input) {
  if (input.window == 0) return std::nullopt;
  return input.causal ? 0 : input.window - 1;
}

}  // namespace

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences) {
  const at::Tensor& begins = sequences.begins_device;
  auto [out_TND, lse_NT, rng, unused, mask] = at::_flash_attention_forward(
      input.q_TND, input.k_TKD, input.v_TKD, begins, begins, sequences.longest, sequences.longest,
      /*dropout_p=*/0.0, input.causal, /*return_debug_mask=*/false, input.scale, tokens_before(input),
      tokens_behind(input));
  zero_rows_from(out_TND, sequences.begins.back());
  return {out_TND, lse_NT, rng};
}

void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  const at::Tensor& begins = sequences.begins_device;
  const at::Tensor unused = at::empty({0}, saved.rng.options());
  const auto [dq_TND, dk_TKD, dv_TKD] =
      at::_flash_attention_backward(dout_TND, input.q_TND, input.k_TKD, input.v_TKD, saved.out_TND,
                                    saved.lse_NT, begins, begins, sequences.longest, sequences.longest,
                                    /*dropout_p=*/0.0, input.causal, saved.rng, unused, input.scale,
                                    tokens_before(input), tokens_behind(input));
  gradient.dq_TND.copy_(dq_TND);
  gradient.dk_TKD.copy_(dk_TKD);
  gradient.dv_TKD.copy_(dv_TKD);
}

}  // namespace flash

namespace {

at::Tensor rows_of(const at::Tensor& x, base::Interval rows) { return x.narrow(0, rows.begin, rows.size()); }
at::Tensor lse_of(const at::Tensor& lse_NT, base::Interval rows) {
  return lse_NT.narrow(1, rows.begin, rows.size());
}
// A block as a batch of one, the layout of kernels without sequence tables.
at::Tensor batch_of(const at::Tensor& x, base::Interval rows) { return rows_of(x, rows).unsqueeze(0); }

void attend_blocks_cuda(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                        const AttentionResult& seen) {
  for (const auto& [queries, keys, ahead] : blocks) {
    const auto [out_1TND, lse_1NT, rng, unused, mask] = at::_flash_attention_forward(
        batch_of(input.q_TND, queries), batch_of(input.k_TKD, keys), batch_of(input.v_TKD, keys),
        /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, queries.size(), keys.size(), /*dropout_p=*/0.0,
        /*is_causal=*/false, /*return_debug_mask=*/false, input.scale);
    merge({rows_of(seen.out_TND, queries), lse_of(seen.lse_NT, queries)},
          {out_1TND.squeeze(0), lse_1NT.squeeze(0)});
  }
}

void attend_blocks_backward_cuda(const at::Tensor& dout_TND, const AttentionInput& input,
                                 const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                                 const AttentionGradient& gradient) {
  const at::Tensor unused = at::empty({0}, saved.rng.options());
  for (const auto& [queries, keys, ahead] : blocks) {
    const auto [dq_1TND, dk_1TKD, dv_1TKD] = at::_flash_attention_backward(
        batch_of(dout_TND, queries), batch_of(input.q_TND, queries), batch_of(input.k_TKD, keys),
        batch_of(input.v_TKD, keys), batch_of(saved.out_TND, queries),
        lse_of(saved.lse_NT, queries).contiguous().unsqueeze(0), /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
        queries.size(), keys.size(), /*dropout_p=*/0.0, /*is_causal=*/false, saved.rng, unused, input.scale);
    rows_of(gradient.dq_TND, queries).add_(dq_1TND.squeeze(0));
    rows_of(gradient.dk_TKD, keys).add_(dk_1TKD.squeeze(0));
    rows_of(gradient.dv_TKD, keys).add_(dv_1TKD.squeeze(0));
  }
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
  } else if (cudnn::kBuilt && cudnn::takes_dimensions(shape.dimensions)) {
    scratch.bytes += cudnn::kWorkspaceBytes * q * kLeastPlannedRows;
    scratch.bytes_per_row += 2 * cudnn::kWorkspaceBytes * q;  // rows are rounded up to a power of two
  } else {
    scratch.bytes_per_row += 4 * q + 2 * q * element_bytes;  // sums in float; each query head's dk and dv
  }
  return scratch;
}

std::string attention_report() {
  if constexpr (cudnn::kBuilt) return cudnn::report();
  return "not used: built without cuDNN's headers";
}

void merge(const AttentionResult& seen, const AttentionResult& more) {
  if constexpr (gpu::kBuilt) {
    if (gpu::merge(seen, more)) return;
  }
  aten::merge(seen, more);
}

// With lse = log(exp lse₁ + exp lse₂):  out = exp(lse₁ - lse)·out₁ + exp(lse₂ - lse)·out₂. If neither set has
// keys, both weights are zero: −∞ less −∞ is NaN.
void aten::merge(const AttentionResult& seen, const AttentionResult& more) {
  const at::Tensor lse_NT = at::logaddexp(seen.lse_NT, more.lse_NT);
  const auto share_TN1 = [&](const at::Tensor& of_NT) {
    return (of_NT - lse_NT).exp_().nan_to_num_(0.0).transpose(0, 1).unsqueeze(-1);
  };
  seen.out_TND.mul_(share_TN1(seen.lse_NT)).add_(more.out_TND * share_TN1(more.lse_NT));
  seen.lse_NT.copy_(lse_NT);
}

AttentionResult nothing_seen(const at::Tensor& q_TND) {
  const at::TensorOptions wide =
      q_TND.options().dtype(q_TND.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {at::zeros(q_TND.sizes(), wide),
          at::full({q_TND.size(1), q_TND.size(0)}, -std::numeric_limits<double>::infinity(), wide),
          {}};
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
  if (input.q_TND.is_cpu()) return cpu::attend_blocks(input, blocks, seen);
  return has_fused_kernel_of_blocks(input) ? attend_blocks_cuda(input, blocks, seen)
                                           : aten::attend_blocks(input, blocks, seen);
}

void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient) {
  if (input.q_TND.is_cpu()) {
    return cpu::attend_blocks_backward(dout_TND, input, saved, blocks, gradient);
  }
  return has_fused_kernel_of_blocks(input)
             ? attend_blocks_backward_cuda(dout_TND, input, saved, blocks, gradient)
             : aten::attend_blocks_backward(dout_TND, input, saved, blocks, gradient);
}

}  // namespace sluice::ops
