// What an evaluation says of a head beside its loss: how often it is right.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "corpus/labels.h"

namespace sluice::run {

// Accuracy and F1 as scikit-learn takes them: of one class a row the mean F1 of classes that occur or are
// chosen; of any number of classes a row, which are chosen above 0, F1 of all marks together and the rows all
// of whose marks are right.
class ClassScores {
 public:
  explicit ClassScores(const corpus::LabelRule& rule);

  void add(const corpus::RowLabel& label, const std::vector<double>& numbers);
  // None of figures, and of no row.
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
