#include "model/kind.h"

#include <algorithm>
#include <utility>

namespace sluice::model {

Parameter matrix(std::string_view role, std::vector<std::string> tensors, int64_t columns,
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
  Parameter parameter =
      matrix(role, {std::string(tensor)}, 1, {{width, 0}}, offset == 0 ? Start::kOne : Start::kZero);
  parameter.replicated = true;
  return parameter;
}

std::string_view module_of(std::string_view tensor) {
  if (const size_t dot = tensor.rfind('.'); dot != tensor.npos) tensor = tensor.substr(0, dot);
  return tensor.substr(tensor.rfind('.') + 1);
}

// Files have a as [rank, in] and b as [out, rank], whichever of the two a stored [in, out] makes the left
// one.
std::vector<Parameter> adapters_of(const Parameter& of, const Lora& lora) {
  std::vector<Parameter> adapters;
  if (lora.rank == 0 || !of.adapts || of.one_dimensional()) return adapters;
  for (size_t i = 0; i < of.tensors.size(); ++i) {
    const std::string& tensor = of.tensors[i];
    if (std::ranges::find(lora.targets, module_of(tensor)) == lora.targets.end()) continue;
    const std::string module = tensor.substr(0, tensor.rfind('.'));
    const auto factor = [&](Factor which, int64_t columns, std::vector<RowGroup> groups) {
      const bool a = (which == Factor::kLeft) == of.transposed;
      Parameter made = matrix(of.role, {module + (a ? ".lora_A.weight" : ".lora_B.weight")}, columns,
                              std::move(groups), a ? Start::kAdapter : Start::kZero);
      made.factor = which;
      made.adapted = static_cast<int>(i);
      made.transposed = of.transposed;
      made.replicated = which == Factor::kRight;
      adapters.push_back(std::move(made));
    };
    factor(Factor::kLeft, lora.rank, of.tensors.size() == 1 ? of.groups : std::vector{of.groups[i]});
    factor(Factor::kRight, of.columns, {{lora.rank, 0}});
  }
  return adapters;
}

std::vector<Parameter> frozen_by(uint64_t bits, std::vector<Parameter> parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].trained = (bits >> i & 1) == 0;
  return parameters;
}

int64_t norm_bytes_of(const Shape& shape, int64_t element_bytes) {
  const int64_t scale = shape.norm_place == NormPlace::kBehind ? 0 : std::max<int64_t>(4, element_bytes);
  return scale + (shape.norm_place == NormPlace::kBefore ? 0 : shape.hidden * element_bytes);
}

TokenWork& TokenWork::operator+=(const TokenWork& other) {
  products += other.products;
  trained += other.trained;
  recomputed += other.recomputed;
  visited += other.visited;
  attention += other.attention;
  window = std::max(window, other.window);
  scanned += other.scanned;
  elements += other.elements;
  collectives += other.collectives;
  return *this;
}

CacheBytes& CacheBytes::operator+=(const CacheBytes& other) {
  token += other.token;
  text += other.text;
  return *this;
}

RowBytes& RowBytes::operator+=(const RowBytes& other) {
  shared += other.shared;
  own += other.own;
  return *this;
}

}  // namespace sluice::model
