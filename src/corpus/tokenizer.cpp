#include "corpus/tokenizer.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::corpus {

std::vector<EncodedChat> Tokenizer::encode_chats(std::span<const std::string>) const {
  SLUICE_ASSERT(false, "a tokenizer without chat templates");
}

std::vector<EncodedChat> Tokenizer::encode_prompts(std::span<const std::string>) const {
  SLUICE_ASSERT(false, "a tokenizer without chat templates");
}

void Tokenizer::require_end(const TokenizerOptions& options, const std::string& name) const {
  if (!options.needs_end || end_id_ >= 0 || options.end_token == kNoToken) return;
  throw base::InputError(base::text(name,
                                    ": no known token to end documents with: name one of its tokens, or '",
                                    kNoToken, "', with --end-token"));
}

}  // namespace sluice::corpus
