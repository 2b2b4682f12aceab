#include "run/corpus_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/load_tokenizer.h"
#include "corpus/tokenizer.h"

namespace sluice::run {

namespace {

bool is_tokenizer(const checkpoint::Companion& companion) {
  return companion.name == "tokenizer.model" || companion.name == "tokenizer.json" ||
         companion.name == "vocab.json" || companion.name == "vocab.txt";
}

// The tokenizer that all training corpora have beside them.
std::optional<checkpoint::Companion> common_tokenizer(const config::DataConfig& data,
                                                      const corpus::IndexedOptions& places) {
  std::optional<checkpoint::Companion> tokenizer;
  for (const auto& [prefix, weight] : data.train) {
    const std::filesystem::path path = corpus::tokenizer_beside(prefix, places);
    if (path.empty()) return std::nullopt;
    checkpoint::Companion found{path.filename().string(), base::read_file(path)};
    if (tokenizer && (tokenizer->name != found.name || tokenizer->bytes != found.bytes)) {
      base::log_warning(base::text("the tokenizer beside ", prefix, " is another than that beside ",
                                   data.train.front().first, ": the model is saved without one"));
      return std::nullopt;
    }
    tokenizer = std::move(found);
  }
  return tokenizer;
}

// A file with settings of the tokenizer; not all corpora of one tokenizer need to have it.
std::optional<checkpoint::Companion> common_setting(const config::DataConfig& data,
                                                    const corpus::IndexedOptions& places,
                                                    const std::string& name) {
  std::optional<checkpoint::Companion> setting;
  for (const auto& [prefix, weight] : data.train) {
    const std::filesystem::path path = corpus::folder_beside(prefix, places) / name;
    if (!std::filesystem::exists(path)) continue;
    checkpoint::Companion found{name, base::read_file(path)};
    if (setting && setting->bytes != found.bytes) {
      base::log_warning(base::text("the ", name, " beside ", prefix,
                                   " is another than an earlier corpus': the model is saved without one"));
      return std::nullopt;
    }
    setting = std::move(found);
  }
  return setting;
}

// Replaces the tokenizer by the corpora's, since the run learns its ids, including added tokens.
void replace_tokenizer(const config::DataConfig& data, const corpus::IndexedOptions& places,
                       const checkpoint::Companion& tokenizer,
                       std::vector<checkpoint::Companion>& companions) {
  base::log_info(base::text("the ", tokenizer.name, " beside ", data.train.front().first,
                            " is another than the model's: exports will have it"));
  const auto put = [&](const checkpoint::Companion& file) {
    std::erase_if(companions, [&](const checkpoint::Companion& old) { return old.name == file.name; });
    companions.push_back(file);
  };
  put(tokenizer);
  if (const auto setting = common_setting(data, places, "tokenizer_config.json")) put(*setting);
}

}  // namespace

void add_corpus_tokenizer(const config::DataConfig& data, const corpus::IndexedOptions& places,
                          std::vector<checkpoint::Companion>& companions) {
  const bool has_one = std::ranges::any_of(companions, is_tokenizer);
  std::optional<checkpoint::Companion> tokenizer = common_tokenizer(data, places);
  if (!tokenizer) return;
  const auto same_kind = std::ranges::find(companions, tokenizer->name, &checkpoint::Companion::name);
  if (has_one && (same_kind == companions.end() || same_kind->bytes == tokenizer->bytes)) return;
  if (has_one) return replace_tokenizer(data, places, *tokenizer, companions);
  companions.push_back(std::move(*tokenizer));
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    if (std::ranges::find(companions, name, &checkpoint::Companion::name) != companions.end()) continue;
    if (auto setting = common_setting(data, places, name)) companions.push_back(std::move(*setting));
  }
}

}  // namespace sluice::run
