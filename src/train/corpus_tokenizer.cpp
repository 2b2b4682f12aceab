#include "train/corpus_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "corpus/load_tokenizer.h"
#include "corpus/tokenizer.h"

namespace sluice::train {

namespace {

bool is_tokenizer(const checkpoint::Companion& companion) {
  return companion.name == "tokenizer.model" || companion.name == "tokenizer.json" ||
         companion.name == "vocab.json" || companion.name == "vocab.txt";
}

// The tokenizer that all training corpora have beside them.
std::optional<checkpoint::Companion> common_tokenizer(const config::DataConfig& data) {
  std::optional<checkpoint::Companion> tokenizer;
  for (const auto& [prefix, weight] : data.train) {
    const std::filesystem::path path = corpus::tokenizer_beside(prefix);
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

// A file of those that say how the tokenizer is used; corpora of one tokenizer need not all have it.
std::optional<checkpoint::Companion> common_setting(const config::DataConfig& data, const std::string& name) {
  std::optional<checkpoint::Companion> setting;
  for (const auto& [prefix, weight] : data.train) {
    const std::filesystem::path path = std::filesystem::path(prefix).parent_path() / name;
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

}  // namespace

void add_corpus_tokenizer(const config::DataConfig& data, std::vector<checkpoint::Companion>& companions) {
  if (std::ranges::any_of(companions, is_tokenizer)) return;
  std::optional<checkpoint::Companion> tokenizer = common_tokenizer(data);
  if (!tokenizer) return;
  companions.push_back(std::move(*tokenizer));
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    if (std::ranges::find(companions, name, &checkpoint::Companion::name) != companions.end()) continue;
    if (auto setting = common_setting(data, name)) companions.push_back(std::move(*setting));
  }
}

}  // namespace sluice::train
