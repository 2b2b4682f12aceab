// The shape of a decoder: everything that decides parameters, arithmetic and memory. Kinds of operations take
// from it what they need (model/kind.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::model {

// How rotary frequencies are stretched to longer contexts. The names are Hugging Face's `rope_type`s.
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                     // llama3
  double high_freq_factor = 4.0;                    // llama3
  int64_t original_max_position_embeddings = 8192;  // llama3, yarn
  double beta_fast = 32.0;                          // yarn
  double beta_slow = 1.0;                           // yarn
  double attention_factor = 0.0;                    // yarn; 0: 0.1·ln(factor) + 1
  bool operator==(const Rope&) const = default;
};

// Whose files it reads and writes; what it computes is said by the shape's other members. The registry is in
// model/family.cpp.
enum class Family : uint8_t { kLlama, kMistral, kQwen2, kQwen3, kPhi3, kGranite, kSmolLm3, kOlmo2 };

// Norms of queries and keys before they are rotated: each head on its own, or all heads as one row.
enum class QkNorm : uint8_t { kNone, kEachHead, kAllHeads };
// Where a part of a block is normed: x + part(norm(x)), or x + norm(part(x)).
enum class NormPlace : uint8_t { kBefore, kBehind };

struct Shape {
  Family family = Family::kLlama;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // heads must be a multiple
  int64_t head_dim = 0;  // hidden ÷ heads unless a config.json says otherwise
  int64_t ffn_hidden = 0;
  int64_t vocab = 0;
  bool tie_embeddings = false;
  double norm_eps = 1e-5;
  Rope rope;
  bool qkv_bias = false;  // queries, keys and values have biases
  QkNorm qk_norm = QkNorm::kNone;
  NormPlace norm_place = NormPlace::kBefore;
  // Factors: of the embedding's rows; of what each part adds; of scores (0: 1/√head_dim); and what logits are
  // divided by.
  double embedding_scale = 1.0;
  double residual_scale = 1.0;
  double attention_scale = 0.0;
  double logit_divisor = 1.0;
  // Tokens that one attends to, itself included; 0: all before it. Sequences may be as long (context_fault).
  int64_t window = 0;
  std::vector<uint8_t>
      unrotated;  // by layer, 1: positions do not turn queries and keys; empty: they do in all

  bool rotates(int64_t layer) const {
    return unrotated.empty() || unrotated[static_cast<size_t>(layer)] == 0;
  }
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t parameters() const;
  bool operator==(const Shape&) const = default;
};

// InputError naming the first value that makes no model (layers < 1, heads not a multiple of kv_heads, …).
void validate(const Shape& shape);

// Why a TP degree cannot cut this shape ("tp 3 does not divide 32 heads"), or "" when it can: tp divides
// heads, divides or is a multiple of kv_heads, and is at most ffn_hidden and vocab.
std::string tp_fault(const Shape& shape, int tp);

// Why sequences of so many tokens cannot be computed, with a way out, or "": attention's window bites.
std::string context_fault(const Shape& shape, int64_t context_length);

// Rotary inverse frequencies of head_dim/2 pairs, and the factor that multiplies cos and sin (1 except for
// yarn). REQUIRES: a valid shape. Formulas as in Hugging Face transformers' modeling_rope_utils.
struct RopeTable {
  std::vector<double> inverse_frequencies;
  double attention_scale = 1.0;
};
RopeTable rope_table(const Shape& shape);

// Shipped shapes: llama-7b, llama-13b, llama-32b. InputError listing them for another name.
Shape named_shape(const std::string& name);

}  // namespace sluice::model
