// Labels of documents: PREFIX.labels beside a corpus, JSON Lines with one value per document. A value is the
// name or number of a class, a list of classes, a number or a list of numbers. If tokens are labelled, the
// value is a list with one of these, or null, for each token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace sluice::corpus {

// Immutable.
class Labels {
 public:
  // InputError naming `name` unless there is one line for each of `documents` documents.
  Labels(std::string lines, std::string name, int64_t documents);

  // InputError if the line is not JSON.
  base::Json of(int64_t document) const;
  // "PREFIX.labels:17", for errors.
  std::string place(int64_t document) const;

 private:
  std::string lines_;
  std::string name_;
  std::vector<size_t> begins_;  // begin of each line, then the end of the text
};

// How labels relate to a head's outputs: kClass names the output that should be largest, kClasses those that
// should be above 0, kFigures their values. kNone: there are no labels, the outputs alone are wanted.
enum class LabelForm : uint8_t { kClass, kClasses, kFigures, kNone };

// The token of a text whose row has the label, or the output.
enum class LabelRow : uint8_t { kLast, kFirst };

struct LabelRule {
  LabelForm form = LabelForm::kClass;
  bool of_tokens = false;
  LabelRow row = LabelRow::kLast;  // the labelled token of a text
  std::vector<std::string> names;  // the classes' names
};

// The target of one row of a head.
struct RowLabel {
  int64_t target = 0;           // the class, for kClass
  std::vector<double> figures;  // one value per output, for kClasses and kFigures
};

// InputError naming `place` if the label does not fit the rule: two classes where one is needed, no class, a
// class that the head does not have, a number that is not finite.
RowLabel row_label(const LabelRule& rule, const base::Json& label, const std::string& place);

}  // namespace sluice::corpus
