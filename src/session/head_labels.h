// The labels of documents that a model's head takes.
#pragma once

#include <memory>

#include "corpus/labels.h"
#include "model/model.h"

namespace sluice::session {

// The rule by the names and the problem_type in its config.json; without a problem_type one number is a
// figure, several are classes. Null: the head takes no labels.
std::shared_ptr<const corpus::LabelRule> label_rule(const model::Model& model);

// The token whose row stands for a text. Means are found at the last token.
corpus::LabelRow label_row(const model::HeadStyle& head);

}  // namespace sluice::session
