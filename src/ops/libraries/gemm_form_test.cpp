#include "ops/libraries/gemm_form.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/cpu/blas.h"

namespace sluice::ops {
namespace {

// The form, carried out by the BLAS of libtorch.
void carry_out(const GemmForm& form, const at::Tensor& x, const at::Tensor& y, const at::Tensor& result) {
  const auto integer = [](int64_t value) { return static_cast<int>(value); };
  const char form_a = form.transposes_a ? 'T' : 'N', form_b = form.transposes_b ? 'T' : 'N';
  const int m = integer(form.m), n = integer(form.n), k = integer(form.k);
  const int lda = integer(form.lda), ldb = integer(form.ldb), ldd = integer(form.ldd);
  const double one = 1;
  dgemm_(&form_a, &form_b, &m, &n, &k, &one, y.const_data_ptr<double>(), &lda, x.const_data_ptr<double>(),
         &ldb, &one, result.mutable_data_ptr<double>(), &ldd);
}

// rows x columns as a row-major matrix, a part of a wider one, or a transposed view of either.
at::Tensor matrix(int64_t rows, int64_t columns, bool transposed, int64_t padding) {
  if (transposed) return matrix(columns, rows, false, padding).t();
  return at::randn({rows, columns + padding}, at::kDouble).narrow(1, 0, columns);
}

TEST(GemmForm, OfPlainAndTransposedMatricesThatArePartsOfOthers) {
  for (const auto& [rows, inner, columns] :
       std::vector<std::array<int64_t, 3>>{{3, 5, 7}, {1, 4, 6}, {4, 1, 1}}) {
    for (int combination = 0; combination < 16; ++combination) {
      const auto bit = [&](int which) { return (combination >> which & 1) != 0; };
      const at::Tensor x = matrix(rows, inner, bit(0), bit(2) ? 2 : 0);
      const at::Tensor y = matrix(inner, columns, bit(1), bit(3) ? 3 : 0);
      const at::Tensor result = matrix(rows, columns, false, 1), expected = result + at::mm(x, y);
      const auto form = gemm_form(x, y, result, result);
      ASSERT_TRUE(form.has_value());
      carry_out(*form, x, y, result);
      EXPECT_LE((result - expected).abs().max().item<double>(), 1e-12) << rows << " " << combination;
    }
  }
}

TEST(GemmForm, MatricesWithoutADenseSideHaveNone) {
  const at::Tensor plain = at::zeros({4, 4});
  const at::Tensor apart = at::zeros({4, 8}).slice(1, 0, 8, 2);
  EXPECT_FALSE(gemm_form(apart, plain, plain, plain));
  EXPECT_FALSE(gemm_form(plain, plain, plain.t(), plain));
  EXPECT_FALSE(gemm_form(at::zeros({4, 0}), at::zeros({0, 4}), plain, plain));
}

}  // namespace
}  // namespace sluice::ops
