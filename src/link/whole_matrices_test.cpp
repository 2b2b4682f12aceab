#include "link/whole_matrices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/test_outline.h"

namespace sluice::link {
namespace {

TEST(WholeMatrices, EachHasOneRankAndOneRound) {
  const model::ParameterTable table = model::parameter_table(model::outline_of_odd_sizes());
  const std::vector<WholeMatrix> matrices = whole_matrices(table);
  for (const int ranks : {1, 3, 64}) {
    std::vector<int> seen(matrices.size(), 0);
    const std::vector<int> of_matrix = matrix_ranks(matrices, ranks);
    for (const MatrixRound& round : matrix_rounds(matrices, ranks)) {
      ASSERT_EQ(std::ssize(round), ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const int index = round[static_cast<size_t>(rank)];
        if (index < 0) continue;
        ++seen[static_cast<size_t>(index)];
        EXPECT_EQ(of_matrix[static_cast<size_t>(index)], rank);
      }
    }
    EXPECT_EQ(std::ranges::count(seen, 1), std::ssize(matrices)) << ranks;
  }
}

// A single rank sends itself each matrix, and holds this one and the next.
TEST(WholeMatrices, ARankHoldsTwoRounds) {
  const model::ParameterTable table = model::parameter_table(model::outline_of_odd_sizes());
  const std::vector<WholeMatrix> matrices = whole_matrices(table);
  const MatrixUpdate update = matrix_update(table, 1);
  ASSERT_EQ(update.rounds.size(), matrices.size());
  ASSERT_EQ(update.held.size(), 1U);
  int64_t masters = 0, iterated = 0, coming_home = 0;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const int64_t own = matrices[i].elements.size(),
                  next = i + 1 < matrices.size() ? matrices[i + 1].elements.size() : 0;
    const int64_t least = std::min(matrices[i].rows, matrices[i].columns);
    EXPECT_EQ(update.rounds[i].busiest_elements, own);
    EXPECT_EQ(update.rounds[i].most_work, matrices[i].iteration_work());
    masters = std::max(masters, 2 * own + 2 * next);
    iterated = std::max(iterated, 2 * own + 2 * least * least);
    coming_home = std::max(coming_home, 3 * own + 2 * next);
  }
  EXPECT_EQ(update.held[0].masters, masters);
  EXPECT_EQ(update.held[0].iterated, iterated);
  EXPECT_EQ(update.held[0].coming_home, coming_home);
}

TEST(WholeMatrices, RanksSendWhatIsReceived) {
  const model::ParameterTable table = model::parameter_table(model::outline_of_odd_sizes());
  const MatrixUpdate two = matrix_update(table, 2), four = matrix_update(table, 4);
  const auto most = [](const MatrixUpdate& update) {
    return std::ranges::max(update.rounds, {}, &MatrixUpdate::Round::busiest_elements).busiest_elements;
  };
  int64_t largest = 0;
  for (const WholeMatrix& matrix : whole_matrices(table)) largest = std::max(largest, matrix.elements.size());
  EXPECT_GE(most(two), largest);
  EXPECT_GE(most(four), largest);
  EXPECT_LT(four.rounds.size(), two.rounds.size());
}

}  // namespace
}  // namespace sluice::link
