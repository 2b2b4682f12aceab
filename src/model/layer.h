// A model's layers as values: a layer is a list of parts; a part is an ordered list of weights around a
// mixer. Parameters, cuts, work and bytes are derived from these values (model/derive.h); nothing here
// computes. For the modules model and layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "model/activation.h"
#include "model/experts.h"
#include "model/head_style.h"
#include "model/rope.h"
#include "model/weight.h"

namespace sluice::model {

// Norms of queries and keys before rotation: each head on its own, or all heads as one row.
enum class QkNorm : uint8_t { kNone, kEachHead, kAllHeads };
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

// The pairs of a head's dimensions that rotate together: i with i + width ÷ 2; the same, rotated backwards;
// or neighbours.
enum class Turning : uint8_t { kHalves, kHalvesBackwards, kNeighbours };
// Multiplies queries at position p by 1 + beta · ln(1 + ⌊(p + first) ÷ positions⌋), which keeps scores of
// long sequences sharp.
struct QueryGrowth {
  double beta = 0;  // 0: queries are unchanged
  int64_t positions = 8192;
  int64_t first = 0;
  bool operator==(const QueryGrowth&) const = default;
};
// Whether head norms come before or after the rotation, and whether they have weights.
struct QkNormStyle {
  bool behind_rotation = false;
  bool weights = true;
  bool operator==(const QkNormStyle&) const = default;
};

struct Norm {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
  double offset = 0;            // added to weights
  std::vector<Weight> weights;  // none, weights, or weights and biases
  bool operator==(const Norm&) const = default;
};

// Keys and values shared between layers: one layer lends its own; later layers of the same slot attend to
// these instead of their own.
enum class KeySharing : uint8_t { kOwn, kLends, kBorrows };

// Mixers: the arithmetic between a part's products.

struct Attention {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;        // tokens that a query sees, its own included; 0: all before it
  bool chunked = false;      // the window begins at the last position that its width divides
  std::optional<Rope> rope;  // none: no rotary positions
  int64_t rotated = 0;       // rotated dimensions of a head: its first
  double scale = 1;          // factor on scores
  double cap = 0;            // scores become c·tanh(x/c); 0: unchanged
  QkNorm head_norm = QkNorm::kNone;
  QkNormStyle head_norm_style;
  double norm_eps = 1e-5, norm_offset = 0;  // for head_norm
  bool normed_values = false;               // value heads are normed without weights; the eps is norm_eps
  bool keys_are_values = false;             // one product gives keys and values, before norms and rotation
  Turning turning = Turning::kHalves;
  QueryGrowth growth;
  bool gated = false;           // each head's output is multiplied by the sigmoid of its gate
  bool gates_apart = false;     // gates lie behind queries, keys and values, not beside each query
  bool gates_of_heads = false;  // a gate is one number for each head
  bool sinks = false;           // each query head has one more score, without a value
  bool causal = true;           // false: a query sees equally far in both directions
  KeySharing sharing = KeySharing::kOwn;
  size_t key_slot = 0;  // slot of shared keys and values, below kKeySlots (model/border_rows.h)
  bool makes_keys() const { return sharing != KeySharing::kBorrows; }
  bool operator==(const Attention&) const = default;
};

// Latent attention (MLA; DeepSeek-AI, DeepSeek-V2, 2024, section 2.1): keys and values of all heads are made
// from one narrow row of a token, queries from another. Training expands keys and values of every head. Lanes
// that exchange heads send expanded ones; a ring passes narrow rows. Values are padded with zeros to the
// width of keys.
struct LatentAttention {
  int64_t heads = 0;
  int64_t q_rank = 0;  // 0: queries are made from the rows themselves
  int64_t kv_rank = 0;
  int64_t unrotated = 0, rotated = 0;  // dimensions of a head's queries and keys
  int64_t values = 0;                  // dimensions of a head's values
  std::optional<Rope> rope;
  QueryGrowth growth;
  double scale = 1;
  double norm_eps = 1e-6;  // for narrow rows
  int64_t width() const { return unrotated + rotated; }
  int64_t narrow() const { return q_rank + kv_rank + rotated; }
  bool operator==(const LatentAttention&) const = default;
};

// Heads of a recurrence (ops/recurrence.h): the heads that lanes exchange, hand on as states, and keep while
// text is generated. Neighbouring value heads share a key head.
struct StateHeads {
  int64_t key_heads = 0, value_heads = 0, key_width = 0, value_width = 0;
  int64_t numbers = 0;      // a token's numbers for each value head: rates and decays
  int64_t convolution = 1;  // rows that the short convolution sees, the current one included; 1: none
  double norm_eps = 1e-5;   // for the norm of outputs
  int64_t values() const { return value_heads * value_width; }
  int64_t mixed() const { return 2 * key_heads * key_width + values(); }
  bool operator==(const StateHeads&) const = default;
};
// Yang et al., Gated Delta Networks, 2024.
struct DeltaRule {
  StateHeads heads;
  double rate_scale = 1;  // upper bound of rates; above 1 states may flip sign
  bool operator==(const DeltaRule&) const = default;
};
// Dao and Gu, Mamba-2, 2024. Value heads are Mamba-2's heads; key heads are the groups of B (keys) and C
// (queries); the key width is its state size. A norm spans all heads of a group.
struct Mamba2 {
  StateHeads heads;
  bool normed = true;  // the output has a norm
  bool operator==(const Mamba2&) const = default;
};
// Yang et al., Gated Linear Attention, 2023.
struct Gla {
  StateHeads heads;
  int64_t decay_rank = 0;  // decays are made from rows of this width
  bool operator==(const Gla&) const = default;
};

// Kimi Team, Kimi Linear, 2025: a delta rule whose states decay by key channel. Decays and gates are made
// from narrow rows.
struct Kda {
  StateHeads heads;
  int64_t rank = 0;  // width of the narrow rows of decays and of gates
  bool operator==(const Kda&) const = default;
};

// y = c · convolution(b · x), with b, c and x made from a token's row, each channel on its own. A head is a
// channel, without keys.
struct ShortConvolution {
  StateHeads heads;
  bool operator==(const ShortConvolution&) const = default;
};

// The activation of an MLP: act(gate) · up if gated, else act(up).
struct Gate {
  Activation activation = Activation::kSilu;
  double slope = 1, limit = 0;  // for kClampedSilu
  bool gated = true;
  bool weighs_input = false;  // experts: routing weights multiply an expert's input, not its output
  bool operator==(const Gate&) const = default;
};
struct Mlp {
  int64_t width = 0;
  Gate gate;
  bool operator==(const Mlp&) const = default;
};
// Experts instead of an MLP. A router gives each token some of many MLPs (Shazeer et al., "Outrageously Large
// Neural Networks", 2017). All tokens may also visit a shared MLP.
struct RoutedExperts {
  Experts experts;
  Gate gate;
  double floor = 0;  // added to the sum by which a token's weights are divided
  // Not 0: the router takes the part's rows through a norm of its own, times a vector and the rows'
  // width^-1/2. 0: it takes the same rows as the experts.
  double router_norm_eps = 0;
  // Liu et al., GRIN (SparseMixer), 2024: the k-th choice's weight is a softmax over logits of experts not
  // chosen yet that are within a relative 2 · sparse_jitter of the highest. 0: off.
  double sparse_jitter = 0;
  bool expert_scales = false;  // each expert has a factor on its weights
  bool operator==(const RoutedExperts&) const = default;
};

// act(x·wᵀ) times the layer's own columns of the embedding by layer (Embedding::by_layer).
struct LayerInput {
  int64_t width = 0;
  Activation activation = Activation::kGeluTanh;
  bool operator==(const LayerInput&) const = default;
};

using Mixer = std::variant<Attention, LatentAttention, DeltaRule, Mamba2, Gla, Kda, ShortConvolution, Mlp,
                           RoutedExperts, LayerInput>;

// Factors on the results of an in-product, one for each group of its rows.
struct GroupFactors {
  std::string_view role;
  std::vector<double> of_groups;
  bool operator==(const GroupFactors&) const = default;
};

// x + scale · out(mixer(in(before(x)))). With a norm behind: x + behind(out(…)), or behind(x + out(…)).
struct Part {
  std::optional<Norm> before, behind;
  std::vector<Weight> weights;  // in bucket order, without norms
  Mixer mixer;
  double scale = 1;
  std::vector<GroupFactors> factors = {};  // on products without biases
  // The part takes the same rows as the part before it, and shares that part's norm unless own_norm is set.
  bool beside = false;
  bool norms_sum = false;  // the norm behind is applied to the sum
  bool own_norm = false;
  bool operator==(const Part&) const = default;
};

struct Layer {
  int64_t hidden = 0;
  std::vector<Part> parts;  // each adds to the rows that the one before it left
  // Norm of the sum of the last parts, which stand beside each other; the result is added to the rows.
  std::optional<Norm> joint = {};
  std::optional<Weight> scalar = {};  // factor on the layer's result
  bool operator==(const Layer&) const = default;
};

// Embeddings by layer: beside its row a token has one row for each layer's LayerInput: scale ·
// (norm(projection · row) + table_scale · table[token]), with a norm for each layer's columns.
struct LayerEmbedding {
  int64_t layers = 0, width = 0;  // width: one layer's
  Weight table;                   // [vocabulary, layers · width]
  Weight projection;              // whole on every TP rank
  Norm norm;                      // the same for all layers
  double table_scale = 1, projection_scale = 1, scale = 1;
  int64_t columns() const { return layers * width; }
  bool operator==(const LayerEmbedding&) const = default;
};

struct Embedding {
  Weight table;
  std::optional<Weight> positions, kinds;  // whole on every TP rank; only the first row of kinds is used
  double scale = 1;
  std::optional<Norm> norm;
  std::optional<LayerEmbedding> by_layer = {};
  bool operator==(const Embedding&) const = default;
};

// act(x·wᵀ + bias), with or without a norm behind it; all of it whole on every TP rank.
struct Neck {
  Weight dense;
  std::optional<Weight> bias;
  Activation activation = Activation::kGelu;
  std::optional<Norm> norm;
  bool operator==(const Neck&) const = default;
};

// A layer that predicts the token after the next one (MTP; DeepSeek-AI, DeepSeek-V3, 2024, section 2.2). It
// takes projection · [token_norm(the next token's embedding); row_norm(the model's last normed row)]. The
// head's matrix multiplies norm(the layer's result).
struct MtpLayer {
  Norm token_norm, row_norm;
  Weight projection;  // [hidden, 2 · hidden], whole on every TP rank
  Layer layer;
  Norm norm;
  bool operator==(const MtpLayer&) const = default;
};

struct Head {
  HeadKind kind = HeadKind::kVocabulary;
  Pooling pooling = Pooling::kLast;
  Norm norm;
  std::optional<Neck> neck;    // in front of `output`
  Weight output;               // the table, if tied; no rows for kRows
  std::optional<Weight> bias;  // on logits or numbers
  bool tied = false;           // `output` is not the head's own
  double divisor = 1;          // divisor of logits
  double cap = 0;              // logits become c·tanh(x/c); 0: unchanged
  std::optional<MtpLayer> mtp = {};
  // Whether results are logits of a vocabulary, which TP ranks divide; other heads have few results.
  bool is_vocabulary() const { return kind == HeadKind::kVocabulary; }
  bool operator==(const Head&) const = default;
};

// The heads of a recurrence's states; null for other mixers.
const StateHeads* states_of(const Mixer& mixer);

}  // namespace sluice::model
