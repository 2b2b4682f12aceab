#include "run/head_scores.h"

#include <algorithm>

namespace sluice::run {
namespace {

double f1_of(int64_t chosen_right, int64_t chosen, int64_t labelled) {
  const int64_t both = chosen + labelled;
  return both == 0 ? 0 : 2.0 * static_cast<double>(chosen_right) / static_cast<double>(both);
}

}  // namespace

ClassScores::ClassScores(const corpus::LabelRule& rule) : form_(rule.form), of_class_(rule.names.size()) {}

void ClassScores::add(const corpus::RowLabel& label, const std::vector<double>& numbers) {
  if (form_ != corpus::LabelForm::kClass && form_ != corpus::LabelForm::kClasses) return;
  const auto largest = std::ranges::max_element(numbers) - numbers.begin();
  bool right = true;
  for (int64_t i = 0; i < std::ssize(numbers); ++i) {
    const auto at = static_cast<size_t>(i);
    const bool one = form_ == corpus::LabelForm::kClass;
    const bool chosen = one ? i == largest : numbers[at] > 0;
    const bool labelled = one ? i == label.target : label.figures[at] > 0.5;
    of_class_[at].chosen_right += chosen && labelled ? 1 : 0;
    of_class_[at].chosen += chosen ? 1 : 0;
    of_class_[at].labelled += labelled ? 1 : 0;
    right = right && chosen == labelled;
  }
  ++rows_;
  right_ += right ? 1 : 0;
}

std::optional<double> ClassScores::accuracy() const {
  if (rows_ == 0) return std::nullopt;
  return static_cast<double>(right_) / static_cast<double>(rows_);
}

std::optional<double> ClassScores::f1() const {
  if (rows_ == 0) return std::nullopt;
  Counts sum;
  double mean = 0;
  int64_t classes = 0;
  for (const Counts& own : of_class_) {
    sum.chosen_right += own.chosen_right;
    sum.chosen += own.chosen;
    sum.labelled += own.labelled;
    if (own.chosen + own.labelled == 0) continue;
    mean += f1_of(own.chosen_right, own.chosen, own.labelled);
    ++classes;
  }
  if (form_ == corpus::LabelForm::kClasses) return f1_of(sum.chosen_right, sum.chosen, sum.labelled);
  return mean / static_cast<double>(classes);
}

}  // namespace sluice::run
