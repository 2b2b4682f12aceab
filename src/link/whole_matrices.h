// Matrices that an optimizer updates as a whole (Muon), although their elements lie with several owners: each
// is gathered by one rank. Matrices go in rounds, one matrix a rank at most.
#pragma once

#include <cstdint>
#include <vector>

#include "link/layout.h"
#include "model/parameters.h"

namespace sluice::link {

// One matrix that learns as a whole: a tensor of the model's files; for stacked or fused experts, each
// expert's matrix.
struct WholeMatrix {
  int bucket = 0;
  base::Interval elements;  // in the bucket's flat array
  int64_t rows = 0;         // as it is stored
  int64_t columns = 0;
  bool outputs_last = false;  // stored [in, out]

  // Multiply-adds of a Newton-Schulz iteration, x -> a x + b (x xᵀ) x + c (x xᵀ)² x.
  double iteration_work() const;
};
// The matrices of all trained buckets, in bucket order.
std::vector<WholeMatrix> whole_matrices(const model::ParameterTable& table);

// The rank that updates each matrix: the most expensive matrix first, to the least loaded rank.
std::vector<int> matrix_ranks(const std::vector<WholeMatrix>& matrices, int ranks);

// By rank the index of its matrix in a round; -1: none.
using MatrixRound = std::vector<int>;
std::vector<MatrixRound> matrix_rounds(const std::vector<WholeMatrix>& matrices, int ranks);

// Work, elements and memory of the rounds of one update.
struct MatrixUpdate {
  struct Round {
    int64_t busiest_elements = 0;  // that a rank sends to matrices' ranks, or receives
    double most_work = 0;          // WholeMatrix::iteration_work() of the busiest rank
  };
  // Numbers of a rank at its fullest. While it iterates: in the masters' width, and in the iterations'. While
  // updates come home: in the masters' width.
  struct Held {
    int64_t masters = 0;
    int64_t iterated = 0;
    int64_t coming_home = 0;
  };
  std::vector<Round> rounds;
  std::vector<Held> held;  // by rank
};
MatrixUpdate matrix_update(const model::ParameterTable& table, int ranks);

}  // namespace sluice::link
