#include "runtime/muon.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "runtime/narrow_masters.h"

namespace sluice::runtime {
namespace {

using base::Interval;
using link::MatrixRound;
using link::WholeMatrix;

// Keller Jordan's coefficients: x -> a x + b (x xᵀ) x + c (x xᵀ)² x.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

}  // namespace

at::Tensor orthogonal(const at::Tensor& x_AB, int64_t steps, double eps) {
  const bool wide = x_AB.scalar_type() == at::kDouble, tall = x_AB.size(0) > x_AB.size(1);
  at::Tensor x = wide ? x_AB.clone() : x_AB.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (tall) x = x.t();
  x.div_(x.norm().clamp_min(eps));
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

namespace {

class MatrixUpdates {
 public:
  MatrixUpdates(ParameterStore& store, const AdamW& options, double scale, comm::Communicator& world)
      : store_(store),
        options_(options),
        scale_(scale),
        world_(world),
        owners_{world.size()},
        matrices_(link::whole_matrices(store.table())) {
    SLUICE_ASSERT(world.size() == store.options().world_size,
                  base::text(world.size(), " of ", store.options().world_size, " ranks"));
  }

  // While one round's matrices are made orthogonal, the next round's are being gathered.
  void run() {
    const std::vector<MatrixRound> rounds = link::matrix_rounds(matrices_, world_.size());
    InFlight coming;
    if (!rounds.empty()) coming = gather(rounds.front());
    for (size_t i = 0; i < rounds.size(); ++i) {
      coming.pending->wait();
      const InFlight came = std::move(coming);
      if (i + 1 < rounds.size()) coming = gather(rounds[i + 1]);
      apply(rounds[i], send_home(rounds[i], made_orthogonal(rounds[i], came.received)));
    }
  }

 private:
  struct InFlight {
    at::Tensor sent, received;
    comm::PendingPtr pending;
  };

  const WholeMatrix* matrix_at(int index) const {
    return index < 0 ? nullptr : &matrices_[static_cast<size_t>(index)];
  }
  Interval owned(const WholeMatrix& matrix, int rank) const {
    const model::Bucket& bucket = store_.table().buckets[static_cast<size_t>(matrix.bucket)];
    return base::intersect(owners_.owned(bucket, rank), matrix.elements);
  }
  Interval own_part(const WholeMatrix* matrix) const {
    return matrix == nullptr ? Interval{0, 0} : owned(*matrix, world_.rank());
  }
  at::TensorOptions numbers() const {
    return at::TensorOptions()
        .dtype(scalar_type(store_.options().precision.master()))
        .device(store_.options().device);
  }
  // Element counts by rank: this rank's part of that rank's matrix; that rank's part of this rank's matrix.
  std::vector<int64_t> to_matrices(const MatrixRound& round) const {
    std::vector<int64_t> elements;
    for (const int index : round) elements.push_back(own_part(matrix_at(index)).size());
    return elements;
  }
  std::vector<int64_t> from_owners(const MatrixRound& round) const {
    const WholeMatrix* matrix = matrix_at(round[static_cast<size_t>(world_.rank())]);
    std::vector<int64_t> elements;
    for (int rank = 0; rank < world_.size(); ++rank)
      elements.push_back(matrix == nullptr ? 0 : owned(*matrix, rank).size());
    return elements;
  }

  InFlight exchange(const at::Tensor& sent, const std::vector<int64_t>& send,
                    const std::vector<int64_t>& receive) {
    const int64_t wide = comm::size_of(store_.options().precision.master());
    const auto in_bytes = [&](const std::vector<int64_t>& elements) {
      std::vector<int64_t> bytes;
      for (const int64_t count : elements) bytes.push_back(count * wide);
      return bytes;
    };
    InFlight result{sent, at::empty({std::accumulate(receive.begin(), receive.end(), int64_t{0})}, numbers()),
                    nullptr};
    result.pending = world_.all_to_all(sent.const_data_ptr(), in_bytes(send),
                                       result.received.mutable_data_ptr(), in_bytes(receive));
    return result;
  }

  // Updates the momentum with the gradients and sends the result to the matrices' ranks.
  InFlight gather(const MatrixRound& round) {
    const std::vector<int64_t> send = to_matrices(round);
    const at::Tensor sent = at::empty({std::accumulate(send.begin(), send.end(), int64_t{0})}, numbers());
    int64_t offset = 0;
    for (const int index : round) {
      const WholeMatrix* matrix = matrix_at(index);
      const Interval own = own_part(matrix);
      if (own.empty()) continue;
      OwnerSlice& slice = store_.owner(matrix->bucket);
      const int64_t first = own.begin - slice.owned.begin;
      const at::Tensor gradient = slice.gradient.narrow(0, first, own.size()).mul_(scale_);
      const at::Tensor momentum = slice.exp_avg.read({first, first + own.size()});
      momentum.lerp_(gradient, 1 - options_.muon->momentum);
      slice.exp_avg.write(first, momentum);
      const at::Tensor to = sent.narrow(0, offset, own.size());
      to.copy_(options_.muon->nesterov ? gradient.lerp_(momentum, options_.muon->momentum) : momentum);
      offset += own.size();
    }
    return exchange(sent, send, from_owners(round));
  }

  at::Tensor made_orthogonal(const MatrixRound& round, const at::Tensor& flat) const {
    const WholeMatrix* matrix = matrix_at(round[static_cast<size_t>(world_.rank())]);
    if (matrix == nullptr) return flat;
    at::Tensor x = flat.view({matrix->rows, matrix->columns});
    if (matrix->outputs_last) x = x.t();
    const at::Tensor made = orthogonal(x, options_.muon->steps, options_.muon->eps);
    x.copy_(made);
    return flat;
  }

  at::Tensor send_home(const MatrixRound& round, const at::Tensor& made) {
    const InFlight home = exchange(made, from_owners(round), to_matrices(round));
    home.pending->wait();
    return home.received;
  }

  double rate_factor(const WholeMatrix& matrix) const {
    double outputs = static_cast<double>(matrix.rows), inputs = static_cast<double>(matrix.columns);
    if (matrix.outputs_last) std::swap(outputs, inputs);
    return options_.muon->matches_adamw ? 0.2 * std::sqrt(std::max(outputs, inputs))
                                        : std::sqrt(std::max(1.0, outputs / inputs));
  }

  AdamW::Rates rates_of(const WholeMatrix& matrix, Interval own) const {
    const auto& runs = store_.parameter_groups(matrix.bucket);
    const auto run = std::ranges::find_if(runs, [&](const model::ParameterGroupRun& each) {
      return !base::intersect(each.elements, own).empty();
    });
    return options_.rates_of(*run);
  }

  void apply(const MatrixRound& round, const at::Tensor& updates) {
    int64_t offset = 0;
    for (const int index : round) {
      const WholeMatrix* matrix = matrix_at(index);
      const Interval own = own_part(matrix);
      if (own.empty()) continue;
      store_.wait_for_readers(matrix->bucket);
      const OwnerSlice& slice = store_.owner(matrix->bucket);
      const int64_t first = own.begin - slice.owned.begin;
      const AdamW::Rates rates = rates_of(*matrix, own);
      const at::Tensor masters = read_masters(slice, {first, first + own.size()});
      masters.mul_(1 - rates.lr * rates.weight_decay);
      masters.sub_(updates.narrow(0, offset, own.size()), rates.lr * rate_factor(*matrix));
      write_masters(slice, first, masters, master_chance(options_.update, matrix->bucket));
      const at::Tensor& copy = store_.compute_copy(matrix->bucket);
      if (!store_.copies_apart() && !copy.is_alias_of(slice.master))
        copy.narrow(0, first, own.size()).copy_(slice.master.narrow(0, first, own.size()));
      offset += own.size();
    }
  }

  ParameterStore& store_;
  const AdamW& options_;
  const double scale_;
  comm::Communicator& world_;
  link::OwnerLayout owners_;
  std::vector<WholeMatrix> matrices_;
};

}  // namespace

void update_matrices(ParameterStore& store, const AdamW& options, int64_t targets, double gradient_norm,
                     comm::Communicator& world) {
  MatrixUpdates(store, options, options.gradient_scale(targets, gradient_norm), world).run();
}

}  // namespace sluice::runtime
