// T: rows, N: query heads, K: key/value heads, D: dimensions per head, R: rows of results, S: rows of keys'
// results.
#ifdef SLUICE_CUDNN

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ops/attention_merge.h"
#include "ops/device.h"
#include "ops/libraries/attention_cudnn.h"
#include "ops/libraries/attention_plans.h"
#include "ops/libraries/cudnn_graph.h"
#include "ops/libraries/proved_on_gpu.h"
#include "ops/sequence_groups.h"

namespace sluice::ops::cudnn {
namespace {

std::atomic<int64_t> calls_without_plan{0};

// True while a small case is computed, which must not wait for its own proof.
thread_local bool proving = false;

Mask mask_of(const AttentionInput& input) { return {.causal = input.causal, .window = input.window}; }
constexpr Mask kAllKeys{.causal = false, .window = 0};

bool are_values_narrow(const AttentionInput& input) {
  return has_narrow_values(input.q_TND.size(2), input.value_dimensions);
}

// Without its sizes.
GraphShape shape_of(Direction direction, const AttentionInput& input, const Mask& mask) {
  return {
      .direction = direction,
      .heads = input.q_TND.size(1),
      .kv_heads = input.k_TKD.size(1),
      .dimensions = input.q_TND.size(2),
      .value_dimensions = are_values_narrow(input) ? input.value_dimensions : input.q_TND.size(2),
      .q_stride = input.q_TND.stride(0),
      .kv_stride = input.k_TKD.stride(0),
      .scale = static_cast<float>(input.scale),
      .mask = mask,
      .deterministic = direction == Direction::kBackward && at::globalContext().deterministicAlgorithms()};
}

using SharedPlan = std::shared_ptr<Plan>;

// The plans of all groups; empty if one is missing.
template <typename SizesOf>
std::vector<SharedPlan> plans_of(const GraphShape& shape, const SequenceTable& table,
                                 const at::Device& device, const SizesOf& sizes_of) {
  std::vector<SharedPlan> plans;
  for (const SequenceGroup& group : table.groups) {
    const auto planned = proving ? plan_alone : plan_of;
    plans.push_back(planned(shape, sizes_of(group), device.index()));
    if (plans.back() != nullptr) continue;
    ++calls_without_plan;
    return {};
  }
  return plans;
}

std::vector<SharedPlan> plans_of(Direction direction, const AttentionInput& input, const SequenceTable& table,
                                 const Mask& mask) {
  return plans_of(shape_of(direction, input, mask), table, input.q_TND.device(),
                  [&](const SequenceGroup& group) {
                    return planned_sizes(direction, group, input.q_TND.size(0), input.k_TKD.size(0));
                  });
}

// The begins of sequences or blocks in matrices of several widths, on the GPU.
class Offsets {
 public:
  Offsets(const SequenceTable& table, const at::Tensor& words, const AttentionInput& input,
          Direction direction)
      : table_(table), words_(words) {
    const bool forward = direction == Direction::kForward;
    const int64_t heads = input.q_TND.size(1), row = heads * input.q_TND.size(2);
    q_ = in_elements(RowsOf::kQueries, input.q_TND.stride(0));
    kv_ = in_elements(RowsOf::kKeys, input.k_TKD.stride(0));
    out_ = in_elements(forward ? RowsOf::kQueryResults : RowsOf::kQueries, row);
    lse_ = in_elements(forward ? RowsOf::kQueryResults : RowsOf::kQueries, heads);
    if (forward) return;
    dq_ = in_elements(RowsOf::kQueryResults, row);
    dkv_ = in_elements(RowsOf::kKeyResults, input.k_TKD.size(1) * input.k_TKD.size(2));
  }

  void put_into(Operands& operands, const SequenceGroup& group) const {
    const auto of = [&](const at::Tensor& offsets) {
      return offsets.defined() ? offsets.const_data_ptr<int64_t>() + group.begins_at : nullptr;
    };
    const auto lengths = [&](RowsOf rows) {
      return reinterpret_cast<const int32_t*>(words_.const_data_ptr<int64_t>()) + table_.lengths_of(rows) +
             group.lengths_at;
    };
    operands.q_offsets = of(q_);
    operands.kv_offsets = of(kv_);
    operands.out_offsets = of(out_);
    operands.lse_offsets = of(lse_);
    operands.dq_offsets = of(dq_);
    operands.dkv_offsets = of(dkv_);
    operands.lengths = lengths(RowsOf::kQueries);
    operands.key_lengths = lengths(RowsOf::kKeys);
  }

 private:
  // The begins of such rows in a matrix whose rows are so far apart; one tensor for each pair of both.
  at::Tensor in_elements(RowsOf rows, int64_t row) {
    const auto [found, is_new] = made_.try_emplace({table_.begins_of(rows), row});
    if (is_new) found->second = words_.narrow(0, table_.begins_of(rows), table_.begins) * row;
    return found->second;
  }

  const SequenceTable& table_;
  const at::Tensor& words_;
  std::map<std::pair<int64_t, int64_t>, at::Tensor> made_;
  at::Tensor q_, kv_, out_, lse_, dq_, dkv_;
};

// Runs the plan of each group on the current stream; operands_of(group) has its operands.
template <typename OperandsOf>
void run(const std::vector<SharedPlan>& plans, const at::Tensor& like, const OperandsOf& operands_of) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(like.device().index()).stream();
  for (size_t i = 0; i < plans.size(); ++i) {
    const at::Tensor workspace =
        at::empty({plans[i]->workspace_bytes() + 1}, like.options().dtype(at::kByte));
    const std::string fault = plans[i]->run(operands_of(i), workspace.mutable_data_ptr(), stream);
    if (!fault.empty()) throw base::RunError(base::text("cuDNN's attention failed: ", fault));
  }
}

void run(const std::vector<SharedPlan>& plans, Operands operands, const Offsets& offsets,
         const SequenceTable& table, const at::Tensor& like) {
  run(plans, like, [&](size_t group) {
    offsets.put_into(operands, table.groups[group]);
    return operands;
  });
}

Operands inputs_of(const AttentionInput& input) {
  return {.q = input.q_TND.const_data_ptr(),
          .k = input.k_TKD.const_data_ptr(),
          .v = input.v_TKD.const_data_ptr()};
}

std::string fault_on(const at::Device& device, Kind kind, bool narrow_values) {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index());
  const bool forward_alone = kind == Kind::kPages || kind == Kind::kPagesThroughWindow;
  if (major != 9 && major != 10 && !(forward_alone && major >= 8))
    return "packed rows need Hopper or Blackwell (sm_90, sm_100)";
  if (!load_fault().empty()) return load_fault();
  const c10::cuda::CUDAGuard guard(device);
  return fault_of_small_case(kind, narrow_values, device);
}

// By kind, by whether values are narrower than keys, and by whether sums have one order.
struct Proofs {
  Proofs() {
    for (size_t i = 0; i < by_kind.size(); ++i) {
      const auto kind = static_cast<Kind>(i / 4);
      const bool narrow_values = i / 2 % 2 == 1;
      by_kind[i] = std::make_unique<ProvedOnGpu>(
          [kind, narrow_values](const at::Device& device) { return fault_on(device, kind, narrow_values); });
    }
  }
  ProvedOnGpu& of(Kind kind, bool narrow_values, bool in_order) const {
    return *by_kind[4 * static_cast<size_t>(kind) + (narrow_values ? 2 : 0) + (in_order ? 1 : 0)];
  }

  std::array<std::unique_ptr<ProvedOnGpu>, 4 * kKinds> by_kind;
};

Proofs& proofs() {
  static Proofs proofs;
  return proofs;
}

bool is_proved(Kind kind, bool narrow_values, const at::Device& device) {
  if (proving) return true;
  proving = true;
  const bool in_order = at::globalContext().deterministicAlgorithms();
  const bool proved = proofs().of(kind, narrow_values, in_order).on(device);
  proving = false;
  return proved;
}

Kind kind_of(const AttentionInput& input) {
  if (input.causal) return input.window > 0 ? Kind::kWindow : Kind::kCausal;
  return input.window > 0 ? Kind::kWindowToBothSides : Kind::kBothSides;
}

bool lies_well(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) && x.stride(0) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool has_fitting_heads(const AttentionInput& input) {
  constexpr int64_t kHopperAlone = 256;
  const int64_t dimensions = input.q_TND.size(2);
  if (dimensions != kHopperAlone) return takes_dimensions(dimensions) || are_values_narrow(input);
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, input.q_TND.device().index());
  return major == 9;
}

bool lie_well(const AttentionInput& input) {
  return lies_well(input.q_TND) && lies_well(input.k_TKD) && lies_well(input.v_TKD) &&
         input.k_TKD.stride(0) == input.v_TKD.stride(0);
}

bool takes(const AttentionInput& input, Kind kind) {
  return input.q_TND.is_cuda() && input.q_TND.scalar_type() == at::kBFloat16 && input.cap == 0 &&
         has_fitting_heads(input) && lie_well(input) &&
         is_proved(kind, are_values_narrow(input), input.q_TND.device());
}

at::Tensor dense_like(const at::Tensor& x, int64_t rows) {
  return at::empty({rows, x.size(1), x.size(2)}, x.options());
}

// Where columns of values are left out, nobody else writes them.
at::Tensor values_like(const at::Tensor& x, const AttentionInput& input, int64_t rows) {
  at::Tensor values = dense_like(x, rows);
  if (are_values_narrow(input)) {
    values.narrow(2, input.value_dimensions, x.size(2) - input.value_dimensions).zero_();
  }
  return values;
}

// [rows, N, D] and, with the heads last, [rows, N]. The rows behind `used` are zeroed.
struct ForwardResults {
  at::Tensor out_RND, lse_RN;
  ForwardResults(const AttentionInput& input, int64_t rows, int64_t used)
      : out_RND(values_like(input.q_TND, input, rows)),
        lse_RN(at::empty({rows, input.q_TND.size(1)}, input.q_TND.options().dtype(at::kFloat))) {
    for (const at::Tensor& each : {out_RND, lse_RN}) {
      if (used < rows) each.narrow(0, used, rows - used).zero_();
    }
  }
};

void run_forward(const std::vector<SharedPlan>& plans, const AttentionInput& input,
                 const SequenceTable& table, const at::Tensor& words, const ForwardResults& results) {
  Operands operands = inputs_of(input);
  operands.out = results.out_RND.mutable_data_ptr();
  operands.lse = results.lse_RN.mutable_data_ptr<float>();
  run(plans, operands, Offsets(table, words, input, Direction::kForward), table, results.out_RND);
}

// Separate results: the gradient may share the inputs' memory, and cuDNN writes results of its own layout.
AttentionGradient run_backward(const std::vector<SharedPlan>& plans, const at::Tensor& dout_TND,
                               const AttentionInput& input, const AttentionResult& saved,
                               const SequenceTable& table, const at::Tensor& words, int64_t rows,
                               int64_t key_rows) {
  AttentionGradient results{dense_like(input.q_TND, rows), dense_like(input.k_TKD, key_rows),
                            values_like(input.v_TKD, input, key_rows)};
  const at::Tensor lse_TN = saved.lse_NT.t().contiguous(), out_TND = saved.out_TND.contiguous();
  const at::Tensor dense_dout_TND = dout_TND.contiguous();
  Operands operands = inputs_of(input);
  operands.out = out_TND.mutable_data_ptr();
  operands.lse = lse_TN.mutable_data_ptr<float>();
  operands.dout = dense_dout_TND.const_data_ptr();
  operands.dq = results.dq_TND.mutable_data_ptr();
  operands.dk = results.dk_TKD.mutable_data_ptr();
  operands.dv = results.dv_TKD.mutable_data_ptr();
  run(plans, operands, Offsets(table, words, input, Direction::kBackward), table, results.dq_TND);
  return results;
}

// Blocks of one launch, with their plans.
struct Launch {
  std::span<const AttentionBlock> blocks;
  int64_t rows = 0, key_rows = 0;  // of their results
  SequenceTable table;
  std::vector<SharedPlan> plans;
};

// The first blocks that have at most so many queries and keys together; one at least.
Launch first_launch(std::span<const AttentionBlock> blocks, int64_t most_rows, int64_t most_key_rows) {
  Launch launch;
  size_t count = 0;
  for (const auto& [queries, keys, ahead] : blocks) {
    const int64_t rows = launch.rows + queries.size(), key_rows = launch.key_rows + keys.size();
    if (count > 0 && (rows > most_rows || key_rows > most_key_rows)) break;
    launch.rows = rows;
    launch.key_rows = key_rows;
    ++count;
  }
  launch.blocks = blocks.first(count);
  return launch;
}

// All blocks by launches; empty if cuDNN does not take them or a plan is missing.
std::vector<Launch> launches_of(Direction direction, const AttentionInput& input,
                                std::span<const AttentionBlock> blocks) {
  if (input.window > 0 || !takes(input, Kind::kBlocks)) return {};
  std::vector<Launch> launches;
  while (!blocks.empty()) {
    Launch launch = first_launch(blocks, input.q_TND.size(0), input.k_TKD.size(0));
    std::vector<base::Interval> queries, keys;
    for (const AttentionBlock& block : launch.blocks) {
      queries.push_back(block.queries);
      keys.push_back(block.keys);
    }
    launch.table = block_table(queries, keys);
    launch.plans = plans_of(direction, input, launch.table, kAllKeys);
    if (launch.plans.empty()) return {};
    blocks = blocks.subspan(launch.blocks.size());
    launches.push_back(std::move(launch));
  }
  return launches;
}

at::Tensor rows_of(const at::Tensor& x, base::Interval rows) { return x.narrow(0, rows.begin, rows.size()); }

// All but its sizes.
GraphShape shape_of_pages(const AttentionInput& on_cache, const PagedSequences& paged) {
  GraphShape shape = shape_of(Direction::kForward, on_cache, mask_of(on_cache));
  shape.pages = on_cache.k_TKD.size(0) / paged.page_rows;
  shape.page_rows = paged.page_rows;
  return shape;
}

// Heads of 256 have forward engines on each GPU.
bool takes_pages(const AttentionInput& on_cache) {
  const Kind kind = on_cache.window > 0 ? Kind::kPagesThroughWindow : Kind::kPages;
  const int64_t dimensions = on_cache.q_TND.size(2);
  return on_cache.causal && on_cache.q_TND.scalar_type() == at::kBFloat16 && dimensions % 16 == 0 &&
         dimensions <= 256 && lie_well(on_cache) && is_proved(kind, false, on_cache.q_TND.device());
}

}  // namespace

bool takes(const AttentionInput& input) { return takes(input, kind_of(input)); }

std::optional<AttentionResult> attention(const AttentionInput& input, const PackedSequences& sequences) {
  const c10::cuda::CUDAGuard guard(input.q_TND.device());
  const SequenceTable& table = sequences.table;
  const std::vector<SharedPlan> plans = plans_of(Direction::kForward, input, table, mask_of(input));
  if (plans.empty()) return std::nullopt;
  const ForwardResults results(input, input.q_TND.size(0), sequences.begins.back());
  run_forward(plans, input, table, sequences.table_device, results);
  // If flash attention's backward runs instead, it needs a dropout state of this form.
  return AttentionResult{results.out_RND, results.lse_RN.t().contiguous(),
                         at::empty({2}, input.q_TND.options().dtype(at::kUInt64))};
}

bool attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  const c10::cuda::CUDAGuard guard(input.q_TND.device());
  const SequenceTable& table = sequences.table;
  const std::vector<SharedPlan> plans = plans_of(Direction::kBackward, input, table, mask_of(input));
  if (plans.empty()) return false;
  const auto [dq_TND, dk_TKD, dv_TKD] = run_backward(
      plans, dout_TND, input, saved, table, sequences.table_device, input.q_TND.size(0), input.k_TKD.size(0));
  gradient.dq_TND.copy_(dq_TND);
  gradient.dk_TKD.copy_(dk_TKD);
  gradient.dv_TKD.copy_(dv_TKD);
  return true;
}

std::optional<AttentionResult> attend_pages(const AttentionInput& on_cache, const PagedSequences& paged) {
  if (!takes_pages(on_cache)) return std::nullopt;
  const c10::cuda::CUDAGuard guard(on_cache.q_TND.device());
  const std::vector<SharedPlan> plans =
      plans_of(shape_of_pages(on_cache, paged), paged.table, on_cache.q_TND.device(), planned_page_sizes);
  if (plans.empty()) return std::nullopt;
  const ForwardResults results(on_cache, on_cache.q_TND.size(0), paged.queries());
  Operands operands = inputs_of(on_cache);
  operands.out = results.out_RND.mutable_data_ptr();
  operands.lse = results.lse_RN.mutable_data_ptr<float>();
  const Offsets offsets(paged.table, paged.words, on_cache, Direction::kForward);
  run(plans, results.out_RND, [&](size_t group) {
    offsets.put_into(operands, paged.table.groups[group]);
    operands.kv_offsets = nullptr;
    operands.page_table = paged.page_table.const_data_ptr<int32_t>() + paged.tables_at[group];
    return operands;
  });
  return AttentionResult{results.out_RND, results.lse_RN.t(), {}};
}

bool attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen) {
  const c10::cuda::CUDAGuard guard(input.q_TND.device());
  const std::vector<Launch> launches = launches_of(Direction::kForward, input, blocks);
  for (const Launch& launch : launches) {
    const ForwardResults results(input, launch.rows, launch.rows);
    run_forward(launch.plans, input, launch.table, to_device(launch.table.words, input.q_TND.device()),
                results);
    const at::Tensor lse_NR = results.lse_RN.t().contiguous();
    int64_t row = 0;
    for (const auto& [queries, keys, ahead] : launch.blocks) {
      const base::Interval own{row, row + queries.size()};
      merge({rows_of(seen.out_TND, queries), seen.lse_NT.narrow(1, queries.begin, queries.size())},
            {rows_of(results.out_RND, own), lse_NR.narrow(1, own.begin, own.size())});
      row = own.end;
    }
  }
  return !launches.empty();
}

bool attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient) {
  const c10::cuda::CUDAGuard guard(input.q_TND.device());
  const std::vector<Launch> launches = launches_of(Direction::kBackward, input, blocks);
  for (const Launch& launch : launches) {
    const auto [dq_RND, dk_SKD, dv_SKD] =
        run_backward(launch.plans, dout_TND, input, saved, launch.table,
                     to_device(launch.table.words, input.q_TND.device()), launch.rows, launch.key_rows);
    base::Interval own, own_keys;
    for (const auto& [queries, keys, ahead] : launch.blocks) {
      own = {own.end, own.end + queries.size()};
      own_keys = {own_keys.end, own_keys.end + keys.size()};
      rows_of(gradient.dq_TND, queries).add_(rows_of(dq_RND, own));
      rows_of(gradient.dk_TKD, keys).add_(rows_of(dk_SKD, own_keys));
      rows_of(gradient.dv_TKD, keys).add_(rows_of(dv_SKD, own_keys));
    }
  }
  return !launches.empty();
}

void make_ahead(const RowLimits& limits, const std::filesystem::path& cache) {
  if (load_fault().empty()) make_plans_ahead(limits, cache);
}

std::string report() {
  const auto was_asked = [](const auto& proved) { return proved->was_asked(); };
  if (std::ranges::none_of(proofs().by_kind, was_asked)) return "not used yet";
  for (const auto& proved : proofs().by_kind) {
    if (const std::string fault = proved->fault(); !fault.empty()) return base::text("not used: ", fault);
  }
  const int64_t version = library_version();
  std::string line = base::text("cuDNN ", version / 10'000, ".", version / 100 % 100, ".", version % 100,
                                ", ", plans_in_words());
  if (const int64_t calls = calls_without_plan) line += base::text(", ", calls, " calls without a plan");
  return line;
}

}  // namespace sluice::ops::cudnn

#endif
