// Small cases by cuDNN and by flash attention. T: rows, P: heads of queries, keys and values, D: dimensions.
#ifdef SLUICE_CUDNN

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "ops/attention.h"
#include "ops/attention_merge.h"
#include "ops/libraries/attention_cudnn.h"
#include "ops/libraries/flash_attention.h"

namespace sluice::ops::cudnn {
namespace {

// Query heads share key heads; several sequences, none a multiple of a tile. Blocks share queries and keys.
// Narrow values have latent attention's heads, of 192 dimensions.
struct SmallCase {
  int64_t dimensions;
  at::Tensor qkv_TPD;
  at::Tensor dout_TND;
  PackedSequences sequences;
  AttentionInput input;
  std::vector<AttentionBlock> blocks{{{0, 130}, {7, 302}}, {{200, 440}, {0, 7}}, {{100, 130}, {302, 440}}};

  SmallCase(Kind kind, bool narrow_values, const at::Device& device)
      : dimensions(narrow_values ? 192 : 64),
        qkv_TPD(at::randn({440, 8, dimensions}, at::dtype(at::kBFloat16).device(device))),
        dout_TND(at::randn({440, 4, dimensions}, at::dtype(at::kBFloat16).device(device))),
        sequences(packed_sequences({1, 130, 7, 302}, device)),
        input{qkv_TPD.narrow(1, 0, 4), qkv_TPD.narrow(1, 4, 2), qkv_TPD.narrow(1, 6, 2), 0.125} {
    if (kind == Kind::kWindow || kind == Kind::kWindowToBothSides) input.window = 50;
    input.causal = kind != Kind::kBothSides && kind != Kind::kWindowToBothSides;
    if (!narrow_values) return;
    input.value_dimensions = 128;
    for (const at::Tensor& padded : {input.v_TKD, dout_TND}) padded.narrow(2, 128, 64).zero_();
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

// "" if the results agree. Queries without keys have a log-sum-exp of -inf in both.
std::string fault_of(const Results& actual, const Results& expected) {
  const auto finite = [](const at::Tensor& lse) { return lse.nan_to_num(1e9, 0.0, 0.0); };
  if (!are_close(actual.forward.out_TND, expected.forward.out_TND)) return "its results differ";
  if (!are_close(finite(actual.forward.lse_NT), finite(expected.forward.lse_NT)))
    return "its log-sum-exp differs";
  return are_close(actual.dqkv_TPD, expected.dqkv_TPD) ? "" : "its gradients differ";
}

std::string fault_of_sequences(const SmallCase& small) {
  const auto gradient = [&] { return at::zeros(small.qkv_TPD.sizes(), small.qkv_TPD.options()); };
  const Results expected{flash::attention(small.input, small.sequences), gradient()};
  flash::attention_backward(small.dout_TND, small.input, expected.forward, small.sequences,
                            expected.gradient());
  const std::optional<AttentionResult> forward = cudnn::attention(small.input, small.sequences);
  if (!forward) return "it has no plan for a small case";
  const Results actual{*forward, gradient()};
  const bool ran = cudnn::attention_backward(small.dout_TND, small.input, actual.forward, small.sequences,
                                             actual.gradient());
  return ran ? fault_of(actual, expected) : "it has no plan for a small case's backward";
}

std::string fault_of_blocks(const SmallCase& small) {
  const auto empty = [&] {
    return Results{nothing_seen(small.input.q_TND),
                   at::zeros(small.qkv_TPD.sizes(), small.qkv_TPD.options().dtype(at::kFloat))};
  };
  const Results expected = empty(), actual = empty();
  flash::attend_blocks(small.input, small.blocks, expected.forward);
  if (!cudnn::attend_blocks(small.input, small.blocks, actual.forward))
    return "it has no plan for small blocks";
  const AttentionResult saved{expected.forward.out_TND.to(at::kBFloat16), expected.forward.lse_NT,
                              at::zeros({2}, small.qkv_TPD.options().dtype(at::kUInt64))};
  flash::attend_blocks_backward(small.dout_TND, small.input, saved, small.blocks, expected.gradient());
  const bool ran =
      cudnn::attend_blocks_backward(small.dout_TND, small.input, saved, small.blocks, actual.gradient());
  return ran ? fault_of(actual, expected) : "it has no plan for the backward of small blocks";
}

// Four sequences of one query or several, in pages of 32 rows that lie anywhere.
std::string fault_of_pages(Kind kind, const at::Device& device) {
  const at::Tensor q_TND = at::randn({56, 4, 64}, at::dtype(at::kBFloat16).device(device)),
                   cache_RJD = at::randn({512, 4, 64}, at::dtype(at::kBFloat16).device(device));
  const AttentionInput input{.q_TND = q_TND,
                             .k_TKD = cache_RJD.narrow(1, 0, 2),
                             .v_TKD = cache_RJD.narrow(1, 2, 2),
                             .scale = 0.125,
                             .window = kind == Kind::kPagesThroughWindow ? 50 : 0};
  const PagedSequences paged = paged_sequences(
      {{{0, 1}, 1, {9}}, {{1, 2}, 97, {3, 0, 7, 2}}, {{2, 42}, 130, {15, 4, 5, 1, 11}}, {{42, 55}, 13, {6}}},
      32, device);
  const AttentionResult expected = aten::attend_pages(input, paged);
  const std::optional<AttentionResult> actual = cudnn::attend_pages(input, paged);
  if (!actual) return "it has no plan for a small cache of pages";
  const at::Tensor no_gradient = at::zeros({1}, q_TND.options());
  const auto queries = [&](const AttentionResult& result) {
    return Results{{result.out_TND.narrow(0, 0, 55), result.lse_NT.narrow(1, 0, 55), {}}, no_gradient};
  };
  return fault_of(queries(*actual), queries(expected));
}

}  // namespace

std::string fault_of_small_case(Kind kind, bool narrow_values, const at::Device& device) {
  // The allocator hands this memory out again, to the workspaces among others, in which nothing may count on
  // zeros.
  at::full({int64_t{1} << 26}, 0xff, at::dtype(at::kByte).device(device));
  if (kind == Kind::kPages || kind == Kind::kPagesThroughWindow) return fault_of_pages(kind, device);
  const SmallCase small(kind, narrow_values, device);
  return kind == Kind::kBlocks ? fault_of_blocks(small) : fault_of_sequences(small);
}

}  // namespace sluice::ops::cudnn

#endif
