#include "train/corpus_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "corpus/tokenizer.h"

namespace sluice::train {

namespace {

bool is_tokenizer(const checkpoint::Companion& companion) {
  return companion.name == "tokenizer.model" || companion.name == "tokenizer.json" ||
         companion.name == "vocab.json" || companion.name == "vocab.txt";
}

}  // namespace

void add_corpus_tokenizer(const config::DataConfig& data, std::vector<checkpoint::Companion>& companions) {
  if (std::ranges::any_of(companions, is_tokenizer)) return;
  std::optional<checkpoint::Companion> tokenizer;
  for (const auto& [prefix, weight] : data.train) {
    const std::filesystem::path path = corpus::tokenizer_beside(prefix);
    if (path.empty()) return;
    checkpoint::Companion found{path.filename().string(), base::read_file(path)};
    if (tokenizer && (tokenizer->name != found.name || tokenizer->bytes != found.bytes)) {
      base::log_warning(base::text("the tokenizer beside ", prefix, " is another than that beside ",
                                   data.train.front().first, ": the model is saved without one"));
      return;
    }
    tokenizer = std::move(found);
  }
  if (tokenizer) companions.push_back(std::move(*tokenizer));
}

}  // namespace sluice::train
