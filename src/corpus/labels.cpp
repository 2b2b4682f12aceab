#include "corpus/labels.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

Labels::Labels(std::string lines, std::string name, int64_t documents)
    : lines_(std::move(lines)), name_(std::move(name)) {
  for (size_t begin = 0; begin < lines_.size();) {
    begins_.push_back(begin);
    const size_t end = lines_.find('\n', begin);
    begin = end == std::string::npos ? lines_.size() : end + 1;
  }
  if (std::ssize(begins_) != documents) {
    throw InputError(text(name_, " has ", begins_.size(), " lines, but the corpus has ", documents,
                          " documents: build it again with --labels"));
  }
  begins_.push_back(lines_.size());
}

std::string Labels::place(int64_t document) const { return text(name_, ":", document + 1); }

Json Labels::of(int64_t document) const {
  const size_t begin = begins_[static_cast<size_t>(document)];
  const std::string_view line =
      std::string_view(lines_).substr(begin, begins_[static_cast<size_t>(document) + 1] - begin);
  Json label;
  if (const auto fault = base::read_json_text(line, base::JsonDialect::kPython, label))
    throw InputError(described(*fault, place(document)));
  return label;
}

namespace {

std::string known_classes(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + static_cast<int64_t>(std::min(kShown, names.size())));
  if (shown.size() < names.size()) shown.emplace_back("…");
  return base::join(shown, ", ");
}

int64_t class_of(const LabelRule& rule, const Json& label, const std::string& place) {
  const auto count = std::ssize(rule.names);
  if (label.is_string()) {
    const auto found = std::ranges::find(rule.names, label.get_ref<const std::string&>());
    if (found != rule.names.end()) return found - rule.names.begin();
  } else if (label.is_boolean() && count == 2) {
    return label.get<bool>() ? 1 : 0;
  } else if (label.is_number_integer() && label >= 0 && label < count) {
    return label.get<int64_t>();
  } else if (label.is_array()) {
    throw InputError(text(place, ": the label is ", base::excerpt(label),
                          ", and a text has one class: give one, ",
                          "or set head.problem_type = \"multi_label_classification\""));
  }
  throw InputError(text(place, ": the label is ", base::excerpt(label), ", but the model's classes are ",
                        known_classes(rule.names),
                        ": name all of them in head.labels, or correct the label"));
}

double figure_of(const Json& label, const std::string& place) {
  const double figure = label.is_number()    ? label.get<double>()
                        : label.is_boolean() ? (label.get<bool>() ? 1.0 : 0.0)
                                             : std::nan("");
  if (std::isfinite(figure)) return figure;
  throw InputError(text(place, ": the label is ", base::excerpt(label), ", and a finite number is needed"));
}

std::vector<double> figures_of(const LabelRule& rule, const Json& label, const std::string& place) {
  const size_t count = rule.names.size();
  if (!label.is_array()) {
    if (count == 1) return {figure_of(label, place)};
    throw InputError(text(place, ": the label is ", base::excerpt(label), ", and the head has ", count,
                          " numbers: give a list of as many"));
  }
  if (label.size() != count) {
    throw InputError(
        text(place, ": the label has ", label.size(), " numbers, the head ", count, ": give as many"));
  }
  std::vector<double> figures;
  for (const Json& each : label) figures.push_back(figure_of(each, place));
  return figures;
}

// One mark from 0 to 1 per class. The label is a list of classes, or a list of such marks.
std::vector<double> classes_of(const LabelRule& rule, const Json& label, const std::string& place) {
  if (!label.is_array()) {
    throw InputError(text(place, ": the label is ", base::excerpt(label),
                          ", and a text has any number of classes: give a list"));
  }
  const auto is_mark = [](const Json& each) {
    return each.is_boolean() || each.is_number_float() || each == 0 || each == 1;
  };
  if (label.size() == rule.names.size() && std::ranges::all_of(label, is_mark)) {
    std::vector<double> marks = figures_of(rule, label, place);
    if (std::ranges::all_of(marks, [](double mark) { return mark >= 0 && mark <= 1; })) return marks;
    throw InputError(text(place, ": the label is ", base::excerpt(label), ", and marks lie between 0 and 1"));
  }
  std::vector<double> marks(rule.names.size(), 0.0);
  for (const Json& each : label) marks[static_cast<size_t>(class_of(rule, each, place))] = 1;
  return marks;
}

}  // namespace

RowLabel row_label(const LabelRule& rule, const Json& label, const std::string& place) {
  switch (rule.form) {
    case LabelForm::kClass: return {.target = class_of(rule, label, place), .figures = {}};
    case LabelForm::kClasses: return {.target = 0, .figures = classes_of(rule, label, place)};
    case LabelForm::kFigures: return {.target = 0, .figures = figures_of(rule, label, place)};
    case LabelForm::kNone: break;
  }
  return {};
}

}  // namespace sluice::corpus
