#include "model/outline_sizes.h"

#include "model/model_ranges.h"

namespace sluice::model {
namespace {

int64_t none(const Outline&) { return 0; }
int64_t as_many_as_heads(const Outline& outline) { return outline.heads; }
int64_t even_head(const Outline& outline) { return outline.heads > 0 ? outline.hidden / outline.heads : 0; }

constexpr OutlineSize kSizes[] = {
    {"layers", "transformer blocks", &Outline::layers, kModelRanges.layers, none},
    {"hidden", "width of a token's row", &Outline::hidden, kModelRanges.hidden, none},
    {"heads", "of queries", &Outline::heads, kModelRanges.heads, none},
    {"kv_heads", "of keys and values; left out: heads", &Outline::kv_heads, kModelRanges.heads,
     as_many_as_heads},
    {"head_dim", "left out: hidden / heads", &Outline::head_dim, kModelRanges.head_dim, even_head},
    {"ffn_hidden", "width of the MLP", &Outline::ffn_hidden, kModelRanges.ffn_hidden, none},
    {"vocab", "rows of the embedding", &Outline::vocab, kModelRanges.vocab, none}};

}  // namespace

std::span<const OutlineSize> outline_sizes() { return kSizes; }

}  // namespace sluice::model
