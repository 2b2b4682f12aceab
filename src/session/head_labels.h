// How a model's head takes the labels of documents.
#pragma once

#include <memory>

#include "corpus/labels.h"
#include "model/shape.h"

namespace sluice::session {

// By the names and the problem_type of its config.json; without one a single number is a figure, several are
// classes. Null: a head that no label belongs to.
std::shared_ptr<const corpus::LabelRule> label_rule(const model::Shape& shape);

}  // namespace sluice::session
