#include "cost/memory_cost.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cost/border_bytes.h"
#include "cost/fsdp_cost.h"
#include "cost/link_buffers.h"
#include "cost/parameter_counts.h"
#include "cost/token_dispatch_cost.h"
#include "model/border_rows.h"
#include "model/head_chunk_rows.h"
#include "model/model_figures.h"

namespace sluice::cost {
namespace {

constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

// Bytes of a micro-batch's indices: id, position and sequence of each row; and for each row with a loss its
// place, its target and the numbers that the loss is given. An MTP layer has ids and targets of its own.
int64_t index_bytes(const CostModel::Options& options, int tp, int64_t tokens, int64_t loss_tokens) {
  if (!counts_buffers(options) || options.memory.transient_bytes_per_token == 0) return 0;
  constexpr int64_t kIndices = 3, kIndexBytes = 8;
  const bool numbers = !options.model.has_vocabulary();
  const int64_t given = numbers ? options.model.head_numbers() + 1 : 0;
  const int64_t rows = std::min(tokens, loss_tokens * tp);
  const int64_t of_mtp = options.model.has_mtp() ? tokens + rows * kIndices : 0;
  return (tokens * kIndices + rows * (kIndices + given) + of_mtp) * kIndexBytes;
}

// The buffers of pull and push where the rank holds so many elements of the largest round, and sends and
// receives as many on every level.
int64_t link_bytes(const CostModel::Options& options, int64_t elements, int world_size) {
  if (world_size == 1 || !counts_buffers(options)) return 0;
  const auto level = [&](strategy::Codec push) {
    LinkBuffers buffers(options.memory, options.codecs.pull, push, world_size);
    buffers.add_round({elements, elements, elements, elements}, link_pieces(elements));
    return buffers.bytes();
  };
  const bool one_node = options.topology.nodes_of(world_size) == 1;
  return level(options.codecs.push.in_node) + (one_node ? 0 : level(options.codecs.push.between_nodes));
}

}  // namespace

MemoryCost::MemoryCost(CostModel cost, const strategy::Scheme& scheme)
    : cost_(std::move(cost)), scheme_(scheme), published_(cost_.published(scheme)) {}

namespace {

// A rank's elements of a stage.
struct StageElements {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t ends = 0;  // parameters of embedding and head
  int64_t largest_end = 0;
};

StageElements stage_elements(const CostModel& cost, const strategy::Scheme& scheme, base::Interval run) {
  const model::Program& program = cost.program();
  const MemoryModel& memory = cost.options().memory;
  const Execution& execution = *cost.options().execution;
  StageElements result;
  std::map<std::tuple<int, bool, bool, bool>, int64_t> alike;  // by kind, trained or not, of experts or not
  for (const int bucket : program.buckets_of(run)) {
    const auto [position, trained, of_experts, coded] = program.buckets()[static_cast<size_t>(bucket)];
    const auto [known, added] = alike.try_emplace({program.at(position).kind, trained, of_experts, coded});
    if (added) known->second = bucket_elements(program, memory, bucket, scheme.tp);
    // A lane's expert slots, or the operation's other parameters before FSDP divides them.
    const int64_t whole = of_experts ? cost.in_expert_slots(scheme, known->second) : known->second;
    const int holders = of_experts ? scheme.expert_fsdp() : execution.parameter_holders(scheme);
    const int64_t shared = divide_up(whole, holders);
    result.parameters += execution.gathers_in_passes() ? shared : whole;
    if (trained) result.gradients += shared;
    if (!program.blocks_in({position, position + 1}).empty()) continue;
    result.ends += execution.gathers_in_passes() ? shared : whole;
    result.largest_end = std::max(result.largest_end, shared);
  }
  return result;
}

}  // namespace

int64_t link_buffer_bytes(const CostModel& cost, const strategy::Scheme& scheme, int stage, int world_size) {
  const base::Interval run = cost.stage_run(scheme, stage);
  const StageElements held = stage_elements(cost, scheme, run);
  // As link::Rounds cuts them: the embedding travels with the first blocks, the head with the last.
  const int64_t rounds =
      std::max<int64_t>(1, divide_up(cost.program().blocks_in(run).size(), int64_t{scheme.tp} * scheme.fsdp));
  const int64_t moved =
      divide_up(held.parameters - held.ends, rounds) + (rounds == 1 ? held.ends : held.largest_end);
  return link_bytes(cost.options(), moved, world_size);
}

int64_t MemoryCost::stage_bytes(int stage, int world_size) const {
  const MemoryModel& memory = options().memory;
  const base::Interval run = cost_.stage_run(scheme_, stage);
  const StageElements held = stage_elements(cost_, scheme_, run);
  const ParameterCount all = all_parameters(program(), memory);
  const bool head = run.end > program().head();
  return held.parameters * memory.element_bytes + held.gradients * memory.accumulator_bytes +
         memory.owner_bytes(divide_up(all.all, world_size), divide_up(all.trained, world_size),
                            divide_up(all.coded, world_size)) +
         memory.pull_bytes(options().codecs.pull, divide_up(all.all, world_size), held.parameters) +
         (counts_buffers(options()) ? narrow_copies_bytes(memory, divide_up(all.all - all.coded, world_size))
                                    : 0) +
         link_buffer_bytes(cost_, scheme_, stage, world_size) + (head ? memory.logits_chunk_bytes : 0) +
         model::dispatch_chunk_bytes(options().model, {.tp = scheme_.tp, .expert_lanes = scheme_.ep},
                                     memory.element_bytes) +
         divide_up(memory.attention_bytes, scheme_.tp) + float8_code_bytes(run) +
         std::max({gathered_bytes(CellKind::kForward, run), gathered_bytes(CellKind::kBackward, run),
                   gathered_bytes(CellKind::kBackwardWeight, run)});
}

int64_t MemoryCost::fixed_bytes(int world_size) const {
  int64_t fullest = 0;
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    // Middle stages of equal blocks are never fuller than the first of them.
    const bool alike = program().uniform() && cost_.low_precision_gemms() == nullptr;
    if (alike && stage > 1 && stage + 1 < scheme_.pp) continue;
    fullest = std::max(fullest, stage_bytes(stage, world_size));
  }
  if (counts_buffers(options())) fullest = with_small_tensors(fullest);
  return fullest + narrow_product_bytes(0) + expanded_bytes(program().blocks());
}

int64_t MemoryCost::narrow_product_bytes(int64_t tokens) const {
  if (cost_.low_precision_gemms() == nullptr) return 0;
  // 8-bit floats: a matrix or its gradient in float; rows' codes, and as much of the floats into which CPUs
  // expand them as lies beyond the layer's own rows, or of results that are narrowed
  // (tests/integration/memory_test.py). Codes of weights count apart.
  const bool float8 = cost_.low_precision_gemms()->format == base::GemmFormat::kFloat8;
  const bool narrows = options().memory.element_bytes < 4;
  const int64_t matrix_bytes = float8 ? 4 : 4 + 2, row_bytes = float8 && narrows ? 5 : 4;
  int64_t most = 0;
  for_each_kind_of_block(program().blocks(), [&](int64_t position) {
    for (const model::Parameter& matrix : program().kind_at(position).parameters()) {
      if (!matrix.takes_low_precision()) continue;
      const int64_t elements = divide_up(matrix.rows * matrix.columns, scheme_.tp);
      most = std::max(most, elements * matrix_bytes + tokens * (matrix.rows + matrix.columns) * row_bytes);
    }
  });
  return most;
}

int64_t MemoryCost::float8_code_bytes(base::Interval run) const {
  const strategy::LowPrecisionGemms* const gemms = cost_.low_precision_gemms();
  if (gemms == nullptr || gemms->format != base::GemmFormat::kFloat8) return 0;
  constexpr int64_t kMultiple = 16, kFactorBytes = 4;
  const auto code_bytes = [](int64_t rows, int64_t summed) {
    return rows * (divide_up(summed, kMultiple) * kMultiple + kFactorBytes);
  };
  int64_t sum = 0, most = 0;
  for (const int layer : gemms->layers) {
    const int64_t position = program().blocks().begin + layer;
    if (position < run.begin || position >= run.end) continue;
    int64_t by_row = 0, by_column = 0;
    for (const model::Parameter& matrix : program().kind_at(position).parameters()) {
      if (!matrix.takes_low_precision() || matrix.experts > 0) continue;
      const int64_t rows = divide_up(matrix.rows, scheme_.tp);
      by_row += code_bytes(rows, matrix.columns);
      by_column += code_bytes(matrix.columns, rows);
    }
    sum += by_row + by_column;
    most = std::max(most, cost_.recomputes(position) ? by_row + by_column : std::max(by_row, by_column));
  }
  return scheme_.fsdp > 1 || expanded_bytes(run) > 0 ? most : sum;
}

int64_t MemoryCost::expanded_bytes(base::Interval run) const {
  int64_t most = 0;
  for_each_kind_of_block(run, [&](int64_t position) {
    most = std::max(most, expanded_elements(program(), position, scheme_.tp, scheme_.ep));
  });
  return most * options().memory.element_bytes;
}

namespace {

// Whatever decides a block's bytes: its kind, whether it is recomputed, and whether a backward reaches it.
using BlockTraits = std::tuple<int, bool, bool>;

BlockTraits traits_of(const CostModel& cost, int64_t position) {
  const model::Program& program = cost.program();
  return {program.at(position).kind, cost.recomputes(position), position >= program.first_trained()};
}

}  // namespace

template <typename Visit>
void MemoryCost::for_each_kind_of_block(base::Interval run, Visit visit) const {
  const base::Interval blocks = program().blocks_in(run);
  std::set<BlockTraits> visited;  // kinds that take turns are visited once
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    if (position > blocks.begin && like_before(position)) continue;
    if (visited.insert(traits_of(cost_, position)).second) visit(position);
    if (all_blocks_alike()) return;
  }
}

model::TokenBytes MemoryCost::token_bytes(int64_t position) const {
  return program().kind_at(position).bytes(
      {.tp = scheme_.tp, .expert_lanes = scheme_.ep, .keeps_dispatched = cost_.policy().keeps_dispatched()},
      options().memory.element_bytes);
}

int64_t MemoryCost::saved_bytes_per_token(int64_t position) const {
  if (published_ == nullptr) {
    const int64_t known = cost_.kind_cost(scheme_, position).saved_bytes_per_token;
    if (scheme_.ep == 1) return known;
    // The measured bytes are for lanes that gather experts; rows that travel keep a smaller share of them.
    const int64_t gathering =
        program().kind_at(position).bytes({scheme_.tp}, options().memory.element_bytes).saved;
    const int64_t own =
        gathering == 0 ? known : wide_divide_up(Wide{known} * token_bytes(position).saved, gathering);
    return own + dispatched_bytes_per_token(position);
  }
  return divide_up(published_->saved_bytes_per_token, program().blocks().size() / scheme_.pp);
}

// Assumes even routing.
int64_t MemoryCost::dispatched_bytes_per_token(int64_t position) const {
  const Execution& execution = *options().execution;
  const bool stays = execution.keeps_dispatched() && execution.repeated_forwards() == 0;
  if (!stays || program().kind_at(position).work().routed == 0) return 0;
  const model::Experts& experts = options().model.experts();
  const Wide lanes = Wide{dispatched_lanes_ppm(experts.count, experts.per_token, scheme_.ep)} * scheme_.ep *
                     options().model.hidden() * options().memory.element_bytes;
  return wide_divide_up(lanes, 1'000'000);
}

int64_t MemoryCost::deferred_bytes_per_token(int64_t position) const {
  if (position < program().first_trained()) return 0;
  if (published_ != nullptr || !options().execution->defers_weight_gradients()) return 0;
  return cost_.kind_cost(scheme_, position).deferred_bytes_per_token;
}

int64_t MemoryCost::kept_bytes_per_token(int64_t position, int head_lanes) const {
  if (position < program().first_trained()) return 0;
  const int64_t exchanged = kept_exchange_bytes(cost_, scheme_, {position, position + 1}, head_lanes);
  const int64_t saved = saved_bytes_per_token(position);
  if (!cost_.recomputes(position)) return saved + exchanged;
  // The measured or published bytes, divided in the kind's proportions.
  const model::TokenBytes bytes = token_bytes(position);
  return wide_divide_up(Wide{saved} * bytes.recompute_input, bytes.saved) + exchanged;
}

int64_t MemoryCost::recomputed_bytes_per_token(base::Interval run) const {
  int64_t most = 0;
  if (!cost_.policy().recomputes()) return most;
  for_each_kind_of_block(run, [&](int64_t position) {
    if (!cost_.recomputes(position)) return;
    const model::TokenBytes bytes = token_bytes(position);
    const int64_t saved = saved_bytes_per_token(position);
    most = std::max(most, wide_divide_up(Wide{saved} * bytes.recomputed, bytes.saved));
  });
  return most;
}

int64_t MemoryCost::offloaded_bytes(int64_t position, int64_t tokens, int head_lanes) const {
  return static_cast<int64_t>(Wide{kept_bytes_per_token(position, head_lanes)} * tokens *
                              cost_.policy().offload_permille / 1000);
}

int64_t MemoryCost::host_bytes_per_token() const {
  int64_t fullest = 0;
  for (int stage = 0; cost_.policy().offload_permille > 0 && stage < stages_to_compare(); ++stage) {
    const base::Interval blocks = kept_blocks(stage);
    int64_t bytes = 0;
    for (int64_t position = blocks.begin; position + kLayersThatStay < blocks.end; ++position) {
      bytes += wide_divide_up(Wide{kept_bytes_per_token(position)} * cost_.policy().offload_permille, 1000);
    }
    fullest = std::max(fullest, bytes);
  }
  return fullest;
}

int64_t MemoryCost::held_bytes_of_stage(int stage) const {
  const base::Interval blocks = kept_blocks(stage);
  const bool split = cost_.splits_backward(scheme_);
  // Blocks differ if only a share is recomputed, so the most may be held before the last one has run. An
  // embedding whose rows have a norm keeps these rows.
  const base::Interval run = program().walked_back(cost_.stage_run(scheme_, stage));
  const bool embeds = run.begin == 0 && run.end > 0 && published_ == nullptr;
  const bool carries = !embeds && stage == 0 && published_ == nullptr;
  int64_t held = embeds ? token_bytes(0).saved : 0;
  if (carries)
    held =
        model::carried_bytes(program(), program().blocks().begin, scheme_.tp, options().memory.element_bytes);
  int64_t most = held, of_kind = 0, leaving = 0;
  std::map<BlockTraits, std::pair<int64_t, int64_t>> known;  // of_kind and leaving
  std::array<int64_t, kLayersThatStay> staying{};  // bytes that the newest blocks free once others come
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    if (position == blocks.begin || !like_before(position)) {
      const auto [at, is_new] = known.try_emplace(traits_of(cost_, position));
      if (is_new) {
        const int64_t deferred = split ? deferred_bytes_per_token(position) : 0;
        at->second = {kept_bytes_per_token(position) + deferred, offloaded_bytes(position, 1)};
      }
      std::tie(of_kind, leaving) = at->second;
    }
    int64_t& oldest = staying[static_cast<size_t>((position - blocks.begin) % kLayersThatStay)];
    held += of_kind - std::exchange(oldest, leaving);
    most = std::max(most, held);
  }
  return most;
}

int64_t MemoryCost::held_bytes_per_token() const {
  if (published_ != nullptr && cost_.policy().keeps_all()) return published_->saved_bytes_per_token;
  int64_t fullest = 0;
  for (int stage = 0; stage < stages_to_compare(); ++stage) {
    fullest = std::max(fullest, held_bytes_of_stage(stage) + border_bytes(cost_, scheme_, stage).held);
  }
  return fullest;
}

// A forward holds the whole of its layer before it frees most of it. Activations that no backward needs are
// no more than working memory.
int64_t MemoryCost::dropped_bytes_per_token(int64_t position) const {
  const bool at_work = position < program().first_trained();
  if (at_work && options().memory.transient_bytes_per_token == 0) return 0;
  return saved_bytes_per_token(position) - kept_bytes_per_token(position);
}

// The bytes that a ring of keys and values adds to a backward.
int64_t MemoryCost::ring_bytes_at_work(const model::TokenBytes& bytes) const {
  if (options().memory.transient_bytes_per_token == 0) return 0;
  const int64_t ring = bytes.ring_backward - bytes.backward;
  // Two levels hold one more block of keys and of gradients; of gradients one leaves and one comes, too.
  constexpr int64_t kMoreBlocks = 4;
  const bool two_levels = scheme_.cp * scheme_.tp > options().topology.node_ranks() &&
                          options().topology.lanes_of_node(scheme_.tp) > 1;
  return ring + (two_levels && ring > 0 ? kMoreBlocks * cost_.ring_bytes_per_token(scheme_) : 0);
}

int64_t MemoryCost::attention_bytes_per_token() const {
  return divide_up(options().memory.attention_bytes_per_token, scheme_.tp);
}

// The most working memory of an operation, a token, if TP cuts it.
int64_t MemoryCost::most_transient_bytes(int tp) const {
  int64_t most = 0;
  for (const auto& kind : program().kinds())
    most = std::max(most, kind->bytes({tp}, options().memory.element_bytes).transient());
  return most;
}

// The memory model's figure is for the TP degree that takes most, mostly TP 1.
int64_t MemoryCost::plain_transient_bytes_per_token() const {
  const int64_t given = options().memory.transient_bytes_per_token;
  if (scheme_.tp == 1) return std::max(given, attention_bytes_per_token());
  const int64_t of_one = most_transient_bytes(1), own = most_transient_bytes(scheme_.tp);
  const int64_t cut = given - std::max<int64_t>(0, of_one - own);
  return std::max({std::min(given, own), cut, attention_bytes_per_token()});
}

model::TokenBytes MemoryCost::mtp_bytes() const {
  if (options().memory.transient_bytes_per_token == 0) return {};
  return program()
      .kind_at(program().head())
      .mtp_bytes({.tp = scheme_.tp,
                  .expert_lanes = scheme_.ep,
                  .keeps_dispatched = cost_.policy().keeps_dispatched()},
                 options().memory.element_bytes);
}

int64_t MemoryCost::mtp_working_bytes_per_token(bool copies) const {
  const model::TokenBytes bytes = mtp_bytes();
  if (bytes.saved == 0) return 0;
  const int64_t backward =
      std::max(bytes.backward, attention_bytes_per_token()) + (copies ? ring_bytes_at_work(bytes) : 0);
  return bytes.saved + std::max({bytes.forward, backward, token_bytes(program().head()).forward});
}

int64_t MemoryCost::transient_bytes_per_token() const {
  const int64_t plain = plain_transient_bytes_per_token();
  int64_t most = 0;
  const int64_t narrow = narrow_product_bytes(1) - narrow_product_bytes(0);
  for_each_kind_of_block(program().blocks(), [&](int64_t position) {
    const model::TokenBytes bytes = token_bytes(position);
    const bool copies = scheme_.cp > 1 || cost_.branches();
    const int64_t backward = plain + (copies ? ring_bytes_at_work(bytes) : 0);
    most = std::max(most, backward + recomputed_bytes_per_token({position, position + 1}));
    const int64_t dropped = dropped_bytes_per_token(position);
    if (dropped > 0) most = std::max(most, std::min(plain, bytes.forward) + dropped);
  });
  most = std::max(most, mtp_working_bytes_per_token(scheme_.cp > 1 || cost_.branches()));
  int64_t carried = 0;  // gradients beside those of the residual stream
  for (int stage = 0; stage < stages_to_compare(); ++stage)
    carried = std::max(carried, border_bytes(cost_, scheme_, stage).gradients);
  most += carried;
  if (cost_.splits_backward(scheme_) && program().first_trained() == program().embedding())
    most = std::max(most, token_bytes(program().embedding()).backward);
  return most + narrow + index_bytes(options(), scheme_.tp, /*tokens=*/1, /*loss_tokens=*/0);
}

// Every TP rank gathers as many rows as if all ranks had as many with a loss as the one with most.
int64_t MemoryCost::head_working_bytes(int64_t tokens, int64_t loss_tokens) const {
  const int64_t rows = std::min(tokens, loss_tokens * scheme_.tp);
  const MemoryModel& memory = options().memory;
  const int64_t rows_bytes =
      std::min(memory.transient_bytes_per_token, token_bytes(program().head()).forward);
  if (!options().model.has_vocabulary()) {
    // Numbers, softmaxes of them, gradients and what is given of them (layers/number_head.h), in double, of
    // all TP ranks' rows; everything else is of a rank's own.
    constexpr int64_t kCopies = 8, kDoubleBytes = 8;
    const model::Model& model = options().model;
    const int64_t of_numbers = rows * model.head_numbers() * kCopies * kDoubleBytes;
    const int64_t shard = divide_up(tokens, scheme_.tp), own = std::min(shard, loss_tokens);
    const int64_t of_neck = model.head().neck ? 2 * own * rows_bytes : 0;
    if (model.head().pooling != model::Pooling::kMean)
      return (shard + 3 * own) * rows_bytes / 4 + of_neck + of_numbers;
    // The norm is of all rows then, and of sequences there are sums, and what other lanes have of them: none
    // has more sequences than tokens with a loss.
    const int64_t wide = std::max<int64_t>(4, memory.element_bytes) * model.hidden();
    return shard * (rows_bytes + wide) + (4 + scheme_.tp + scheme_.cp) * (rows + 1) * wide + of_neck +
           of_numbers;
  }
  const int64_t wide_bytes = std::max<int64_t>(4, memory.element_bytes);
  const int64_t narrow_bytes = memory.element_bytes < wide_bytes ? memory.element_bytes : 0;  // a copy
  const int64_t row_bytes = divide_up(options().model.vocab(), scheme_.tp) * (wide_bytes + narrow_bytes);
  const int64_t chunk_rows =
      memory.logits_chunk_bytes == 0
          ? 0
          : std::min(rows, std::max(model::kLeastHeadChunkRows, memory.logits_chunk_bytes / row_bytes));
  // Wide copies in which a CPU adds up narrow gradients (ops/linear.cpp).
  constexpr int64_t kWideAtOnce = int64_t{1} << 18;
  const int64_t copied = narrow_bytes == 0 ? 0
                                           : std::min(kWideAtOnce, chunk_rows * options().model.vocab()) +
                                                 chunk_rows * options().model.hidden();
  // A chunk's logits are gone when its narrow gradient is added up.
  const int64_t of_chunk = std::max(
      chunk_rows * row_bytes,
      chunk_rows * divide_up(options().model.vocab(), scheme_.tp) * narrow_bytes + copied * wide_bytes);
  // Half of a loss row's bytes are held for all rows at all times, the other half for one chunk, and for all
  // rows at the end. A quarter is held for rows without a loss, too: the gradient of the head's input.
  return std::max((tokens + 3 * rows) * rows_bytes / 4, (rows + chunk_rows) * rows_bytes / 2 + of_chunk);
}

int64_t MemoryCost::working_bytes(CellKind kind, base::Interval run, int64_t tokens, int64_t loss_tokens,
                                  bool copies) const {
  const int64_t index = index_bytes(options(), scheme_.tp, tokens, loss_tokens);
  const int64_t most = options().memory.transient_bytes_per_token;
  const int64_t narrow = narrow_product_bytes(tokens);
  const int64_t expanded = kind == CellKind::kBackwardWeight ? 0 : expanded_bytes(run);
  int64_t working = 0;
  if (kind == CellKind::kForward) {
    for_each_kind_of_block(run, [&](int64_t position) {
      const int64_t own = std::min(most, token_bytes(position).forward);
      working = std::max(working, own + dropped_bytes_per_token(position));
    });
    working = working * tokens + narrow + expanded;
    if (run.end > program().head()) {
      const int64_t of_head = head_working_bytes(tokens, loss_tokens);
      working = std::max({working, of_head, tokens * mtp_working_bytes_per_token(copies)});
      if (const int64_t kept = mtp_bytes().saved; kept > 0)
        working = std::max(working, tokens * kept + of_head);
    }
    return working + index;
  }
  if (kind == CellKind::kBackwardWeight || most == 0) return narrow + expanded + index;
  for_each_kind_of_block(run, [&](int64_t position) {
    const model::TokenBytes bytes = token_bytes(position);
    int64_t own = std::max(std::min(most, bytes.backward), attention_bytes_per_token()) +
                  (copies ? ring_bytes_at_work(bytes) : 0);
    // Deferred bytes count from the start, so only the gradient behind the layer at work comes on top.
    if (kind == CellKind::kBackwardInput) {
      own += border_bytes(cost_, scheme_, /*stage=*/0).row - deferred_bytes_per_token(position);
    }
    working = std::max(working, own);
  });
  // Rows of deferred weight gradients are still there when the embedding is at work. Gradients of rows that
  // it made for layers count apart.
  if (run.begin == program().embedding() && kind == CellKind::kBackwardInput) {
    working = std::max(working,
                       token_bytes(run.begin).backward - border_bytes(cost_, scheme_, /*stage=*/0).gradients);
  }
  return tokens * working + narrow + expanded + index;
}

int64_t MemoryCost::within_host(int64_t tokens, int64_t at_once) const {
  const int64_t host = at_once * host_bytes_per_token();
  if (host == 0 || options().memory.host_bytes == 0) return tokens;
  return std::min(tokens, options().memory.host_bytes / host);
}

int64_t MemoryCost::credit_tokens(int world_size) const {
  const int64_t longest = max_len_tokens(world_size);
  if (longest == 0) return 0;
  const int64_t free_bytes =
      cost_.device_bytes() - fixed_bytes(world_size) - longest * transient_bytes_per_token();
  return within_host(std::min(kMostTokens, free_bytes / held_bytes_per_token()), 1);
}

int64_t MemoryCost::max_len_beside(int64_t fixed_bytes) const {
  const int64_t at_once = published_ == nullptr ? 1 : scheme_.pp;  // micro-batches in flight
  const int64_t free_bytes = cost_.device_bytes() - fixed_bytes;
  if (free_bytes < cost_.matrix_update_bytes()) return 0;
  const int64_t per_token = at_once * held_bytes_per_token() + transient_bytes_per_token();
  return within_host(std::clamp(free_bytes / per_token, int64_t{0}, kMostTokens), at_once);
}

namespace {

using strategy::Codec;

// Elements of an operation that a cell holds.
struct AtHand {
  int64_t parameters = 0;
  int64_t made = 0;    // gradients
  int64_t summed = 0;  // gradients that are summed
  int64_t exact = 0;   // elements that no codec changes
};

// Buffers of transfers between lanes that share parameters, in bytes of a lane.
class Travelling {
 public:
  Travelling(const CostModel::Options& options, const strategy::Scheme& scheme)
      : memory_(options.memory),
        codecs_(options.codecs),
        share_(scheme.fsdp),
        runs_(strategy::fsdp_run_lanes(scheme, options.topology)),
        adding_(runs_ > 1 && runs_ % scheme.ep == 0 ? runs_ : share_),
        in_runs_(runs_ > 1 && runs_ < share_ && options.execution->sums_in_runs()) {}

  // Coded all-gathers: bytes sent and received for the larger of two neighbouring operations.
  int64_t gathered(const AtHand& one, const AtHand& next) const {
    if (codecs_.gather == Codec::kNone) return 0;
    const int64_t exact = share_ * std::max(one.exact, next.exact);
    return 2 * coded(codecs_.gather, std::max(one.parameters, next.parameters), exact, memory_.element_bytes);
  }
  // Bytes sent and received while an operation's gradients are summed inside runs, or straight.
  int64_t summed(const AtHand& of) const {
    const bool straight = runs_ == 1 && share_ > 1;
    const Codec codec = straight ? codecs_.sums.between_nodes : codecs_.sums.in_node;
    return summing(of, codec, of.summed, divide_up(of.summed, adding_));
  }
  // After an operation, while its gradients are coded and earlier ones are gone; 0: they travel uncoded.
  int64_t coding(const AtHand& of) const {
    const bool none = codecs_.sums.in_node == Codec::kNone && codecs_.sums.between_nodes == Codec::kNone;
    return none ? 0 : of.made * memory_.accumulator_bytes + summed(of);
  }
  // Bytes of summing `before` between runs while `next` is summed inside runs.
  int64_t between_runs(const AtHand& before, const AtHand& next) const {
    if (!in_runs_) return 0;
    const Codec codec = codecs_.sums.between_nodes;
    const int64_t made = divide_up(next.summed, runs_), part = divide_up(next.summed, share_);
    int64_t bytes = summing(before, codec, divide_up(before.summed, runs_), divide_up(before.summed, share_));
    if (codec != Codec::kNone) {
      bytes = std::max(bytes, coded(codec, made, next.exact, memory_.accumulator_bytes) +
                                  (made + part) * memory_.accumulator_bytes);
    }
    return bytes + part * memory_.accumulator_bytes;
  }

 private:
  // Bytes coded in one part for each holder; every part has a last, partial group.
  int64_t coded(Codec codec, int64_t elements, int64_t exact, int64_t wide) const {
    return strategy::coded_bytes(codec, elements, wide) + share_ * strategy::coded_bytes(codec, 1, wide) +
           exact * wide;
  }
  // Sums `elements` gradients. This lane adds up its `own` and receives as many of other lanes as it sends. A
  // coded part is at work, too.
  int64_t summing(const AtHand& of, Codec codec, int64_t elements, int64_t own) const {
    const int64_t sent = elements - own;
    if (codec == Codec::kNone || elements == 0) return (elements + sent) * memory_.accumulator_bytes;
    return 2 * coded(codec, sent, of.exact, memory_.accumulator_bytes) +
           (own + divide_up(of.summed, share_)) * memory_.accumulator_bytes;
  }

  const MemoryModel& memory_;
  const strategy::WireCodecs& codecs_;
  int share_;
  int runs_;
  int adding_;  // lanes that divide the sums: a run's, or all if EP does not divide a run
  bool in_runs_;
};

}  // namespace

int64_t MemoryCost::gathered_bytes(CellKind kind, base::Interval run) const {
  if (scheme_.fsdp == 1) return 0;
  const MemoryModel& memory = options().memory;
  const bool forward = kind == CellKind::kForward;
  std::vector<AtHand> operations;  // three equal ones show all neighbours
  int64_t kept = 0;                // the last block's parameters, which stay until the head
  for (const base::Interval of : alike_runs(program(), kind, run)) {
    const OperationElements own = operation_elements(program(), memory, of.begin, scheme_.tp);
    // A lane that holds its experts alone holds them, and their gradients, all through the step.
    const int gathered = scheme_.expert_fsdp() == 1 ? 0 : 1;
    const int others = options().execution->parameter_holders(scheme_) == 1 ? 0 : 1;
    const ParameterCount count{
        others * own.others.all + gathered * cost_.in_expert_slots(scheme_, own.experts.all),
        others * own.others.trained + gathered * cost_.in_expert_slots(scheme_, own.experts.trained)};
    const bool needs = gathers(program(), kind, of.begin) ||
                       (kind != CellKind::kBackwardWeight && stays_at_hand(program(), of.begin));
    const bool makes = forward ? of.begin == program().head() : true;
    const AtHand at_hand{needs ? count.all : 0, makes ? count.trained : 0,
                         sums_gradients(program(), kind, of.begin) ? count.trained : 0,
                         exact_elements(program(), of.begin)};
    operations.insert(operations.end(), static_cast<size_t>(std::min<int64_t>(of.size(), 3)), at_hand);
    if (forward && stays_at_hand(program(), of.end - 1)) kept = count.all;
  }
  const Travelling travelling(options(), scheme_);
  const size_t last = operations.size();
  operations.insert(operations.end(), 2, {});  // after the last one
  const AtHand none;
  int64_t most = 0;
  for (size_t i = 0; i + 1 < operations.size(); ++i) {
    const AtHand &own = operations[i], &next = operations[i + 1];
    int64_t parameters = own.parameters + next.parameters + (i + 1 >= last ? kept : 0);
    if (!options().execution->gathers_in_passes()) parameters = 0;
    int64_t bytes = parameters * memory.element_bytes + own.made * memory.accumulator_bytes +
                    travelling.gathered(own, next);
    if (i > 0) {
      bytes += travelling.summed(operations[i - 1]) +
               travelling.between_runs(i > 1 ? operations[i - 2] : none, operations[i - 1]);
    }
    most = std::max(most, bytes);
    if (const int64_t coding = travelling.coding(own); coding > 0)
      most = std::max(most, next.parameters * memory.element_bytes + coding);
  }
  return most;
}

int64_t MemoryCost::credit_of(int world_size, const strategy::MemoryPolicy& policy, int64_t tokens) const {
  if (policy == cost_.policy()) return tokens;
  const MemoryCost other(cost_.under(policy), scheme_);
  // Transients are taken off the credit once, for the longest micro-batch of this policy.
  const Wide longer = std::max<Wide>(0, Wide{tokens} * other.transient_bytes_per_token() -
                                            Wide{max_len_tokens(world_size)} * transient_bytes_per_token());
  const int64_t credit = credit_tokens(world_size);
  int64_t taken =
      wide_divide_up(Wide{tokens} * other.held_bytes_per_token() + longer, held_bytes_per_token());
  if (options().memory.host_bytes > 0) {
    const Wide host = Wide{tokens} * other.host_bytes_per_token();
    taken = std::max(taken, wide_divide_up(host * credit, options().memory.host_bytes));
  }
  return std::min(taken, credit);
}

}  // namespace sluice::cost
