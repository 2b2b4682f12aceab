#include "session/head_labels.h"

#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/head_keys.h"

namespace sluice::session {
namespace {

corpus::LabelForm form_of(const std::string& problem, int64_t numbers) {
  if (problem.empty()) return numbers == 1 ? corpus::LabelForm::kFigures : corpus::LabelForm::kClass;
  if (problem == "regression") return corpus::LabelForm::kFigures;
  if (problem == "multi_label_classification") return corpus::LabelForm::kClasses;
  if (problem == "single_label_classification") return corpus::LabelForm::kClass;
  throw base::InputError(base::text("config.json: problem_type is '", problem,
                                    "': give regression, single_label_classification or "
                                    "multi_label_classification"));
}

}  // namespace

corpus::LabelRow label_row(const model::HeadStyle& head) {
  return head.pooling == model::Pooling::kCls ? corpus::LabelRow::kFirst : corpus::LabelRow::kLast;
}

std::shared_ptr<const corpus::LabelRule> label_rule(const model::Model& model) {
  const model::HeadStyle& head = model.head();
  if (head.kind != model::HeadKind::kSequence && head.kind != model::HeadKind::kTokens) return nullptr;
  model::HeadLabels labels = model::head_labels(*model.config(), head.numbers);
  return std::make_shared<const corpus::LabelRule>(
      corpus::LabelRule{.form = form_of(labels.problem, head.numbers),
                        .of_tokens = head.kind == model::HeadKind::kTokens,
                        .row = label_row(head),
                        .names = std::move(labels.names)});
}

}  // namespace sluice::session
