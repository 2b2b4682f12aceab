// The outline of a model: the few figures and flags that config.json gives of usual decoders. A family's
// reader fills it. A Model (model/model.h) has the layers that are made from it (model/layer_of.h). Only the
// module model, the keys of a configuration's [model] and tests name an outline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/head_style.h"
#include "model/layer.h"
#include "model/lora.h"
#include "model/rope.h"
#include "model/weight.h"

namespace sluice::model {

// Place of a part's norm: x + part(norm(x)), x + norm(part(x)), x + norm(part(norm(x))), or norm(x +
// part(x)).
enum class NormPlace : uint8_t { kBefore, kBehind, kAround, kOfSum };

// A layer that a family's reader makes itself, because BlockType and Outline cannot describe it; usually
// none. Compared by value.
struct OwnLayer {
  std::shared_ptr<const Layer> value;
  bool operator==(const OwnLayer& other) const;
};

// Properties in which the blocks of one model differ.
struct BlockType {
  bool rotates = true;     // queries and keys have rotary positions
  bool windowed = false;   // attention sees the outline's window, not all earlier tokens
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

// The language model's config.json from which an outline was read; null if there was none. It repeats the
// outline's values, so it takes no part in comparisons.
struct ConfigSource {
  std::shared_ptr<const base::Json> json;
  bool operator==(const ConfigSource&) const { return true; }
};

struct Outline {
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
  // By layer. Empty: all layers rotate; all have the window and experts, if the outline has them.
  std::vector<BlockType> block_types;
  Latent latent;
  Experts experts;
  Recurrent recurrent;
  HeadStyle head;
  bool mtp = false;  // the MTP layer of its files is trained (model/tuning.h)
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
  bool operator==(const Outline&) const = default;
};

// InputError naming the first invalid value (layers < 1, heads not a multiple of kv_heads, …).
void validate(const Outline& outline);

// Shipped outlines: llama-7b, llama-13b, llama-32b. InputError listing them for another name.
Outline named_outline(const std::string& name);

}  // namespace sluice::model
