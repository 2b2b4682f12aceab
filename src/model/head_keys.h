// Heads of numbers in config.json, as transformers' classes ForSequenceClassification and
// ForTokenClassification have them.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

// What a head's numbers are called, and what they mean: config.json's id2label and problem_type.
struct HeadLabels {
  std::vector<std::string> names;  // by number; empty: as the file has them, or LABEL_0, …
  std::string problem;             // "single_label_classification", …; empty: as the file has it
};
// Those of a config.json. REQUIRES: read_head() finds so many numbers in it.
HeadLabels head_labels(const base::Json& config, int64_t numbers);

// How a class of its family pools where nobody says it: as its config.json has it, else decoders by the last
// token, encoders of classes by the first, and by the mean of all for embeddings.
Pooling usual_pooling(const Shape& shape, HeadKind kind);

// The same trunk with another head; its config.json says so. InputError where transformers has no class for
// such a model.
Shape with_head(const Shape& shape, const HeadStyle& head, const HeadLabels& labels);

}  // namespace sluice::model
