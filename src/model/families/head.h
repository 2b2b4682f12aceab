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

// Whether its models are encoders, which end in classes or embeddings.
bool is_encoder(const Family& family);

// As a configuration calls it: "last", "cls", "mean".
const char* name_of(Pooling pooling);
// Why transformers' class does not pool so, and what to give; "": it does.
std::string pooling_fault(const Family& family, HeadKind kind, Pooling pooling);
// The key of config.json that says it, of classes that pool in several ways, and of embeddings (by
// sentence-transformers' files, model/sentence_modules.h).
inline constexpr const char* kSentencePooling = "sentence_pooling";
const char* pooling_key(HeadKind kind);

// The head of the class that a config.json names. InputError for a class that is not known, or numbers that
// its labels contradict.
HeadStyle read_head(Reader& config, const Family& family);

}  // namespace sluice::model
