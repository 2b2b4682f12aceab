#include "model/make_parts.h"

#include <utility>

namespace sluice::model {

Weight matrix(std::string_view role, std::vector<std::string> tensors, int64_t columns,
              std::vector<RowGroup> groups, Use use) {
  return {.role = role,
          .tensors = std::move(tensors),
          .groups = std::move(groups),
          .columns = columns,
          .use = use};
}

Weight vector(std::string_view role, std::vector<std::string> tensors, std::vector<RowGroup> groups,
              Start start) {
  Weight weight = matrix(role, std::move(tensors), 1, std::move(groups), Use::kVector);
  weight.start = start;
  return weight;
}

Weight out(std::string_view role, std::string_view tensor, int64_t hidden, RowGroup group) {
  Weight weight = matrix(role, {std::string(tensor)}, hidden, {std::move(group)}, Use::kOut);
  weight.start = Start::kResidual;
  weight.form = FileForm::kTransposed;
  return weight;
}

Norm norm(const NormRoles& roles, const std::string& tensor, int64_t width, const NormStyle& style,
          double eps, double offset) {
  Norm made{.kind = style.kind, .eps = eps, .offset = offset, .weights = {}};
  const auto add = [&](std::string_view role, std::string name, Start start) {
    made.weights.push_back(vector(role, {std::move(name)}, {{width, 0}}, start));
    made.weights.back().use = Use::kNorm;
  };
  if (style.weights) add(roles.weight, tensor, offset == 0 ? Start::kOne : Start::kZero);
  if (style.biases) add(roles.bias, tensor.substr(0, tensor.rfind('.')) + ".bias", Start::kZero);
  return made;
}

void forbid_adapters(Part& part) {
  for (Weight& weight : part.weights) weight.adapts = false;
}

}  // namespace sluice::model
