// The operations of kernels.h for tensors in GPU memory. Internal to src/ops: an operation asks can() and
// else uses ATen's operators. A build without CUDA has declarations alone: test kBuilt first, at compile
// time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "ops/attention_input.h"
#include "ops/rms_norm_result.h"
#include "ops/rotary_table.h"
#include "ops/state_pass_input.h"

namespace sluice::ops::gpu {

#ifdef SLUICE_CUDA
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

// Whether the kernels take these tensors: dense, on a GPU, bfloat16 or float.
bool can(std::initializer_list<at::Tensor> tensors);
// Whether this GPU has 8-bit float products.
bool supports_float8(c10::Device device);

// Whether the kernels code these rows, which need not be adjacent.
bool can_code(const at::Tensor& x_RK);
// The codes of 8-bit floats of x's rows or columns, and their factors (ops/float8.h).
void float8_rows(const at::Tensor& x_RK, const at::Tensor& code_RP, const at::Tensor& factor_R1);
void float8_columns(const at::Tensor& x_RK, const at::Tensor& code_KP, const at::Tensor& factor_K1);

// As the functions of the same names in ops/.
at::Tensor swiglu(const at::Tensor& gate_up_TG);
at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG);

// If rows are too wide for a block, nothing is done and the result is undefined tensors.
RmsNorm rms_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset);
RmsNormGradient rms_norm_backward(const at::Tensor& dy_TH, const at::Tensor& x_TH, const at::Tensor& weight_H,
                                  const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                  const at::Tensor& dweight_H, double offset);

// Returns false and does nothing for results that the kernel does not take.
bool merge(const AttentionResult& seen, const AttentionResult& more);

// Rows of x need not be adjacent.
void rotate(const at::Tensor& x_TND, const RotaryTable& table, const at::Tensor& position_T,
            Rotation rotation);

at::Tensor embedding_lookup(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin);
// dweight is float.
void embedding_lookup_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                               const at::Tensor& dweight_VH);

// Logits of bfloat16 have statistics in float.
at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin);
at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& whole_R3,
                                  const at::Tensor& target_R, int64_t begin, at::ScalarType dtype);

// Undefined for types and layouts that the kernels do not take.
at::Tensor rows_in_chunks(const at::Tensor& x_THW, const RecurrenceChunks& chunks, int64_t heads);
at::Tensor rows_of_chunks(const at::Tensor& x_BCW, const RecurrenceChunks& chunks, int64_t heads,
                          int64_t summed);

// Returns false and does nothing for chunks that the kernels do not take; all tensors are float.
bool pass_states(const StatePass& pass);
bool decayed_products(const at::Tensor& a_BCK, const at::Tensor& b_BCK, const at::Tensor& sum_BCK,
                      const at::Tensor& products_BCC);
bool decayed_products_backward(const at::Tensor& dproducts_BCC, const at::Tensor& a_BCK,
                               const at::Tensor& b_BCK, const at::Tensor& sum_BCK, const at::Tensor& da_BCK,
                               const at::Tensor& db_BCK);

}  // namespace sluice::ops::gpu
