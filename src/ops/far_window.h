// A window for attention to AttentionBlocks (ops/attention_input.h) that hides later keys alone.
#pragma once

#include <cstdint>

namespace sluice::ops {

// Tokens, more than any sequence has: with this AttentionInput::window a causal query sees all keys up to its
// own position. Window 0 shows a block's every key to every query.
inline constexpr int64_t kFarWindow = int64_t{1} << 40;

}  // namespace sluice::ops
