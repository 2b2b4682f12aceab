#include "corpus/tokenizer.h"

#include "base/error.h"

namespace sluice::corpus {

std::vector<EncodedChat> Tokenizer::encode_chats(std::span<const std::string>) const {
  SLUICE_ASSERT(false, "a tokenizer without chat templates");
}

std::vector<EncodedChat> Tokenizer::encode_prompts(std::span<const std::string>) const {
  SLUICE_ASSERT(false, "a tokenizer without chat templates");
}

}  // namespace sluice::corpus
