// The memory half of the cost model: fixed bytes, activations by policy, credits.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "cost/cost_model.h"
#include "model/parameters.h"

namespace sluice::cost {
namespace {

constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

int64_t divide_up(Wide value, Wide by) { return static_cast<int64_t>((value + by - 1) / by); }

// Elements of the largest TP shard of a bucket.
int64_t largest_shard(const model::Bucket& bucket, int tp) {
  int64_t largest = 0;
  for (int t = 0; t < tp; ++t) largest = std::max(largest, model::tp_shard(bucket, tp, t).size());
  return largest;
}

// Every layer has the same shape, so a one-layer table tells all bucket sizes.
model::ParameterTable one_layer_table(model::Shape shape) {
  shape.layers = 1;
  return model::parameter_table(shape);
}

// Parameters of the largest TP shards, and of the whole model.
struct ParameterCounts {
  int64_t layer = 0;
  int64_t embedding = 0;
  int64_t head = 0;
  int64_t all = 0;
};

ParameterCounts parameter_counts(const model::Shape& shape, const MemoryModel& memory, int tp) {
  if (memory.layer_parameters > 0) {
    const int64_t end = divide_up(memory.end_parameters, tp);
    return {divide_up(memory.layer_parameters, tp), end, end,
            shape.layers * memory.layer_parameters + 2 * memory.end_parameters};
  }
  const model::ParameterTable table = one_layer_table(shape);
  return {largest_shard(table.layer(0), tp), largest_shard(table.embedding(), tp),
          largest_shard(table.head(), tp), shape.parameters()};
}

}  // namespace

int64_t CostModel::stage_bytes(const strategy::Scheme& scheme, int stage, int world_size) const {
  const MemoryModel& memory = options_.memory;
  const ParameterCounts counts = parameter_counts(options_.shape, memory, scheme.tp);
  const bool first = stage == 0;
  const bool last = stage == scheme.pp - 1;
  int64_t elements = whole_stage(scheme, stage).layers * counts.layer;
  if (first || (last && options_.shape.tie_embeddings)) elements += counts.embedding;
  if (last) elements += counts.head;
  return elements * (memory.element_bytes + memory.accumulator_bytes) +
         divide_up(counts.all, world_size) * memory.owner_bytes_per_parameter +
         (last ? memory.logits_chunk_bytes : 0);
}

int64_t CostModel::fixed_bytes(const strategy::Scheme& scheme, int world_size) const {
  int64_t fullest = 0;
  // Stages in the middle are alike, and never fuller than the first of them.
  for (const int stage : {0, std::min(1, scheme.pp - 1), scheme.pp - 1}) {
    fullest = std::max(fullest, stage_bytes(scheme, stage, world_size));
  }
  return fullest;
}

LayerBytes CostModel::layer_bytes(const strategy::Scheme& scheme) const {
  return layer_bytes_per_token(options_.shape, scheme.tp, options_.memory.element_bytes);
}

int64_t CostModel::kept_bytes_per_token_layer(const strategy::Scheme& scheme) const {
  const int64_t saved = saved_bytes_per_token_layer(scheme);
  if (!options_.policy.recompute) return saved;
  // What was measured or published, shared as the shape says.
  const LayerBytes bytes = layer_bytes(scheme);
  return divide_up(Wide{saved} * bytes.border, bytes.saved);
}

int64_t CostModel::recomputed_bytes_per_token(const strategy::Scheme& scheme) const {
  if (!options_.policy.recompute) return 0;
  const LayerBytes bytes = layer_bytes(scheme);
  return divide_up(Wide{saved_bytes_per_token_layer(scheme)} * bytes.recomputed, bytes.saved);
}

int64_t CostModel::boundary_bytes_per_token(const strategy::Scheme& scheme) const {
  return divide_up(options_.shape.hidden * options_.memory.element_bytes, scheme.tp);
}

int64_t CostModel::offloaded_bytes(const strategy::Scheme& scheme, int64_t tokens) const {
  return static_cast<int64_t>(Wide{kept_bytes_per_token_layer(scheme)} * tokens *
                              options_.policy.offload_permille / 1000);
}

int64_t CostModel::host_bytes_per_token(const strategy::Scheme& scheme) const {
  const int64_t layers = strategy::layers_of_stage(options_.shape.layers, scheme.pp, 0).size();
  return std::max<int64_t>(0, layers - kLayersThatStay) *
         divide_up(Wide{kept_bytes_per_token_layer(scheme)} * options_.policy.offload_permille, 1000);
}

int64_t CostModel::held_bytes_per_token(const strategy::Scheme& scheme) const {
  const SchemeTimes* known = row(scheme);
  if (known != nullptr && options_.policy.keeps_all()) return known->saved_bytes_per_token;
  const int64_t layers = strategy::layers_of_stage(options_.shape.layers, scheme.pp, 0).size();
  int64_t held = layers * kept_bytes_per_token_layer(scheme);
  held -= std::max<int64_t>(0, layers - kLayersThatStay) * offloaded_bytes(scheme, 1);
  if (splits_backward(scheme)) held += layers * deferred_bytes_per_token_layer(scheme);
  return held + boundary_bytes_per_token(scheme);
}

// Of a backward where keys and values go round a ring.
int64_t CostModel::ring_bytes_at_work(const LayerBytes& bytes) const {
  const bool rings = options_.lane_exchange == LaneExchange::kRing;
  return rings && options_.memory.transient_bytes_per_token > 0 ? bytes.ring_backward - bytes.backward : 0;
}

int64_t CostModel::transient_bytes_per_token(const strategy::Scheme& scheme) const {
  const LayerBytes bytes = layer_bytes(scheme);
  const int64_t plain = options_.memory.transient_bytes_per_token;
  const int64_t backward = plain + (scheme.cp > 1 ? ring_bytes_at_work(bytes) : 0);
  if (!options_.policy.recompute) return backward;
  // A forward has the whole of its layer before it leaves most of it.
  return std::max(backward + recomputed_bytes_per_token(scheme), std::min(plain, bytes.forward) +
                                                                     saved_bytes_per_token_layer(scheme) -
                                                                     kept_bytes_per_token_layer(scheme));
}

int64_t CostModel::head_working_bytes(const strategy::Scheme& scheme, int64_t tokens) const {
  const MemoryModel& memory = options_.memory;
  const int64_t rows_bytes = std::min(memory.transient_bytes_per_token, layer_bytes(scheme).head);
  const int64_t wide_bytes = std::max<int64_t>(4, memory.element_bytes);
  const int64_t narrow_bytes = memory.element_bytes < wide_bytes ? memory.element_bytes : 0;  // a copy
  const int64_t row_bytes = divide_up(options_.shape.vocab, scheme.tp) * (wide_bytes + narrow_bytes);
  constexpr int64_t kLeastChunkRows = 64;  // layers/head.h
  const int64_t chunk_rows =
      memory.logits_chunk_bytes == 0
          ? 0
          : std::min(tokens, std::max(kLeastChunkRows, memory.logits_chunk_bytes / row_bytes));
  // Half of the rows' are whole at all times; the other half are a chunk's, and at the end whole, too.
  return std::max(tokens * rows_bytes, (tokens + chunk_rows) * rows_bytes / 2 + chunk_rows * row_bytes);
}

int64_t CostModel::working_bytes(const strategy::Scheme& scheme, CellKind kind, CellPart part, int64_t tokens,
                                 int lanes) const {
  const int64_t most = options_.memory.transient_bytes_per_token;
  const LayerBytes bytes = layer_bytes(scheme);
  int64_t working = 0;
  if (kind == CellKind::kForward) {
    const bool head = part.end == CellPart::End::kHead || part.end == CellPart::End::kBoth;
    if (part.layers > 0) {
      working = tokens * (std::min(most, bytes.forward) + saved_bytes_per_token_layer(scheme) -
                          kept_bytes_per_token_layer(scheme));
    }
    return head ? std::max(working, head_working_bytes(scheme, tokens)) : working;
  }
  if (kind == CellKind::kBackwardWeight || most == 0) return 0;
  working = std::min(most, bytes.backward) + (lanes > 1 ? ring_bytes_at_work(bytes) : 0);
  if (kind == CellKind::kBackward) return tokens * working;
  // What is deferred counts from the start; of the layer at work only the gradient behind it comes on top.
  working += boundary_bytes_per_token(scheme) - deferred_bytes_per_token_layer(scheme);
  return tokens * std::max<int64_t>(0, working);
}

int64_t CostModel::credit_tokens(const strategy::Scheme& scheme, int world_size) const {
  const int64_t longest = max_len_tokens(scheme, world_size);
  if (longest == 0) return 0;
  const int64_t free_bytes = options_.memory.device_bytes - fixed_bytes(scheme, world_size) -
                             longest * transient_bytes_per_token(scheme);
  const int64_t tokens = std::min(kMostTokens, free_bytes / held_bytes_per_token(scheme));
  const int64_t host = host_bytes_per_token(scheme);
  return host == 0 || options_.memory.host_bytes == 0 ? tokens
                                                      : std::min(tokens, options_.memory.host_bytes / host);
}

int64_t CostModel::max_len_tokens(const strategy::Scheme& scheme, int world_size) const {
  const int64_t at_once = row(scheme) == nullptr ? 1 : scheme.pp;  // micro-batches in flight
  const int64_t free_bytes = options_.memory.device_bytes - fixed_bytes(scheme, world_size);
  const int64_t per_token = at_once * held_bytes_per_token(scheme) + transient_bytes_per_token(scheme);
  const int64_t tokens = std::clamp(free_bytes / per_token, int64_t{0}, kMostTokens);
  const int64_t host = at_once * host_bytes_per_token(scheme);
  return host == 0 || options_.memory.host_bytes == 0 ? tokens
                                                      : std::min(tokens, options_.memory.host_bytes / host);
}

int64_t CostModel::credit_of(const strategy::Scheme& scheme, int world_size,
                             const strategy::MemoryPolicy& policy, int64_t tokens) const {
  if (policy == options_.policy) return tokens;
  const CostModel other = under(policy);
  // Transients are taken off the credit once, for the longest micro-batch of this policy.
  const Wide longer =
      std::max<Wide>(0, Wide{tokens} * other.transient_bytes_per_token(scheme) -
                            Wide{max_len_tokens(scheme, world_size)} * transient_bytes_per_token(scheme));
  const int64_t credit = credit_tokens(scheme, world_size);
  int64_t taken =
      divide_up(Wide{tokens} * other.held_bytes_per_token(scheme) + longer, held_bytes_per_token(scheme));
  if (options_.memory.host_bytes > 0) {
    const Wide host = Wide{tokens} * other.host_bytes_per_token(scheme);
    taken = std::max(taken, divide_up(host * credit, options_.memory.host_bytes));
  }
  return std::min(taken, credit);
}

}  // namespace sluice::cost
