// Attention over packed sequences by cuDNN, which on Hopper and Blackwell is well ahead of libtorch's flash
// attention. Internal to src/ops; GPUs only. A build without cuDNN's headers has declarations alone: ask
// kBuilt first, at compile time.
//
// Sequences run in groups of 1, 4, 16 … (sequence_groups.h), a plan for each, and sizes are rounded up, so
// that some dozens of plans serve a run: making one takes cuDNN half a second. Padding plans to a common
// number of sequences instead would need empty ones, which cuDNN before 9.25 turns into NaN.
#pragma once

#include <optional>
#include <string>

#include "ops/attention_input.h"

namespace sluice::ops::cudnn {

#ifdef SLUICE_CUDNN
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

inline bool takes_dimensions(int64_t dimensions) { return dimensions % 16 == 0 && dimensions <= 128; }

// Whether cuDNN takes the input: bfloat16, neither window nor cap, heads of at most 128 dimensions, a
// multiple of 16, rows at multiples of 16 bytes, nobody wants the same bits each time (its backward adds in
// any order), and its results for a small case were flash attention's on this GPU. The first call on a GPU
// compares them, which takes seconds and waits for the GPU.
bool takes(const AttentionInput& input);

// As ops::attention; REQUIRES: takes(input). Nothing where cuDNN has no plan for these sizes.
std::optional<AttentionResult> attention(const AttentionInput& input, const PackedSequences& sequences);

// As ops::attention_backward, but for rows of no sequence; likewise. False where there is no plan. Takes
// kWorkspaceBytes of workspace for each element of q, of planned_rows rows, while it runs, beside the
// gradients' dense copies (attention_scratch in ops/attention.h counts both).
inline constexpr int64_t kWorkspaceBytes = 12;
bool attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

// One line for people: the version, or why it is not used; and for how many calls it had no plan.
std::string report();

}  // namespace sluice::ops::cudnn
