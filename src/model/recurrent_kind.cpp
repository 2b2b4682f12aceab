#include "model/recurrent_kind.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::model {

std::vector<Parameter> RecurrentKind::mamba_parameters() const {
  const RowGroup keys{own_.key_heads * own_.key_width, own_.key_heads};
  const RowGroup values{own_.values(), own_.value_heads};
  const RowGroup heads{own_.value_heads, own_.value_heads};
  const std::vector<RowGroup> mixed{values, keys, keys};
  Parameter convolution = matrix(kConvolution, {"mamba.conv1d.weight"}, own_.convolution, mixed);
  convolution.depthwise = true;
  convolution.adapts = false;
  Parameter out = matrix(kOut, {"mamba.out_proj.weight"}, shape_.hidden, {values}, Start::kResidual);
  out.transposed = true;
  std::vector<Parameter> parameters{
      norm(kNorm, "input_layernorm.weight", shape_.hidden, shape_.norm_offset),
      matrix(kQkv, {"mamba.in_proj.weight"}, shape_.hidden, {values, values, keys, keys, heads})};
  if (own_.convolution > 1) parameters.push_back(std::move(convolution));
  if (own_.convolution > 1 && own_.convolution_bias)
    parameters.push_back(matrix(kConvolutionBias, {"mamba.conv1d.bias"}, 1, mixed, Start::kZero));
  parameters.push_back(matrix(kDecay, {"mamba.A_log"}, 1, {heads}, Start::kDecay));
  parameters.push_back(matrix(kStepBias, {"mamba.dt_bias"}, 1, {heads}, Start::kStep));
  parameters.push_back(matrix(kSkip, {"mamba.D"}, 1, {heads}, Start::kOne));
  parameters.push_back(matrix(kHeadNorm, {"mamba.norm.weight"}, 1, {values}, Start::kOne));
  parameters.push_back(std::move(out));
  return parameters;
}

std::vector<Parameter> RecurrentKind::gla_parameters() const {
  const RowGroup keys{own_.key_heads * own_.key_width, own_.key_heads};
  const RowGroup values{own_.values(), own_.value_heads};
  Parameter narrow = matrix(kDecayNarrow, {"attn.gk_proj.0.weight"}, shape_.hidden, {{own_.decay_rank, 0}});
  narrow.replicated = true;
  Parameter decays = matrix(kRates, {"attn.gk_proj.1.weight"}, own_.decay_rank, {keys});
  narrow.adapts = decays.adapts = false;
  Parameter out = matrix(kOut, {"attn.o_proj.weight"}, shape_.hidden, {values}, Start::kResidual);
  out.transposed = true;
  return {norm(kNorm, "attn_norm.weight", shape_.hidden),
          matrix(kQkv, {"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"}, shape_.hidden,
                 {keys, keys, values}),
          std::move(narrow),
          std::move(decays),
          matrix(kStepBias, {"attn.gk_proj.1.bias"}, 1, {keys}, Start::kZero),
          matrix(kGate, {"attn.g_proj.weight"}, shape_.hidden, {values}),
          norm(kHeadNorm, "attn.g_norm_swish_gate.weight", own_.value_width),
          std::move(out)};
}

std::vector<Parameter> RecurrentKind::parameters() const {
  if (own_.recurrence == Recurrence::kMamba2) return mamba_parameters();
  if (own_.recurrence == Recurrence::kGla) return gla_parameters();
  const RowGroup keys{own_.key_heads * own_.key_width, own_.key_heads};
  const RowGroup values{own_.value_heads * own_.value_width, own_.value_heads};
  const RowGroup heads{own_.value_heads, own_.value_heads};
  Parameter convolution =
      matrix(kConvolution, {"linear_attn.conv1d.weight"}, own_.convolution, {keys, keys, values});
  convolution.depthwise = true;
  convolution.adapts = false;
  Parameter out = matrix(kOut, {"linear_attn.o_proj.weight"}, shape_.hidden, {values}, Start::kResidual);
  out.transposed = true;
  std::vector<Parameter> parameters{norm(kNorm, "input_layernorm.weight", shape_.hidden, shape_.norm_offset)};
  if (own_.by_key_head) {
    const RowGroup all{2 * keys.rows + 2 * values.rows, own_.key_heads};
    const RowGroup numbers{2 * own_.value_heads, own_.key_heads};
    parameters.push_back(matrix(kQkv, {"linear_attn.in_proj_qkvz.weight"}, shape_.hidden, {all}));
    parameters.push_back(matrix(kRates, {"linear_attn.in_proj_ba.weight"}, shape_.hidden, {numbers}));
  } else {
    parameters.push_back(
        matrix(kQkv, {"linear_attn.q_proj.weight", "linear_attn.k_proj.weight", "linear_attn.v_proj.weight"},
               shape_.hidden, {keys, keys, values}));
    parameters.push_back(matrix(kRates, {"linear_attn.b_proj.weight", "linear_attn.a_proj.weight"},
                                shape_.hidden, {heads, heads}));
    parameters.push_back(matrix(kGate, {"linear_attn.g_proj.weight"}, shape_.hidden, {values}));
  }
  if (own_.convolution > 1) parameters.push_back(std::move(convolution));
  parameters.push_back(matrix(kDecay, {"linear_attn.A_log"}, 1, {heads}, Start::kDecay));
  parameters.push_back(matrix(kStepBias, {"linear_attn.dt_bias"}, 1, {heads}, Start::kStep));
  parameters.push_back(norm(kHeadNorm, "linear_attn.o_norm.weight", own_.value_width));
  parameters.push_back(std::move(out));
  return parameters;
}

std::string RecurrentKind::tp_fault(int tp) const {
  if (own_.key_heads % tp == 0) return "";
  return base::text("tp ", tp, " does not divide ", own_.key_heads, " key heads of recurrent layers");
}

namespace {

constexpr int64_t kChunk = 64;  // of most (ops/recurrence.h)

}  // namespace

// Scanned, a value head: scores and overlaps with a chunk's keys, the system's solution, what updates give
// outputs; and what a state gives updates and outputs and gets of updates.
TokenWork RecurrentKind::work() const {
  const int64_t mixed = own_.qkv_width(), values = own_.values();
  const int64_t numbers = own_.numbers() * own_.value_heads, narrow = own_.decay_rank;
  const int64_t made = narrow > 0 ? narrow * (shape_.hidden + numbers) : shape_.hidden * numbers;
  const int64_t products = shape_.hidden * (mixed + 2 * values) + made;
  const int64_t solved = own_.recurrence == Recurrence::kGatedDelta ? 1 : 0;
  const int64_t of_head = (1 + 2 * solved) * kChunk * own_.key_width +
                          (1 + solved) * kChunk * own_.value_width +
                          (2 + solved) * own_.key_width * own_.value_width;
  return {.products = products,
          .recomputed = products,
          .scanned = own_.value_heads * of_head,
          .elements = 5 * shape_.hidden + (2 + own_.convolution) * mixed + 6 * values,
          .collectives = 2};
}

PartBytes RecurrentKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  const int64_t wide = std::max<int64_t>(4, element_bytes);
  const int64_t heads = own_.value_heads / tp;
  const int64_t mixed = own_.qkv_width() / tp, values = heads * own_.value_width;
  const int64_t projected = mixed + own_.numbers() * heads + values;
  const int64_t hidden_bytes = shape_.hidden * element_bytes;
  const int64_t norm_bytes = norm_bytes_of(shape_, element_bytes);
  PartBytes bytes;
  bytes.saved = {hidden_bytes + norm_bytes, (projected + values + own_.decay_rank) * element_bytes};
  bytes.border = {hidden_bytes, values * element_bytes};
  bytes.until_weight = {2 * hidden_bytes, (projected + values + 2 * own_.decay_rank) * element_bytes};
  bytes.recomputed = {norm_bytes, (projected + own_.decay_rank) * element_bytes};
  // In float. By row, of which margins make a quarter more where sequences are short: what the convolution
  // takes and gives, what of that is brought to its length or is scaled, and as backward ends all of these
  // again and gradients beside them.
  const auto with_more = [](int64_t elements) { return elements + elements / 4; };
  const bool gated = own_.recurrence == Recurrence::kGatedDelta, gla = own_.recurrence == Recurrence::kGla;
  const bool convolves = own_.convolution > 1;
  const int64_t own_keys = own_.key_heads / tp * own_.key_width;
  int64_t made = with_more((convolves ? 2 : 1) * mixed) + 2 * values;
  if (gated) made += 2 * own_keys;
  if (gla) made += own_keys;
  const int64_t mixes = with_more((convolves ? 8 : 2) * mixed) + 4 * own_keys + values;
  // By value head and place of a chunk, which are at most a quarter more than rows: keys' width, values',
  // rows of a chunk, and what a chunk's states are of a place (ops/recurrence_heads.h).
  const int64_t k = heads * own_.key_width, d = values, c = heads * kChunk;
  const int64_t s = heads * own_.key_width * own_.value_width / kChunk;
  const int64_t held = gated ? 4 * k + d + 4 * c : gla ? 6 * k + d + c : 3 * k + d + 2 * c;
  const int64_t there = std::max({3 * c + k, k + 2 * d + s, 4 * d});
  const int64_t back =
      std::max({k + 3 * d + 2 * s, 2 * k + 6 * d + s, gla ? 11 * k + 4 * d + c : 5 * k + 4 * d + 2 * c});
  bytes.forward = wide * (made + with_more(held + there));
  bytes.backward = wide * (made + std::max(with_more(held + back), mixes)) +
                   element_bytes * (5 * values + (tp > 1 ? shape_.hidden : 0));
  // Of one matrix a product beside what it is parted into, and gradients beside what they are joined to.
  if (own_.by_key_head || own_.recurrence == Recurrence::kMamba2) {
    bytes.forward += projected * element_bytes;
    bytes.backward += projected * element_bytes;
  }
  bytes.ring_backward = bytes.backward;
  return bytes;
}

// States as wide as they are summed, and the rows that a convolution still sees.
CacheBytes RecurrentKind::cache(const Cut& cut, int64_t element_bytes) const {
  const int64_t state = own_.value_heads * own_.key_width * own_.value_width;
  const int64_t last = std::max<int64_t>(0, own_.convolution - 1) * own_.qkv_width();
  return {.text = (state * std::max<int64_t>(4, element_bytes) + last * element_bytes) / cut.tp};
}

}  // namespace sluice::model
