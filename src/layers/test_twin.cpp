#include "layers/test_twin.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "layers/test_twin_weights.h"
#include "model/layer_of.h"
#include "model/outline.h"
#include "model/parameters.h"

namespace sluice::layers {

model::Outline small_shape(int64_t heads, int64_t kv_heads, bool tied) {
  model::Outline outline{.layers = 2,
                         .hidden = 20,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .head_dim = 6,
                         .ffn_hidden = 22,
                         .vocab = 37,
                         .tie_embeddings = tied};
  outline.rope.scaling = model::RopeScaling::kYarn;
  outline.rope.factor = 4.0;
  outline.rope.original_max_position_embeddings = 16;
  return outline;
}

Data random_data(const Case& c) {
  at::manual_seed(3);
  Data data;
  for (const model::Bucket& bucket : model::parameter_table(c.model).buckets) {
    at::Tensor flat = at::randn({bucket.size}, at::kDouble) * 0.3;
    for (const model::Parameter& p : bucket.parameters) {
      if (p.one_dimensional()) flat.narrow(0, p.offset, p.size()).add_(1.0);
    }
    data.flats.push_back(flat.to(c.dtype));
  }
  for (const int64_t length : c.lengths) {
    const at::Tensor ids = at::randint(0, c.model.vocab, {length}, at::kLong);
    for (int64_t i = 0; i < length; ++i) {
      data.ids.push_back(ids[i].item<int64_t>());
      data.targets.push_back(i + 1 < length && i % 5 != 3 ? ids[i + 1].item<int64_t>() : -1);
    }
  }
  return data;
}

namespace {

// The layer of an operation, or the MTP layer of a head.
const model::Layer& layer_at(const model::ParameterTable& table, int64_t position) {
  const model::Kind& kind = table.program.kind_at(position);
  return kind.layer() != nullptr ? *kind.layer() : kind.head()->mtp->layer;
}

// Attention's values, or defaults for a layer without attention.
model::Attention attention_of(const model::Layer& layer) {
  const auto* const found = std::get_if<model::Attention>(&layer.parts.front().mixer);
  return found != nullptr ? *found : model::Attention();
}

struct TwinLayer {
  at::Tensor q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, out, gate, up, down;
  at::Tensor sinks, out_bias, gate_bias, up_bias, down_bias;
  at::Tensor router, experts_gate_up, experts_down, shared_gate_up, shared_down, shared_gate;
  at::Tensor router_bias, experts_gate_up_bias, experts_down_bias, router_correction, router_loads;
  at::Tensor q_narrow, kv_narrow, kv_norm, latent_q, latent_kv;
  at::Tensor head_gate, head_gate_bias;
  at::Tensor router_scale, expert_scales, alphas;
  model::Layer own;

  model::Attention attention() const { return attention_of(own); }
};

at::Tensor flat(const at::Tensor& x) { return x.defined() ? x.view(-1) : x; }

TwinLayer twin_layer(const model::ParameterTable& table, const model::Outline& outline, int64_t position,
                     const std::vector<at::Tensor>& flats) {
  const auto whole = [&](std::string_view role) { return stored(table, position, flats, role); };
  const auto vector = [&](std::string_view role) { return flat(whole(role)); };
  const at::Tensor qkv = whole("qkv"), bias = vector("qkv_bias"), gate_up = whole("gate_up");
  const int64_t q = outline.q_width(), kv = outline.kv_width(), ffn = outline.ffn_hidden;
  const int64_t up = outline.mlp_gate ? ffn : 0;  // first row of `up`
  const auto part = [](const at::Tensor& all, int64_t begin, int64_t rows) {
    return all.defined() ? all.narrow(0, begin, rows) : all;
  };
  const model::Layer& own = layer_at(table, position);
  const model::Attention heads = attention_of(own);
  const bool apart = heads.gates_apart;
  const int64_t values = heads.keys_are_values ? 0 : kv, gates = heads.gates_of_heads ? outline.heads : q;
  const int64_t asked = outline.gated && !apart ? 2 * q : q;
  const auto gate = [&](const at::Tensor& x) {
    return part(apart ? x : at::Tensor(), asked + 2 * kv, gates);
  };
  return {part(qkv, 0, asked),
          part(qkv, asked, kv),
          part(qkv, asked + values, kv),
          part(bias, 0, asked),
          part(bias, asked, kv),
          part(bias, asked + values, kv),
          vector("q_norm"),
          vector("k_norm"),
          whole("attention_out"),
          part(gate_up, 0, ffn),
          part(gate_up, up, ffn),
          whole("down"),
          vector("sinks"),
          vector("attention_out_bias"),
          part(vector("gate_up_bias"), 0, ffn),
          part(vector("gate_up_bias"), up, ffn),
          vector("down_bias"),
          whole("router"),
          whole("experts_gate_up"),
          whole("experts_down"),
          whole("shared_gate_up"),
          whole("shared_down"),
          whole("shared_gate"),
          vector("router_bias"),
          vector("experts_gate_up_bias"),
          vector("experts_down_bias"),
          vector("router_correction"),
          vector("router_loads"),
          whole("q_narrow"),
          whole("kv_narrow"),
          vector("kv_norm"),
          whole("q"),
          whole("kv"),
          gate(qkv),
          gate(bias),
          vector("router_scale"),
          vector("expert_scales"),
          vector("activation_alphas"),
          own};
}

at::Tensor twin_norm(const model::Outline& outline, const at::Tensor& x, const at::Tensor& weight) {
  return x * at::rsqrt(x.square().mean(-1, true) + outline.norm_eps) * (outline.norm_offset + weight);
}

// A norm of rows, of the kind that the shape says; its vectors may be missing.
at::Tensor twin_row_norm(const model::Outline& outline, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias) {
  const at::Tensor own = weight.defined() ? weight : at::ones({x.size(-1)}, x.options());
  if (outline.norm.kind == model::NormKind::kLayer)
    return at::layer_norm(x, {x.size(-1)}, own + outline.norm_offset, bias, outline.norm_eps);
  return twin_norm(outline, x, own);
}

// c·tanh(x/c), or with a cap of 0 x.
at::Tensor twin_cap(const at::Tensor& x, double cap) { return cap > 0 ? cap * at::tanh(x / cap) : x; }

// x [heads, length, dimension]
at::Tensor twin_rotate(const model::Outline& outline, const at::Tensor& x, int64_t layer,
                       model::Turning turning) {
  const model::Rope& rope = outline.rope_of(outline.block_type(layer));
  const model::RopeTable table = model::rope_table(rope, outline.rotated_width(), 64);
  const at::Tensor position = at::arange(x.size(1), at::kDouble).unsqueeze(1);
  const at::Tensor angle = position * at::tensor(table.inverse_frequencies, at::kDouble);
  const at::Tensor c = at::cat({angle, angle}, 1).cos() * table.attention_scale;
  const double way = turning == model::Turning::kHalvesBackwards ? -1 : 1;
  const at::Tensor s = at::cat({angle, angle}, 1).sin() * table.attention_scale * way;
  const int64_t width = outline.rotated_width(), half = width / 2;
  const at::Tensor turned = x.narrow(2, 0, width);
  const at::Tensor result = turned * c + at::cat({-x.narrow(2, half, half), x.narrow(2, 0, half)}, 2) * s;
  return at::cat({result, x.narrow(2, width, x.size(2) - width)}, 2);
}

// Pairs side by side turn, as in the papers. x [heads, length, dimension]
at::Tensor twin_rotate_pairs(const model::Outline& outline, const at::Tensor& x) {
  const model::RopeTable table = model::rope_table(outline.rope, x.size(2), 64);
  const at::Tensor position = at::arange(x.size(1), at::kDouble).unsqueeze(1);
  const at::Tensor angle = position * at::tensor(table.inverse_frequencies, at::kDouble);
  const at::Tensor c = angle.cos() * table.attention_scale, s = angle.sin() * table.attention_scale;
  const at::Tensor a = x.slice(2, 0, x.size(2), 2), b = x.slice(2, 1, x.size(2), 2);
  return at::stack({a * c - b * s, b * c + a * s}, 3).flatten(2);
}

// Rotated as the layer rotates heads, if it does.
at::Tensor twin_turned(const model::Outline& outline, const at::Tensor& x, int64_t layer,
                       model::Turning turning) {
  if (!outline.block_type(layer).rotates) return x;
  if (turning != model::Turning::kNeighbours) return twin_rotate(outline, x, layer, turning);
  const int64_t width = outline.rotated_width();
  return at::cat({twin_rotate_pairs(outline, x.narrow(2, 0, width)), x.narrow(2, width, x.size(2) - width)},
                 2);
}

// Queries [heads, length, dimension] times the factor of their positions.
at::Tensor twin_grown(const model::QueryGrowth& growth, const at::Tensor& q) {
  const auto& [beta, positions, first] = growth;
  const at::Tensor eras =
      at::floor(at::arange(q.size(1), at::kDouble) / static_cast<double>(positions)).view({1, -1, 1});
  return q * (1 + beta * at::log(1 + eras));
}

// Queries or keys of one sequence: y·wᵀ + bias, normed and rotated as the shape says. [heads, length,
// dimension]
at::Tensor twin_heads(const model::Outline& outline, const TwinLayer& w, const at::Tensor& y,
                      const at::Tensor& w_part, const at::Tensor& bias, const at::Tensor& norm,
                      int64_t layer) {
  const model::Attention own = w.attention();
  const int64_t length = y.size(0);
  at::Tensor all = at::matmul(y, w_part.t());
  if (bias.defined()) all = all + bias;
  // In a gated head, queries come first.
  const int64_t gated = 2 * outline.head_dim;
  if (all.size(1) == outline.heads * gated && outline.gated && !own.gates_apart)
    all = all.view({length, -1, gated}).narrow(2, 0, outline.head_dim).reshape({length, -1});
  if (outline.qk_norm == model::QkNorm::kAllHeads) all = twin_norm(outline, all, norm);
  all = all.view({length, -1, outline.head_dim}).transpose(0, 1);
  const auto& [behind, weights] = own.head_norm_style;
  if (behind) all = twin_turned(outline, all, layer, own.turning);
  if (outline.qk_norm == model::QkNorm::kEachHead)
    all = twin_norm(outline, all, weights ? norm : at::ones({outline.head_dim}, all.options()));
  return behind ? all : twin_turned(outline, all, layer, own.turning);
}

at::Tensor twin_latent_attention(const model::Outline& outline, const TwinLayer& w, const at::Tensor& y) {
  const model::Latent& latent = outline.latent;
  const int64_t length = y.size(0), width = latent.unrotated + latent.rotated;
  const auto norm = [](const at::Tensor& x, const at::Tensor& weight) {
    return x * at::rsqrt(x.square().mean(-1, true) + 1e-6) * weight;
  };
  const auto heads = [&](const at::Tensor& x) { return x.view({length, outline.heads, -1}).transpose(0, 1); };
  const at::Tensor asking = latent.q_rank > 0 ? norm(at::matmul(y, w.q_narrow.t()), w.q_norm) : y;
  const at::Tensor q = heads(at::matmul(asking, w.latent_q.t()));
  const bool turns = std::get<model::LatentAttention>(w.own.parts.front().mixer).rope.has_value();
  const auto turn = [&](const at::Tensor& x) { return turns ? twin_rotate_pairs(outline, x) : x; };
  const at::Tensor narrow = at::matmul(y, w.kv_narrow.t());
  const at::Tensor kv =
      heads(at::matmul(norm(narrow.narrow(1, 0, latent.kv_rank), w.kv_norm), w.latent_kv.t()));
  const at::Tensor shared = narrow.narrow(1, latent.kv_rank, latent.rotated).unsqueeze(0);
  const at::Tensor turned = turn(shared).expand({outline.heads, length, latent.rotated});
  const at::Tensor queries =
      at::cat({q.narrow(2, 0, latent.unrotated), turn(q.narrow(2, latent.unrotated, latent.rotated))}, 2);
  const at::Tensor keys = at::cat({kv.narrow(2, 0, latent.unrotated), turned}, 2);
  const at::Tensor unseen = at::ones({length, length}, at::kBool).triu(1);
  const double scale =
      outline.attention_scale > 0 ? outline.attention_scale : 1 / std::sqrt(static_cast<double>(width));
  const at::Tensor scores =
      (at::matmul(twin_grown(std::get<model::LatentAttention>(w.own.parts.front().mixer).growth, queries),
                  keys.transpose(1, 2)) *
       scale)
          .masked_fill(unseen, -std::numeric_limits<double>::infinity());
  const at::Tensor values = kv.narrow(2, latent.unrotated, latent.values);
  return at::matmul(at::softmax(scores, -1), values).transpose(0, 1).reshape({length, -1});
}

at::Tensor twin_attention(const model::Outline& outline, const TwinLayer& w, const at::Tensor& y,
                          int64_t layer) {
  if (outline.latent.kv_rank > 0) return twin_latent_attention(outline, w, y);
  const int64_t length = y.size(0), group = outline.heads / outline.kv_heads;
  const at::Tensor q =
      twin_grown(w.attention().growth, twin_heads(outline, w, y, w.q, w.q_bias, w.q_norm, layer));
  const at::Tensor k = twin_heads(outline, w, y, w.k, w.k_bias, w.k_norm, layer).repeat_interleave(group, 0);
  at::Tensor v = at::matmul(y, w.v.t());
  if (w.v_bias.defined()) v = v + w.v_bias;
  v = v.view({length, outline.kv_heads, outline.head_dim}).transpose(0, 1);
  if (w.attention().normed_values) v = v * at::rsqrt(v.square().mean(-1, true) + outline.norm_eps);
  v = v.repeat_interleave(group, 0);
  const at::Tensor all = at::ones({length, length}, at::kBool);
  const int64_t window = w.attention().window;
  const bool windowed = window > 0;
  at::Tensor unseen = outline.causal ? all.triu(1) : windowed ? all.triu(window) : all.triu(length);
  if (windowed) unseen = unseen.logical_or(all.tril(-window));
  const double scale = outline.attention_scale > 0 ? outline.attention_scale
                                                   : 1 / std::sqrt(static_cast<double>(outline.head_dim));
  at::Tensor scores = twin_cap(at::matmul(q, k.transpose(1, 2)) * scale, outline.score_cap)
                          .masked_fill(unseen, -std::numeric_limits<double>::infinity());
  if (w.sinks.defined())
    scores = at::cat({scores, w.sinks.view({-1, 1, 1}).expand({outline.heads, length, 1})}, 2);
  const at::Tensor shares = at::softmax(scores, -1).narrow(2, 0, length);
  const at::Tensor out = at::matmul(shares, v).transpose(0, 1).reshape({length, -1});
  if (!outline.gated) return out;
  if (w.head_gate.defined()) {
    const at::Tensor gate = at::matmul(y, w.head_gate.t());
    const at::Tensor open = at::sigmoid(w.head_gate_bias.defined() ? gate + w.head_gate_bias : gate);
    return (out.view({length, open.size(1), -1}) * open.unsqueeze(2)).flatten(1);
  }
  at::Tensor gate = at::matmul(y, w.q.t());
  if (w.q_bias.defined()) gate = gate + w.q_bias;
  gate = gate.view({length, outline.heads, -1}).narrow(2, outline.head_dim, outline.head_dim);
  return out * at::sigmoid(gate.reshape({length, -1}));
}

// act(gate) · up
at::Tensor twin_gated(const model::Outline& outline, const at::Tensor& gate, const at::Tensor& up) {
  switch (outline.activation) {
    case model::Activation::kSquaredRelu: return at::relu(gate).square() * up;
    case model::Activation::kSilu: return at::silu(gate) * up;
    case model::Activation::kGeluTanh: return at::gelu(gate, "tanh") * up;
    case model::Activation::kGelu: return at::gelu(gate) * up;
    case model::Activation::kTanh: return at::tanh(gate) * up;
    case model::Activation::kClampedSilu:
    case model::Activation::kXielu: break;  // the latter: twin_mlp
  }
  const at::Tensor g = gate.clamp_max(outline.gate_limit);
  return (up.clamp(-outline.gate_limit, outline.gate_limit) + 1) * g * at::sigmoid(outline.gate_slope * g);
}

// down · (act(gate) · up), or down · act(up) without a gate.
at::Tensor twin_mlp(const model::Outline& outline, const at::Tensor& y, const TwinLayer& w) {
  const auto made = [&](const at::Tensor& matrix, const at::Tensor& bias) {
    const at::Tensor product = at::matmul(y, matrix.t());
    return bias.defined() ? product + bias : product;
  };
  const at::Tensor up = made(w.up, w.up_bias);
  if (w.alphas.defined()) {
    const at::Tensor slopes = at::softplus(w.alphas);
    const at::Tensor below = (at::expm1(up.clamp_max(-1e-6)) - up) * (slopes[1] + 0.5);
    return at::matmul(at::where(up > 0, slopes[0] * up * up, below) + 0.5 * up, w.down);
  }
  const at::Tensor a = outline.mlp_gate ? twin_gated(outline, made(w.gate, w.gate_bias), up)
                                        : twin_gated(outline, up, at::ones_like(up));
  const at::Tensor product = at::matmul(a, w.down);
  return w.down_bias.defined() ? product + w.down_bias : product;
}

// act(gate) · up, or without a gate act(up), of rows gate, up or up alone.
at::Tensor twin_activated(const model::Outline& outline, const at::Tensor& y, const at::Tensor& gate_up,
                          const at::Tensor& bias) {
  at::Tensor made = at::matmul(y, gate_up.t());
  if (bias.defined()) made = made + bias;
  if (!outline.mlp_gate) return twin_gated(outline, made, at::ones_like(made));
  const auto halves = made.chunk(2, 1);
  return twin_gated(outline, halves[0], halves[1]);
}

// Sums beside the loss.
struct Terms {
  at::Tensor balance = at::zeros({}, at::kDouble);  // without its factor
  at::Tensor counted = at::zeros({}, at::kDouble);  // its gradients are the counts
};

// All experts compute all rows; experts that a row has not chosen weigh 0. `scored`: the router's input.
at::Tensor twin_experts(const model::Outline& outline, const TwinLayer& w, const at::Tensor& y,
                        const at::Tensor& scored, Terms& terms) {
  const model::Experts& experts = outline.experts;
  at::Tensor logits = at::matmul(scored, w.router.t());
  if (experts.biases) logits = logits + w.router_bias;
  const at::Tensor scores = experts.sigmoid ? at::sigmoid(logits) : at::softmax(logits, 1);
  at::Tensor merits = experts.corrected ? scores + w.router_correction : scores;
  if (experts.groups > 1) {
    const at::Tensor by_group = merits.view({y.size(0), experts.groups, -1});
    const at::Tensor best = std::get<0>(at::topk(by_group, 2, 2)).sum(2);
    const at::Tensor last = std::get<0>(at::topk(best, experts.groups_chosen, 1)).select(1, -1).unsqueeze(1);
    merits = at::where((best >= last).unsqueeze(2), by_group, at::full_like(by_group, -1e9)).view_as(merits);
  }
  const at::Tensor chosen = std::get<1>(at::topk(merits, experts.per_token, 1));
  const at::Tensor visits = at::zeros_like(scores).scatter_(1, chosen, 1.0);
  at::Tensor weights = scores * visits;
  const auto even = static_cast<double>(experts.per_token) / static_cast<double>(experts.count);
  const at::Tensor shares = scores / scores.sum(1, true);
  const at::Tensor visited = visits.sum(0).detach();
  if (experts.remembers_loads) {
    const at::Tensor loads = w.router_loads.detach();
    terms.balance = terms.balance + (shares * (loads / loads.mean())).sum();
    terms.counted = terms.counted + (w.router_loads * visited).sum();
  } else {
    terms.balance =
        terms.balance + (visits.mean(0) / even * shares.mean(0)).sum() * static_cast<double>(y.size(0));
  }
  if (experts.corrected) {
    const at::Tensor beyond = (visited - visited.mean()) * experts.count;
    terms.counted = terms.counted + (w.router_correction * beyond).sum();
  }
  if (experts.normalised)
    weights =
        weights / (weights.sum(1, true) + std::get<model::RoutedExperts>(w.own.parts.back().mixer).floor);
  weights = weights * experts.factor;
  if (w.expert_scales.defined()) weights = weights * w.expert_scales;
  at::Tensor sum = at::zeros_like(y);
  const int64_t width = experts.hidden, rows = outline.mlp_gate ? 2 * width : width;
  for (int64_t e = 0; e < experts.count; ++e) {
    const at::Tensor bias = experts.biases ? w.experts_gate_up_bias.narrow(0, e * rows, rows) : at::Tensor();
    at::Tensor given =
        at::matmul(twin_activated(outline, y, w.experts_gate_up.narrow(0, e * rows, rows), bias),
                   w.experts_down.narrow(0, e * width, width));
    if (experts.biases) given = given + w.experts_down_bias.narrow(0, e * outline.hidden, outline.hidden);
    sum = sum + weights.narrow(1, e, 1) * given;
  }
  if (experts.shared_hidden == 0) return sum;
  const at::Tensor shared = at::matmul(twin_activated(outline, y, w.shared_gate_up, {}), w.shared_down);
  return sum + (experts.shared_gate ? at::sigmoid(at::matmul(y, w.shared_gate.t())) * shared : shared);
}

// A convolution of channels [T, C].
at::Tensor twin_convolved(const at::Tensor& x, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias) {
  const at::Tensor before = at::zeros({weight.size(1) - 1, x.size(1)}, x.options());
  const std::vector<int64_t> one{1}, none{0};
  const at::Tensor mixed =
      at::conv1d(at::cat({before, x}).t().unsqueeze(0), weight.unsqueeze(1), bias, one, none, one, x.size(1));
  return mixed.squeeze(0).t();
}

// Unchanged if there is no convolution.
at::Tensor twin_convolution(const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
  return weight.defined() ? at::silu(twin_convolved(x, weight, bias)) : x;
}

at::Tensor twin_short_convolution(const model::ParameterTable& table, int64_t position,
                                  const std::vector<at::Tensor>& flats, const at::Tensor& y) {
  const auto whole = [&](std::string_view role) { return stored(table, position, flats, role); };
  const auto biased = [&](const at::Tensor& x, std::string_view role) {
    const at::Tensor bias = whole(role);
    return bias.defined() ? x + bias.view(-1) : x;
  };
  const auto parts = biased(at::matmul(y, whole("recurrent_qkv").t()), "recurrent_qkv_bias").chunk(3, 1);
  std::optional<at::Tensor> bias;
  if (whole("recurrent_convolution_bias").defined()) bias = whole("recurrent_convolution_bias").view(-1);
  const at::Tensor mixed = twin_convolved(parts[0] * parts[2], whole("recurrent_convolution"), bias);
  return biased(at::matmul(parts[1] * mixed, whole("recurrent_out")), "recurrent_out_bias");
}

// A recurrence, one row at a time.
at::Tensor twin_recurrence(const model::ParameterTable& table, int64_t position,
                           const std::vector<at::Tensor>& flats, const at::Tensor& y) {
  const model::Recurrent& own = table.model.outline().recurrent;
  const auto whole = [&](std::string_view role) { return stored(table, position, flats, role); };
  const int64_t length = y.size(0), keys = own.key_heads * own.key_width,
                shared = own.value_heads / own.key_heads;
  at::Tensor projected = at::matmul(y, whole("recurrent_qkv").t()),
             numbers = at::matmul(y, whole("recurrent_rates").t());
  at::Tensor gate;
  if (own.by_key_head) {
    const auto parts =
        projected.view({length, own.key_heads, -1})
            .split_with_sizes(
                {own.key_width, own.key_width, shared * own.value_width, shared * own.value_width}, 2);
    projected = at::cat({parts[0].flatten(1), parts[1].flatten(1), parts[2].flatten(1)}, 1);
    gate = parts[3].flatten(1);
    const auto halves = numbers.view({length, own.key_heads, -1}).split(shared, 2);
    numbers = at::cat({halves[0].flatten(1), halves[1].flatten(1)}, 1);
  } else {
    gate = at::matmul(y, whole("recurrent_gate").t());
  }
  const at::Tensor mixed = twin_convolution(projected, whole("recurrent_convolution"), std::nullopt);
  const auto heads = [&](int64_t begin, int64_t count, int64_t width) {
    return mixed.narrow(1, begin, count * width).reshape({length, count, width});
  };
  const auto micro_batch = [](const at::Tensor& x) { return x * at::rsqrt(x.square().sum(-1, true) + 1e-6); };
  const at::Tensor q = micro_batch(heads(0, own.key_heads, own.key_width)).repeat_interleave(shared, 1) /
                       std::sqrt(static_cast<double>(own.key_width));
  const at::Tensor k = micro_batch(heads(keys, own.key_heads, own.key_width)).repeat_interleave(shared, 1);
  const at::Tensor v = heads(2 * keys, own.value_heads, own.value_width);
  const at::Tensor rate = own.rate_scale * at::sigmoid(numbers.narrow(1, 0, own.value_heads));
  const at::Tensor step = at::softplus(numbers.narrow(1, own.value_heads, own.value_heads) +
                                       whole("recurrent_step_bias").view(-1));
  const at::Tensor decay = (-step * whole("recurrent_decay").view(-1).exp()).exp();
  at::Tensor state = at::zeros({own.value_heads, own.key_width, own.value_width}, y.options());
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < length; ++i) {
    state = state * decay[i].view({-1, 1, 1});
    const at::Tensor known = at::einsum("hkd,hk->hd", {state, k[i]});
    state = state + k[i].unsqueeze(2) * ((v[i] - known) * rate[i].unsqueeze(1)).unsqueeze(1);
    rows.push_back(at::einsum("hkd,hk->hd", {state, q[i]}));
  }
  const at::Tensor out = at::stack(rows);
  const at::Tensor normed =
      out * at::rsqrt(out.square().mean(-1, true) + own.norm_eps) * whole("recurrent_head_norm").view(-1);
  return at::matmul(normed.flatten(1) * at::silu(gate), whole("recurrent_out"));
}

// Mamba-2, likewise.
at::Tensor twin_mamba(const model::ParameterTable& table, int64_t position,
                      const std::vector<at::Tensor>& flats, const at::Tensor& y) {
  const model::Recurrent& own = table.model.outline().recurrent;
  const auto whole = [&](std::string_view role) { return stored(table, position, flats, role); };
  const int64_t length = y.size(0), values = own.values(), keys = own.key_heads * own.key_width;
  const int64_t shared = own.value_heads / own.key_heads;
  const auto parts = at::matmul(y, whole("recurrent_qkv").t())
                         .split_with_sizes({values, own.qkv_width(), own.value_heads}, 1);
  std::optional<at::Tensor> bias;
  if (own.convolution_bias) bias = whole("recurrent_convolution_bias").view(-1);
  const at::Tensor mixed = twin_convolution(parts[1], whole("recurrent_convolution"), bias);
  const auto heads = [&](int64_t begin, int64_t count, int64_t width) {
    return mixed.narrow(1, begin, count * width).reshape({length, count, width});
  };
  const at::Tensor x = heads(0, own.value_heads, own.value_width);
  const at::Tensor b = heads(values, own.key_heads, own.key_width).repeat_interleave(shared, 1);
  const at::Tensor c = heads(values + keys, own.key_heads, own.key_width).repeat_interleave(shared, 1);
  const at::Tensor step = at::softplus(parts[2] + whole("recurrent_step_bias").view(-1));
  const at::Tensor decay = (-step * whole("recurrent_decay").view(-1).exp()).exp();
  const at::Tensor skip = whole("recurrent_skip").view({-1, 1});
  at::Tensor state = at::zeros({own.value_heads, own.key_width, own.value_width}, y.options());
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < length; ++i) {
    state =
        state * decay[i].view({-1, 1, 1}) + b[i].unsqueeze(2) * (x[i] * step[i].unsqueeze(1)).unsqueeze(1);
    rows.push_back(at::einsum("hkd,hk->hd", {state, c[i]}) + skip * x[i]);
  }
  const at::Tensor gated =
      (at::stack(rows).flatten(1) * at::silu(parts[0])).view({length, own.key_heads, -1});
  if (!whole("recurrent_head_norm").defined()) return at::matmul(gated.flatten(1), whole("recurrent_out"));
  const at::Tensor normed = gated * at::rsqrt(gated.square().mean(-1, true) + own.norm_eps);
  return at::matmul(normed.flatten(1) * whole("recurrent_head_norm").view(-1), whole("recurrent_out"));
}

// GLA, likewise.
at::Tensor twin_gla(const model::ParameterTable& table, int64_t position,
                    const std::vector<at::Tensor>& flats, const at::Tensor& y) {
  const model::Recurrent& own = table.model.outline().recurrent;
  const auto whole = [&](std::string_view role) { return stored(table, position, flats, role); };
  const int64_t length = y.size(0), keys = own.key_heads * own.key_width;
  const auto parts =
      at::matmul(y, whole("recurrent_qkv").t()).split_with_sizes({keys, keys, own.values()}, 1);
  const auto heads = [&](const at::Tensor& x) { return x.reshape({length, own.value_heads, -1}); };
  const at::Tensor q = heads(parts[0]) / std::sqrt(static_cast<double>(own.key_width)), k = heads(parts[1]),
                   v = heads(parts[2]);
  const at::Tensor numbers =
      at::matmul(at::matmul(y, whole("recurrent_decay_narrow").t()), whole("recurrent_rates").t()) +
      whole("recurrent_step_bias").view(-1);
  const at::Tensor decay = heads(at::log_sigmoid(numbers) / 16).exp();
  at::Tensor state = at::zeros({own.value_heads, own.key_width, own.value_width}, y.options());
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < length; ++i) {
    state = state * decay[i].unsqueeze(2) + k[i].unsqueeze(2) * v[i].unsqueeze(1);
    rows.push_back(at::einsum("hkd,hk->hd", {state, q[i]}));
  }
  const at::Tensor out = at::stack(rows);
  const at::Tensor normed =
      out * at::rsqrt(out.square().mean(-1, true) + own.norm_eps) * whole("recurrent_head_norm").view(-1);
  const at::Tensor gate = at::silu(at::matmul(y, whole("recurrent_gate").t()));
  return at::matmul(normed.flatten(1) * gate, whole("recurrent_out"));
}

// KDA, likewise: a delta rule whose states decay by key channel.
at::Tensor twin_kda(const model::ParameterTable& table, int64_t position,
                    const std::vector<at::Tensor>& flats, const at::Tensor& y) {
  const model::Recurrent& own = table.model.outline().recurrent;
  const auto whole = [&](std::string_view role) { return stored(table, position, flats, role); };
  const int64_t length = y.size(0), keys = own.key_heads * own.key_width;
  const auto parts = twin_convolution(at::matmul(y, whole("recurrent_qkv").t()),
                                      whole("recurrent_convolution"), std::nullopt)
                         .split_with_sizes({keys, keys, own.values()}, 1);
  const auto heads = [&](const at::Tensor& x) { return x.reshape({length, own.value_heads, -1}); };
  const auto unit = [](const at::Tensor& x) { return x * at::rsqrt(x.square().sum(-1, true) + 1e-6); };
  const at::Tensor q = unit(heads(parts[0])) / std::sqrt(static_cast<double>(own.key_width));
  const at::Tensor k = unit(heads(parts[1])), v = heads(parts[2]);
  const auto narrow = at::matmul(y, whole("recurrent_decay_narrow").t()).chunk(2, 1);
  const at::Tensor step = at::softplus(at::matmul(narrow[0], whole("recurrent_rates").t()) +
                                       whole("recurrent_step_bias").view(-1));
  const at::Tensor decay = (heads(-step) * whole("recurrent_decay").view({-1, 1}).exp()).exp();
  const at::Tensor rate = at::sigmoid(at::matmul(y, whole("recurrent_rate").t()));
  at::Tensor state = at::zeros({own.value_heads, own.key_width, own.value_width}, y.options());
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < length; ++i) {
    state = state * decay[i].unsqueeze(2);
    const at::Tensor known = at::einsum("hkd,hk->hd", {state, k[i]});
    state = state + k[i].unsqueeze(2) * ((v[i] - known) * rate[i].unsqueeze(1)).unsqueeze(1);
    rows.push_back(at::einsum("hkd,hk->hd", {state, q[i]}));
  }
  const at::Tensor out = at::stack(rows);
  const at::Tensor normed =
      out * at::rsqrt(out.square().mean(-1, true) + own.norm_eps) * whole("recurrent_head_norm").view(-1);
  const at::Tensor gate = at::sigmoid(at::matmul(narrow[1], whole("recurrent_gate").t()));
  return at::matmul(normed.flatten(1) * gate, whole("recurrent_out"));
}

// The result of a layer's first part.
at::Tensor twin_mixed(const model::ParameterTable& table, const model::Outline& outline, const TwinLayer& w,
                      int64_t layer, const std::vector<at::Tensor>& flats, const at::Tensor& y) {
  const int64_t position = table.program.blocks().begin + layer;
  if (std::holds_alternative<model::ShortConvolution>(w.own.parts.front().mixer))
    return twin_short_convolution(table, position, flats, y);
  const bool recurrent = outline.block_type(layer).recurrent;
  if (recurrent && outline.recurrent.recurrence == model::Recurrence::kMamba2)
    return twin_mamba(table, position, flats, y);
  if (recurrent && outline.recurrent.recurrence == model::Recurrence::kGla)
    return twin_gla(table, position, flats, y);
  if (recurrent && outline.recurrent.recurrence == model::Recurrence::kKda)
    return twin_kda(table, position, flats, y);
  if (recurrent) return twin_recurrence(table, position, flats, y);
  const at::Tensor a = at::matmul(twin_attention(outline, w, y, layer), w.out);
  return w.out_bias.defined() ? a + w.out_bias : a;
}

// Experts beside an MLP, each with norms around it, and a norm behind their sum.
template <typename Norm>
at::Tensor twin_joint(const model::Outline& outline, const TwinLayer& w, const at::Tensor& x,
                      const Norm& normed, Terms& terms) {
  const double width = std::sqrt(static_cast<double>(outline.hidden));
  const at::Tensor scored =
      x * at::rsqrt(x.square().mean(-1, true) + outline.norm_eps) * w.router_scale / width;
  const at::Tensor experts = twin_experts(outline, w, normed(x, "experts_norm"), scored, terms);
  const at::Tensor mlp = twin_mlp(outline, normed(x, "mlp_norm"), w);
  return normed(normed(mlp, "mlp_norm_behind") + normed(experts, "experts_norm_behind"), "joint_norm");
}

at::Tensor twin_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::nll_loss_nd(at::log_softmax(logits, 1), targets, {}, at::Reduction::Sum, -1);
}

// One sequence's way through the model.
class TwinModel {
 public:
  TwinModel(const Case& c, const std::vector<at::Tensor>& flats, Terms& terms)
      : c_(c), table_(model::parameter_table(c.model)), flats_(flats), terms_(terms) {}

  struct Logits {
    at::Tensor head, mtp;
  };
  Logits logits(const at::Tensor& ids, const at::Tensor& next) {
    at::Tensor x = embedded(ids);
    for (int64_t i = 0; i < c_.model.layers; ++i) x = layer(x, i, table_.program.blocks().begin + i);
    const int64_t head = table_.program.head();
    if (c_.model.norm_place != model::NormPlace::kOfSum) x = normed_by(head, x, "final_norm");
    Logits made{logits_of(x), {}};
    if (!c_.model.mtp) return made;
    const at::Tensor tokens = embedding().index_select(0, next.clamp_min(0)) * next.ge(0).unsqueeze(1);
    const at::Tensor pair =
        at::cat({normed_by(head, tokens, "mtp_token_norm"), normed_by(head, x, "mtp_row_norm")}, 1);
    const at::Tensor z = at::matmul(pair, stored(table_, head, flats_, "mtp_projection").t());
    made.mtp = logits_of(normed_by(head, layer(z, last_attending(), head), "mtp_norm"));
    return made;
  }

 private:
  at::Tensor embedding() const { return stored(table_, table_.program.embedding(), flats_, "embedding"); }
  at::Tensor embedded(const at::Tensor& ids) const {
    const int64_t begin = table_.program.embedding();
    at::Tensor x = embedding().index_select(0, ids) * c_.model.embedding_scale;
    if (c_.model.positions > 0) {
      x = x + stored(table_, begin, flats_, "positions").narrow(0, 0, ids.size(0)) +
          stored(table_, begin, flats_, "token_kinds").narrow(0, 0, 1);
    }
    return model::embedding_of(c_.model).norm ? normed_by(begin, x, "embedding_norm") : x;
  }
  at::Tensor logits_of(const at::Tensor& x) const {
    const at::Tensor head =
        c_.model.tie_embeddings ? embedding() : stored(table_, table_.program.head(), flats_, "head");
    return twin_cap(at::matmul(x, head.t()) / c_.model.logit_divisor, c_.model.logit_cap);
  }
  at::Tensor normed_by(int64_t position, const at::Tensor& rows, const std::string& own) const {
    const auto vector = [&](const std::string& name) {
      const at::Tensor found = stored(table_, position, flats_, name);
      return found.defined() ? found.view(-1) : found;
    };
    return twin_row_norm(c_.model, rows, vector(own), vector(own + "_bias"));
  }
  // x + factor · part(norm(x)), x + norm(part(x)), or x + norm(part(norm(x))).
  template <typename Part>
  at::Tensor joined(const at::Tensor& x, int64_t position, const std::string& role, model::NormPlace place,
                    Part part) const {
    const bool behind = place == model::NormPlace::kBehind || place == model::NormPlace::kOfSum;
    const at::Tensor y = part(behind ? x : normed_by(position, x, role));
    if (place == model::NormPlace::kBefore) return x + y * c_.model.residual_scale;
    if (place == model::NormPlace::kOfSum) return normed_by(position, x + y, role + "_behind");
    return x + normed_by(position, y, role + "_behind");
  }
  int64_t last_attending() const {
    int64_t i = c_.model.layers - 1;
    while (c_.model.block_type(i).recurrent) --i;
    return i;
  }
  // `i`: the layer whose type it has.
  at::Tensor layer(at::Tensor x, int64_t i, int64_t position) {
    const model::Outline& outline = c_.shape_of(i);
    const TwinLayer w = twin_layer(table_, outline, position, flats_);
    const bool recurrent = outline.block_type(i).recurrent;
    const bool experts = outline.block_type(i).experts;
    const auto place = [&](bool before) { return before ? model::NormPlace::kBefore : outline.norm_place; };
    const std::string role = recurrent ? "recurrent_norm" : "attention_norm";
    const auto mix = [&](const at::Tensor& y) { return twin_mixed(table_, outline, w, i, flats_, y); };
    const auto feed = [&](const at::Tensor& y) {
      return experts ? twin_experts(outline, w, y, y, terms_) : twin_mlp(outline, y, w);
    };
    const at::Tensor first = x;
    if (outline.heads > 0) x = joined(x, position, role, place(recurrent), mix);
    if (outline.ffn_hidden == 0) return x;
    if (w.own.joint) {
      const auto normed = [&](const at::Tensor& of, const char* by) { return normed_by(position, of, by); };
      x = x + twin_joint(outline, w, x, normed, terms_);
    } else if (w.own.parts.back().beside) {
      x = x + feed(normed_by(position, first, role)) * c_.model.residual_scale;
    } else {
      x = joined(x, position, "mlp_norm", place(recurrent), feed);
    }
    if (w.own.scalar) x = x * stored(table_, position, flats_, "layer_scalar").view(-1);
    return x;
  }

  const Case& c_;
  model::ParameterTable table_;
  const std::vector<at::Tensor>& flats_;
  Terms& terms_;
};

}  // namespace

Outcome run_twin(const Case& c, const Data& data) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& flat : data.flats) {
    leaves.push_back(flat.to(at::kDouble).clone().requires_grad_(true));
  }
  at::Tensor loss = at::zeros({}, at::kDouble), z_loss = at::zeros({}, at::kDouble);
  at::Tensor mtp_loss = at::zeros({}, at::kDouble);
  Terms terms;
  const at::Tensor ids = at::tensor(data.ids, at::kLong), targets = at::tensor(data.targets, at::kLong);
  const at::Tensor next = at::tensor(row_behind(c.lengths, data.ids), at::kLong);
  const at::Tensor mtp_targets = at::tensor(row_behind(c.lengths, data.targets), at::kLong);
  TwinModel twin(c, leaves, terms);
  int64_t begin = 0;
  for (const int64_t length : c.lengths) {
    const auto [logits, mtp] = twin.logits(ids.narrow(0, begin, length), next.narrow(0, begin, length));
    const at::Tensor own = targets.narrow(0, begin, length);
    loss = loss + twin_loss(logits, own);
    if (mtp.defined()) mtp_loss = mtp_loss + twin_loss(mtp, mtp_targets.narrow(0, begin, length));
    z_loss = z_loss + (at::logsumexp(logits, 1).square() * own.ge(0)).sum();
    begin += length;
  }
  const at::Tensor whole = loss + c.z_loss * z_loss + c.moe_aux_loss_coeff * terms.balance + terms.counted +
                           c.mtp_loss_weight * mtp_loss;
  return {loss.item<double>(), torch::autograd::grad({whole}, leaves), mtp_loss.item<double>()};
}

}  // namespace sluice::layers
