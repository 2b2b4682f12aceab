// Makes parts of layers with each mixer's weights, under LLaMA's names, without norms.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/layer.h"

namespace sluice::model {

struct Outline;

Weight matrix(std::string_view role, std::vector<std::string> tensors, int64_t columns,
              std::vector<RowGroup> groups, Use use);
Weight vector(std::string_view role, std::vector<std::string> tensors, std::vector<RowGroup> groups,
              Start start);
// A product whose result is added to the residual rows.
Weight out(std::string_view role, std::string_view tensor, int64_t hidden, RowGroup group);
struct NormRoles {
  std::string_view weight, bias;
};
// A norm that starts as the identity: its weights start at 1 − `offset`, which is 0 or 1. `tensor` is the
// name of its weights and ends in "weight"; the name of the biases ends in "bias".
Norm norm(const NormRoles& roles, const std::string& tensor, int64_t width, const NormStyle& style,
          double eps, double offset);
void forbid_adapters(Part& part);
// A part's own weights in parameter order, without those of a norm shared with another part.
template <typename SomePart>
auto own_weights(SomePart& part) {
  std::vector<decltype(&part.weights)> all;
  if (part.before && (!part.beside || part.own_norm)) all.push_back(&part.before->weights);
  if (!part.before && part.behind) all.push_back(&part.behind->weights);
  all.push_back(&part.weights);
  if (part.before && part.behind) all.push_back(&part.behind->weights);
  return all;
}

// A layer's weights behind those of its parts.
template <typename SomeLayer>
auto joint_weights(SomeLayer& layer) {
  std::vector<decltype(layer.parts.front().weights.data())> all;
  if (layer.joint) {
    for (auto& weight : layer.joint->weights) all.push_back(&weight);
  }
  if (layer.scalar) all.push_back(&*layer.scalar);
  return all;
}

// An MTP layer's weights in parameter order.
template <typename SomeMtpLayer>
auto weights_of_mtp(SomeMtpLayer& mtp) {
  std::vector<decltype(&mtp.projection)> all;
  const auto add = [&](auto& weights) {
    for (auto& weight : weights) all.push_back(&weight);
  };
  add(mtp.token_norm.weights);
  add(mtp.row_norm.weights);
  all.push_back(&mtp.projection);
  for (auto& part : mtp.layer.parts) {
    for (auto* const weights : own_weights(part)) add(*weights);
  }
  for (auto* const weight : joint_weights(mtp.layer)) all.push_back(weight);
  add(mtp.norm.weights);
  return all;
}

// A head's own weights in parameter order, its MTP layer's last.
template <typename SomeHead>
auto own_weights_of(SomeHead& head) {
  std::vector<decltype(&head.output)> all;
  const auto add = [&](auto& weights) {
    for (auto& weight : weights) all.push_back(&weight);
  };
  add(head.norm.weights);
  if (head.neck) {
    all.push_back(&head.neck->dense);
    if (head.neck->bias) all.push_back(&*head.neck->bias);
    if (head.neck->norm) add(head.neck->norm->weights);
  }
  if (!head.tied && head.output.rows() > 0) all.push_back(&head.output);
  if (head.bias) all.push_back(&*head.bias);
  if (head.mtp) {
    for (auto* const weight : weights_of_mtp(*head.mtp)) all.push_back(weight);
  }
  return all;
}

struct Biases {
  bool in = false, out = false;
};
Part attention_part(const Attention& own, int64_t hidden, const Biases& biases);
// `biases`: counted models have them.
Part latent_attention_part(const LatentAttention& own, int64_t hidden, const Biases& biases);
// Whether the rows of a key head and its value heads lie together, in files and in the bucket.
enum class RowOrder : uint8_t { kByKind, kByKeyHead };
Part delta_rule_part(const DeltaRule& own, int64_t hidden, RowOrder order);
enum class ConvolutionBias : uint8_t { kNone, kOwn };
Part mamba2_part(const Mamba2& own, int64_t hidden, ConvolutionBias bias);
Part gla_part(const Gla& own, int64_t hidden);
Part kda_part(const Kda& own, int64_t hidden);
// `bias`: on the convolution and on both products.
Part short_convolution_part(const ShortConvolution& own, int64_t hidden, ConvolutionBias bias);
Part mlp_part(const Mlp& own, int64_t hidden, const Biases& biases);
Part experts_part(const RoutedExperts& own, int64_t hidden);
Part layer_input_part(const LayerInput& own, int64_t hidden);
// `eps`: for the norm of one layer's columns.
LayerEmbedding layer_embedding(int64_t layers, int64_t width, int64_t hidden, int64_t vocab, double eps);
// The MTP layer of an outline that has one, under its family's names.
MtpLayer mtp_layer(const Outline& outline);
// Makes the experts of a part remember their loads.
void add_loads(RoutedExperts& own, Part& part);

}  // namespace sluice::model
