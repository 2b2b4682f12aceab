// The end of a model in config.json: the class of transformers that the file names, and the class's number of
// outputs. For the model module's own files.
#pragma once

#include <string>

#include "model/families/family.h"
#include "model/outline.h"

namespace sluice::model {

// The key of class names by number in a config.json.
inline constexpr const char* kClassNames = "id2label";

// Whether transformers has a class for this end of a family's models, and the class's name.
bool has_class(const Family& family, HeadKind kind);
std::string class_of(const Family& family, HeadKind kind);

// Whether the family's models are encoders, which end in classes or embeddings.
bool is_encoder(const Family& family);

// The name in a configuration: "last", "cls", "mean".
const char* name_of(Pooling pooling);
// Why transformers' class does not support this pooling, with a way out; "": it does.
std::string pooling_fault(const Family& family, HeadKind kind, Pooling pooling);
// The key of config.json for the pooling: for classes that pool in several ways, and for embeddings (from
// sentence-transformers' files, model/sentence_modules.h).
inline constexpr const char* kSentencePooling = "sentence_pooling";
const char* pooling_key(HeadKind kind);

// The head of the class that a config.json names. InputError for an unknown class, or if the number of
// outputs contradicts the labels.
HeadStyle read_head(Reader& config, const Family& family);

}  // namespace sluice::model
