#include "cli/tokenizers.h"

#include "base/text.h"
#include "cli/environment.h"
#include "corpus/load_tokenizer.h"

namespace sluice::cli {

using base::text;

std::unique_ptr<corpus::Tokenizer> open_tokenizer(const std::filesystem::path& path) {
  return corpus::load_tokenizer(path, {.tools = python_tools()});
}

std::unique_ptr<corpus::Tokenizer> tokenizer_beside(const std::filesystem::path& prefix) {
  const std::filesystem::path path = corpus::tokenizer_beside(prefix, corpus_places());
  return path.empty() ? nullptr : open_tokenizer(path);
}

std::string around_documents(int32_t begin_id, int32_t end_id) {
  if (begin_id < 0 && end_id < 0) return "; nothing stands around documents";
  if (begin_id < 0) return text("; token ", end_id, " ends documents");
  if (end_id < 0) return text("; token ", begin_id, " begins documents");
  return text("; token ", begin_id, " begins and token ", end_id, " ends documents");
}

}  // namespace sluice::cli
