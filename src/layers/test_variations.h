// Variations of layers that families have, for tests. Header-only.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "model/layer_of.h"
#include "model/make_parts.h"
#include "model/outline.h"
#include "model/roles.h"
#include "model/test_families.h"

namespace sluice::layers {

struct Variation {
  std::string name;
  void (*apply)(model::Outline&);
};
inline void PrintTo(const Variation& variation, std::ostream* stream) { *stream << variation.name; }

inline const std::vector<Variation>& norm_and_mlp_variations() {
  using model::NormKind;
  using model::Outline;
  static const std::vector<Variation> all = {
      {"LayerNormsWithBiases",
       [](Outline& s) { s.norm = {.kind = model::NormKind::kLayer, .biases = true}; }},
      {"LayerNormsAroundWithoutBiases",
       [](Outline& s) {
         s.norm.kind = NormKind::kLayer;
         s.norm_place = model::NormPlace::kAround;
       }},
      {"NormsWithoutWeights", [](Outline& s) { s.norm.weights = false; }},
      {"LayerNormsWithoutWeightsBehind",
       [](Outline& s) {
         s.norm = {NormKind::kLayer, false, false};
         s.norm_place = model::NormPlace::kBehind;
       }},
      {"MlpOfSquaredReluWithoutAGate",
       [](Outline& s) {
         s.mlp_gate = false;
         s.activation = model::Activation::kSquaredRelu;
       }},
      {"MlpOfGeluWithoutAGateWithBiases",
       [](Outline& s) {
         s.mlp_gate = false;
         s.mlp_bias = true;
         s.activation = model::Activation::kGeluTanh;
       }},
      {"LayerNormsOfSumsAndLearntPositions",
       [](Outline& s) {
         s.norm = {.kind = NormKind::kLayer, .biases = true};
         s.norm_place = model::NormPlace::kOfSum;
         s.embedding_norm = true;
         s.positions = 64;
         s.mlp_gate = false;
         s.mlp_bias = s.qkv_bias = s.out_bias = true;
         s.activation = model::Activation::kGelu;
       }},
      {"MlpGatedByGelu", [](Outline& s) { s.activation = model::Activation::kGelu; }},
      {"MlpOfXielu",
       [](Outline& s) {
         s.mlp_gate = false;
         s.activation = model::Activation::kXielu;
       }},
      {"MlpOfSiluWithoutAGate", [](Outline& s) { s.mlp_gate = false; }},
      {"MlpGatedBySquaredReluWithBiases",
       [](Outline& s) {
         s.mlp_bias = true;
         s.activation = model::Activation::kSquaredRelu;
       }},
  };
  return all;
}

inline void turn(model::Outline& s, model::Turning turning) {
  model::change_attention(s, [=](model::Attention& own) { own.turning = turning; });
}
inline void norm_behind_rotation(model::Outline& s) {
  model::change_attention(s, [](model::Attention& own) { own.head_norm_style.behind_rotation = true; });
}
inline void put_beside(model::Outline& s) {
  model::change_layers(
      s, [](const model::BlockType&, model::Layer& layer) { model::put_beside(layer, layer.parts[1]); });
}
inline void multiply_results(model::Outline& s) {
  model::change_layers(s, [](const model::BlockType&, model::Layer& layer) {
    layer.scalar = model::vector(model::roles::kLayerScalar, {"layer_scalar"}, {{1, 0}}, model::Start::kOne);
    layer.scalar->fixed = true;
  });
}
// Experts with a router's own norm beside an MLP, in the layers that have experts.
inline void put_experts_beside_mlp(model::Outline& s) {
  model::change_layers(s, [&](const model::BlockType& type, model::Layer& layer) {
    if (!type.experts) return;
    const model::Gate gate{.activation = s.activation};
    model::replace_part(s, layer.parts[1], model::mlp_part({s.ffn_hidden, gate}, s.hidden, {}));
    model::put_beside_mlp(
        s, layer,
        model::experts_part(
            {.experts = s.experts, .gate = gate, .router_norm_eps = s.norm_eps, .expert_scales = true},
            s.hidden));
  });
}
// Recurrent layers become convolutions of 12 channels that are `rows` rows wide.
inline void convolve(model::Outline& s, int64_t rows, model::ConvolutionBias bias) {
  s.recurrent = {.recurrence = model::Recurrence::kGla,
                 .key_heads = 12,
                 .value_heads = 12,
                 .value_width = 1,
                 .convolution = rows,
                 .decay_rank = 1};
  const model::StateHeads channels{.key_heads = 12, .value_heads = 12, .value_width = 1, .convolution = rows};
  model::change_layers(s, [&](const model::BlockType& type, model::Layer& layer) {
    if (type.recurrent)
      model::replace_part(s, layer.parts.front(), model::short_convolution_part({channels}, s.hidden, bias));
  });
}

// Variations of head rotation, of head norms, and of query growth.
inline const std::vector<Variation>& position_variations() {
  using model::Outline;
  static const std::vector<Variation> all = {
      {"NeighboursTurn", [](Outline& s) { turn(s, model::Turning::kNeighbours); }},
      {"SomeNeighboursTurnOfNormedHeads",
       [](Outline& s) {
         s.rotated = 4;
         s.qk_norm = model::QkNorm::kEachHead;
         s.qkv_bias = true;
         s.norm_place = model::NormPlace::kAround;
         turn(s, model::Turning::kNeighbours);
       }},
      {"HalvesTurnBackwards", [](Outline& s) { turn(s, model::Turning::kHalvesBackwards); }},
      {"HeadsNormedBehindTheirRotation",
       [](Outline& s) {
         s.qk_norm = model::QkNorm::kEachHead;
         norm_behind_rotation(s);
       }},
      {"HeadsNormedWithoutWeightsAndNormedEmbeddings",
       [](Outline& s) {
         s.qk_norm = model::QkNorm::kEachHead;
         s.embedding_norm = true;
         s.norm.weights = false;
         s.embedding_scale = 3.0;
         model::change_attention(s, [](model::Attention& own) {
           own.head_norm_style = {.behind_rotation = true, .weights = false};
         });
       }},
      {"QueriesGrow",
       [](Outline& s) {
         s.qk_norm = model::QkNorm::kEachHead;
         model::change_attention(s,
                                 [](model::Attention& own) { own.growth = {.beta = 0.7, .positions = 4}; });
       }},
      {"LatentQueriesGrow",
       [](Outline& s) {
         s.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
         s.kv_heads = s.heads;
         s.head_dim = 8;
         s.rotated = 2;
         model::change_layers(s, [](const model::BlockType&, model::Layer& layer) {
           std::get<model::LatentAttention>(layer.parts.front().mixer).growth = {.beta = 0.7, .positions = 3};
         });
       }},
      {"LatentKeysOfWholeQueriesThatOneLayerTurns",
       [](Outline& s) {
         s.latent = {.kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
         s.kv_heads = s.heads;
         s.head_dim = 8;
         s.rotated = 2;
         s.block_types = {{.rotates = false}, {}};
       }},
  };
  return all;
}

// Parts beside others, factors of products, and gates that stand apart.
inline const std::vector<Variation>& part_variations() {
  using model::Outline;
  static const std::vector<Variation> all = {
      {"AttentionLooksBothWays", [](Outline& s) { s.causal = false; }},
      {"AttentionLooksBothWaysThroughAWindow",
       [](Outline& s) {
         s.causal = false;
         s.window = 3;
         s.block_types = {{.windowed = true}, {}};
       }},
      {"WindowsOfTwoWidths", [](Outline& s) { s = model::two_windows_outline(s); }},
      {"GatesApartFromQueries",
       [](Outline& s) {
         s.gated = true;
         s.qk_norm = model::QkNorm::kEachHead;
         s.norm_place = model::NormPlace::kAround;
         model::change_attention(s, [](model::Attention& own) { own.gates_apart = true; });
       }},
      {"GatesOfWholeHeads",
       [](Outline& s) {
         s.gated = s.qkv_bias = true;
         model::change_attention(s,
                                 [](model::Attention& own) { own.gates_apart = own.gates_of_heads = true; });
       }},
      {"MlpBesideAttention",
       [](Outline& s) {
         s.norm.kind = model::NormKind::kLayer;
         s.residual_scale = 0.4;
         turn(s, model::Turning::kNeighbours);
         put_beside(s);
       }},
      {"ProductsHaveFactors",
       [](Outline& s) {
         model::change_layers(s, [](const model::BlockType&, model::Layer& layer) {
           layer.parts[0].factors = {{"qkv", {1.5, 0.5, 2}}};
           layer.parts[1].factors = {{"gate_up", {0.7, 1}}};
         });
       }},
      {"ExpertsBesideAttentionOfWhichOneLayerHasNone",
       [](Outline& s) {
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.block_types = {{}, {.experts = true}};
         put_beside(s);
       }},
  };
  return all;
}

// Norms of values, keys that are also values, experts beside an MLP, and a scalar that multiplies a layer's
// result.
inline const std::vector<Variation>& value_variations() {
  using model::Outline;
  static const std::vector<Variation> all = {
      {"NormedValuesAndALayersNumber",
       [](Outline& s) {
         s.qk_norm = model::QkNorm::kEachHead;
         s.norm_place = model::NormPlace::kAround;
         s.rope = {.theta = 100.0, .scaling = model::RopeScaling::kProportional, .proportion = 0.7};
         model::change_attention(s, [](model::Attention& own) { own.normed_values = true; });
         multiply_results(s);
       }},
      {"KeysAreValuesWithBiases",
       [](Outline& s) {
         s.qk_norm = model::QkNorm::kEachHead;
         s.qkv_bias = true;
         model::change_attention(
             s, [](model::Attention& own) { own.normed_values = own.keys_are_values = true; });
       }},
      {"KeysAreValuesWithoutNorms",
       [](Outline& s) {
         model::change_attention(s, [](model::Attention& own) { own.keys_are_values = true; });
       }},
      {"ExpertsBesideAnMlp",
       [](Outline& s) {
         s.experts = {.count = 5, .per_token = 2, .hidden = 13, .normalised = true};
         s.norm_place = model::NormPlace::kAround;
         s.activation = model::Activation::kGeluTanh;
         s.block_types = {{.experts = true}, {}};
         put_experts_beside_mlp(s);
         multiply_results(s);
       }},
  };
  return all;
}

// Experts without gates or with norms behind them; layers that mix by a convolution, or by a recurrence
// without norm.
inline const std::vector<Variation>& layer_variations() {
  using model::Outline;
  static const std::vector<Variation> all = {
      {"ExpertsWithoutGatesBesideASharedOne",
       [](Outline& s) {
         s.experts = {.count = 5, .per_token = 2, .hidden = 13, .normalised = true, .shared_hidden = 9};
         s.experts.sigmoid = s.experts.corrected = true;
         s.mlp_gate = false;
         s.activation = model::Activation::kSquaredRelu;
         model::change_layers(s, [](const model::BlockType&, model::Layer& layer) {
           std::get<model::RoutedExperts>(layer.parts[1].mixer).floor = 0.25;
         });
       }},
      {"ExpertsGatedBySquaredReluWithNormsAround",
       [](Outline& s) {
         s.experts = {.count = 4, .per_token = 2, .hidden = 6, .shared_hidden = 9};
         s.activation = model::Activation::kSquaredRelu;
         s.norm_place = model::NormPlace::kAround;
         s.block_types = {{.experts = true}, {}};
       }},
      {"ShortConvolutions",
       [](Outline& s) {
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
         convolve(s, 3, model::ConvolutionBias::kNone);
       }},
      {"ShortConvolutionsWithBiasesBesideExperts",
       [](Outline& s) {
         s.experts = {.count = 5, .per_token = 2, .hidden = 13};
         s.block_types = {{.experts = true, .recurrent = true}, {}};
         convolve(s, 5, model::ConvolutionBias::kOwn);
       }},
      {"Mamba2WithoutANorm",
       [](Outline& s) {
         s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                        .key_heads = 12,
                        .value_heads = 24,
                        .key_width = 3,
                        .value_width = 2,
                        .convolution = 4};
         s.block_types = {{.recurrent = true}, {.recurrent = true}};
         model::change_layers(s, [&](const model::BlockType&, model::Layer& layer) {
           model::Mamba2 own = std::get<model::Mamba2>(layer.parts.front().mixer);
           own.normed = false;
           model::replace_part(s, layer.parts.front(),
                               model::mamba2_part(own, s.hidden, model::ConvolutionBias::kNone));
         });
       }},
  };
  return all;
}

}  // namespace sluice::layers
