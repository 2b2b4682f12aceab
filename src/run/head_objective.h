// What heads learn from texts that belong together: a loss over all of a batch, and its gradient by each
// text's numbers. Pure functions of numbers that every rank has.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::run {

using TextNumbers = std::vector<double>;  // of one text

struct HeadOutcome {
  double loss = 0;                     // the mean over groups
  std::optional<double> accuracy;      // of pairs: those the right way round
  std::optional<double> margin;        // of pairs: the mean of reward − other reward
  std::vector<TextNumbers> gradients;  // by text
};

// Rewards of better and worse texts in turn. The loss of a pair is −log σ(better − worse − margin) +
// center·(better + worse)² (Bradley and Terry, 1952; Touvron et al., Llama 2, 2023, section 3.2.2; Eisenstein
// et al., 2023), as TRL's RewardTrainer takes it. `margins`: of each pair; empty: 0.
HeadOutcome bradley_terry(const std::vector<TextNumbers>& rewards, const std::vector<double>& margins,
                          double center);

// Groups of so many texts: one, the one that it is to lie near, and others that it is not. The loss of a
// group is the cross-entropy of its own partner among all groups' second and further texts, by cosines
// divided by the temperature (van den Oord et al., InfoNCE, 2018), as sentence-transformers'
// MultipleNegativesRankingLoss. REQUIRES: at least two texts in a group.
HeadOutcome info_nce(const std::vector<TextNumbers>& embeddings, int64_t texts_of_group, double temperature);

// The sum of that loss over the whole embeddings and their beginnings of these widths (Kusupati et al.,
// Matryoshka Representation Learning, 2022), as sentence-transformers' MatryoshkaLoss with all of them as
// matryoshka_dims. REQUIRES: each is at most the embeddings' width.
HeadOutcome matryoshka_info_nce(const std::vector<TextNumbers>& embeddings, int64_t texts_of_group,
                                double temperature, const std::vector<int64_t>& widths);

}  // namespace sluice::run
