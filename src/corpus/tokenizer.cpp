#include "corpus/tokenizer.h"

#include "base/file.h"
#include "corpus/huggingface_tokenizer.h"
#include "corpus/sentencepiece_tokenizer.h"

namespace sluice::corpus {

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          const TokenizerOptions& options) {
  if (path.extension() == ".json") return std::make_unique<HuggingFaceTokenizer>(path, options);
  return std::make_unique<SentencePieceTokenizer>(base::read_file(path), path.string(), options);
}

std::filesystem::path tokenizer_beside(const std::filesystem::path& prefix) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    std::filesystem::path path = prefix.parent_path() / name;
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

}  // namespace sluice::corpus
