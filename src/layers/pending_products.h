// Weight gradients that a backward leaves for later (W behind B; Qi et al., Zero Bubble Pipeline Parallelism,
// 2023): products aᵀ·b of rows that it keeps, of which those that were gathered over the TP ranks may be
// gathered again.
//
// A product names its gradient by a slot, not by a tensor: where lanes share parameters W has other
// accumulators than B had. Rows that several products read are kept, gathered and counted once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/interval.h"
#include "layers/operation.h"
#include "layers/product.h"

namespace sluice::layers {

class PendingProducts final : public State {
 public:
  // One side of a product.
  struct Side {
    int rows = -1;                // of keep()
    base::Interval columns = {};  // of these; empty: all
    bool gathered = false;        // of all TP ranks; else as they were kept
  };

  // `gathered`: the same rows of all TP ranks, while they are at hand; undefined: not yet.
  int keep(at::Tensor rows, at::Tensor gathered = {});

  // gradient[slot] += aᵀ·b. `narrow`: of the matrix's adapters (product.h).
  void product(int slot, Side a, Side b, std::vector<AdapterRows> narrow = {});
  // The same expert by expert: `a` has visits in the order of experts, `b` rows, `id_TK` the experts of
  // these. The gradient has as many rows of each of the first `own` experts.
  void visits(int slot, Side a, Side b, at::Tensor id_TK, int64_t experts, int64_t own);
  // gradient[slot] += the sum of rows: of a bias.
  void column_sums(int slot, Side a);
  // gradient[slot] += what is made already.
  void made(int slot, at::Tensor gradient);

  // Between B and W: what can be gathered again.
  void drop_gathered();
  // W. Rows go as soon as the last product that reads them is added.
  void add_to(std::span<const Matrix> gradients, const TensorParallel& parallel);

  std::vector<SavedRows> rows() override;

 private:
  enum class Kind : uint8_t { kProduct, kVisits, kColumnSums };
  struct Rows {
    at::Tensor own, gathered;
    int uses = 0;
  };
  struct Product {
    Kind kind;
    int slot;
    Side a, b;
    std::vector<AdapterRows> narrow;
    int ids = -1;
    int64_t experts = 0, own = 0;
  };
  struct Made {
    int slot;
    at::Tensor gradient;
  };
  void use(Side side) { ++rows_[static_cast<size_t>(side.rows)].uses; }
  at::Tensor taken(Side side, const TensorParallel& parallel);
  void release(Side side);
  void add_visits(const Product& product, const Matrix& gradient, const TensorParallel& parallel);

  std::vector<Rows> rows_;
  std::vector<Product> products_;
  std::vector<Made> made_;
};

}  // namespace sluice::layers
