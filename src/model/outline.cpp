#include "model/outline.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::text;

// The parameters of all matrices, wide enough not to overflow.
__int128 wide_parameters(const Outline& outline) {
  const __int128 hidden = outline.hidden;
  const __int128 attention = hidden * (2 * outline.q_width() + 2 * outline.kv_width());
  const Experts& experts = outline.experts;
  const __int128 wide = __int128{experts.count} * experts.hidden + experts.shared_hidden;
  const Recurrent& own = outline.recurrent;
  const __int128 recurrent = hidden * (2 * __int128{own.key_heads} * own.key_width +
                                       3 * __int128{own.value_heads} * own.value_width);
  return outline.layers * (attention + recurrent + 3 * hidden * (outline.ffn_hidden + wide)) +
         (outline.tie_embeddings ? 1 : 2) * outline.vocab * hidden;
}

// The name, with the quotient that gives the value by default.
std::string head_dim_name(const Outline& outline) {
  if (outline.latent.kv_rank > 0 || outline.hidden / outline.heads != outline.head_dim)
    return "model: head_dim";
  return text("model: head_dim (hidden ", outline.hidden, " / heads ", outline.heads, ")");
}

void validate_factors(const std::string& name, const std::vector<double>& factors, const Outline& outline) {
  if (static_cast<int64_t>(factors.size()) * 2 != outline.rotated_width()) {
    throw InputError(text("model: rope ", name, " has ", factors.size(),
                          " factors: give one for each of the ", outline.rotated_width() / 2,
                          " pairs of a head"));
  }
  for (const double factor : factors)
    base::require_in_range(text("model: rope ", name), factor, kModelRanges.rope_factor);
}

void validate_experts(const Outline& outline) {
  const Experts& experts = outline.experts;
  if (experts.count == 0) return;
  const ModelRanges& ranges = kModelRanges;
  base::require_in_range("model: experts", experts.count, ranges.experts);
  base::require_in_range("model: groups of experts", experts.groups, {1, experts.count});
  const int64_t of_group = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || (experts.groups > 1 && of_group < 2)) {
    throw InputError(text("model: ", experts.groups, " groups of ", experts.count,
                          " experts: give a number that divides them, of groups of two or more"));
  }
  base::require_in_range("model: groups that a token chooses", experts.groups_chosen, {1, experts.groups});
  base::require_in_range("model: experts of a token", experts.per_token,
                         {1, experts.groups_chosen * of_group});
  base::require_in_range("model: hidden of an expert", experts.hidden, ranges.ffn_hidden);
  base::require_in_range("model: hidden of shared experts", experts.shared_hidden,
                         {0, ranges.ffn_hidden.most});
}

void validate_recurrent(const Outline& outline) {
  const Recurrent& own = outline.recurrent;
  const bool any = std::ranges::any_of(outline.block_types, &BlockType::recurrent);
  if (own.key_heads == 0 && !any) return;
  const ModelRanges& ranges = kModelRanges;
  base::require_in_range("model: key heads of recurrent layers", own.key_heads, ranges.heads);
  base::require_in_range("model: value heads of recurrent layers", own.value_heads, ranges.heads);
  // Convolutions of channels have no keys.
  const bool convolves_alone = own.recurrence == Recurrence::kGla && own.convolution > 1;
  base::require_in_range("model: key width of recurrent layers", own.key_width,
                         {convolves_alone ? 0 : 1, ranges.recurrent_width.most});
  base::require_in_range("model: value width of recurrent layers", own.value_width, ranges.recurrent_width);
  base::require_in_range("model: convolution of recurrent layers", own.convolution, ranges.convolution);
  base::require_in_range("model: scale of recurrent layers' rates", own.rate_scale, {1.0, 2.0});
  base::require_in_range("model: norm_eps of recurrent layers", own.norm_eps, ranges.norm_eps);
  const bool by_channel = own.recurrence == Recurrence::kGla || own.recurrence == Recurrence::kKda;
  base::require_in_range("model: rank of recurrent layers' decays", own.decay_rank,
                         by_channel ? ranges.hidden : base::Range<int64_t>{0, 0});
  if (own.value_heads % own.key_heads != 0 || (by_channel && own.value_heads != own.key_heads)) {
    throw InputError(text("model: recurrent layers have ", own.value_heads,
                          " value heads, no multiple of their ", own.key_heads,
                          " key heads: give one that is"));
  }
}

void validate_latent(const Latent& latent) {
  if (latent.kv_rank == 0) return;
  const ModelRanges& ranges = kModelRanges;
  base::require_in_range("model: rank of latent queries", latent.q_rank, {0, ranges.hidden.most});
  base::require_in_range("model: rank of latent keys and values", latent.kv_rank, ranges.hidden);
  base::require_in_range("model: unrotated width of a head", latent.unrotated, {0, ranges.head_dim.most});
  base::require_in_range("model: rotated width of a head", latent.rotated, ranges.head_dim);
  base::require_in_range("model: width of a head's values", latent.values, ranges.head_dim);
  const int64_t keys = latent.unrotated + latent.rotated;
  if (latent.values <= keys) return;
  throw base::InputError(
      base::text("model: a head's values are ", latent.values, " wide (v_head_dim), its keys ", keys,
                 " (qk_nope_head_dim + qk_rope_head_dim): nothing is wrong with that, but values ",
                 "that are wider than keys are not computed yet; choose a model without them"));
}

void validate_rope(const Rope& rope, const Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  base::require_in_range("model: rope_theta", rope.theta, ranges.rope_theta);
  if (rope.scaling == RopeScaling::kNone) return;
  base::require_in_range("model: rope factor", rope.factor, ranges.rope_factor);
  if (rope.scaling == RopeScaling::kLinear) return;
  base::require_in_range("model: rope original_max_position_embeddings",
                         rope.original_max_position_embeddings, ranges.max_positions);
  base::require_in_range("model: rope attention_factor", rope.attention_factor,
                         {0.0, ranges.rope_factor.most});
  if (rope.scaling == RopeScaling::kLongRope) {
    validate_factors("short_factor", rope.short_factors, outline);
    validate_factors("long_factor", rope.long_factors, outline);
    return;
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    base::require_in_range("model: rope low_freq_factor", rope.low_freq_factor, ranges.rope_factor);
    base::require_in_range("model: rope high_freq_factor", rope.high_freq_factor, ranges.rope_factor);
    if (rope.high_freq_factor > rope.low_freq_factor) return;
    throw InputError(text("model: rope high_freq_factor is ", rope.high_freq_factor,
                          ": give one above low_freq_factor ", rope.low_freq_factor));
  }
  base::require_in_range("model: rope beta_slow", rope.beta_slow, ranges.rope_factor);
  base::require_in_range("model: rope beta_fast", rope.beta_fast, {rope.beta_slow, ranges.rope_factor.most});
  if (!(rope.theta > 1)) {
    throw InputError(text("model: rope_theta is ", rope.theta, ": rope type yarn needs one above 1"));
  }
}

void validate_mlp(const Outline& outline) {
  if (outline.norm.biases && (outline.norm.kind != NormKind::kLayer || !outline.norm.weights))
    throw InputError("model: norms have biases beside LayerNorm's weights alone: leave them out");
  if (!outline.mlp_gate && outline.activation == Activation::kClampedSilu)
    throw InputError("model: an activation with cuts is one of gates: give MLPs a gate");
  if ((outline.mlp_gate || outline.experts.count > 0) && outline.activation == Activation::kXielu)
    throw InputError("model: xIELU is an activation of MLPs without gates: give them none, and no experts");
}

void validate_blocks(const Outline& outline) {
  if (outline.window != 0) base::require_in_range("model: window", outline.window, kModelRanges.window);
  if (outline.block_types.empty()) return;
  if (static_cast<int64_t>(outline.block_types.size()) != outline.layers) {
    throw InputError(text("model: there are types of ", outline.block_types.size(), " layers of ",
                          outline.layers, ": say them of each"));
  }
  const bool windowed = std::ranges::any_of(outline.block_types, &BlockType::windowed);
  if (windowed && outline.window == 0) {
    throw InputError("model: layers attend through a window, but its width is missing: give one");
  }
}

}  // namespace

void validate(const Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  base::require_in_range("model: layers", outline.layers, ranges.layers);
  base::require_in_range("model: hidden", outline.hidden, ranges.hidden);
  base::require_in_range("model: heads", outline.heads, ranges.heads);
  base::require_in_range("model: kv_heads", outline.kv_heads, ranges.heads);
  base::require_in_range(head_dim_name(outline), outline.head_dim, ranges.head_dim);
  // Only a model whose layers are all recurrent may lack MLPs.
  const auto mixes_by_attention = [&](const BlockType& type) { return !type.recurrent; };
  const bool attends =
      outline.block_types.empty() || std::ranges::any_of(outline.block_types, mixes_by_attention);
  base::require_in_range("model: ffn_hidden", outline.ffn_hidden,
                         {attends ? ranges.ffn_hidden.least : 0, ranges.ffn_hidden.most});
  base::require_in_range("model: vocab", outline.vocab, ranges.vocab);
  base::require_in_range("model: norm_eps", outline.norm_eps, ranges.norm_eps);
  if (outline.heads % outline.kv_heads != 0) {
    throw InputError(text("model: heads is ", outline.heads, ", no multiple of the ", outline.kv_heads,
                          " kv_heads: give one that is"));
  }
  if (outline.head_dim % 2 != 0) {
    throw InputError(
        text(head_dim_name(outline), " is ", outline.head_dim, ": rotary positions need an even one"));
  }
  if (outline.rotated % 2 != 0 || outline.rotated < 0 || outline.rotated > outline.head_dim) {
    throw InputError(text("model: positions turn ", outline.rotated, " of a head's ", outline.head_dim,
                          " dimensions: give an even number of them"));
  }
  validate_mlp(outline);
  validate_latent(outline.latent);
  validate_experts(outline);
  validate_recurrent(outline);
  if (wide_parameters(outline) > ranges.parameters.most) {
    throw InputError(text("model: ", outline.layers, " layers of hidden ", outline.hidden, " and ffn_hidden ",
                          outline.ffn_hidden, " have more than ", ranges.parameters.most,
                          " parameters: lower one"));
  }
  validate_rope(outline.rope, outline);
  if (outline.window_rope) validate_rope(*outline.window_rope, outline);
  validate_blocks(outline);
  const std::pair<const char*, double> factors[] = {{"embedding", outline.embedding_scale},
                                                    {"residual", outline.residual_scale},
                                                    {"logit", outline.logit_divisor}};
  for (const auto& [name, factor] : factors) {
    base::require_in_range(text("model: ", name, " factor"), factor, ranges.factor);
  }
  base::require_in_range("model: attention factor", outline.attention_scale, {0.0, ranges.factor.most});
  base::require_in_range("model: cap of scores", outline.score_cap, {0.0, ranges.factor.most});
  base::require_in_range("model: cap of logits", outline.logit_cap, {0.0, ranges.factor.most});
  base::require_in_range("model: norm offset", outline.norm_offset, {0.0, 1.0});
}

namespace {

Outline llama(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn_hidden) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn_hidden = ffn_hidden,
          .vocab = 32000};
}

}  // namespace

Outline named_outline(const std::string& name) {
  // 7B and 13B: Touvron et al., LLaMA 2, and its published configurations. 32B: the outline of Hydraulis'
  // experiments in Hetu's training scripts (60 layers of width 6656, 64 heads, FFN 17920).
  if (name == "llama-7b") return llama(32, 4096, 32, 11008);
  if (name == "llama-13b") return llama(40, 5120, 40, 13824);
  if (name == "llama-32b") return llama(60, 6656, 64, 17920);
  throw InputError(
      text("model '", name, "' is unknown: choose llama-7b, llama-13b, llama-32b or a Hugging Face folder"));
}

}  // namespace sluice::model
