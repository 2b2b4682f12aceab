// T: rows, N: query heads, K: key/value heads, D: dimensions per head, B: begins of sequences, group by
// group.
#ifdef SLUICE_CUDNN

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "ops/libraries/attention_cudnn.h"
#include "ops/libraries/cudnn_graph.h"
#include "ops/libraries/proved_on_gpu.h"
#include "ops/sequence_groups.h"

namespace sluice::ops::cudnn {
namespace {

constexpr size_t kMostPlans = 512;  // per thread; a full cache is cleared

std::atomic<int64_t> calls_without_plan{0};
std::atomic<int64_t> plans_made{0};

GraphShape shape_of(Direction direction, const AttentionInput& input, const SequenceGroup& group) {
  return {.direction = direction,
          .sequences = group.count,
          .longest = planned_length(group.longest),
          .rows = direction == Direction::kBackward ? planned_rows(input.q_TND.size(0)) : 0,
          .heads = input.q_TND.size(1),
          .kv_heads = input.k_TKD.size(1),
          .dimensions = input.q_TND.size(2),
          .q_stride = input.q_TND.stride(0),
          .kv_stride = input.k_TKD.stride(0),
          .scale = static_cast<float>(input.scale)};
}

// Shared, because the thread may drop a plan from its cache while the plan runs.
using SharedPlan = std::shared_ptr<Plan>;

// The thread's plan for the current GPU, cached; null, also cached, if cuDNN has none.
SharedPlan plan_of(const GraphShape& shape, const at::Device& device) {
  thread_local std::map<std::pair<int, GraphShape>, SharedPlan> plans;
  if (plans.size() >= kMostPlans) plans.clear();
  const auto [found, is_new] = plans.try_emplace({device.index(), shape});
  if (is_new) {
    ++plans_made;
    std::string fault;
    found->second = Plan::make(shape, fault);
  }
  return found->second;
}

// The plans of all groups; empty if one is missing.
std::vector<SharedPlan> plans_of(Direction direction, const AttentionInput& input,
                                 const PackedSequences& sequences) {
  std::vector<SharedPlan> plans;
  for (const SequenceGroup& group : sequences.table.groups) {
    plans.push_back(plan_of(shape_of(direction, input, group), input.q_TND.device()));
    if (plans.back() != nullptr) continue;
    ++calls_without_plan;
    return {};
  }
  return plans;
}

// The begins of sequences in matrices of several widths, on the GPU.
class Offsets {
 public:
  Offsets(const PackedSequences& sequences, const AttentionInput& input, Direction direction)
      : begins_B_(sequences.table_device.narrow(0, 0, sequences.table.begins)),
        lengths_(reinterpret_cast<const int32_t*>(sequences.table_device.const_data_ptr<int64_t>() +
                                                  sequences.table.begins)),
        q_(begins_B_ * input.q_TND.stride(0)),
        kv_(input.k_TKD.stride(0) == input.q_TND.stride(0) ? q_ : begins_B_ * input.k_TKD.stride(0)),
        out_(begins_B_ * (input.q_TND.size(1) * input.q_TND.size(2))),
        lse_(begins_B_ * input.q_TND.size(1)) {
    if (direction == Direction::kBackward) dkv_ = begins_B_ * (input.k_TKD.size(1) * input.k_TKD.size(2));
  }

  void put_into(Operands& operands, const SequenceGroup& group) const {
    const auto of = [&](const at::Tensor& offsets) {
      return offsets.defined() ? offsets.const_data_ptr<int64_t>() + group.begins_at : nullptr;
    };
    operands.q_offsets = of(q_);
    operands.kv_offsets = of(kv_);
    operands.out_offsets = of(out_);
    operands.dkv_offsets = of(dkv_);
    operands.lse_offsets = of(lse_);
    operands.lengths = lengths_ + group.lengths_at;
  }

 private:
  at::Tensor begins_B_;
  const int32_t* lengths_;
  at::Tensor q_, kv_, out_, lse_, dkv_;
};

// Runs the plan of each group on the current stream.
void run(const std::vector<SharedPlan>& plans, Operands operands, const Offsets& offsets,
         const PackedSequences& sequences, const at::Tensor& like) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(like.device().index()).stream();
  for (size_t i = 0; i < plans.size(); ++i) {
    offsets.put_into(operands, sequences.table.groups[i]);
    const at::Tensor workspace =
        at::zeros({plans[i]->workspace_bytes() + 1}, like.options().dtype(at::kByte));
    const std::string fault = plans[i]->run(operands, workspace.mutable_data_ptr(), stream);
    if (!fault.empty()) throw base::RunError(base::text("cuDNN's attention failed: ", fault));
  }
}

Operands inputs_of(const AttentionInput& input) {
  return {.q = input.q_TND.const_data_ptr(),
          .k = input.k_TKD.const_data_ptr(),
          .v = input.v_TKD.const_data_ptr()};
}

// Query heads share key heads; several sequences, none a multiple of a tile.
struct SmallCase {
  at::Tensor qkv_TPD;
  at::Tensor dout_TND;
  PackedSequences sequences;

  explicit SmallCase(const at::Device& device)
      : qkv_TPD(at::randn({440, 8, 64}, at::dtype(at::kBFloat16).device(device))),
        dout_TND(at::randn({440, 4, 64}, at::dtype(at::kBFloat16).device(device))),
        sequences(packed_sequences({1, 130, 7, 302}, device)) {}
  AttentionInput input() const {
    return {qkv_TPD.narrow(1, 0, 4), qkv_TPD.narrow(1, 4, 2), qkv_TPD.narrow(1, 6, 2), 0.125};
  }
};

struct Results {
  AttentionResult forward;
  at::Tensor dqkv_TPD;
  AttentionGradient gradient() const {
    return {dqkv_TPD.narrow(1, 0, 4), dqkv_TPD.narrow(1, 4, 2), dqkv_TPD.narrow(1, 6, 2)};
  }
};

bool are_close(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kFloat);
  return (a.to(at::kFloat) - wide).abs().max().item<float>() <= wide.abs().max().item<float>() / 32;
}

// Compares cuDNN with flash attention on the small case; "" if they agree.
std::string fault_of_small_case(const at::Device& device) {
  const SmallCase small(device);
  const auto empty = [&] { return Results{{}, at::zeros(small.qkv_TPD.sizes(), small.qkv_TPD.options())}; };
  Results expected = empty(), actual = empty();
  expected.forward = flash::attention(small.input(), small.sequences);
  flash::attention_backward(small.dout_TND, small.input(), expected.forward, small.sequences,
                            expected.gradient());
  std::optional<AttentionResult> forward = cudnn::attention(small.input(), small.sequences);
  if (!forward) return "it has no plan for a small case";
  actual.forward = *forward;
  if (!cudnn::attention_backward(small.dout_TND, small.input(), actual.forward, small.sequences,
                                 actual.gradient())) {
    return "it has no plan for a small case's backward";
  }
  if (!are_close(actual.forward.out_TND, expected.forward.out_TND))
    return "its results are not flash attention's";
  if (!are_close(actual.forward.lse_NT, expected.forward.lse_NT))
    return "its log-sum-exp is not flash attention's";
  return are_close(actual.dqkv_TPD, expected.dqkv_TPD) ? "" : "its gradients are not flash attention's";
}

std::string fault_on(const at::Device& device) {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index());
  if (major != 9 && major != 10) return "packed rows need Hopper or Blackwell (sm_90, sm_100)";
  if (!load_fault().empty()) return load_fault();
  const c10::cuda::CUDAGuard guard(device);
  return fault_of_small_case(device);
}

ProvedOnGpu& proved() {
  static ProvedOnGpu proved(&fault_on);
  return proved;
}

bool lies_well(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) && x.stride(0) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace

bool takes(const AttentionInput& input) {
  const bool shape_fits = input.q_TND.scalar_type() == at::kBFloat16 && takes_dimensions(input.q_TND.size(2));
  const bool plain = input.q_TND.is_cuda() && input.window == 0 && input.cap == 0;
  return shape_fits && plain && lies_well(input.q_TND) && lies_well(input.k_TKD) && lies_well(input.v_TKD) &&
         input.k_TKD.stride(0) == input.v_TKD.stride(0) && !at::globalContext().deterministicAlgorithms() &&
         proved().on(input.q_TND.device());
}

std::optional<AttentionResult> attention(const AttentionInput& input, const PackedSequences& sequences) {
  const c10::cuda::CUDAGuard guard(input.q_TND.device());
  const std::vector<SharedPlan> plans = plans_of(Direction::kForward, input, sequences);
  if (plans.empty()) return std::nullopt;
  const int64_t rows = input.q_TND.size(0), heads = input.q_TND.size(1), used = sequences.begins.back();
  const at::TensorOptions options = input.q_TND.options();
  const at::Tensor out_TND = at::empty({rows, heads, input.q_TND.size(2)}, options);
  const at::Tensor lse_TN = at::empty({rows, heads}, options.dtype(at::kFloat));
  for (const at::Tensor& each : {out_TND, lse_TN}) {
    if (used < rows) each.narrow(0, used, rows - used).zero_();
  }
  Operands operands = inputs_of(input);
  operands.out = out_TND.mutable_data_ptr();
  operands.lse = lse_TN.mutable_data_ptr<float>();
  run(plans, operands, Offsets(sequences, input, Direction::kForward), sequences, out_TND);
  // If flash attention's backward runs instead, it needs a dropout state of this form.
  return AttentionResult{out_TND, lse_TN.t().contiguous(), at::empty({2}, options.dtype(at::kUInt64))};
}

bool attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient) {
  const c10::cuda::CUDAGuard guard(input.q_TND.device());
  const std::vector<SharedPlan> plans = plans_of(Direction::kBackward, input, sequences);
  if (plans.empty()) return false;
  // Separate results: the gradient may share the inputs' memory, and cuDNN writes results of its own layout.
  const auto dense = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const at::Tensor dq_TND = dense(input.q_TND), dk_TKD = dense(input.k_TKD), dv_TKD = dense(input.v_TKD);
  const at::Tensor lse_TN = saved.lse_NT.t().contiguous(), out_TND = saved.out_TND.contiguous();
  const at::Tensor dense_dout_TND = dout_TND.contiguous();
  Operands operands = inputs_of(input);
  operands.out = out_TND.mutable_data_ptr();
  operands.lse = lse_TN.mutable_data_ptr<float>();
  operands.dout = dense_dout_TND.const_data_ptr();
  operands.dq = dq_TND.mutable_data_ptr();
  operands.dk = dk_TKD.mutable_data_ptr();
  operands.dv = dv_TKD.mutable_data_ptr();
  run(plans, operands, Offsets(sequences, input, Direction::kBackward), sequences, dq_TND);
  gradient.dq_TND.copy_(dq_TND);
  gradient.dk_TKD.copy_(dk_TKD);
  gradient.dv_TKD.copy_(dv_TKD);
  return true;
}

std::string report() {
  if (!proved().was_asked()) return "not used yet";
  if (const std::string fault = proved().fault(); !fault.empty()) return base::text("not used: ", fault);
  const int64_t version = library_version();
  std::string line = base::text("cuDNN ", version / 10'000, ".", version / 100 % 100, ".", version % 100,
                                ", ", base::human_count(plans_made, "plan", "plans"));
  if (const int64_t calls = calls_without_plan) line += base::text(", ", calls, " calls without a plan");
  return line;
}

}  // namespace sluice::ops::cudnn

#endif
