// T: rows (tokens of packed sequences), N: query heads, K: key/value heads, D: dimensions per head.
#include "ops/libraries/flash_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>

#include <optional>

#include "ops/attention_merge.h"

namespace sluice::ops::flash {
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
  const int64_t used = sequences.begins.back();
  if (used < out_TND.size(0)) out_TND.narrow(0, used, out_TND.size(0) - used).zero_();
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

namespace {

at::Tensor rows_of(const at::Tensor& x, base::Interval rows) { return x.narrow(0, rows.begin, rows.size()); }
at::Tensor lse_of(const at::Tensor& lse_NT, base::Interval rows) {
  return lse_NT.narrow(1, rows.begin, rows.size());
}
// A block as a batch of one, the layout of kernels without sequence tables.
at::Tensor batch_of(const at::Tensor& x, base::Interval rows) { return rows_of(x, rows).unsqueeze(0); }

}  // namespace

void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
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

void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
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

}  // namespace sluice::ops::flash
