// The end of a model in config.json: the class of transformers that it names, and how many numbers that has.
// For the model module's own files.
#pragma once

#include <string>

#include "model/families/family.h"
#include "model/shape.h"

namespace sluice::model {

// Names of classes by number in a config.json.
inline constexpr const char* kClassNames = "id2label";

// Whether transformers has a class for such an end of a family's models, and what it is called.
bool has_class(const Family& family, HeadKind kind);
std::string class_of(const Family& family, HeadKind kind);

// The head of the class that a config.json names. InputError for a class that is not known, or numbers that
// its labels contradict.
HeadStyle read_head(Reader& config, const Family& family);

}  // namespace sluice::model
