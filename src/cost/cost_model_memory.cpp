// The memory half of the cost model: fixed bytes, activations by policy, credits.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "cost/cost_model.h"
#include "cost/parameter_counts.h"

namespace sluice::cost {
namespace {

constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

int64_t divide_up(Wide value, Wide by) { return static_cast<int64_t>((value + by - 1) / by); }

}  // namespace

int64_t CostModel::stage_bytes(const strategy::Scheme& scheme, int stage, int world_size) const {
  const MemoryModel& memory = options_.memory;
  const base::Interval run = stage_run(scheme, stage);
  int64_t whole = 0, shared = 0, of_kind = 0;
  int kind = -1;
  for (const int bucket : program().buckets_of(run)) {
    if (program().at(bucket).kind != kind) of_kind = bucket_elements(program(), memory, bucket, scheme.tp);
    kind = program().at(bucket).kind;
    whole += of_kind;
    shared += divide_up(of_kind, scheme.share);
  }
  const bool head = run.end > program().head();
  return (options_.share_traits.keeps_gathered ? whole : shared) * memory.element_bytes +
         shared * memory.accumulator_bytes +
         divide_up(all_parameters(program(), memory), world_size) * memory.owner_bytes_per_parameter +
         (head ? memory.logits_chunk_bytes : 0) +
         std::max({window_bytes(scheme, CellKind::kForward, run),
                   window_bytes(scheme, CellKind::kBackward, run),
                   window_bytes(scheme, CellKind::kBackwardWeight, run)});
}

int64_t CostModel::fixed_bytes(const strategy::Scheme& scheme, int world_size) const {
  int64_t fullest = 0;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    // Stages of alike blocks in the middle are never fuller than the first of them.
    if (program().uniform() && stage > 1 && stage + 1 < scheme.pp) continue;
    fullest = std::max(fullest, stage_bytes(scheme, stage, world_size));
  }
  return fullest;
}

int CostModel::stages_to_compare(const strategy::Scheme& scheme) const {
  return program().uniform() ? 1 : scheme.pp;
}

template <typename Visit>
void CostModel::for_each_kind_of_block(base::Interval run, Visit visit) const {
  const base::Interval blocks = program().blocks_in(run);
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    if (position > blocks.begin && program().at(position).kind == program().at(position - 1).kind) continue;
    visit(position);
    if (program().uniform()) return;
  }
}

model::TokenBytes CostModel::token_bytes(const strategy::Scheme& scheme, int64_t position) const {
  return program().kind_at(position).bytes(scheme.tp, options_.memory.element_bytes);
}

int64_t CostModel::kept_bytes_per_token(const strategy::Scheme& scheme, int64_t position) const {
  const int64_t saved = saved_bytes_per_token(scheme, position);
  if (!options_.policy.recompute) return saved;
  // What was measured or published, shared as the kind says.
  const model::TokenBytes bytes = token_bytes(scheme, position);
  return divide_up(Wide{saved} * bytes.border, bytes.saved);
}

int64_t CostModel::recomputed_bytes_per_token(const strategy::Scheme& scheme, base::Interval run) const {
  int64_t most = 0;
  if (!options_.policy.recompute) return most;
  for_each_kind_of_block(run, [&](int64_t position) {
    const model::TokenBytes bytes = token_bytes(scheme, position);
    const int64_t saved = saved_bytes_per_token(scheme, position);
    most = std::max(most, divide_up(Wide{saved} * bytes.recomputed, bytes.saved));
  });
  return most;
}

int64_t CostModel::boundary_bytes_per_token(const strategy::Scheme& scheme) const {
  return divide_up(options_.shape.hidden * options_.memory.element_bytes, scheme.tp);
}

int64_t CostModel::offloaded_bytes(const strategy::Scheme& scheme, int64_t position, int64_t tokens) const {
  return static_cast<int64_t>(Wide{kept_bytes_per_token(scheme, position)} * tokens *
                              options_.policy.offload_permille / 1000);
}

int64_t CostModel::host_bytes_per_token(const strategy::Scheme& scheme) const {
  int64_t fullest = 0;
  for (int stage = 0; options_.policy.offload_permille > 0 && stage < stages_to_compare(scheme); ++stage) {
    const base::Interval blocks = program().blocks_in(stage_run(scheme, stage));
    int64_t bytes = 0;
    for (int64_t position = blocks.begin; position + kLayersThatStay < blocks.end; ++position) {
      bytes +=
          divide_up(Wide{kept_bytes_per_token(scheme, position)} * options_.policy.offload_permille, 1000);
    }
    fullest = std::max(fullest, bytes);
  }
  return fullest;
}

int64_t CostModel::held_bytes_of_stage(const strategy::Scheme& scheme, int stage) const {
  const base::Interval blocks = program().blocks_in(stage_run(scheme, stage));
  const bool split = splits_backward(scheme);
  int64_t held = 0, of_kind = 0, leaving = 0;
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    const bool new_kind =
        position == blocks.begin || program().at(position).kind != program().at(position - 1).kind;
    if (new_kind) {
      of_kind = kept_bytes_per_token(scheme, position);
      leaving = offloaded_bytes(scheme, position, 1);
      if (split) of_kind += deferred_bytes_per_token(scheme, position);
    }
    held += of_kind - (position + kLayersThatStay < blocks.end ? leaving : 0);
  }
  return held;
}

int64_t CostModel::held_bytes_per_token(const strategy::Scheme& scheme) const {
  const SchemeTimes* known = row(scheme);
  if (known != nullptr && options_.policy.keeps_all()) return known->saved_bytes_per_token;
  int64_t fullest = 0;
  for (int stage = 0; stage < stages_to_compare(scheme); ++stage) {
    fullest = std::max(fullest, held_bytes_of_stage(scheme, stage));
  }
  return fullest + boundary_bytes_per_token(scheme);
}

// Of a backward where keys and values go round a ring.
int64_t CostModel::ring_bytes_at_work(const model::TokenBytes& bytes) const {
  return options_.memory.transient_bytes_per_token > 0 ? bytes.ring_backward - bytes.backward : 0;
}

int64_t CostModel::transient_bytes_per_token(const strategy::Scheme& scheme) const {
  const int64_t plain = options_.memory.transient_bytes_per_token;
  int64_t most = 0;
  for_each_kind_of_block(program().blocks(), [&](int64_t position) {
    const model::TokenBytes bytes = token_bytes(scheme, position);
    const int64_t backward = plain + (scheme.cp > 1 ? ring_bytes_at_work(bytes) : 0);
    most = std::max(most, backward + recomputed_bytes_per_token(scheme, {position, position + 1}));
    // A forward has the whole of its layer before it leaves most of it.
    const int64_t dropped = saved_bytes_per_token(scheme, position) - kept_bytes_per_token(scheme, position);
    if (options_.policy.recompute) most = std::max(most, std::min(plain, bytes.forward) + dropped);
  });
  return most;
}

int64_t CostModel::head_working_bytes(const strategy::Scheme& scheme, int64_t tokens) const {
  const MemoryModel& memory = options_.memory;
  const int64_t rows_bytes =
      std::min(memory.transient_bytes_per_token, token_bytes(scheme, program().head()).forward);
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

int64_t CostModel::working_bytes(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                                 int64_t tokens, int lanes) const {
  const int64_t most = options_.memory.transient_bytes_per_token;
  int64_t working = 0;
  if (kind == CellKind::kForward) {
    for_each_kind_of_block(run, [&](int64_t position) {
      working = std::max(working, std::min(most, token_bytes(scheme, position).forward) +
                                      saved_bytes_per_token(scheme, position) -
                                      kept_bytes_per_token(scheme, position));
    });
    working *= tokens;
    return run.end > program().head() ? std::max(working, head_working_bytes(scheme, tokens)) : working;
  }
  if (kind == CellKind::kBackwardWeight || most == 0) return 0;
  for_each_kind_of_block(run, [&](int64_t position) {
    const model::TokenBytes bytes = token_bytes(scheme, position);
    int64_t own = std::min(most, bytes.backward) + (lanes > 1 ? ring_bytes_at_work(bytes) : 0);
    // What is deferred counts from the start; of the layer at work only the gradient behind it comes on top.
    if (kind == CellKind::kBackwardInput) {
      own += boundary_bytes_per_token(scheme) - deferred_bytes_per_token(scheme, position);
    }
    working = std::max(working, own);
  });
  return tokens * working;
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
