// What documents are labelled with: PREFIX.labels beside a corpus, JSON Lines with a value for each document:
// the name or number of a class, a list of those, a figure or a list of figures; of documents whose tokens
// are labelled a list with one of these, or null, for each token.
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
  // InputError naming `name` where there is not a line for each of so many documents.
  Labels(std::string lines, std::string name, int64_t documents);

  // InputError where the line is no JSON.
  base::Json of(int64_t document) const;
  // "PREFIX.labels:17", for errors.
  std::string place(int64_t document) const;

 private:
  std::string lines_;
  std::string name_;
  std::vector<size_t> begins_;  // of each line, and the end of all
};

// What labels are to a head's numbers: the one that should be largest; those that should be above 0; or what
// they should be. kNone: nothing, the numbers alone are wanted.
enum class LabelForm : uint8_t { kClass, kClasses, kFigures, kNone };

// At which of a text's tokens its label, or its number, stands.
enum class LabelRow : uint8_t { kLast, kFirst };

struct LabelRule {
  LabelForm form = LabelForm::kClass;
  bool of_tokens = false;
  LabelRow row = LabelRow::kLast;  // of a text's tokens
  std::vector<std::string> names;  // of the numbers
};

// What a row of a head is compared with.
struct RowLabel {
  int64_t target = 0;           // the class, where that is the label
  std::vector<double> figures;  // for each number, where those are
};

// InputError naming `place` for a label that is no such thing: two where one is needed, none, a class without
// a number in the head, a figure that is not finite.
RowLabel row_label(const LabelRule& rule, const base::Json& label, const std::string& place);

}  // namespace sluice::corpus
