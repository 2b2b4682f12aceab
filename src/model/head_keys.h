// Heads of numbers in config.json, as in transformers' classes ForSequenceClassification and
// ForTokenClassification.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/model.h"

namespace sluice::model {

// Names and meaning of a head's numbers: config.json's id2label and problem_type.
struct HeadLabels {
  std::vector<std::string> names;  // by number; empty: the file's, or LABEL_0, …
  std::string problem;             // "single_label_classification", …; empty: the file's
};
// The labels in a config.json. REQUIRES: read_head() finds `numbers` numbers in the file.
HeadLabels head_labels(const base::Json& config, int64_t numbers);

// Default pooling of a family's class. Decoders: the last token. Encoders: the mean for embeddings; for
// classes as config.json has it, else the first token.
Pooling usual_pooling(const Model& model, HeadKind kind);

// The same trunk with another head, written to its config.json, too. InputError if transformers has no class
// for such a model.
Model with_head(const Model& model, const HeadStyle& head, const HeadLabels& labels);

}  // namespace sluice::model
