#include "run/learnt_turns.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/indexed.h"
#include "corpus/load_tokenizer.h"
#include "corpus/token_texts.h"
#include "model/wrapped.h"

namespace sluice::run {
namespace {

namespace fs = std::filesystem;
using base::Json;
using base::text;
using checkpoint::Companion;

// The default template's file, and the folder of templates for special chats, such as those with tools.
constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kMoreTemplates = "additional_chat_templates/";
constexpr const char* kSettings = "tokenizer_config.json";
constexpr const char* kGeneration = "generation_config.json";

template <typename Companions>
auto* find(Companions& companions, std::string_view name) {
  const auto found = std::ranges::find(companions, name, &Companion::name);
  return found == companions.end() ? nullptr : std::to_address(found);
}

// The template under "chat_template"; of several templates the default one; "": none.
std::string template_in(const std::string& json, const std::string& name) {
  const Json settings = base::parse_python_json(json, name);
  const Json* const found = base::find(settings, "chat_template");
  if (found == nullptr) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const Json& each : *found) {
    if (base::get_or<std::string>(each, "name", "", name) == "default")
      return base::get_or<std::string>(each, "template", "", name);
  }
  return "";
}

// Templates by the names of their files in a model's folder.
using Templates = std::map<std::string, std::string>;

Templates templates_beside(const fs::path& prefix, const corpus::IndexedOptions& places) {
  const fs::path folder = corpus::folder_beside(prefix, places), settings = folder / kSettings;
  Templates templates;
  if (fs::exists(folder / kTemplate)) {
    templates[kTemplate] = base::read_file(folder / kTemplate);
  } else if (fs::exists(settings)) {
    templates[kTemplate] = template_in(base::read_file(settings), settings.string());
  }
  if (templates[kTemplate].empty()) return {};
  if (!fs::is_directory(folder / kMoreTemplates)) return templates;
  for (const auto& entry : fs::directory_iterator(folder / kMoreTemplates)) {
    if (entry.path().extension() == ".jinja")
      templates[kMoreTemplates + entry.path().filename().string()] = base::read_file(entry.path());
  }
  return templates;
}

// The training corpora with a mask, that is with a loss on a part of their tokens.
std::vector<fs::path> masked_corpora(const config::DataConfig& data, const corpus::IndexedOptions& places) {
  std::vector<fs::path> prefixes;
  for (const auto& [told, weight] : data.train) {
    const fs::path prefix = corpus::corpus_prefix(told);
    const fs::path mask = corpus::with_suffix(prefix, ".mask");
    const bool known = places.locate || !storage::is_s3(mask.string());
    if (known && corpus::place_of(mask, places).is_file()) prefixes.push_back(prefix);
  }
  return prefixes;
}

// The templates that rendered all conversations; empty if corpora differ.
Templates common_templates(const std::vector<fs::path>& prefixes, const corpus::IndexedOptions& places) {
  Templates common;
  for (const fs::path& prefix : prefixes) {
    Templates found = templates_beside(prefix, places);
    if (!common.empty() && !found.empty() && found != common) {
      base::log_warning(text("the chat template beside ", prefix.string(),
                             " is another than an earlier corpus': the model is saved with its own"));
      return {};
    }
    if (!found.empty()) common = std::move(found);
  }
  return common;
}

// The ids under "eos_token_id", of which there are none, one or several.
std::vector<int64_t> ends_in(const Json& config) {
  std::vector<int64_t> ids;
  const Json* const found = base::find(config, "eos_token_id");
  if (found == nullptr) return ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (base::holds_integer<int64_t>(id)) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// The companions' generation settings, or those that transformers derives from config.json without them.
Json generation_of(std::vector<Companion>& companions) {
  if (const Companion* const file = find(companions, kGeneration))
    return base::parse_python_json(file->bytes, kGeneration);
  Json generation = Json::object();
  const Companion* const file = find(companions, "config.json");
  if (file == nullptr) return generation;
  Json config = base::parse_python_json(file->bytes, file->name);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    for (const Json& part : {config, model::language_part(config)}) {
      const Json* const found = base::find(part, key);
      if (found != nullptr && !found->is_null()) generation[key] = *found;
    }
  }
  return generation;
}

// A new default template also removes the model's other templates: a chat that chose one of them would be
// rendered unlike anything that was learnt.
void add_templates(const Templates& learnt, std::vector<Companion>& companions) {
  if (learnt.empty()) return;
  const std::string own = chat_template_in(companions);
  if (own != learnt.at(kTemplate)) {
    base::log_info(text("conversations were rendered with another chat template than the model's",
                        own.empty() ? ", which has none" : "", ": exports will have theirs, as ", kTemplate));
    std::erase_if(companions, [](const Companion& file) { return file.name.starts_with(kMoreTemplates); });
  }
  for (const auto& [name, bytes] : learnt) {
    if (name == kTemplate && bytes == own) continue;
    Companion* file = find(companions, name);
    if (file == nullptr) file = &companions.emplace_back(Companion{.name = name});
    file->bytes = bytes;
  }
}

// The end tokens of documents of corpora without a mask, according to their lengths.json.
std::vector<corpus::TurnEnd> document_ends(const config::DataConfig& data,
                                           const corpus::IndexedOptions& places) {
  const std::vector<fs::path> masked = masked_corpora(data, places);
  std::vector<corpus::TurnEnd> ends;
  for (const auto& [told, weight] : data.train) {
    const fs::path prefix = corpus::corpus_prefix(told);
    const fs::path lengths = corpus::folder_beside(prefix, places) / "lengths.json";
    const fs::path tokenizer = corpus::tokenizer_beside(prefix, places);
    if (std::ranges::count(masked, prefix) > 0 || tokenizer.empty() || !fs::exists(lengths)) continue;
    const auto id = base::get_or<int64_t>(base::read_json(lengths), "end_id", -1, lengths.string());
    const auto texts = corpus::token_texts(base::read_file(tokenizer), tokenizer.string());
    if (id < 0 || id >= std::ssize(texts)) continue;
    corpus::TurnEnd end{id, texts[static_cast<size_t>(id)]};
    if (std::ranges::find(ends, end) == ends.end()) ends.push_back(std::move(end));
  }
  return ends;
}

void add_ends(const std::vector<corpus::TurnEnd>& ends, const char* what,
              std::vector<Companion>& companions) {
  if (ends.empty()) return;
  Json generation = generation_of(companions);
  std::vector<int64_t> ids = ends_in(generation);
  bool changed = false;
  for (const corpus::TurnEnd& end : ends) {
    if (std::ranges::find(ids, end.id) != ids.end()) continue;
    base::log_info(text(what, " end with ", end.text, " (", end.id,
                        "): exports will have it among the end tokens of ", kGeneration));
    ids.push_back(end.id);
    changed = true;
  }
  if (!changed) return;
  generation["eos_token_id"] = ids.size() == 1 ? Json(ids.front()) : Json(ids);
  Companion* file = find(companions, kGeneration);
  if (file == nullptr) file = &companions.emplace_back(Companion{.name = kGeneration});
  file->bytes = base::json_text(generation, 2) + "\n";
}

}  // namespace

std::string chat_template_in(const std::vector<Companion>& companions) {
  if (const Companion* const file = find(companions, kTemplate)) return file->bytes;
  for (const char* name : {"chat_template.json", kSettings}) {
    const Companion* const file = find(companions, name);
    if (file == nullptr) continue;
    if (std::string found = template_in(file->bytes, name); !found.empty()) return found;
  }
  return "";
}

std::vector<int64_t> end_tokens_in(const std::vector<Companion>& companions) {
  for (const char* name : {kGeneration, "config.json"}) {
    const Companion* const file = find(companions, name);
    if (file == nullptr) continue;
    Json config = base::parse_python_json(file->bytes, name);
    if (!config.is_object()) continue;
    for (const Json& part : {config, model::language_part(config)}) {
      if (part.contains("eos_token_id")) return ends_in(part);
    }
  }
  return {};
}

std::vector<corpus::TurnEnd> learnt_turn_ends(const config::DataConfig& data,
                                              const corpus::IndexedOptions& places) {
  std::vector<corpus::TurnEnd> ends;
  for (const fs::path& prefix : masked_corpora(data, places)) {
    const fs::path tokenizer = corpus::folder_beside(prefix, places) / "tokenizer.json";
    if (!fs::exists(tokenizer)) continue;
    for (corpus::TurnEnd& end : corpus::turn_ends(corpus::IndexedCorpus(prefix, places),
                                                  base::read_file(tokenizer), tokenizer.string())) {
      if (std::ranges::find(ends, end) == ends.end()) ends.push_back(std::move(end));
    }
  }
  return ends;
}

void add_learnt_turns(const config::DataConfig& data, const corpus::IndexedOptions& places,
                      std::vector<Companion>& companions) {
  add_templates(common_templates(masked_corpora(data, places), places), companions);
  add_ends(learnt_turn_ends(data, places), "messages with a loss", companions);
  // A model whose files list no end token uses the tokenizer's.
  if (!end_tokens_in(companions).empty()) add_ends(document_ends(data, places), "documents", companions);
}

}  // namespace sluice::run
