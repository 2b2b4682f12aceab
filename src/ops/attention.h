// Attention over packed sequences, causal or bidirectional: no token attends across sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/attention_input.h"
#include "ops/paged_sequences.h"
#include "ops/planned_sizes.h"

namespace sluice::ops {

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);

// Computes the gradients of `input` into views of the same shapes, which may be the inputs themselves.
// `saved` is the forward's result. Rows of no sequence get zero.
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

// Extends `seen` by the keys of `blocks`: out and lse become those over old and new keys. Both are in
// lse's type; rows without any key so far have lse -inf and out 0. REQUIRES here and below: no interval is
// empty.
void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);

// Attention of sequences that are being generated to their keys in a cache's pages, their own rows included:
// each query sees the keys up to its own, within the window. `on_cache`: k and v are the cache's. Nullopt on
// CPUs, and where the library takes no pages: attend by blocks then. Rows behind the queries are zero.
// REQUIRES: causal, no cap.
std::optional<AttentionResult> attend_pages(const AttentionInput& on_cache, const PagedSequences& paged);

// Adds the blocks' contribution to the gradients, which are in lse's type. `saved` is the result over all
// keys that the queries see, wherever the keys come from, with out in q's type.
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);

// The device memory that attention's backward needs at most, beside inputs, results and gradients: a part
// that grows with a micro-batch's rows, and a constant part. None on the CPU.
struct AttentionScratch {
  int64_t bytes = 0;
  int64_t bytes_per_row = 0;
};
struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dimensions = 0;
  int64_t value_dimensions = 0;  // as in AttentionInput
  bool capped = false;           // scores
  bool windowed = false;         // on some layers
};
AttentionScratch attention_scratch(const AttentionShape& shape, at::ScalarType type,
                                   const at::Device& device);
// Makes what a library plans for micro-batches within these limits, on threads, for each shape of attention
// that ran already or runs later, at its first call. What was made is kept in a subfolder of `cache` for
// later runs; empty: it is not kept. Takes seconds on a GPU at the first time, and nothing on CPUs.
void prepare_attention(const RowLimits& limits, const std::filesystem::path& cache, const at::Device& device);
// The reason, in words, why attention of this shape runs on ATen's operators on the device; empty if a fused
// kernel takes it.
std::string unfused_because(const AttentionShape& shape, at::ScalarType type, const at::Device& device);

// Names the attention library on GPUs, for people (windows between lanes, and caps: ATen):
// cuDNN with its version, or why cuDNN is not used. Known after the first attention.
std::string attention_report();

// Attention sinks (Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks"): each head
// has one more score, sinks_N, without a value. With lse' = log(exp lse + exp sink), the output shrinks by
// exp(lse − lse') and lse' replaces lse; attention's backward functions then compute the gradients with the
// sink. Changes `result`, which was computed over keys alone; rows of no sequence stay.
void add_sinks(const AttentionResult& result, const at::Tensor& sinks_N);
// Adds −Σ exp(sink − lse')·(dout·out) over the rows to dsinks_N, whose type may be wider. `saved` includes
// the sinks.
void sinks_backward(const at::Tensor& dout_TND, const AttentionResult& saved, const at::Tensor& sinks_N,
                    const at::Tensor& dsinks_N);

// The same functions from ATen's operators, for tests and for GPUs without a fused kernel. Flash attention
// takes 16-bit types, head dimensions up to 256 in multiples of 8, and scores without a cap. Here
// attention_backward does not write rows of no sequence.
namespace aten {
inline constexpr int64_t kMostScores = int64_t{1} << 26;  // elements of a block's scores
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);
void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);
AttentionResult attend_pages(const AttentionInput& on_cache, const PagedSequences& paged);
}  // namespace aten

}  // namespace sluice::ops
