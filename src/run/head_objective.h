// Losses of heads over groups of texts: a loss over the whole batch, and its gradient by each text's numbers.
// They are pure functions of numbers that every rank has.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::run {

using TextNumbers = std::vector<double>;  // the head's numbers for one text

struct HeadOutcome {
  double loss = 0;                     // the mean over groups
  std::optional<double> accuracy;      // pairs: fraction in the right order
  std::optional<double> margin;        // pairs: mean of reward − other reward
  std::vector<TextNumbers> gradients;  // by text
};

// Rewards of better and worse texts in turn. A pair's loss is −log σ(better − worse − margin) +
// center·(better + worse)² (Bradley and Terry, 1952; Touvron et al., Llama 2, 2023, section 3.2.2; Eisenstein
// et al., 2023), as in TRL's RewardTrainer. `margins`: of each pair; empty: 0.
HeadOutcome bradley_terry(const std::vector<TextNumbers>& rewards, const std::vector<double>& margins,
                          double center);

// Groups of so many texts: an anchor, its positive, and negatives. A group's loss is the cross-entropy of its
// own positive among all groups' positives and negatives, by cosine over temperature (van den Oord et al.,
// InfoNCE, 2018), as sentence-transformers' MultipleNegativesRankingLoss. REQUIRES: at least two texts in a
// group.
HeadOutcome info_nce(const std::vector<TextNumbers>& embeddings, int64_t texts_of_group, double temperature);

// The sum of info_nce() over the whole embeddings and over their first numbers, for each of these widths
// (Kusupati et al., Matryoshka Representation Learning, 2022). As sentence-transformers' MatryoshkaLoss with
// all of them as matryoshka_dims. REQUIRES: no width exceeds the embeddings'.
HeadOutcome matryoshka_info_nce(const std::vector<TextNumbers>& embeddings, int64_t texts_of_group,
                                double temperature, const std::vector<int64_t>& widths);

}  // namespace sluice::run
