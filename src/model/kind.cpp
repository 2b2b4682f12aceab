#include "model/kind.h"

#include <algorithm>
#include <utility>

namespace sluice::model {

Parameter matrix(std::string_view role, std::vector<std::string_view> tensors, int64_t columns,
                 std::vector<RowGroup> groups, Start start) {
  Parameter parameter{.role = role,
                      .tensors = std::move(tensors),
                      .columns = columns,
                      .groups = std::move(groups),
                      .start = start};
  for (const RowGroup& group : parameter.groups) parameter.rows += group.rows;
  return parameter;
}

Parameter norm(std::string_view role, std::string_view tensor, int64_t width, double offset) {
  Parameter parameter = matrix(role, {tensor}, 1, {{width, 0}}, offset == 0 ? Start::kOne : Start::kZero);
  parameter.replicated = true;
  return parameter;
}

int64_t norm_bytes_of(const Shape& shape, int64_t element_bytes) {
  const int64_t scale = shape.norm_place == NormPlace::kBehind ? 0 : std::max<int64_t>(4, element_bytes);
  return scale + (shape.norm_place == NormPlace::kBefore ? 0 : shape.hidden * element_bytes);
}

TokenWork& TokenWork::operator+=(const TokenWork& other) {
  products += other.products;
  recomputed += other.recomputed;
  attention += other.attention;
  window = std::max(window, other.window);
  elements += other.elements;
  collectives += other.collectives;
  return *this;
}

RowBytes& RowBytes::operator+=(const RowBytes& other) {
  shared += other.shared;
  own += other.own;
  return *this;
}

}  // namespace sluice::model
