// A model's layers as values: a layer is a list of parts, a part an ordered list of weights around a mixer.
// Parameters, cuts, work and bytes are computed from these (model/derive.h); nothing here computes. For the
// modules model and layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "model/shape.h"
#include "model/weight.h"

namespace sluice::model {

// Which dimensions of a head turn together, and which way: i with i + width ÷ 2; the same, backwards; or
// neighbours.
enum class Turning : uint8_t { kHalves, kHalvesBackwards, kNeighbours };
// Queries at position p times 1 + beta · ln(1 + ⌊(p + first) ÷ positions⌋), which keeps scores of long
// sequences sharp.
struct QueryGrowth {
  double beta = 0;  // 0: queries stay
  int64_t positions = 8192;
  int64_t first = 0;
  bool operator==(const QueryGrowth&) const = default;
};
// The order of the norms of heads and of their rotation, and whether these norms have weights.
struct QkNormStyle {
  bool behind_rotation = false;
  bool weights = true;
  bool operator==(const QkNormStyle&) const = default;
};

struct Norm {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
  double offset = 0;            // added to weights
  std::vector<Weight> weights;  // none, weights, or these and biases
  bool operator==(const Norm&) const = default;
};

// Keys and values that layers share: one layer lends what it made, later ones of the same slot attend to it
// in place of their own.
enum class KeySharing : uint8_t { kOwn, kLends, kBorrows };

// Mixers: the arithmetic between a part's products.

struct Attention {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;        // tokens up to its own that a query sees, its own included; 0: all
  bool chunked = false;      // these are those since the last position that the window divides
  std::optional<Rope> rope;  // none: positions turn nothing
  int64_t rotated = 0;       // of a head's dimensions, those that positions turn: the first
  double scale = 1;          // of scores
  double cap = 0;            // scores become c·tanh(x/c); 0: they stay
  QkNorm head_norm = QkNorm::kNone;
  QkNormStyle head_norm_style;
  double norm_eps = 1e-5, norm_offset = 0;  // of head_norm
  bool normed_values = false;    // a value head's rows have a norm without weights, whose eps is norm_eps
  bool keys_are_values = false;  // one product gives keys and values, before they are normed and turned
  Turning turning = Turning::kHalves;
  QueryGrowth growth;
  bool gated = false;           // an output passes through the sigmoid of its head's gate
  bool gates_apart = false;     // which stand behind queries, keys and values, not by each query
  bool gates_of_heads = false;  // and are one number a head
  bool sinks = false;           // each query head has one more score, which no value goes with
  bool causal = true;           // else a query sees as far behind itself as before itself
  KeySharing sharing = KeySharing::kOwn;
  size_t key_slot = 0;  // of shared keys and values, below kKeySlots (model/border_rows.h)
  bool makes_keys() const { return sharing != KeySharing::kBorrows; }
  bool operator==(const Attention&) const = default;
};

// Latent attention (MLA; DeepSeek-AI, DeepSeek-V2, 2024, section 2.1): keys and values of all heads are made
// from one narrow row of a token, queries from another. As training computes it: with keys and values of
// every head, which is also what lanes that exchange heads send; round a ring go narrow rows. Values are as
// wide as keys, by zeros.
struct LatentAttention {
  int64_t heads = 0;
  int64_t q_rank = 0;  // 0: queries are made from the rows themselves
  int64_t kv_rank = 0;
  int64_t unrotated = 0, rotated = 0;  // of a head's queries and keys
  int64_t values = 0;                  // of a head
  std::optional<Rope> rope;
  QueryGrowth growth;
  double scale = 1;
  double norm_eps = 1e-6;  // of narrow rows
  int64_t width() const { return unrotated + rotated; }
  int64_t narrow() const { return q_rank + kv_rank + rotated; }
  bool operator==(const LatentAttention&) const = default;
};

// Heads of a recurrence (ops/recurrence.h): what lanes exchange, hand on as states and keep while text is
// generated. Neighbouring value heads share a key head.
struct StateHeads {
  int64_t key_heads = 0, value_heads = 0, key_width = 0, value_width = 0;
  int64_t numbers = 0;      // that a token chooses of each value head: rates and decays
  int64_t convolution = 1;  // rows that the short convolution sees, a row's own included; 1: none
  double norm_eps = 1e-5;   // of the norm of outputs
  int64_t values() const { return value_heads * value_width; }
  int64_t mixed() const { return 2 * key_heads * key_width + values(); }
  bool operator==(const StateHeads&) const = default;
};
// Yang et al., Gated Delta Networks, 2024.
struct DeltaRule {
  StateHeads heads;
  double rate_scale = 1;  // rates are up to so much; above 1 states may turn
  bool operator==(const DeltaRule&) const = default;
};
// Dao and Gu, Mamba-2, 2024. Value heads are its heads, key heads the groups of B (keys) and C (queries), key
// widths its states; norms are of a group's heads together.
struct Mamba2 {
  StateHeads heads;
  bool normed = true;  // the output has a norm
  bool operator==(const Mamba2&) const = default;
};
// Yang et al., Gated Linear Attention, 2023.
struct Gla {
  StateHeads heads;
  int64_t decay_rank = 0;  // decays are made from rows so narrow
  bool operator==(const Gla&) const = default;
};

// Kimi Team, Kimi Linear, 2025: a delta rule whose states decay by key channel. Decays and gates are made
// from narrow rows.
struct Kda {
  StateHeads heads;
  int64_t rank = 0;  // of decays, and of gates
  bool operator==(const Kda&) const = default;
};

// y = c · convolution(b · x), all three made from a token's row, each channel on its own. Heads are channels,
// without keys.
struct ShortConvolution {
  StateHeads heads;
  bool operator==(const ShortConvolution&) const = default;
};

// The activation of an MLP: act(gate) · up; else act(up).
struct Gate {
  Activation activation = Activation::kSilu;
  double slope = 1, limit = 0;  // of kClampedSilu
  bool gated = true;
  bool weighs_input = false;  // of experts: visits' weights multiply what goes in, not what comes out
  bool operator==(const Gate&) const = default;
};
struct Mlp {
  int64_t width = 0;
  Gate gate;
  bool operator==(const Mlp&) const = default;
};
// Experts in place of the MLP: a router gives each token some of many MLPs (Shazeer et al.,
// "Outrageously Large Neural Networks", 2017), and all tokens a shared one, where there is one.
struct RoutedExperts {
  Experts experts;
  Gate gate;
  double floor = 0;  // added to the sum that a token's weights are divided by
  // The router takes the part's rows by a norm of its own, times a vector and the rows' width^-1/2; 0: the
  // rows that the experts take.
  double router_norm_eps = 0;
  // Liu et al., GRIN (SparseMixer), 2024: the k-th choice is weighed by a softmax of the logits of those that
  // are not chosen yet and are within 2 · sparse_jitter of the highest, in relation; 0: not so.
  double sparse_jitter = 0;
  bool expert_scales = false;  // each expert has a number that its weights are multiplied with
  bool operator==(const RoutedExperts&) const = default;
};

// act(x·wᵀ) times the layer's own columns of what the embedding made for all layers (Embedding::by_layer).
struct LayerInput {
  int64_t width = 0;
  Activation activation = Activation::kGeluTanh;
  bool operator==(const LayerInput&) const = default;
};

using Mixer = std::variant<Attention, LatentAttention, DeltaRule, Mamba2, Gla, Kda, ShortConvolution, Mlp,
                           RoutedExperts, LayerInput>;

// What the results of an in-product are multiplied with, group by group of its rows.
struct GroupFactors {
  std::string_view role;
  std::vector<double> of_groups;
  bool operator==(const GroupFactors&) const = default;
};

// x + scale · out(mixer(in(before(x)))), or with a norm behind x + behind(out(…)), or behind(x + out(…)).
struct Part {
  std::optional<Norm> before, behind;
  std::vector<Weight> weights;  // in the order in which they lie in the bucket, norms apart
  Mixer mixer;
  double scale = 1;
  std::vector<GroupFactors> factors = {};  // of products without biases
  // The part takes the rows that the part before it took, and so the norm before is that one, or its own.
  bool beside = false;
  bool norms_sum = false;  // the norm behind is of the sum
  bool own_norm = false;
  bool operator==(const Part&) const = default;
};

struct Layer {
  int64_t hidden = 0;
  std::vector<Part> parts;  // each adds to the rows that the one before it left
  // The last parts, which stand beside each other, add the norm of their sum to the rows.
  std::optional<Norm> joint = {};
  std::optional<Weight> scalar = {};  // the layer's result is multiplied with it
  bool operator==(const Layer&) const = default;
};

// Embeddings by layer: beside its row a token has one for each layer, which that layer's LayerInput takes:
// scale · (norm(projection · row) + table_scale · table[token]), each layer's columns normed on their own.
struct LayerEmbedding {
  int64_t layers = 0, width = 0;  // of one layer
  Weight table;                   // [vocabulary, layers · width]
  Weight projection;              // whole on every TP rank
  Norm norm;                      // the same of all layers
  double table_scale = 1, projection_scale = 1, scale = 1;
  int64_t columns() const { return layers * width; }
  bool operator==(const LayerEmbedding&) const = default;
};

struct Embedding {
  Weight table;
  std::optional<Weight> positions, kinds;  // whole on every TP rank; of kinds the first row is used
  double scale = 1;
  std::optional<Norm> norm;
  std::optional<LayerEmbedding> by_layer = {};
  bool operator==(const Embedding&) const = default;
};

// act(x·wᵀ + bias), with a norm behind it or none; all of it whole on every TP rank.
struct Neck {
  Weight dense;
  std::optional<Weight> bias;
  Activation activation = Activation::kGelu;
  std::optional<Norm> norm;
  bool operator==(const Neck&) const = default;
};

struct Head {
  HeadKind kind = HeadKind::kVocabulary;
  Pooling pooling = Pooling::kLast;
  Norm norm;
  std::optional<Neck> neck;    // in front of `output`
  Weight output;               // of tied embeddings their table; of kRows without rows
  std::optional<Weight> bias;  // of logits, or of numbers
  bool tied = false;           // `output` is not the head's own
  double divisor = 1;          // of logits
  double cap = 0;              // logits become c·tanh(x/c); 0: they stay
  // Whether its results are logits of a vocabulary, which TP ranks divide; those of others are few.
  bool is_vocabulary() const { return kind == HeadKind::kVocabulary; }
  bool operator==(const Head&) const = default;
};

// The heads of a recurrence's states; null: of other mixers.
const StateHeads* states_of(const Mixer& mixer);

}  // namespace sluice::model
