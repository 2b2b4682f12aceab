// Products of dense row-major matrices in plain memory, for kernels that work on small tiles: there, a call
// through tensors costs as much as the product. Internal to src/ops; CPU only.
#pragma once

#include <cstdint>

// The BLAS that libtorch carries, by its Fortran interface: matrices are column-major.
extern "C" {
void sgemm_(const char* form_a, const char* form_b, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void dgemm_(const char* form_a, const char* form_b, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
}

namespace sluice::ops {

enum class Form { kPlain, kTransposed };
enum class Result { kReplaced, kAddedTo };

struct ProductShape {
  int64_t rows = 0;     // the result's
  int64_t columns = 0;  // the result's
  int64_t inner = 0;    // the length of the sums
};

// c = factor·a·b or c += factor·a·b; the forms say how a and b lie in memory. Inside a parallel region it
// runs on the calling thread alone.
template <Form kA, Form kB, typename T>
void multiply(const ProductShape& shape, const T* a, const T* b, T* c, Result result, T factor = 1) {
  // Row-major matrices are the transposed column-major ones: cᵀ = bᵀ·aᵀ.
  const char form_a = kA == Form::kPlain ? 'N' : 'T', form_b = kB == Form::kPlain ? 'N' : 'T';
  const int m = static_cast<int>(shape.columns), n = static_cast<int>(shape.rows),
            k = static_cast<int>(shape.inner);
  const int width_a = kA == Form::kPlain ? k : n, width_b = kB == Form::kPlain ? m : k;
  const T beta = result == Result::kReplaced ? 0 : 1;
  const auto gemm = [] {
    if constexpr (sizeof(T) == 4)
      return &sgemm_;
    else
      return &dgemm_;
  }();
  gemm(&form_b, &form_a, &m, &n, &k, &factor, b, &width_b, a, &width_a, &beta, c, &m);
}

}  // namespace sluice::ops
