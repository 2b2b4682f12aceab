#include "link/whole_matrices.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "model/hugging_face.h"
#include "model/tuning.h"

namespace sluice::link {
namespace {

using base::Interval;

void add_matrices(const model::Bucket& bucket, const model::Parameter& parameter,
                  std::vector<WholeMatrix>& to) {
  for (const model::HuggingFaceTensor& tensor : model::hugging_face_tensors(bucket, parameter)) {
    const int64_t count = std::max<int64_t>(1, parameter.stacked), rows = tensor.rows / count;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = parameter.offset + (tensor.row_begin + i * rows) * parameter.columns;
      to.push_back({bucket.index,
                    {begin, begin + rows * parameter.columns},
                    rows,
                    parameter.columns,
                    parameter.outputs_last || parameter.transposed});
    }
  }
}

// Elements that each rank sends in a round, which its matrices' ranks send back.
std::vector<int64_t> sent_by_rank(const model::ParameterTable& table,
                                  const std::vector<WholeMatrix>& matrices, const MatrixRound& round) {
  const OwnerLayout owners{static_cast<int>(round.size())};
  std::vector<int64_t> sent(round.size(), 0);
  for (const int index : round) {
    if (index < 0) continue;
    const WholeMatrix& matrix = matrices[static_cast<size_t>(index)];
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(matrix.bucket)];
    for (size_t rank = 0; rank < round.size(); ++rank)
      sent[rank] += base::intersect(owners.owned(bucket, static_cast<int>(rank)), matrix.elements).size();
  }
  return sent;
}

}  // namespace

double WholeMatrix::iteration_work() const {
  const auto less = static_cast<double>(std::min(rows, columns));
  const auto more = static_cast<double>(std::max(rows, columns));
  return less * less * (2 * more + less);
}

std::vector<WholeMatrix> whole_matrices(const model::ParameterTable& table) {
  std::vector<WholeMatrix> matrices;
  for (const model::Bucket& bucket : table.buckets) {
    if (!bucket.trained) continue;
    for (const model::Parameter& parameter : bucket.parameters) {
      const bool learns = parameter.learns == model::Learns::kByGradient;
      if (learns && model::is_hidden_matrix(bucket, parameter)) add_matrices(bucket, parameter, matrices);
    }
  }
  return matrices;
}

std::vector<int> matrix_ranks(const std::vector<WholeMatrix>& matrices, int ranks) {
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return matrices[i].iteration_work(); });
  std::vector<double> work(static_cast<size_t>(ranks), 0.0);
  std::vector<int> of_matrix(matrices.size());
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(work);
    *least += matrices[i].iteration_work();
    of_matrix[i] = static_cast<int>(least - work.begin());
  }
  return of_matrix;
}

std::vector<MatrixRound> matrix_rounds(const std::vector<WholeMatrix>& matrices, int ranks) {
  const std::vector<int> of_matrix = matrix_ranks(matrices, ranks);
  std::vector<size_t> next(static_cast<size_t>(ranks), 0);
  std::vector<MatrixRound> rounds;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const auto rank = static_cast<size_t>(of_matrix[i]);
    if (next[rank] == rounds.size()) rounds.emplace_back(next.size(), -1);
    rounds[next[rank]++][rank] = static_cast<int>(i);
  }
  return rounds;
}

// While a round's matrices are iterated, the next round's are on their way: what a rank sends and receives of
// both is held. An iteration holds a matrix and the next one, the product of its rows and that product's
// polynomial. The updates then come home beside both rounds.
MatrixUpdate matrix_update(const model::ParameterTable& table, int ranks) {
  const std::vector<WholeMatrix> matrices = whole_matrices(table);
  const std::vector<MatrixRound> rounds = matrix_rounds(matrices, ranks);
  MatrixUpdate update;
  update.held.resize(static_cast<size_t>(ranks));
  const auto of = [&](size_t round, size_t rank) {
    const int index = round < rounds.size() ? rounds[round][rank] : -1;
    return index < 0 ? nullptr : &matrices[static_cast<size_t>(index)];
  };
  std::vector<std::vector<int64_t>> sent;
  for (const MatrixRound& round : rounds) sent.push_back(sent_by_rank(table, matrices, round));
  sent.emplace_back(static_cast<size_t>(ranks), 0);
  for (size_t i = 0; i < rounds.size(); ++i) {
    MatrixUpdate::Round& round = update.rounds.emplace_back();
    for (size_t rank = 0; rank < update.held.size(); ++rank) {
      const WholeMatrix *const own = of(i, rank), *const next = of(i + 1, rank);
      const int64_t received = own == nullptr ? 0 : own->elements.size();
      const int64_t coming = sent[i + 1][rank] + (next == nullptr ? 0 : next->elements.size());
      const int64_t least = own == nullptr ? 0 : std::min(own->rows, own->columns);
      round.busiest_elements = std::max({round.busiest_elements, sent[i][rank], received});
      if (own != nullptr) round.most_work = std::max(round.most_work, own->iteration_work());
      MatrixUpdate::Held& held = update.held[rank];
      held.masters = std::max(held.masters, sent[i][rank] + received + coming);
      held.iterated = std::max(held.iterated, 2 * received + 2 * least * least);
      held.coming_home = std::max(held.coming_home, 2 * sent[i][rank] + received + coming);
    }
  }
  return update;
}

}  // namespace sluice::link
