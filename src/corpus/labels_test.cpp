#include "corpus/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace sluice::corpus {
namespace {

using base::Json;
using testing::HasSubstr;

const LabelRule kClasses{.form = LabelForm::kClass, .names = {"no", "yes", "maybe"}};
const LabelRule kMarks{.form = LabelForm::kClasses, .names = {"no", "yes", "maybe"}};
const LabelRule kFigure{.form = LabelForm::kFigures, .names = {"LABEL_0"}};

std::string fault(const LabelRule& rule, const Json& label) {
  try {
    row_label(rule, label, "FILE:3");
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Labels, ALineADocument) {
  const Labels labels("\"no\"\n[1, 2]\n0.5\n", "corpus.labels", 3);
  EXPECT_EQ(labels.of(0), Json("no"));
  EXPECT_EQ(labels.of(1), Json::array({1, 2}));
  EXPECT_EQ(labels.of(2), Json(0.5));
  EXPECT_EQ(labels.place(2), "corpus.labels:3");
}

TEST(Labels, TheLastLineMayHaveNoEnd) { EXPECT_EQ(Labels("1\n2", "n", 2).of(1), Json(2)); }

TEST(Labels, OtherNumbersOfLinesAreRefused) {
  EXPECT_THROW(Labels("1\n", "n", 2), base::InputError);
  EXPECT_THROW(Labels("", "n", 1), base::InputError);
  EXPECT_THROW(Labels("1\nx y\n", "n", 2).of(1), base::InputError);
}

TEST(LabelRule, ClassesGoByNameOrNumber) {
  EXPECT_EQ(row_label(kClasses, "yes", "").target, 1);
  EXPECT_EQ(row_label(kClasses, 2, "").target, 2);
  EXPECT_THAT(fault(kClasses, "perhaps"),
              HasSubstr("FILE:3: the label is \"perhaps\", but the model's classes are no, yes, maybe"));
  for (const Json& label : {Json(3), Json(-1), Json(1.5), Json(nullptr), Json(true)})
    EXPECT_THAT(fault(kClasses, label), HasSubstr("but the model's classes are")) << label;
  EXPECT_THAT(fault(kClasses, {"no", "yes"}), HasSubstr("a text has one class"));
}

TEST(LabelRule, TruthIsAClassOfTwo) {
  const LabelRule two{.form = LabelForm::kClass, .names = {"no", "yes"}};
  EXPECT_EQ(row_label(two, true, "").target, 1);
}

TEST(LabelRule, SeveralClassesAreNamedOrMarked) {
  EXPECT_EQ(row_label(kMarks, {"maybe", "no"}, "").figures, (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(row_label(kMarks, {0, 1, 1}, "").figures, (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(row_label(kMarks, {0.0, 0.25, 1.0}, "").figures, (std::vector<double>{0, 0.25, 1}));
  EXPECT_EQ(row_label(kMarks, Json::array(), "").figures, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(row_label(kMarks, {2}, "").figures, (std::vector<double>{0, 0, 1}));
  EXPECT_THAT(fault(kMarks, "no"), HasSubstr("give a list"));
  EXPECT_THAT(fault(kMarks, {0.0, 1.5, 1.0}), HasSubstr("between 0 and 1"));
}

TEST(LabelRule, FiguresAreFinite) {
  EXPECT_EQ(row_label(kFigure, -2, "").figures, std::vector<double>{-2});
  EXPECT_EQ(row_label(kFigure, {0.5}, "").figures, std::vector<double>{0.5});
  EXPECT_THAT(fault(kFigure, "2"), HasSubstr("a finite number is needed"));
  EXPECT_THAT(fault(kFigure, {1, 2}), HasSubstr("has 2 numbers, the head 1"));
}

}  // namespace
}  // namespace sluice::corpus
