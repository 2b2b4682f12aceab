// Weight gradients that a backward leaves for later (W after B; Qi et al., Zero Bubble Pipeline Parallelism,
// 2023), as products aᵀ·b of saved rows. Rows that were gathered over the TP ranks can be dropped and
// gathered again.
//
// A product names its gradient by a slot, not by a tensor, because W has other accumulators than B if lanes
// share parameters. Rows that several products read are kept, gathered and counted once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/interval.h"
#include "layers/operation.h"
#include "layers/product.h"
#include "ops/grouped_product.h"

namespace sluice::layers {

class PendingProducts final : public State {
 public:
  // One side of a product.
  struct Side {
    int rows = -1;                // index from keep()
    base::Interval columns = {};  // columns of the rows; empty: all
    bool gathered = false;        // all TP ranks' rows; else the rows as they were kept
  };

  // `gathered`: the same rows of all TP ranks, if they are at hand; undefined: not yet.
  int keep(at::Tensor rows, at::Tensor gathered = {});

  // gradient[slot] += aᵀ·b. `narrow`: rows of the matrix's adapters (product.h).
  void product(int slot, Side a, Side b, std::vector<AdapterRows> narrow = {});
  // Rows' experts, of which the first `own` are this rank's.
  struct Visited {
    at::Tensor id_TK;
    int64_t experts = 0, own = 0;
    bool grouped = false;  // all experts' products at once (ops/grouped_product.h)
  };
  // The same expert by expert: `a` has assignments in the order of experts, `b` has rows. The gradient
  // consists of one equal run of rows for each of the first `own` experts.
  void visits(int slot, Side a, Side b, const Visited& visited);
  // gradient[slot] += the sum of rows, for a bias.
  void column_sums(int slot, Side a);
  // gradient[slot] += a gradient that is computed already.
  void made(int slot, at::Tensor gradient);

  // Between B and W: drops rows that can be gathered again.
  void drop_gathered();
  // W. Rows are freed as soon as the last product that reads them is added.
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
    Visited visited = {};  // without the ids, which are rows like others
  };
  struct Made {
    int slot;
    at::Tensor gradient;
  };
  void use(Side side) { ++rows_[static_cast<size_t>(side.rows)].uses; }
  at::Tensor taken(Side side, const TensorParallel& parallel);
  void release(Side side);
  // The grouped rows of some ids, for the next product that has the same.
  struct Grouped {
    int ids = -1;
    ops::GroupedRows rows = {};
  };
  void add_visits(const Product& product, const Matrix& gradient, const TensorParallel& parallel,
                  Grouped& known);

  std::vector<Rows> rows_;
  std::vector<Product> products_;
  std::vector<Made> made_;
};

}  // namespace sluice::layers
