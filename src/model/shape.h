// The shape of a decoder: everything that decides parameters, arithmetic and memory. Layers are made from it
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

// How rotary frequencies are stretched to longer contexts. The names are Hugging Face's `rope_type`s.
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
  bool truncate = true;                             // yarn: its ramp begins and ends at whole pairs
  double mscale_all_dim = 0.0;                      // yarn: of latent attention's scores; 0: they stay
  double attention_factor = 0.0;                    // yarn, longrope; 0, of yarn: 0.1·ln(factor) + 1
  double proportion = 1.0;                          // proportional: the share of pairs, the first, that turn
  // longrope, by pair: what frequencies are divided by, up to the original context and beyond it.
  std::vector<double> short_factors, long_factors;
  bool operator==(const Rope&) const = default;
};

// Norms of queries and keys before they are rotated: each head on its own, or all heads as one row.
enum class QkNorm : uint8_t { kNone, kEachHead, kAllHeads };
// Where a part of a block is normed: x + part(norm(x)), x + norm(part(x)), x + norm(part(norm(x))), or
// norm(x + part(x)).
enum class NormPlace : uint8_t { kBefore, kBehind, kAround, kOfSum };
// RMSNorm; LayerNorm (Ba, Kiros and Hinton, Layer Normalization, 2016), which takes the mean off first; or
// none: rows as they are.
enum class NormKind : uint8_t { kRms, kLayer, kNone };
// Norms of rows: those of parts and the final one. Norms of heads are RMSNorms with weights.
struct NormStyle {
  NormKind kind = NormKind::kRms;
  bool weights = true;
  bool biases = false;  // of LayerNorms with weights
  bool operator==(const NormStyle&) const = default;
};
// The activation of an MLP, applied to its gate, or to up without a gate: SiLU; GELU as it is or by its
// approximation with tanh; SiLU with the shape's slope and limits, and 1 added to up (ops/clamped_swiglu.h);
// squared ReLU, max(x, 0)² (So et al., Primer, 2021); xIELU, with two numbers that are trained, without a
// gate alone (ops/xielu.h).
enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSilu, kSquaredRelu, kGelu, kTanh, kXielu };

// A layer that a family's reader makes itself, because no member of BlockType and Shape describes it; often
// none. Compared by value.
struct OwnLayer {
  std::shared_ptr<const Layer> value;
  bool operator==(const OwnLayer& other) const;
};

// What tells the blocks of one model from each other.
struct BlockType {
  bool rotates = true;     // positions turn queries and keys
  bool windowed = false;   // attention sees the shape's window, not all that came before
  bool experts = false;    // stand where others have an MLP
  bool recurrent = false;  // a recurrence stands where others have attention; its norm stands before it
  uint64_t frozen = 0;     // bit i: parameter i of the kind, in Kind::parameters()' order, is not trained
  OwnLayer own;
  bool operator==(const BlockType&) const = default;
};

// Attention whose queries, keys and values are made from narrow rows that tokens keep of themselves
// (DeepSeek's MLA).
struct Latent {
  int64_t q_rank = 0;     // 0: queries are made from the rows themselves
  int64_t kv_rank = 0;    // 0: attention is not latent
  int64_t unrotated = 0;  // of a head's queries and keys; and
  int64_t rotated = 0;    // what positions turn: of keys one for all heads
  int64_t values = 0;     // of a head
  bool operator==(const Latent&) const = default;
};

// Experts where a layer else has an MLP, each gated as that is. Of its scores of all experts, a softmax, a
// token visits those with the highest and weighs what they give it by them. DeepSeek-V3's way (2024, section
// 2.1.2) has sigmoids for scores, numbers of experts that count where they are chosen and not where they
// weigh, and chooses from some groups of neighbouring experts: those whose two best are best together.
struct Experts {
  int64_t count = 0;  // 0: none
  int64_t per_token = 0;
  int64_t hidden = 0;            // of one
  bool normalised = false;       // a token's weights are divided by their sum
  int64_t shared_hidden = 0;     // of what every token visits; 0: nothing
  bool shared_gate = false;      // a factor of that, by token
  bool biases = false;           // of router and experts
  bool sigmoid = false;          // scores are sigmoids
  bool corrected = false;        // experts have numbers that are added to scores where they are chosen
  bool remembers_loads = false;  // how many visits each had in the last step, to balance by (tuning.h)
  int64_t groups = 1;            // of as many neighbours
  int64_t groups_chosen = 1;     // of a token
  double factor = 1.0;           // of a token's weights
  bool operator==(const Experts&) const = default;
};

// Recurrences of ops/recurrence.h: Yang et al., Gated Delta Networks, 2024; Dao and Gu, Mamba-2, 2024; Yang
// et al., Gated Linear Attention, 2023; Kimi Team, Kimi Linear, 2025.
enum class Recurrence : uint8_t { kGatedDelta, kMamba2, kGla, kKda };

// A recurrence where a layer else has attention. Neighbouring value heads share a key head. Of Mamba-2 value
// heads are its heads, key heads the groups of B (keys) and C (queries), key widths its states; norms are of
// a group's heads together.
struct Recurrent {
  Recurrence recurrence = Recurrence::kGatedDelta;
  int64_t key_heads = 0;  // 0: there are no such layers
  int64_t value_heads = 0;
  int64_t key_width = 0;
  int64_t value_width = 0;
  // Rows that its convolution of queries, keys and values sees, a row's own included; 1: there is none.
  int64_t convolution = 0;
  double rate_scale = 1.0;  // rates are up to so much; above 1 states may turn
  int64_t decay_rank = 0;   // of GLA and KDA, whose decays are made from rows so narrow; KDA's gates, too
  double norm_eps = 1e-5;   // of the norm of each head's output
  // Whether what a key head and its value heads are made of stands together, head by head: queries, keys,
  // values and gates; and rates and decays.
  bool by_key_head = false;
  bool convolution_bias = false;
  int64_t values() const { return value_heads * value_width; }
  // Numbers that a token chooses of each value head: a rate and a decay, both by one step, or of GLA a decay
  // of each key channel, and of KDA a rate as well.
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

// Adapters of low rank (Hu et al., LoRA, 2021): a matrix w that is named here is w + alpha ÷ rank · b·a,
// where b and a, of so many columns and rows, are parameters beside it. b starts at zero.
struct Lora {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  std::vector<std::string> targets;  // as Hugging Face's modules are called: "q_proj"
  double factor() const { return alpha / static_cast<double>(rank); }
  bool operator==(const Lora&) const = default;
};

// The language model's config.json that a shape was read from, if it was read from one. It says the same as
// the shape, so it takes no part in comparisons.
struct ConfigSource {
  std::shared_ptr<const base::Json> json;
  bool operator==(const ConfigSource&) const { return true; }
};

// The end of a model: logits of a vocabulary; so many numbers of a sequence (classes, a reward), or of every
// token (classes of tokens, values), by a matrix of its own; or the normed rows themselves (embeddings).
enum class HeadKind : uint8_t { kVocabulary, kSequence, kTokens, kRows };
// The rows of a sequence that stand for it (kSequence, kRows): the last token's, the first one's (CLS), or
// the mean of all.
enum class Pooling : uint8_t { kLast, kCls, kMean };
// The layers that rows pass through between the pooling and a head's matrix, as encoders have it: act(x·wᵀ +
// bias), with a norm behind it or none.
struct NeckStyle {
  Activation activation = Activation::kGelu;
  bool bias = false;
  bool normed = false;
  bool operator==(const NeckStyle&) const = default;
};
struct HeadStyle {
  HeadKind kind = HeadKind::kVocabulary;
  int64_t numbers = 0;  // of kSequence and kTokens
  bool bias = false;    // likewise
  Pooling pooling = Pooling::kLast;
  std::optional<NeckStyle> neck = {};
  bool operator==(const HeadStyle&) const = default;
};

struct Shape {
  // The family whose files it reads: the model_type of a row in model/families/registry.cpp.
  std::string family = "llama";
  // The model is planned, not computed: its costs are counted from the members, and `family` is its
  // config.json's model_type (model/counted.h).
  bool counted = false;
  ConfigSource config;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // heads must be a multiple
  // hidden ÷ heads unless a config.json says otherwise; of latent attention the width of keys
  int64_t head_dim = 0;
  int64_t ffn_hidden = 0;  // 0: blocks without experts have no MLP behind what mixes tokens
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
  bool embedding_norm = false;  // the embedding's rows have a norm, as parts have
  // Rows that positions add to the embedding's, and so how long sequences may be; 0: none. A kind of tokens,
  // which all are of, adds one more.
  int64_t positions = 0;
  bool causal = true;       // attention sees what stands before a token; else also what stands behind it
  bool mlp_gate = true;     // of MLPs: act(gate) · up, not act(up)
  bool mlp_bias = false;    // likewise: both products have biases
  double gate_slope = 1.0;  // these two of kClampedSilu
  double gate_limit = 0.0;
  // Factors: of the embedding's rows; of what each part adds; of scores (0: 1/√head_dim); and what logits are
  // divided by.
  double embedding_scale = 1.0;
  double residual_scale = 1.0;
  double attention_scale = 0.0;
  double logit_divisor = 1.0;
  // Scores, and logits, become c·tanh(x/c); 0: they stay.
  double score_cap = 0.0;
  double logit_cap = 0.0;
  bool out_bias = false;  // what attention adds has a bias
  bool sinks = false;     // each query head has one more score, which no value goes with
  bool gated = false;     // what a head attends to passes through the sigmoid of as many rows of its own
  int64_t rotated = 0;    // of a head's dimensions, those that positions turn: the first; 0: all
  // Tokens up to its own that one of a windowed block's attention sees, itself included, and as many behind
  // it where that is not causal; 0: there are no such blocks.
  int64_t window = 0;
  std::optional<Rope> window_rope;  // of windowed blocks, where it is not `rope`
  // By layer; empty: all rotate and attend, with a window all are windowed, and with experts all have them.
  std::vector<BlockType> block_types;
  Latent latent;
  Experts experts;
  Recurrent recurrent;
  HeadStyle head;
  // What of it is trained (model/tuning.h): as BlockType::frozen, of either end; adapters of blocks.
  uint64_t frozen_embedding = 0;
  uint64_t frozen_head = 0;
  Lora lora;
  BaseFormat base;  // of the matrices of blocks that adapters freeze, experts' included

  BlockType block_type(int64_t layer) const {
    return block_types.empty() ? BlockType{.windowed = window > 0, .experts = experts.count > 0}
                               : block_types[static_cast<size_t>(layer)];
  }
  const Rope& rope_of(const BlockType& type) const {
    return type.windowed && window_rope ? *window_rope : rope;
  }
  // Whether the head multiplies with the embedding's matrix.
  bool ties_head() const { return tie_embeddings && head.kind == HeadKind::kVocabulary; }
  // Of a row, where the head is no vocabulary's.
  int64_t head_numbers() const { return head.kind == HeadKind::kRows ? hidden : head.numbers; }
  int64_t rotated_width() const { return rotated > 0 ? rotated : head_dim; }
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  bool operator==(const Shape&) const = default;
};

// InputError naming the first value that makes no model (layers < 1, heads not a multiple of kv_heads, …).
void validate(const Shape& shape);

// Rotary inverse frequencies of head_dim/2 pairs, and the factor that multiplies cos and sin (1 except for
// yarn and longrope), for sequences of at most `positions` tokens: longrope's depend on whether that is more
// than the original context. REQUIRES: a valid rope. Formulas as in Hugging Face transformers'
// modeling_rope_utils.
struct RopeTable {
  std::vector<double> inverse_frequencies;
  double attention_scale = 1.0;
};
RopeTable rope_table(const Rope& rope, int64_t head_dim, int64_t positions);

// Shipped shapes: llama-7b, llama-13b, llama-32b. InputError listing them for another name.
Shape named_shape(const std::string& name);

}  // namespace sluice::model
