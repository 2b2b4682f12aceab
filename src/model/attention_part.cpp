#include <algorithm>
#include <utility>

#include "base/text.h"
#include "model/derive.h"
#include "model/make_parts.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

// Gates that stand apart come after queries, keys and values.
std::vector<std::string> names_of_in(const Attention& own, std::string_view what) {
  std::vector<std::string> names;
  for (const char* name : {"q", "k", "v"}) {
    if (*name == 'v' && own.keys_are_values) continue;
    if (*name != 'q' && !own.makes_keys()) continue;
    names.push_back(base::text("self_attn.", name, "_proj.", std::string(what)));
  }
  if (own.gated && own.gates_apart) names.push_back(base::text("self_attn.gate_proj.", std::string(what)));
  return names;
}

Weight head_norm(std::string_view role, std::string_view tensor, const Attention& own, RowGroup heads) {
  if (own.head_norm == QkNorm::kAllHeads)
    return vector(role, {std::string(tensor)}, {std::move(heads)}, Start::kOne);
  return vector(role, {std::string(tensor)}, {{own.head_dim, 0}},
                own.norm_offset == 0 ? Start::kOne : Start::kZero);
}

}  // namespace

Part attention_part(const Attention& own, int64_t hidden, const Biases& biases) {
  const RowGroup q{own.heads * own.head_dim, own.heads}, kv{own.kv_heads * own.head_dim, own.kv_heads};
  std::vector<RowGroup> groups{q};
  if (own.makes_keys()) groups.insert(groups.end(), own.keys_are_values ? 1 : 2, kv);
  if (own.gated && own.gates_apart) groups.push_back(own.gates_of_heads ? RowGroup{own.heads, own.heads} : q);
  if (own.gated && !own.gates_apart) groups[0] = {2 * q.rows, own.heads, {own.head_dim, own.head_dim}};
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  w.push_back(matrix(roles::kQkv, names_of_in(own, "weight"), hidden, groups, Use::kIn));
  if (biases.in) w.push_back(vector(roles::kQkvBias, names_of_in(own, "bias"), groups, Start::kZero));
  if (own.head_norm != QkNorm::kNone && own.head_norm_style.weights) {
    w.push_back(head_norm(roles::kQNorm, "self_attn.q_norm.weight", own, q));
    if (own.makes_keys()) w.push_back(head_norm(roles::kKNorm, "self_attn.k_norm.weight", own, kv));
  }
  if (own.sinks)
    w.push_back(vector(roles::kSinks, {"self_attn.sinks"}, {{own.heads, own.heads}}, Start::kZero));
  w.push_back(out(roles::kAttentionOut, "self_attn.o_proj.weight", hidden, q));
  if (biases.out)
    w.push_back(vector(roles::kAttentionOutBias, {"self_attn.o_proj.bias"}, {{hidden, 0}}, Start::kZero));
  return part;
}

// Elementwise work: rotation of queries and keys, attention's output, norms and gates of heads.
MixerFigures figures_of(const Attention& own, const Part&, const AtWork& at) {
  const int64_t heads = at.of_rank(own.heads), q = heads * own.head_dim;
  // A rank has at least one key head: with more ranks than heads, several ranks hold the same one.
  const int64_t block = 2 * std::max<int64_t>(1, own.kv_heads / at.tp) * own.head_dim, qkv = q + block;
  const bool norms = own.head_norm != QkNorm::kNone, makes = own.makes_keys();
  const int64_t values = own.normed_values && makes ? block / 2 : 0;
  // Columns besides the product's: values copied from keys, or keys and values of another layer.
  const int64_t again = !makes ? block : own.keys_are_values ? block / 2 : 0;
  const int64_t unnormed = norms ? q + (makes ? block / 2 : 0) + values : 0, gate = own.gated ? q : 0;
  const int64_t all_q = own.heads * own.head_dim, all_kv = own.kv_heads * own.head_dim;
  const int64_t e = at.element,
                wide = at.statistic / e;  // an accumulator's element, in elements
  // Attention's work counts half of all pairs, the causal ones; without causality twice as much.
  MixerFigures f{.attention = own.causal ? all_q : 2 * all_q, .window = own.window};
  f.elements =
      (norms ? 4 : 2) * (all_q + all_kv) + (own.gated ? 4 * all_q : 0) + (own.normed_values ? 3 : 0) * all_kv;
  // Saved beside the product's result: heads before their norms, the output, its log-sum-exp. Recomputation
  // keeps gates.
  f.saved.own = (unnormed + q + again) * e + heads * at.statistic;
  f.border.own = (q + (own.gates_of_heads ? heads : gate)) * e + heads * at.statistic;
  if (own.sharing == KeySharing::kLends) {  // a copy for later layers
    f.saved.own += block * e;
    f.border.own += block * e;
  }
  // Forward: a normed copy of queries; a product of queries and gates beside its parts; a copy of neighbours
  // that rotate, put apart; a number for each row if queries grow. Backward: queries with their gradients on
  // both sides of the norm; the product's gradients likewise.
  const bool parts = own.turning == Turning::kNeighbours && own.rope;
  const int64_t grown = own.growth.beta != 0 ? 4 * int64_t{sizeof(double)} : 0;
  const int64_t shared = again > 0 ? q + again : 0;  // the product, beside the tensor that it is joined into
  f.forward = ((norms ? q : 0) + (parts ? q + block / 2 : 0) + 4 * gate + shared) * e + grown;
  const int64_t gating = (own.gated ? qkv + 3 * gate : 0) + shared;
  // Gradients overwrite queries, keys and values.
  f.backward = e * (at.gathered + gating +
                    std::max(norms   ? 4 * q
                             : parts ? 2 * q + block / 2
                                     : q,
                             at.behind(0))) +
               grown;
  // In a ring gradients need memory of their own. Two blocks of keys and values pass by. Three blocks have
  // gradients: this lane's, those sent, those received. Each block is as wide as keys and values together.
  // Further: a copy to send and wide gradients of queries.
  f.ring_backward =
      e * (at.gathered + gating + q + qkv + (4 + wide) * block + (wide > 1 ? block + wide * q : 0)) + grown;
  // With a window, rows of two steps come and go, then their gradients; own gradients stay wide.
  if (own.window > 0) f.ring_backward += e * (2 + wide) * block;
  // Gradients of shared keys and values, and their sum.
  if (own.sharing != KeySharing::kOwn) {
    f.backward += 2 * block * e;
    f.ring_backward += 2 * block * e;
  }
  // Keys and values of all tokens, even if a window sees only the last ones.
  f.cache.token = block * e;
  return f;
}

std::string tp_fault_of(const Attention& own, int tp) {
  if (own.heads % tp != 0) return base::text("tp ", tp, " does not divide ", own.heads, " heads");
  if (own.kv_heads % tp != 0 && tp % own.kv_heads != 0) {
    return base::text("tp ", tp, " neither divides ", own.kv_heads, " kv_heads nor is a multiple of them");
  }
  return "";
}

// Narrow rows are whole on every TP rank; each makes them for its own rows.
Part latent_attention_part(const LatentAttention& own, int64_t hidden, const Biases& biases) {
  const auto by_head = [&](int64_t width) { return RowGroup{own.heads * width, own.heads}; };
  Part part{.mixer = own};
  std::vector<Weight>& w = part.weights;
  const auto narrow = [&](std::string_view role, const char* tensor, int64_t rows) {
    w.push_back(matrix(role, {tensor}, hidden, {{rows, 0}}, Use::kIn));
    w.back().place = Place::kShard;
    return static_cast<int>(w.size()) - 1;
  };
  // Results are not kept: queries, keys and values are saved as attention takes them.
  const auto of_heads = [&](std::string_view role, const char* tensor, int64_t rows, int64_t columns,
                            int reads) {
    w.push_back(
        matrix(role, {tensor}, columns, {by_head(rows)}, reads == kNormedRows ? Use::kIn : Use::kInner));
    w.back().reads = reads;
    w.back().kept = false;
  };
  if (own.q_rank > 0) {
    const int q_reads = narrow(roles::kQNarrow, "self_attn.q_a_proj.weight", own.q_rank);
    w.push_back(vector(roles::kQNorm, {"self_attn.q_a_layernorm.weight"}, {{own.q_rank, 0}}, Start::kOne));
    of_heads(roles::kQ, "self_attn.q_b_proj.weight", own.width(), own.q_rank, q_reads);
  } else {
    of_heads(roles::kQ, "self_attn.q_proj.weight", own.width(), hidden, kNormedRows);
  }
  const int kv_reads =
      narrow(roles::kKvNarrow, "self_attn.kv_a_proj_with_mqa.weight", own.kv_rank + own.rotated);
  w.push_back(vector(roles::kKvNorm, {"self_attn.kv_a_layernorm.weight"}, {{own.kv_rank, 0}}, Start::kOne));
  of_heads(roles::kKv, "self_attn.kv_b_proj.weight", own.unrotated + own.values, own.kv_rank, kv_reads);
  w.push_back(out(roles::kAttentionOut, "self_attn.o_proj.weight", hidden, by_head(own.values)));
  if (biases.in)
    w.push_back(vector(roles::kNarrowBias, {"self_attn.a_proj.bias"}, {{own.narrow(), 0}}, Start::kNormal));
  if (biases.out)
    w.push_back(vector(roles::kAttentionOutBias, {"self_attn.o_proj.bias"}, {{hidden, 0}}, Start::kNormal));
  forbid_adapters(part);
  return part;
}

// Elementwise work: norms of narrow rows (3 each), reads and writes of queries, keys and values to rotate
// and join them, and attention's output. Queries, keys, values and attention's output are all as wide as
// keys.
MixerFigures figures_of(const LatentAttention& own, const Part&, const AtWork& at) {
  const int64_t all_keys = own.heads * own.width(), all_values = own.heads * own.values;
  const int64_t heads = at.of_rank(own.heads), keys = heads * own.width(), values = heads * own.values;
  const int64_t made = keys + heads * (own.unrotated + own.values);  // made from narrow rows
  const int64_t e = at.element, wide = at.statistic / e, narrow = own.narrow(), hidden = at.hidden;
  MixerFigures f{.attention = (all_keys + all_values) / 2};
  f.elements = 3 * narrow + 4 * all_keys + 3 * all_values;
  f.saved.own = 4 * keys * e + heads * at.statistic;
  f.border.own = keys * e + heads * at.statistic;
  const int64_t grown = own.growth.beta != 0 ? 4 * int64_t{sizeof(double)} : 0;
  f.forward = e * (2 * hidden + 2 * narrow + made + values) + grown;
  f.backward = e * (3 * hidden + 3 * narrow + 3 * keys + 2 * made + 2 * values) + grown;
  // As in attention: two blocks pass by; one block's gradients are added, sent and received, partly wide.
  const int64_t block = 2 * keys;
  f.ring_backward = f.backward + e * ((4 + wide) * block + (wide > 1 ? block + wide * keys : 0));
  // The narrow row from which all heads' keys and values are made, whole on every TP rank.
  f.cache.token = (own.kv_rank + own.rotated) * e;
  return f;
}

std::string tp_fault_of(const LatentAttention& own, int tp) {
  return own.heads % tp == 0 ? "" : base::text("tp ", tp, " does not divide ", own.heads, " heads");
}

}  // namespace sluice::model
