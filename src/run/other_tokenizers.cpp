#include "run/other_tokenizers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/token_texts.h"
#include "model/hugging_face.h"
#include "session/data_notes.h"

namespace sluice::run {
namespace {

using base::InputError;
using base::text;
using session::OtherModel;
using Tokenizer = std::optional<corpus::TokenizerBytes>;

std::string named(const OtherModel& model) {
  return text("[config] ", model.key, " names ", model.folder.string(), ", which ");
}

Tokenizer tokenizer_of(const std::filesystem::path& folder) {
  return folder.empty() ? std::nullopt : session::tokenizer_in(folder);
}

int64_t tokens_of(const Tokenizer& tokenizer) {
  return tokenizer ? std::ssize(corpus::token_texts(tokenizer->bytes, tokenizer->name)) : 0;
}

// The vocabulary rows in the folder's config.json, before the model was reduced to the common rows.
int64_t own_rows(const OtherModel& model) {
  const std::filesystem::path path = model.folder / "config.json";
  return model::model_from_hugging_face(base::read_python_json(path), path.string()).vocab();
}

void require_padding(const OtherModel& teacher, const Tokenizer& own, const Tokenizer& trained) {
  if (teacher.common_rows == 0) return;
  const std::string found = text(named(teacher), "has rows for ", own_rows(teacher),
                                 " tokens, but the model that is trained has ", teacher.value.vocab(), ": ");
  if (!own) {
    throw InputError(text(found, "give a teacher with the same vocabulary, or put its tokenizer into its ",
                          "folder, which tells whether the rows are of the same tokens"));
  }
  const int64_t tokens = std::max(tokens_of(own), tokens_of(trained));
  if (tokens <= teacher.common_rows) return;
  throw InputError(text(found, "the tokenizer has ", tokens, " tokens, so that not only padding differs; ",
                        "give a teacher with the same vocabulary"));
}

}  // namespace

void require_tokenizer(const OtherModel& model, const config::RunConfig& config) {
  const Tokenizer own = tokenizer_of(model.folder), trained = tokenizer_of(config.model.hf);
  const std::string found = own && trained ? corpus::difference(*trained, *own) : "";
  if (!found.empty()) {
    throw InputError(text(named(model), "is of another tokenizer than model.hf, ", config.model.hf, ": ",
                          found, "; give a model of the same tokenizer"));
  }
  require_padding(model, own, trained);
}

void require_tokenizer(const OtherModel& model, const session::Data& data) {
  const Tokenizer own = tokenizer_of(model.folder);
  if (!own) return;
  for (const corpus::Blend::Entry& part : data.phases.front().training.parts()) {
    const Tokenizer other =
        session::tokenizer_in(corpus::folder_beside(part.corpus->prefix(), part.corpus->options()));
    const std::string found = other ? corpus::difference(*own, *other) : "";
    if (found.empty()) continue;
    throw InputError(text(named(model), "is of another tokenizer than ", part.corpus->prefix().string(), ": ",
                          found, "; give a model of the same tokenizer"));
  }
}

}  // namespace sluice::run
