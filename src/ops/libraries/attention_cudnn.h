// Attention over packed sequences, and over blocks of a ring, by cuDNN, which on Hopper and Blackwell is well
// ahead of libtorch's flash attention. Internal to src/ops; GPUs only. A build without cuDNN's headers has
// declarations alone: test kBuilt first, at compile time.
//
// Sequences and blocks run in groups of 1, 4, 16 or 64 (sequence_groups.h), with a plan for each group size,
// and sizes are rounded up (planned_sizes.h). So some dozens of plans serve a run, all made before its first
// step (attention_plans.h). Padding to a common number of sequences instead would need empty sequences, which
// cuDNN before 9.25 turns into NaN.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "ops/attention_input.h"
#include "ops/paged_sequences.h"
#include "ops/planned_sizes.h"

namespace sluice::ops::cudnn {

#ifdef SLUICE_CUDNN
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

inline bool takes_dimensions(int64_t dimensions) { return dimensions % 16 == 0 && dimensions <= 128; }
// Latent attention's heads, as DeepSeek-V3 has them: keys of 192 dimensions, values of 128.
inline bool has_narrow_values(int64_t dimensions, int64_t value_dimensions) {
  return dimensions == 192 && value_dimensions == 128;
}

// Whether cuDNN takes the input: bfloat16, no cap, head dimensions up to 128 in multiples of 16 (on Hopper
// 256, too) or has_narrow_values(), rows at multiples of 16 bytes. Its results for a small case of the same
// kind (causal, a window, both sides, blocks; deterministic; narrow values) must also match flash attention's
// on this GPU: the first call of each kind on a GPU compares them, which takes seconds and waits for the GPU.
bool takes(const AttentionInput& input);

// As ops::attention; REQUIRES: takes(input). Nullopt if cuDNN has no plan for these sizes.
std::optional<AttentionResult> attention(const AttentionInput& input, const PackedSequences& sequences);

// As ops::attention_backward, except for rows of no sequence. REQUIRES: takes(input). False if there is no
// plan. Needs kWorkspaceBytes of workspace for each element of q, of planned_rows rows, while it runs, beside
// dense copies of the gradients (attention_scratch in ops/attention.h counts both).
inline constexpr int64_t kWorkspaceBytes = 12;
bool attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

// The same for blocks, as ops::attend_blocks and its backward. One launch computes blocks that have at most
// as many queries and keys as the inputs have rows, so that results need no more memory than those of
// sequences. False: nothing was done, because cuDNN does not take the input, or blocks with a window, or has
// no plan.
bool attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);
bool attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);

// As ops::attend_pages, on GPUs from Ampere on: cuDNN packs queries there, too, forward. Nullopt if it does
// not take the input or has no plan.
std::optional<AttentionResult> attend_pages(const AttentionInput& on_cache, const PagedSequences& paged);

// Kinds of graphs, each compared on its own before it is used.
enum class Kind : uint8_t {
  kCausal,
  kWindow,
  kBothSides,
  kWindowToBothSides,
  kBlocks,
  kPages,
  kPagesThroughWindow
};
inline constexpr size_t kKinds = 7;

// Compares cuDNN with flash attention on a small case of the kind, with values narrower than keys or not; ""
// if they agree, else a reason in words.
std::string fault_of_small_case(Kind kind, bool narrow_values, const at::Device& device);

// As ops::prepare_attention.
void make_ahead(const RowLimits& limits, const std::filesystem::path& cache);

// One line for people: cuDNN's version, or why it is not used; and the number of calls without a plan.
std::string report();

}  // namespace sluice::ops::cudnn
