#include "corpus/token_texts.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

namespace {

// Far more than any vocabulary has. A damaged file's id makes a vector of so many texts, 128 MiB, at most.
constexpr int64_t kMostIds = int64_t{1} << 22;

void set_text(std::vector<std::string>& texts, const Json& id, const std::string& value,
              const std::string& name) {
  if (!base::holds_integer<int64_t>(id) || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMostIds)
    throw InputError(text(name, ": token '", value, "' has the id ", base::excerpt(id),
                          ": give a whole number from 0 to ", kMostIds - 1));
  const auto at = id.get<size_t>();
  if (texts.size() <= at) texts.resize(at + 1);
  texts[at] = value;
}

std::vector<std::string> texts_of_json(std::string_view bytes, const std::string& name) {
  const Json json = base::parse_python_json(bytes, name);
  std::vector<std::string> texts;
  const Json* model = base::find(json, "model");
  const Json* vocabulary = model == nullptr ? nullptr : base::find(*model, "vocab");
  if (vocabulary == nullptr || !vocabulary->is_structured())
    throw InputError(text(name, ": there is no model.vocab: name a tokenizer.json as transformers saves it"));
  if (vocabulary->is_object()) {
    for (const auto& [token, id] : vocabulary->items()) set_text(texts, id, token, name);
  } else {
    for (const Json& entry : *vocabulary) {  // [piece, score]
      const bool sound = entry.is_array() && !entry.empty() && entry[0].is_string();
      texts.push_back(sound ? entry[0].get<std::string>() : "");
    }
  }
  const Json* added = base::find(json, "added_tokens");
  if (added == nullptr || !added->is_array()) return texts;
  for (const Json& token : *added) {
    if (!token.is_object() || !token.contains("id") || !token.contains("content") ||
        !token["content"].is_string())
      continue;
    set_text(texts, token["id"], token["content"].get<std::string>(), name);
  }
  return texts;
}

std::vector<std::string> texts_of_model(std::string_view bytes, const std::string& name) {
  sentencepiece::SentencePieceProcessor processor;
  if (const auto status = processor.LoadFromSerializedProto(bytes); !status.ok())
    throw InputError(text(name, " is no SentencePiece model: name another file"));
  std::vector<std::string> texts;
  for (int id = 0; id < processor.GetPieceSize(); ++id) texts.push_back(processor.IdToPiece(id));
  return texts;
}

}  // namespace

std::vector<std::string> token_texts(std::string_view bytes, const std::string& name) {
  return name.ends_with(".json") ? texts_of_json(bytes, name) : texts_of_model(bytes, name);
}

std::string difference(const TokenizerBytes& one, const TokenizerBytes& other) {
  if (one.bytes == other.bytes) return "";
  const std::vector<std::string> ours = token_texts(one.bytes, one.name),
                                 theirs = token_texts(other.bytes, other.name);
  for (size_t id = 0; id < std::min(ours.size(), theirs.size()); ++id) {
    if (ours[id].empty() || theirs[id].empty() || ours[id] == theirs[id]) continue;
    return text("id ", id, " is '", ours[id], "' in ", one.name, " and '", theirs[id], "' in ", other.name);
  }
  return "";
}

}  // namespace sluice::corpus
