#include <algorithm>
#include <utility>

#include "base/text.h"
#include "model/derive.h"
#include "model/make_parts.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr int64_t kChunk = 64;  // rows of a chunk in most recurrences (ops/recurrence.h)

struct HeadGroups {
  RowGroup keys, values, each;  // each: one number for each value head
};
HeadGroups groups_of(const StateHeads& heads) {
  return {{heads.key_heads * heads.key_width, heads.key_heads},
          {heads.values(), heads.value_heads},
          {heads.value_heads, heads.value_heads}};
}

Weight convolution(const char* tensor, const StateHeads& heads, std::vector<RowGroup> mixed) {
  Weight weight = matrix(roles::kConvolution, {tensor}, heads.convolution, std::move(mixed), Use::kVector);
  weight.form = FileForm::kDepthwise;
  weight.adapts = false;
  return weight;
}

// A chunk's work and memory: the figures in which recurrences differ.
struct Chunks {
  int64_t solved = 0;     // 1: a chunk's updates solve a system
  int64_t unit_keys = 0;  // copies of keys that are normed or scaled
  int64_t forward_k = 0,
          forward_c = 0;  // in forward: factors of keys' width and of a chunk's rows
  int64_t backward_k = 0, backward_c = 0;
};

// Memory of a pass, in float. By row, with a quarter more for margins of short sequences: the
// convolution's input and output, normed or scaled copies, and at the end of backward all of these again
// with gradients. By value head and place of a chunk, at most a quarter more than rows: keys' width (k),
// values' width (d), a chunk's rows (c), and a chunk's state divided by its rows (s)
// (ops/recurrence_heads.h).
void add_passes(const StateHeads& own, const Chunks& chunks, const AtWork& at, MixerFigures& f) {
  const auto with_more = [](int64_t elements) { return elements + elements / 4; };
  const int64_t heads = own.value_heads / at.tp, mixed = own.mixed() / at.tp;
  const int64_t values = heads * own.value_width, keys = own.key_heads / at.tp * own.key_width;
  const bool convolves = own.convolution > 1;
  const int64_t made = with_more((convolves ? 2 : 1) * mixed) + 2 * values + chunks.unit_keys * keys;
  const int64_t mixes = with_more((convolves ? 8 : 2) * mixed) + 4 * keys + values;
  const int64_t k = heads * own.key_width, d = values, c = heads * kChunk;
  const int64_t s = heads * own.key_width * own.value_width / kChunk;
  const int64_t held = chunks.forward_k * k + d + chunks.forward_c * c;
  const int64_t there = std::max({3 * c + k, k + 2 * d + s, 4 * d});
  const int64_t back =
      std::max({k + 3 * d + 2 * s, 2 * k + 6 * d + s, chunks.backward_k * k + 4 * d + chunks.backward_c * c});
  f.forward = at.statistic * (made + with_more(held + there));
  f.backward = at.statistic * (made + std::max(with_more(held + back), mixes)) +
               at.element * (5 * values + at.gathered);
}

// Scanned work for each value head: scores and overlaps with a chunk's keys, the system's
// solution, outputs from updates, and the state's products. The output is saved beside the
// products' results. The cache has the states, as wide as they are summed, and the rows that a
// convolution still sees.
MixerFigures recurrent_figures(const StateHeads& own, const Chunks& chunks, const Part& part,
                               const AtWork& at) {
  MixerFigures f;
  f.scanned = own.value_heads * ((1 + 2 * chunks.solved) * kChunk * own.key_width +
                                 (1 + chunks.solved) * kChunk * own.value_width +
                                 (2 + chunks.solved) * own.key_width * own.value_width);
  f.elements = (2 + own.convolution) * own.mixed() + 6 * own.values();
  f.saved.own = f.border.own = own.value_heads / at.tp * own.value_width * at.element;
  add_passes(own, chunks, at, f);
  if (is_parted(part)) {  // MID the product beside its parts, and gradients beside the joined one
    f.forward += at.results * at.element;
    f.backward += at.results * at.element;
  }
  f.ring_backward = f.backward;
  const int64_t state = own.value_heads * own.key_width * own.value_width;
  f.cache.sequence =
      (state * at.statistic + std::max<int64_t>(0, own.convolution - 1) * own.mixed() * at.element) / at.tp;
  return f;
}

}  // namespace

Part delta_rule_part(const DeltaRule& own, int64_t hidden, RowOrder order) {
  const StateHeads& h = own.heads;
  const auto [keys, values, each] = groups_of(h);
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  if (order == RowOrder::kByKeyHead) {
    const int64_t shared = h.value_heads / h.key_heads, value = shared * h.value_width;
    const RowGroup all{
        2 * keys.rows + 2 * values.rows, h.key_heads, {h.key_width, h.key_width, value, value}};
    const RowGroup numbers{2 * h.value_heads, h.key_heads, {shared, shared}};
    w.push_back(matrix(roles::kRecurrentQkv, {"linear_attn.in_proj_qkvz.weight"}, hidden, {all}, Use::kIn));
    w.push_back(matrix(roles::kRates, {"linear_attn.in_proj_ba.weight"}, hidden, {numbers}, Use::kIn));
  } else {
    w.push_back(
        matrix(roles::kRecurrentQkv,
               {"linear_attn.q_proj.weight", "linear_attn.k_proj.weight", "linear_attn.v_proj.weight"},
               hidden, {keys, keys, values}, Use::kIn));
    w.push_back(matrix(roles::kRates, {"linear_attn.b_proj.weight", "linear_attn.a_proj.weight"}, hidden,
                       {each, each}, Use::kIn));
    w.push_back(matrix(roles::kRecurrentGate, {"linear_attn.g_proj.weight"}, hidden, {values}, Use::kIn));
  }
  if (h.convolution > 1) w.push_back(convolution("linear_attn.conv1d.weight", h, {keys, keys, values}));
  w.push_back(vector(roles::kDecay, {"linear_attn.A_log"}, {each}, Start::kDecay));
  w.push_back(vector(roles::kStepBias, {"linear_attn.dt_bias"}, {each}, Start::kStep));
  w.push_back(vector(roles::kHeadNorm, {"linear_attn.o_norm.weight"}, {{h.value_width, 0}}, Start::kOne));
  w.push_back(out(roles::kRecurrentOut, "linear_attn.o_proj.weight", hidden, values));
  return part;
}

MixerFigures figures_of(const DeltaRule& own, const Part& part, const AtWork& at) {
  const Chunks chunks{
      .solved = 1, .unit_keys = 2, .forward_k = 4, .forward_c = 4, .backward_k = 5, .backward_c = 2};
  return recurrent_figures(own.heads, chunks, part, at);
}

Part mamba2_part(const Mamba2& own, int64_t hidden, ConvolutionBias bias) {
  const StateHeads& h = own.heads;
  const auto [keys, values, each] = groups_of(h);
  const std::vector<RowGroup> mixed{values, keys, keys};
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  w.push_back(matrix(roles::kRecurrentQkv, {"mamba.in_proj.weight"}, hidden,
                     {values, values, keys, keys, each}, Use::kIn));
  if (h.convolution > 1) w.push_back(convolution("mamba.conv1d.weight", h, mixed));
  if (h.convolution > 1 && bias == ConvolutionBias::kOwn)
    w.push_back(vector(roles::kConvolutionBias, {"mamba.conv1d.bias"}, mixed, Start::kZero));
  w.push_back(vector(roles::kDecay, {"mamba.A_log"}, {each}, Start::kDecay));
  w.push_back(vector(roles::kStepBias, {"mamba.dt_bias"}, {each}, Start::kStep));
  w.push_back(vector(roles::kSkip, {"mamba.D"}, {each}, Start::kOne));
  if (own.normed) w.push_back(vector(roles::kHeadNorm, {"mamba.norm.weight"}, {values}, Start::kOne));
  w.push_back(out(roles::kRecurrentOut, "mamba.out_proj.weight", hidden, values));
  return part;
}

MixerFigures figures_of(const Mamba2& own, const Part& part, const AtWork& at) {
  return recurrent_figures(own.heads, {.forward_k = 3, .forward_c = 2, .backward_k = 5, .backward_c = 2},
                           part, at);
}

Part gla_part(const Gla& own, int64_t hidden) {
  const StateHeads& h = own.heads;
  const auto [keys, values, each] = groups_of(h);
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  w.push_back(matrix(roles::kRecurrentQkv, {"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"},
                     hidden, {keys, keys, values}, Use::kIn));
  w.push_back(
      matrix(roles::kDecayNarrow, {"attn.gk_proj.0.weight"}, hidden, {{own.decay_rank, 0}}, Use::kIn));
  w.push_back(matrix(roles::kRates, {"attn.gk_proj.1.weight"}, own.decay_rank, {keys}, Use::kInner));
  w.back().reads = 1;
  w[1].adapts = w[2].adapts = false;
  w.push_back(vector(roles::kStepBias, {"attn.gk_proj.1.bias"}, {keys}, Start::kZero));
  w.push_back(matrix(roles::kRecurrentGate, {"attn.g_proj.weight"}, hidden, {values}, Use::kIn));
  w.push_back(vector(roles::kHeadNorm, {"attn.g_norm_swish_gate.weight"}, {{h.value_width, 0}}, Start::kOne));
  w.push_back(out(roles::kRecurrentOut, "attn.o_proj.weight", hidden, values));
  return part;
}

MixerFigures figures_of(const Gla& own, const Part& part, const AtWork& at) {
  const Chunks chunks{.unit_keys = 1, .forward_k = 6, .forward_c = 1, .backward_k = 11, .backward_c = 1};
  return recurrent_figures(own.heads, chunks, part, at);
}

Part kda_part(const Kda& own, int64_t hidden) {
  const StateHeads& h = own.heads;
  const auto [keys, values, each] = groups_of(h);
  const RowGroup narrow{own.rank, 0};
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  const auto of_narrow = [&](std::string_view role, const char* tensor, const RowGroup& rows) {
    w.push_back(matrix(role, {tensor}, own.rank, {rows}, Use::kInner));
    w.back().reads = 1;
    w.back().adapts = false;
  };
  w.push_back(matrix(roles::kRecurrentQkv,
                     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
                     hidden, {keys, keys, values}, Use::kIn));
  w.push_back(matrix(roles::kDecayNarrow, {"self_attn.f_a_proj.weight", "self_attn.g_a_proj.weight"}, hidden,
                     {narrow, narrow}, Use::kIn));
  w.back().adapts = false;
  of_narrow(roles::kRates, "self_attn.f_b_proj.weight", keys);
  of_narrow(roles::kRecurrentGate, "self_attn.g_b_proj.weight", values);
  w.push_back(matrix(roles::kRate, {"self_attn.b_proj.weight"}, hidden, {each}, Use::kIn));
  if (h.convolution > 1) w.push_back(convolution("self_attn.conv1d.weight", h, {keys, keys, values}));
  w.push_back(vector(roles::kDecay, {"self_attn.A_log"}, {each}, Start::kDecay));
  w.back().form = FileForm::kByHead;
  w.push_back(vector(roles::kStepBias, {"self_attn.dt_bias"}, {keys}, Start::kStep));
  w.push_back(vector(roles::kHeadNorm, {"self_attn.o_norm.weight"}, {{h.value_width, 0}}, Start::kOne));
  w.push_back(out(roles::kRecurrentOut, "self_attn.o_proj.weight", hidden, values));
  return part;
}

MixerFigures figures_of(const Kda& own, const Part& part, const AtWork& at) {
  const Chunks chunks{
      .solved = 1, .unit_keys = 2, .forward_k = 9, .forward_c = 4, .backward_k = 14, .backward_c = 2};
  return recurrent_figures(own.heads, chunks, part, at);
}

Part short_convolution_part(const ShortConvolution& own, int64_t hidden, ConvolutionBias bias) {
  const StateHeads& h = own.heads;
  const auto [keys, values, each] = groups_of(h);
  const bool biased = bias == ConvolutionBias::kOwn;
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  w.push_back(
      matrix(roles::kRecurrentQkv, {"conv.in_proj.weight"}, hidden, {values, values, values}, Use::kIn));
  if (biased)
    w.push_back(
        vector(roles::kRecurrentQkvBias, {"conv.in_proj.bias"}, {values, values, values}, Start::kZero));
  w.push_back(convolution("conv.conv.weight", h, {values}));
  if (biased) w.push_back(vector(roles::kConvolutionBias, {"conv.conv.bias"}, {values}, Start::kZero));
  w.push_back(out(roles::kRecurrentOut, "conv.out_proj.weight", hidden, values));
  if (biased)
    w.push_back(vector(roles::kRecurrentOutBias, {"conv.out_proj.bias"}, {{hidden, 0}}, Start::kZero));
  return part;
}

// The convolution's output is saved and its input recomputed. A pass holds in float the rows with
// margins (a quarter more for short sequences), the convolution's output, and in a backward their
// gradients.
MixerFigures figures_of(const ShortConvolution& own, const Part&, const AtWork& at) {
  const int64_t values = own.heads.values() / at.tp, e = at.element, wide = at.statistic;
  MixerFigures f{.scanned = own.heads.convolution * own.heads.values(), .elements = 4 * own.heads.values()};
  f.saved.own = f.border.own = values * e;
  f.forward = wide * 5 * values + e * 3 * values;
  f.backward = wide * 10 * values + e * (8 * values + at.gathered);
  f.ring_backward = f.backward;
  f.cache.sequence = std::max<int64_t>(0, own.heads.convolution - 1) * own.heads.mixed() * e / at.tp;
  return f;
}

std::string tp_fault_of(const StateHeads& own, int tp) {
  if (own.key_heads % tp == 0) return "";
  return base::text("tp ", tp, " does not divide ", own.key_heads, " key heads of recurrent layers");
}

}  // namespace sluice::model
