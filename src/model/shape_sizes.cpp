#include "model/shape_sizes.h"

#include "base/text.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

int64_t none(const Shape&) { return 0; }
int64_t as_many_as_heads(const Shape& shape) { return shape.heads; }
int64_t even_head(const Shape& shape) { return shape.heads > 0 ? shape.hidden / shape.heads : 0; }

constexpr ShapeSize kSizes[] = {
    {"layers", "transformer blocks", &Shape::layers, kShapeRanges.layers, none},
    {"hidden", "width of a token's row", &Shape::hidden, kShapeRanges.hidden, none},
    {"heads", "of queries", &Shape::heads, kShapeRanges.heads, none},
    {"kv_heads", "of keys and values; left out: heads", &Shape::kv_heads, kShapeRanges.heads,
     as_many_as_heads},
    {"head_dim", "left out: hidden / heads", &Shape::head_dim, kShapeRanges.head_dim, even_head},
    {"ffn_hidden", "width of the MLP", &Shape::ffn_hidden, kShapeRanges.ffn_hidden, none},
    {"vocab", "rows of the embedding", &Shape::vocab, kShapeRanges.vocab, none}};

}  // namespace

std::span<const ShapeSize> shape_sizes() { return kSizes; }

std::string layers_text(const Shape& shape) {
  return base::text(shape.layers, " layers, hidden ", shape.hidden);
}

}  // namespace sluice::model
