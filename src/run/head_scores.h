// Scores of a classification head beside its loss: accuracy and F1.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "corpus/labels.h"

namespace sluice::run {

// Accuracy and F1 as in scikit-learn. One class per row: F1 is the mean over classes that occur or are
// chosen. Any number of classes per row (chosen if the number is above 0): F1 is taken over all labels
// together, and a row counts as accurate if all its labels are right.
class ClassScores {
 public:
  explicit ClassScores(const corpus::LabelRule& rule);

  void add(const corpus::RowLabel& label, const std::vector<double>& numbers);
  // Empty for labels that are figures, and if no row was added.
  std::optional<double> accuracy() const;
  std::optional<double> f1() const;

 private:
  struct Counts {
    int64_t chosen_right = 0, chosen = 0, labelled = 0;
  };
  corpus::LabelForm form_;
  std::vector<Counts> of_class_;
  int64_t rows_ = 0, right_ = 0;
};

}  // namespace sluice::run
