#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "ops/libraries/cublaslt.h"
#include "ops/libraries/gemm_form.h"
#include "ops/libraries/proved_on_gpu.h"

namespace sluice::ops::cublaslt {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // recommended for Hopper
constexpr uint32_t kMostAlignment = 256;

// The library's functions; it comes with libtorch's kernels.
struct Api {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) describe = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set = nullptr;
  decltype(&cublasLtMatmulDescDestroy) forget = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) lay_out = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) forget_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) prefer = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) forget_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  bool complete = false;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

const Api& api() {
  static const Api loaded = [] {
    Api api;
    void* library = ::dlopen("libcublasLt.so.13", RTLD_NOW);
    if (library == nullptr) return api;
    api.complete = find(library, "cublasLtCreate", api.create) &&
                   find(library, "cublasLtMatmulDescCreate", api.describe) &&
                   find(library, "cublasLtMatmulDescSetAttribute", api.set) &&
                   find(library, "cublasLtMatmulDescDestroy", api.forget) &&
                   find(library, "cublasLtMatrixLayoutCreate", api.lay_out) &&
                   find(library, "cublasLtMatrixLayoutDestroy", api.forget_layout) &&
                   find(library, "cublasLtMatmulPreferenceCreate", api.prefer) &&
                   find(library, "cublasLtMatmulPreferenceSetAttribute", api.set_preference) &&
                   find(library, "cublasLtMatmulPreferenceDestroy", api.forget_preference) &&
                   find(library, "cublasLtMatmulAlgoGetHeuristic", api.choose) &&
                   find(library, "cublasLtMatmul", api.multiply);
    return api;
  }();
  return loaded;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw base::RunError(base::text("cuBLASLt: ", what, " failed with ", static_cast<int>(status)));
}

// The key by which an algorithm is chosen.
struct Key {
  int gpu = 0;
  GemmForm form;
  bool wide_result = false;              // float, else bfloat16
  std::array<uint32_t, 4> alignments{};  // in bytes, for A, B, C and D

  auto operator<=>(const Key&) const = default;
};

uint32_t alignment_of(const at::Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  uint32_t alignment = kMostAlignment;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

// The descriptors of a product, and the algorithm for them.
class Product {
 public:
  explicit Product(const Key& key) {
    const cudaDataType_t result = key.wide_result ? CUDA_R_32F : CUDA_R_16BF;
    const GemmForm& form = key.form;
    check(api().describe(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, form.transposes_a);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, form.transposes_b);
    lay_out(a_, CUDA_R_16BF, form.m, form.k, form.transposes_a, form.lda);
    lay_out(b_, CUDA_R_16BF, form.k, form.n, form.transposes_b, form.ldb);
    lay_out(c_, result, form.m, form.n, false, form.ldc);
    lay_out(d_, result, form.m, form.n, false, form.ldd);
    choose(key);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_, d_}) {
      if (layout != nullptr) api().forget_layout(layout);
    }
    if (description_ != nullptr) api().forget(description_);
  }

  bool has_algorithm() const { return found_ > 0; }

  void run(cublasLtHandle_t handle, const at::Tensor& base, const at::Tensor& x, const at::Tensor& y,
           const at::Tensor& result) const {
    const float one = 1;
    const at::Tensor workspace =
        at::empty({static_cast<int64_t>(kWorkspaceBytes)}, result.options().dtype(at::kByte));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(result.device().index()).stream();
    check(api().multiply(handle, description_, &one, y.const_data_ptr(), a_, x.const_data_ptr(), b_, &one,
                         base.const_data_ptr(), c_, result.mutable_data_ptr(), d_, &choice_.algo,
                         workspace.mutable_data_ptr(), kWorkspaceBytes, stream),
          "a product");
  }

  static cublasLtHandle_t handle_of_current_gpu() {
    static std::mutex mutex;
    static std::map<int, cublasLtHandle_t> handles;  // as long as the process
    int gpu = 0;
    cudaGetDevice(&gpu);
    const std::lock_guard lock(mutex);
    const auto [found, is_new] = handles.try_emplace(gpu, nullptr);
    if (is_new) check(api().create(&found->second), "making a handle");
    return found->second;
  }

 private:
  void transpose(cublasLtMatmulDescAttributes_t which, bool transposes) {
    const cublasOperation_t form = transposes ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(api().set(description_, which, &form, sizeof form), "describing a product");
  }
  // `rows` and `columns` are the product's.
  static void lay_out(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t columns,
                      bool transposed, int64_t ld) {
    if (transposed) std::swap(rows, columns);
    check(api().lay_out(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld),
          "laying out a matrix");
  }

  void choose(const Key& key) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(api().prefer(&preference), "choosing an algorithm");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      check(api().set_preference(preference, what, &value, sizeof value), "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[3]);
    const cublasStatus_t status =
        api().choose(handle_of_current_gpu(), description_, a_, b_, c_, d_, preference, 1, &choice_, &found_);
    if (status != CUBLAS_STATUS_SUCCESS) found_ = 0;
    api().forget_preference(preference);
  }

  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr, d_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_{};
  int found_ = 0;
};

// The thread's product for the key. Micro-batches differ in rows, so there may be many.
const Product& product_of(const Key& key) {
  constexpr size_t kMostProducts = 4096;
  thread_local std::map<Key, std::unique_ptr<Product>> products;
  if (products.size() >= kMostProducts) products.clear();
  std::unique_ptr<Product>& product = products[key];
  if (product == nullptr) product = std::make_unique<Product>(key);
  return *product;
}

bool multiply(const at::Tensor& base, const at::Tensor& x, const at::Tensor& y, const at::Tensor& result) {
  const std::optional<GemmForm> form = gemm_form(x, y, base, result);
  if (!form) return false;
  const c10::cuda::CUDAGuard guard(result.device());
  const Product& product = product_of(
      {.gpu = result.device().index(),
       .form = *form,
       .wide_result = result.scalar_type() == at::kFloat,
       .alignments = {alignment_of(y), alignment_of(x), alignment_of(base), alignment_of(result)}});
  if (!product.has_algorithm()) return false;
  product.run(Product::handle_of_current_gpu(), base, x, y, result);
  return true;
}

// Compares a small case of each kind with ATen; "" if they agree.
std::string fault_on(const at::Device& gpu) {
  if (!api().complete) return "cuBLASLt cannot be loaded";
  const at::TensorOptions narrow = at::dtype(at::kBFloat16).device(gpu);
  const at::Tensor x = at::randn({264, 136}, narrow), y = at::randn({136, 520}, narrow);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const at::Tensor base = at::randn({264, 520}, narrow.dtype(type)), result = at::empty_like(base);
    const at::Tensor expected = at::addmm(base.to(at::kFloat), x.to(at::kFloat), y.to(at::kFloat));
    if (!multiply(base, x, y, result)) return "cuBLASLt has no algorithm for a small case";
    const at::Tensor error = (result.to(at::kFloat) - expected).abs().max() / expected.abs().max();
    if (!(error.item<float>() <= 1.0F / 128)) return "cuBLASLt's results are not ATen's";
  }
  return "";
}

}  // namespace

bool add_product(const at::Tensor& base, const at::Tensor& x, const at::Tensor& y, const at::Tensor& result) {
  static ProvedOnGpu proved(&fault_on);
  const bool types_fit = x.scalar_type() == at::kBFloat16 && y.scalar_type() == at::kBFloat16 &&
                         base.scalar_type() == result.scalar_type() &&
                         (result.scalar_type() == at::kBFloat16 || result.scalar_type() == at::kFloat);
  return types_fit && proved.on(result.device()) && multiply(base, x, y, result);
}

}  // namespace sluice::ops::cublaslt
