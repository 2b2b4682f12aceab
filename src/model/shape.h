// The shape of a model: everything that determines parameters, arithmetic and memory. Layers are made from it
// (model/layer_of.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/weight.h"

namespace sluice::model {

struct Layer;  // model/layer.h

// How rotary frequencies are stretched for longer contexts. The names are Hugging Face's `rope_type`s.
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                     // llama3
  double high_freq_factor = 4.0;                    // llama3
  int64_t original_max_position_embeddings = 8192;  // llama3, yarn, longrope
  double beta_fast = 32.0;                          // yarn
  double beta_slow = 1.0;                           // yarn
  bool truncate = true;                             // yarn: the ramp begins and ends at whole pairs
  double mscale_all_dim = 0.0;                      // yarn, latent attention: scales scores; 0: unchanged
  double attention_factor = 0.0;                    // yarn, longrope; 0 with yarn: 0.1·ln(factor) + 1
  double proportion = 1.0;                          // proportional: fraction of pairs that rotate, the first
  // longrope, by pair: divisors of frequencies, up to the original context and beyond it.
  std::vector<double> short_factors, long_factors;
  bool operator==(const Rope&) const = default;
};

// Norms of queries and keys before rotation: each head on its own, or all heads as one row.
enum class QkNorm : uint8_t { kNone, kEachHead, kAllHeads };
// Place of a part's norm: x + part(norm(x)), x + norm(part(x)), x + norm(part(norm(x))), or norm(x +
// part(x)).
enum class NormPlace : uint8_t { kBefore, kBehind, kAround, kOfSum };
// RMSNorm; LayerNorm (Ba, Kiros and Hinton, Layer Normalization, 2016), which subtracts the mean first; or
// none: rows stay unchanged.
enum class NormKind : uint8_t { kRms, kLayer, kNone };
// Norms of rows: those of parts and the final one. Head norms are RMSNorms with weights.
struct NormStyle {
  NormKind kind = NormKind::kRms;
  bool weights = true;
  bool biases = false;  // with weights, LayerNorm only
  bool operator==(const NormStyle&) const = default;
};
// The activation of an MLP, applied to its gate, or to up if there is no gate. SiLU; GELU, exact or with
// tanh's approximation; SiLU with the shape's slope and limits, and up + 1 (ops/clamped_swiglu.h); squared
// ReLU, max(x, 0)² (So et al., Primer, 2021); tanh; xIELU with two trained numbers, only without a gate
// (ops/xielu.h).
enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSilu, kSquaredRelu, kGelu, kTanh, kXielu };

// A layer that a family's reader makes itself, because BlockType and Shape cannot describe it; usually none.
// Compared by value.
struct OwnLayer {
  std::shared_ptr<const Layer> value;
  bool operator==(const OwnLayer& other) const;
};

// Properties in which the blocks of one model differ.
struct BlockType {
  bool rotates = true;     // queries and keys have rotary positions
  bool windowed = false;   // attention sees the shape's window, not all earlier tokens
  bool experts = false;    // experts instead of an MLP
  bool recurrent = false;  // a recurrence instead of attention, always normed before
  uint64_t frozen = 0;     // bit i: parameter i of the kind, in Kind::parameters()' order, is not trained
  OwnLayer own;
  bool operator==(const BlockType&) const = default;
};

// Attention whose queries, keys and values are made from narrow rows, which tokens keep in the cache
// (DeepSeek's MLA).
struct Latent {
  int64_t q_rank = 0;     // 0: queries are made from the rows themselves
  int64_t kv_rank = 0;    // 0: attention is not latent
  int64_t unrotated = 0;  // dimensions of a head's queries and keys without rotation
  int64_t rotated = 0;    // dimensions with rotation; all heads share one rotated key
  int64_t values = 0;     // dimensions of a head's values
  bool operator==(const Latent&) const = default;
};

// Experts instead of a layer's MLP, gated like that MLP. A token visits the experts with the highest scores,
// a softmax over all experts, and weighs their outputs by these scores. DeepSeek-V3's rule (2024, section
// 2.1.2) uses sigmoids as scores and adds a correction to each expert's score for the choice only. It chooses
// within groups of neighbouring experts: those whose two best experts have the highest sum.
struct Experts {
  int64_t count = 0;  // 0: none
  int64_t per_token = 0;
  int64_t hidden = 0;            // inner width of one expert
  bool normalised = false;       // a token's weights are divided by their sum
  int64_t shared_hidden = 0;     // inner width of the shared expert, which every token visits; 0: none
  bool shared_gate = false;      // a factor on the shared expert's output, by token
  bool biases = false;           // for router and experts
  bool sigmoid = false;          // scores are sigmoids
  bool corrected = false;        // experts have corrections, added to scores for the choice only
  bool remembers_loads = false;  // visits of each expert in the last step are kept for balancing (tuning.h)
  int64_t groups = 1;            // groups of neighbouring experts
  int64_t groups_chosen = 1;     // groups chosen for a token
  double factor = 1.0;           // factor on a token's weights
  bool operator==(const Experts&) const = default;
};

// Recurrences of ops/recurrence.h: Yang et al., Gated Delta Networks, 2024; Dao and Gu, Mamba-2, 2024; Yang
// et al., Gated Linear Attention, 2023; Kimi Team, Kimi Linear, 2025.
enum class Recurrence : uint8_t { kGatedDelta, kMamba2, kGla, kKda };

// A recurrence instead of a layer's attention. Neighbouring value heads share a key head. For Mamba-2 value
// heads are its heads, key heads the groups of B (keys) and C (queries), and the key width is its state size.
// A norm spans all heads of a group.
struct Recurrent {
  Recurrence recurrence = Recurrence::kGatedDelta;
  int64_t key_heads = 0;  // 0: no recurrent layers
  int64_t value_heads = 0;
  int64_t key_width = 0;
  int64_t value_width = 0;
  // Rows that the convolution of queries, keys and values sees, the current one included; 1: no convolution.
  int64_t convolution = 0;
  double rate_scale = 1.0;  // upper bound of rates; above 1 states may flip sign
  int64_t decay_rank = 0;   // GLA, KDA: decays are made from rows of this width; KDA: gates, too
  double norm_eps = 1e-5;   // for the norm of each head's output
  // Whether the rows of a key head and its value heads lie together, head by head: queries, keys, values and
  // gates; and rates and decays.
  bool by_key_head = false;
  bool convolution_bias = false;
  int64_t values() const { return value_heads * value_width; }
  // A token's numbers for each value head: a rate and a decay, or one step for both. GLA: a decay of each key
  // channel. KDA: a rate as well.
  int64_t numbers() const {
    switch (recurrence) {
      case Recurrence::kGatedDelta: return 2;
      case Recurrence::kMamba2: return 1;
      case Recurrence::kGla: return key_width;
      case Recurrence::kKda: break;
    }
    return key_width + 1;
  }
  int64_t qkv_width() const { return 2 * key_heads * key_width + values(); }
  bool operator==(const Recurrent&) const = default;
};

// Adapters of low rank (Hu et al., LoRA, 2021): a named matrix w becomes w + alpha ÷ rank · b·a. Parameters b
// and a have `rank` columns and rows. b starts at zero.
struct Lora {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  std::vector<std::string> targets;  // Hugging Face's module names: "q_proj"
  double factor() const { return alpha / static_cast<double>(rank); }
  bool operator==(const Lora&) const = default;
};

// The language model's config.json from which a shape was read; null if there was none. It repeats the
// shape's values, so it takes no part in comparisons.
struct ConfigSource {
  std::shared_ptr<const base::Json> json;
  bool operator==(const ConfigSource&) const { return true; }
};

// The end of a model: logits (kVocabulary), numbers for a sequence (classes, a reward) or for every token
// (classes, values), by a matrix of their own, or the normed rows themselves (kRows: embeddings).
enum class HeadKind : uint8_t { kVocabulary, kSequence, kTokens, kRows };
// The rows that represent a sequence (kSequence, kRows): the last token's, the first one's (CLS), or the mean
// of all.
enum class Pooling : uint8_t { kLast, kCls, kMean };
// Layers between the pooling and a head's matrix, as in encoders: act(x·wᵀ + bias), with or without a norm
// behind them.
struct NeckStyle {
  Activation activation = Activation::kGelu;
  bool bias = false;
  bool normed = false;
  bool operator==(const NeckStyle&) const = default;
};
struct HeadStyle {
  HeadKind kind = HeadKind::kVocabulary;
  int64_t numbers = 0;  // for kSequence and kTokens
  bool bias = false;    // likewise
  Pooling pooling = Pooling::kLast;
  std::optional<NeckStyle> neck = {};
  bool operator==(const HeadStyle&) const = default;
};

struct Shape {
  // The family whose files it reads: the model_type of a row in model/families/registry.cpp.
  std::string family = "llama";
  // The model is planned, not computed. Its costs are counted from the members; `family` is the model_type of
  // its config.json (model/counted.h).
  bool counted = false;
  ConfigSource config;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  // hidden ÷ heads unless a config.json gives it; latent attention: width of keys
  int64_t head_dim = 0;
  int64_t ffn_hidden = 0;  // 0: blocks without experts have no MLP
  int64_t vocab = 0;
  bool tie_embeddings = false;
  double norm_eps = 1e-5;
  NormStyle norm;
  Rope rope;
  bool qkv_bias = false;  // queries, keys and values have biases
  QkNorm qk_norm = QkNorm::kNone;
  NormPlace norm_place = NormPlace::kBefore;
  double norm_offset = 0.0;  // added to the weights of norms
  Activation activation = Activation::kSilu;
  bool embedding_norm = false;  // the embedding's rows are normed like a part's
  // The number of learnt positions, whose rows are added to the embedding's; so the longest sequence; 0:
  // none. With them the row of one token kind, the same for all tokens, is added too.
  int64_t positions = 0;
  bool causal = true;       // attention sees only tokens up to its own; false: also later ones
  bool mlp_gate = true;     // MLPs: act(gate) · up instead of act(up)
  bool mlp_bias = false;    // MLPs: both products have biases
  double gate_slope = 1.0;  // slope and limit of kClampedSilu
  double gate_limit = 0.0;
  // Factors on the embedding's rows, on each part's result and on scores (0: 1/√head_dim); and the divisor of
  // logits.
  double embedding_scale = 1.0;
  double residual_scale = 1.0;
  double attention_scale = 0.0;
  double logit_divisor = 1.0;
  // Scores and logits become c·tanh(x/c); 0: unchanged.
  double score_cap = 0.0;
  double logit_cap = 0.0;
  bool out_bias = false;  // attention's output product has a bias
  bool sinks = false;     // each query head has one more score, without a value
  bool gated = false;     // each head's output is multiplied by the sigmoid of its own gate
  int64_t rotated = 0;    // rotated dimensions of a head: its first; 0: all
  // Tokens that attention in a windowed block sees, the current one included, and as many later ones if
  // attention is not causal; 0: no windowed blocks.
  int64_t window = 0;
  std::optional<Rope> window_rope;  // for windowed blocks, if different from `rope`
  // By layer. Empty: all layers rotate; all have the window and experts, if the shape has them.
  std::vector<BlockType> block_types;
  Latent latent;
  Experts experts;
  Recurrent recurrent;
  HeadStyle head;
  // Trained parts (model/tuning.h): bits like BlockType::frozen for both ends; adapters of blocks.
  uint64_t frozen_embedding = 0;
  uint64_t frozen_head = 0;
  Lora lora;
  BaseFormat base;  // format of block matrices frozen by adapters, experts' included

  BlockType block_type(int64_t layer) const {
    return block_types.empty() ? BlockType{.windowed = window > 0, .experts = experts.count > 0}
                               : block_types[static_cast<size_t>(layer)];
  }
  const Rope& rope_of(const BlockType& type) const {
    return type.windowed && window_rope ? *window_rope : rope;
  }
  // Whether the head multiplies with the embedding's matrix.
  bool ties_head() const { return tie_embeddings && head.kind == HeadKind::kVocabulary; }
  // Numbers for a row, if the head has no vocabulary.
  int64_t head_numbers() const { return head.kind == HeadKind::kRows ? hidden : head.numbers; }
  int64_t rotated_width() const { return rotated > 0 ? rotated : head_dim; }
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  bool operator==(const Shape&) const = default;
};

// InputError naming the first invalid value (layers < 1, heads not a multiple of kv_heads, …).
void validate(const Shape& shape);

// Rotary inverse frequencies of head_dim/2 pairs, and the factor on cos and sin (1 except for yarn and
// longrope), for sequences of at most `positions` tokens. longrope's depend on whether `positions` exceeds
// the original context. REQUIRES: a valid rope. Formulas as in Hugging Face transformers'
// modeling_rope_utils.
struct RopeTable {
  std::vector<double> inverse_frequencies;
  double attention_scale = 1.0;
};
RopeTable rope_table(const Rope& rope, int64_t head_dim, int64_t positions);

// Shipped shapes: llama-7b, llama-13b, llama-32b. InputError listing them for another name.
Shape named_shape(const std::string& name);

}  // namespace sluice::model
