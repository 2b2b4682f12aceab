#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sort.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/cuda/gpu.h"
#include "ops/cuda/kernels.h"

namespace sluice::ops::gpu {
namespace {

kernels::Element element_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? kernels::Element::kBFloat16 : kernels::Element::kFloat32;
}

// Launches on the current stream of the tensor's GPU.
template <typename Launch>
void launch_for(const at::Tensor& tensor, const char* what, Launch launch) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  const cudaError_t status = launch(c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream());
  if (status != cudaSuccess) {
    throw base::RunError(base::text("launching ", what, " failed: ", cudaGetErrorString(status)));
  }
}

void* writable(const at::Tensor& tensor) { return tensor.mutable_data_ptr(); }
const void* readable(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

}  // namespace

bool can(std::initializer_list<at::Tensor> tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.is_contiguous() &&
           (tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kFloat);
  });
}

bool supports_float8(c10::Device device) {
  int major = 0, minor = 0;
  const int gpu = device.index();
  const bool known = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess &&
                     cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) == cudaSuccess;
  return known && 10 * major + minor >= 89;
}

bool can_code(const at::Tensor& x_RK) {
  return x_RK.is_cuda() && (x_RK.scalar_type() == at::kBFloat16 || x_RK.scalar_type() == at::kFloat);
}

namespace {

kernels::Float8Coding float8_coding(const at::Tensor& x_RK, const at::Tensor& code,
                                    const at::Tensor& factor) {
  return {.x = readable(x_RK),
          .rows = x_RK.size(0),
          .width = x_RK.size(1),
          .row_stride = x_RK.stride(0),
          .codes = static_cast<uint8_t*>(writable(code)),
          .code_stride = code.size(1),
          .factors = factor.mutable_data_ptr<float>()};
}

}  // namespace

void float8_rows(const at::Tensor& x_RK, const at::Tensor& code_RP, const at::Tensor& factor_R1) {
  launch_for(x_RK, "8-bit codes of rows", [&](cudaStream_t stream) {
    return kernels::launch_float8_rows(element_of(x_RK), float8_coding(x_RK, code_RP, factor_R1), stream);
  });
}

void float8_columns(const at::Tensor& x_RK, const at::Tensor& code_KP, const at::Tensor& factor_K1) {
  launch_for(x_RK, "8-bit codes of columns", [&](cudaStream_t stream) {
    return kernels::launch_float8_columns(element_of(x_RK), float8_coding(x_RK, code_KP, factor_K1), stream);
  });
}

at::Tensor swiglu(const at::Tensor& gate_up_TG) {
  const int64_t rows = gate_up_TG.size(0), width = gate_up_TG.size(1) / 2;
  at::Tensor a_TF = at::empty({rows, width}, gate_up_TG.options());
  launch_for(a_TF, "swiglu", [&](cudaStream_t stream) {
    return kernels::launch_swiglu(element_of(a_TF), readable(gate_up_TG), writable(a_TF), rows, width,
                                  stream);
  });
  return a_TF;
}

at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  at::Tensor a_TF = at::empty_like(da_TF);
  launch_for(a_TF, "swiglu's backward", [&](cudaStream_t stream) {
    return kernels::launch_swiglu_backward(element_of(a_TF), readable(da_TF), writable(gate_up_TG),
                                           writable(a_TF), da_TF.size(0), da_TF.size(1), stream);
  });
  return a_TF;
}

RmsNorm rms_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset) {
  RmsNorm out{at::empty_like(x_TH), at::empty({x_TH.size(0)}, x_TH.options().dtype(at::kFloat))};
  const kernels::NormForward norm{.x = readable(x_TH),
                                  .weight = readable(weight_H),
                                  .y = writable(out.y_TH),
                                  .inverse_rms = out.inverse_rms_T.mutable_data_ptr<float>(),
                                  .rows = x_TH.size(0),
                                  .width = x_TH.size(1),
                                  .eps = static_cast<float>(eps),
                                  .offset = static_cast<float>(offset)};
  if (!kernels::fits(element_of(x_TH), norm)) return {};
  launch_for(x_TH, "a norm",
             [&](cudaStream_t stream) { return kernels::launch_rms_norm(element_of(x_TH), norm, stream); });
  return out;
}

RmsNormGradient rms_norm_backward(const at::Tensor& dy_TH, const at::Tensor& x_TH, const at::Tensor& weight_H,
                                  const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                  const at::Tensor& dweight_H, double offset) {
  const int64_t rows = x_TH.size(0), width = x_TH.size(1);
  const int64_t blocks = (rows + kernels::kNormBlockRows - 1) / kernels::kNormBlockRows;
  RmsNormGradient out{at::empty_like(x_TH), at::empty_like(x_TH)};
  const at::Tensor sums_BH = at::empty({blocks, width}, x_TH.options().dtype(at::kFloat));
  const kernels::NormBackward norm{.dy = readable(dy_TH),
                                   .x = readable(x_TH),
                                   .weight = readable(weight_H),
                                   .inverse_rms = inverse_rms_T.const_data_ptr<float>(),
                                   .residual = readable(residual_TH),
                                   .dx = writable(out.dx_TH),
                                   .y = writable(out.y_TH),
                                   .weight_sums = sums_BH.mutable_data_ptr<float>(),
                                   .rows = rows,
                                   .width = width,
                                   .offset = static_cast<float>(offset)};
  if (!kernels::fits(element_of(x_TH), norm)) return {};
  launch_for(x_TH, "a norm's backward", [&](cudaStream_t stream) {
    return kernels::launch_rms_norm_backward(element_of(x_TH), norm, stream);
  });
  dweight_H.add_(sums_BH.sum(0));
  return out;
}

bool merge(const AttentionResult& seen, const AttentionResult& more) {
  const auto rows_are_dense = [](const at::Tensor& lse_NT) {
    return lse_NT.scalar_type() == at::kFloat && lse_NT.stride(1) == 1;
  };
  constexpr int64_t kMostDimensions = 256;
  if (!can({seen.out_TND, more.out_TND}) || seen.out_TND.scalar_type() != at::kFloat ||
      seen.out_TND.size(2) > kMostDimensions || !rows_are_dense(seen.lse_NT) ||
      !rows_are_dense(more.lse_NT)) {
    return false;
  }
  const kernels::AttentionMerge both{.out = seen.out_TND.mutable_data_ptr<float>(),
                                     .lse = seen.lse_NT.mutable_data_ptr<float>(),
                                     .lse_stride = seen.lse_NT.stride(0),
                                     .more_out = readable(more.out_TND),
                                     .more_lse = more.lse_NT.const_data_ptr<float>(),
                                     .more_lse_stride = more.lse_NT.stride(0),
                                     .rows = seen.out_TND.size(0),
                                     .heads = seen.out_TND.size(1),
                                     .dimensions = seen.out_TND.size(2)};
  launch_for(seen.out_TND, "merging attention", [&](cudaStream_t stream) {
    return kernels::launch_attention_merge(element_of(more.out_TND), both, stream);
  });
  return true;
}

void rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T,
            Rotation rotation) {
  const kernels::Rotary rotary{.x = writable(x_TND),
                               .rows = x_TND.size(0),
                               .heads = x_TND.size(1),
                               .pairs = x_TND.size(2) / 2,
                               .row_stride = x_TND.stride(0),
                               .cosines = table.cos_PD.const_data_ptr<float>(),
                               .sines = table.sin_PD.const_data_ptr<float>(),
                               .positions = position_T.const_data_ptr<int64_t>(),
                               .sign = rotation == Rotation::kForward ? 1.0F : -1.0F};
  launch_for(x_TND, "a rotation",
             [&](cudaStream_t stream) { return kernels::launch_rotary(element_of(x_TND), rotary, stream); });
}

at::Tensor embedding_lookup(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin) {
  at::Tensor x_TH = at::empty({ids_T.size(0), weight_VH.size(1)}, weight_VH.options());
  const kernels::EmbeddingLookup lookup{.table = readable(weight_VH),
                                        .ids = ids_T.const_data_ptr<int64_t>(),
                                        .begin = row_begin,
                                        .x = writable(x_TH),
                                        .rows = weight_VH.size(0),
                                        .tokens = ids_T.size(0),
                                        .width = weight_VH.size(1)};
  launch_for(x_TH, "an embedding's lookup", [&](cudaStream_t stream) {
    return kernels::launch_embedding_lookup(element_of(x_TH), lookup, stream);
  });
  return x_TH;
}

void embedding_lookup_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                               const at::Tensor& dweight_VH) {
  const auto [sorted_T, token_T] = at::sort(ids_T, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const kernels::EmbeddingGradient gradient{.dx = readable(dx_TH),
                                            .sorted_ids = sorted_T.const_data_ptr<int64_t>(),
                                            .token_of = token_T.const_data_ptr<int64_t>(),
                                            .begin = row_begin,
                                            .dtable = dweight_VH.mutable_data_ptr<float>(),
                                            .rows = dweight_VH.size(0),
                                            .tokens = ids_T.size(0),
                                            .width = dweight_VH.size(1)};
  launch_for(dx_TH, "an embedding's gradient", [&](cudaStream_t stream) {
    return kernels::launch_embedding_gradient(element_of(dx_TH), gradient, stream);
  });
}

at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin) {
  at::Tensor statistics_R3 = at::empty({logits_RV.size(0), 3}, logits_RV.options().dtype(at::kFloat));
  launch_for(logits_RV, "softmax statistics", [&](cudaStream_t stream) {
    return kernels::launch_row_statistics(
        element_of(logits_RV), readable(logits_RV), target_R.const_data_ptr<int64_t>(), begin,
        statistics_R3.mutable_data_ptr<float>(), logits_RV.size(0), logits_RV.size(1), stream);
  });
  return statistics_R3;
}

at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& whole_R3,
                                  const at::Tensor& target_R, int64_t begin, at::ScalarType dtype) {
  const bool in_place = logits_RV.scalar_type() == dtype;
  at::Tensor gradient_RV = in_place ? logits_RV : at::empty_like(logits_RV, logits_RV.options().dtype(dtype));
  const at::Tensor whole = whole_R3.contiguous();
  const kernels::CrossEntropyGradient gradient{.logits_element = element_of(logits_RV),
                                               .gradient_element = element_of(gradient_RV),
                                               .logits = readable(logits_RV),
                                               .whole = whole.const_data_ptr<float>(),
                                               .targets = target_R.const_data_ptr<int64_t>(),
                                               .begin = begin,
                                               .gradient = writable(gradient_RV),
                                               .rows = logits_RV.size(0),
                                               .columns = logits_RV.size(1)};
  launch_for(logits_RV, "the gradient of logits",
             [&](cudaStream_t stream) { return kernels::launch_cross_entropy_gradient(gradient, stream); });
  return gradient_RV;
}

namespace {

bool all_float(std::initializer_list<at::Tensor> tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat);
  });
}
const float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}
float* changed(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

kernels::DecayedProducts decayed(const at::Tensor& a_BCK, const at::Tensor& b_BCK,
                                 const at::Tensor& sum_BCK) {
  return {.a = floats(a_BCK),
          .b = floats(b_BCK),
          .sum = floats(sum_BCK),
          .batch = a_BCK.size(0),
          .rows = a_BCK.size(1),
          .keys = a_BCK.size(2)};
}

}  // namespace

at::Tensor rows_in_chunks(const at::Tensor& x_THW, const RecurrenceChunks& chunks, int64_t heads) {
  const at::ScalarType type = x_THW.scalar_type();
  const bool taken = x_THW.is_cuda() && (type == at::kBFloat16 || type == at::kFloat) &&
                     (x_THW.stride(2) == 1 || x_THW.size(2) == 1);
  if (!taken) return {};
  const int64_t places = chunks.row_M.size(0), width = x_THW.size(2);
  at::Tensor moved =
      at::empty({places / chunks.chunk * heads, chunks.chunk, width}, x_THW.options().dtype(at::kFloat));
  const kernels::ChunkRows all{.index = chunks.row_M.const_data_ptr<int64_t>(),
                               .rows = x_THW.size(0),
                               .places = places,
                               .chunk = chunks.chunk,
                               .heads = heads,
                               .shared = heads / x_THW.size(1),
                               .width = width,
                               .row_stride = x_THW.stride(0),
                               .head_stride = x_THW.stride(1)};
  launch_for(x_THW, "rows in chunks", [&](cudaStream_t stream) {
    return kernels::launch_rows_in_chunks(element_of(x_THW), all, readable(x_THW), changed(moved), stream);
  });
  return moved;
}

at::Tensor rows_of_chunks(const at::Tensor& x_BCW, const RecurrenceChunks& chunks, int64_t heads,
                          int64_t summed) {
  if (!all_float({x_BCW}) || !x_BCW.is_cuda()) return {};
  const int64_t rows = chunks.place_T.size(0), width = x_BCW.size(2);
  at::Tensor moved = at::empty({rows, heads / summed, width}, x_BCW.options());
  const kernels::ChunkRows all{.index = chunks.place_T.const_data_ptr<int64_t>(),
                               .rows = rows,
                               .places = chunks.row_M.size(0),
                               .chunk = chunks.chunk,
                               .heads = heads,
                               .shared = summed,
                               .width = width};
  launch_for(x_BCW, "rows of chunks", [&](cudaStream_t stream) {
    return kernels::launch_rows_of_chunks(all, floats(x_BCW), changed(moved), stream);
  });
  return moved;
}

bool pass_states(const StatePass& pass) {
  const int64_t rows = pass.rows_BCX.size(1), keys = pass.state_SKX.size(1);
  const bool taken = rows <= kernels::kMostChunkRows && keys <= kernels::kMostKeys &&
                     all_float({pass.state_SKX, pass.rows_BCX, pass.read_BCK, pass.end_BW1, pass.added_BKX,
                                pass.left_BCK, pass.came_BKX});
  if (!taken) return false;
  const kernels::StatePass all{.state = changed(pass.state_SKX),
                               .rows = changed(pass.rows_BCX),
                               .read = floats(pass.read_BCK),
                               .read_factor = static_cast<float>(pass.read_factor),
                               .end = floats(pass.end_BW1),
                               .ends = pass.end_BW1.size(1),
                               .added = floats(pass.added_BKX),
                               .left = floats(pass.left_BCK),
                               .left_factor = static_cast<float>(pass.left_factor),
                               .came = changed(pass.came_BKX),
                               .level_begins = pass.chunks.level_begins_L1.const_data_ptr<int64_t>(),
                               .levels = std::ssize(pass.chunks.levels),
                               .tasks = pass.state_SKX.size(0),
                               .heads = pass.heads,
                               .chunk = rows,
                               .keys = keys,
                               .columns = pass.state_SKX.size(2),
                               .back = pass.back};
  launch_for(pass.state_SKX, "a pass of states",
             [&](cudaStream_t stream) { return kernels::launch_pass_states(all, stream); });
  return true;
}

bool decayed_products(const at::Tensor& a_BCK, const at::Tensor& b_BCK, const at::Tensor& sum_BCK,
                      const at::Tensor& products_BCC) {
  if (a_BCK.size(1) > kernels::kMostChunkRows || !all_float({a_BCK, b_BCK, sum_BCK, products_BCC}))
    return false;
  kernels::DecayedProducts all = decayed(a_BCK, b_BCK, sum_BCK);
  all.products = changed(products_BCC);
  launch_for(a_BCK, "decayed products",
             [&](cudaStream_t stream) { return kernels::launch_decayed_products(all, stream); });
  return true;
}

bool decayed_products_backward(const at::Tensor& dproducts_BCC, const at::Tensor& a_BCK,
                               const at::Tensor& b_BCK, const at::Tensor& sum_BCK, const at::Tensor& da_BCK,
                               const at::Tensor& db_BCK) {
  if (a_BCK.size(1) > kernels::kMostChunkRows ||
      !all_float({a_BCK, b_BCK, sum_BCK, dproducts_BCC, da_BCK, db_BCK})) {
    return false;
  }
  kernels::DecayedProducts all = decayed(a_BCK, b_BCK, sum_BCK);
  all.products = changed(dproducts_BCC);
  all.da = changed(da_BCK);
  all.db = changed(db_BCK);
  launch_for(a_BCK, "decayed products' backward",
             [&](cudaStream_t stream) { return kernels::launch_decayed_products_backward(all, stream); });
  return true;
}

}  // namespace sluice::ops::gpu
