// How a model's head takes the labels of documents.
#pragma once

#include <memory>

#include "corpus/labels.h"
#include "model/shape.h"

namespace sluice::session {

// By the names and the problem_type of its config.json; without one a single number is a figure, several are
// classes. Null: a head that no label belongs to.
std::shared_ptr<const corpus::LabelRule> label_rule(const model::Shape& shape);

// Where a head's rows that stand for texts lie. Means are found at the last.
corpus::LabelRow label_row(const model::HeadStyle& head);

}  // namespace sluice::session
