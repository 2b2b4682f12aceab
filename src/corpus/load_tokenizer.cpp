#include "corpus/load_tokenizer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/huggingface_tokenizer.h"
#include "corpus/sentencepiece_tokenizer.h"

namespace sluice::corpus {

namespace fs = std::filesystem;

namespace {

// A token stands as its text, or as an object that describes it.
std::string token_text(const base::Json& config, const char* key) {
  if (!config.is_object() || !config.contains(key)) return "";
  const base::Json& token = config[key];
  if (token.is_string()) return token.get<std::string>();
  const bool described = token.is_object() && token.contains("content") && token["content"].is_string();
  return described ? token["content"].get<std::string>() : "";
}

}  // namespace

fs::path tokenizer_file(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(path / name)) return path / name;
  }
  throw base::InputError(base::text("folder ", path.string(), " holds no tokenizer: there is neither a ",
                                    "tokenizer.json nor a tokenizer.model in it; name another one"));
}

ConfiguredTokens configured_tokens(const fs::path& model) {
  const fs::path path = model.parent_path() / "tokenizer_config.json";
  if (!fs::exists(path)) return {};
  const base::Json config = base::read_python_json(path);
  const bool begins =
      config.is_object() && config.contains("add_bos_token") && config["add_bos_token"] == true;
  return {begins ? token_text(config, "bos_token") : "", token_text(config, "eos_token")};
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path, const TokenizerOptions& options) {
  const fs::path file = tokenizer_file(path);
  if (file.extension() == ".json") return std::make_unique<HuggingFaceTokenizer>(file, options);
  if (options.chats) {
    throw base::InputError(
        base::text(file.string(), " has no chat template: conversations need a tokenizer.json; ",
                   "save the tokenizer by transformers' save_pretrained, or train one that "
                   "can chat: --train-tokenizer with --chat or --chat-template"));
  }
  TokenizerOptions told = options;
  const ConfiguredTokens configured = configured_tokens(file);
  if (told.begin_token.empty()) told.begin_token = configured.begin_token;
  if (told.end_token.empty()) told.end_token = configured.end_token;
  return std::make_unique<SentencePieceTokenizer>(base::read_file(file), file.string(), told);
}

fs::path tokenizer_beside(const fs::path& prefix, const IndexedOptions& places) {
  const fs::path folder = folder_beside(prefix, places);
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    fs::path path = folder / name;
    if (fs::exists(path)) return path;
  }
  return {};
}

}  // namespace sluice::corpus
