#include "model/kind.h"

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

Parameter norm(std::string_view role, std::string_view tensor, int64_t width) {
  Parameter parameter = matrix(role, {tensor}, 1, {{width, 0}}, Start::kOne);
  parameter.replicated = true;
  return parameter;
}

TokenWork& TokenWork::operator+=(const TokenWork& other) {
  products += other.products;
  recomputed += other.recomputed;
  attention += other.attention;
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
