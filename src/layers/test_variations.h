// Variations of norms and MLPs that families have, for tests. Header-only.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "model/shape.h"

namespace sluice::layers {

struct Variation {
  std::string name;
  void (*apply)(model::Shape&);
};
inline void PrintTo(const Variation& variation, std::ostream* stream) { *stream << variation.name; }

inline const std::vector<Variation>& norm_and_mlp_variations() {
  using model::NormKind;
  using model::Shape;
  static const std::vector<Variation> all = {
      {"LayerNormsWithBiases", [](Shape& s) { s.norm = {.kind = model::NormKind::kLayer, .biases = true}; }},
      {"LayerNormsAroundWithoutBiases",
       [](Shape& s) {
         s.norm.kind = NormKind::kLayer;
         s.norm_place = model::NormPlace::kAround;
       }},
      {"NormsWithoutWeights", [](Shape& s) { s.norm.weights = false; }},
      {"LayerNormsWithoutWeightsBehind",
       [](Shape& s) {
         s.norm = {NormKind::kLayer, false, false};
         s.norm_place = model::NormPlace::kBehind;
       }},
      {"MlpOfSquaredReluWithoutAGate",
       [](Shape& s) {
         s.mlp_gate = false;
         s.activation = model::Activation::kSquaredRelu;
       }},
      {"MlpOfGeluWithoutAGateWithBiases",
       [](Shape& s) {
         s.mlp_gate = false;
         s.mlp_bias = true;
         s.activation = model::Activation::kGeluTanh;
       }},
      {"MlpOfSiluWithoutAGate", [](Shape& s) { s.mlp_gate = false; }},
      {"MlpGatedBySquaredReluWithBiases",
       [](Shape& s) {
         s.mlp_bias = true;
         s.activation = model::Activation::kSquaredRelu;
       }},
  };
  return all;
}

}  // namespace sluice::layers
