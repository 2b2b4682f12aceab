#include "layers/test_twin_weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "model/layer_of.h"
#include "model/lora_targets.h"

namespace sluice::layers {
namespace {

at::Tensor part_of(const model::ParameterTable& table, int64_t position, const std::vector<at::Tensor>& flats,
                   const model::Parameter& like) {
  const base::Interval own = table.program.at(position).own;
  for (auto bucket = static_cast<size_t>(own.begin); bucket < static_cast<size_t>(own.end); ++bucket) {
    for (const model::Parameter& p : table.buckets[bucket].parameters) {
      if (p.role != like.role || p.factor != like.factor || p.adapted != like.adapted) continue;
      return flats[bucket].narrow(0, p.offset, p.size()).view({p.rows, p.columns});
    }
  }
  return {};
}

// The scale of the adapter on a target matrix, with or without its own rank and alpha.
double factor_of_adapter(const model::ParameterTable& table, int64_t position, const model::Parameter& like) {
  const std::vector<model::Parameter>& own = table.program.kind_at(position).parameters();
  const auto left = std::ranges::find_if(own, [&](const model::Parameter& p) {
    return p.role == like.role && p.factor == model::Factor::kLeft && p.adapted == like.adapted;
  });
  return model::adapter_factor(table.model.lora(), *left);
}

// The sum of adapters for a matrix of experts, expert by expert; 0 without adapters.
at::Tensor of_experts_adapters(const model::ParameterTable& table, int64_t position,
                               const std::vector<at::Tensor>& flats, const model::Parameter& matrix) {
  const model::Parameter left{.role = matrix.role, .factor = model::Factor::kLeft};
  const model::Parameter right{.role = matrix.role, .factor = model::Factor::kRight};
  const at::Tensor left_AK = part_of(table, position, flats, left);
  if (!left_AK.defined()) return at::zeros({1, 1}, flats.front().options());
  const auto by_expert = [&](const at::Tensor& all) { return all.view({matrix.experts, -1, all.size(1)}); };
  const at::Tensor sum_EAB =
      at::einsum("ear,erb->eab", {by_expert(left_AK), by_expert(part_of(table, position, flats, right))});
  return sum_EAB.reshape({matrix.rows, matrix.columns}) * factor_of_adapter(table, position, left);
}

// Factors of a product's results act as factors of the matrix's rows.
void scale_groups(const model::Layer* layer, std::string_view role, std::vector<at::Tensor>& groups) {
  if (layer == nullptr) return;
  for (const model::Part& part : layer->parts) {
    for (const model::GroupFactors& factors : part.factors) {
      if (factors.role != role) continue;
      for (size_t group = 0; group < groups.size(); ++group)
        groups[group] = groups[group] * factors.of_groups[group];
    }
  }
}

// DoRA: each output's weights with another length. Norms are constants.
at::Tensor with_magnitudes(const at::Tensor& v_AB, const at::Tensor& magnitude, bool outputs_last) {
  if (!magnitude.defined()) return v_AB;
  const at::Tensor norm = v_AB.detach().square().sum(outputs_last ? 0 : 1, /*keepdim=*/true).sqrt();
  return v_AB / norm * (outputs_last ? magnitude.view({1, -1}) : magnitude.view({-1, 1}));
}

}  // namespace

at::Tensor stored(const model::ParameterTable& table, int64_t position, const std::vector<at::Tensor>& flats,
                  std::string_view role) {
  const auto& parameters = table.program.kind_at(position).parameters();
  const auto found = std::ranges::find(parameters, role, &model::Parameter::role);
  if (found == parameters.end()) return {};
  const at::Tensor base = part_of(table, position, flats, *found);
  if (found->experts > 0)
    return base.defined() ? base + of_experts_adapters(table, position, flats, *found) : base;
  std::vector<at::Tensor> groups;
  int64_t row = 0;
  for (size_t group = 0; group < found->groups.size(); ++group) {
    const int64_t rows = found->groups[group].rows;
    groups.push_back(base.narrow(0, row, rows));
    row += rows;
    const model::Parameter left{
        .role = role, .factor = model::Factor::kLeft, .adapted = static_cast<int>(group)};
    model::Parameter right = left;
    right.factor = model::Factor::kRight;
    const at::Tensor left_NK = part_of(table, position, flats, left);
    if (!left_NK.defined()) continue;
    const at::Tensor product = at::matmul(left_NK, part_of(table, position, flats, right));
    groups.back() = groups.back() + product * factor_of_adapter(table, position, left);
    model::Parameter magnitude = left;
    magnitude.factor = model::Factor::kMagnitude;
    groups.back() =
        with_magnitudes(groups.back(), part_of(table, position, flats, magnitude), found->outputs_last);
  }
  scale_groups(table.program.kind_at(position).layer(), role, groups);
  return at::cat(groups);
}

}  // namespace sluice::layers
