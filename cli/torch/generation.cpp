#include "cli/torch/generation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "corpus/load_tokenizer.h"

namespace sluice::cli {
namespace {

using base::text;

constexpr int kCallers = 4;  // requests that are read and written at the same time

// The location of the model's own files.
storage::Location folder_of(const run::ModelSource& model) {
  return model.hugging_face ? model.hugging_face->folder() : model.checkpoint->directory() / "model";
}

}  // namespace

namespace {

struct LoraModule {
  std::string name;
  std::filesystem::path folder;
};

// NAME=FOLDER, or {"name": NAME, "path": FOLDER}.
LoraModule module_of(const std::string& told) {
  if (told.starts_with('{')) {
    const base::Json json = base::parse_json(told, "--adapter");
    return {base::require<std::string>(json, "name", "--adapter"),
            base::require<std::string>(json, "path", "--adapter")};
  }
  const size_t end = told.find('=');
  if (end == std::string::npos || end == 0 || end + 1 == told.size())
    throw base::InputError(text("--adapter has '", told, "': give NAME=FOLDER"));
  return {told.substr(0, end), told.substr(end + 1)};
}

}  // namespace

void LoraModules::add_option(CLI::App& command) {
  command
      .add_option(
          "--adapter,--lora-modules", told,
          "Adapters that PEFT or export --adapters wrote, each NAME=FOLDER: requests choose one by its "
          "name, and one step goes through all of them")
      ->expected(1, -1);
}

std::vector<std::string> LoraModules::names(const std::string& model) const {
  std::vector<std::string> all;
  for (const std::string& each : told) {
    std::string name = module_of(each).name;
    if (name.empty()) throw base::InputError(text("--adapter has '", each, "': the name is empty"));
    if (name == model)
      throw base::InputError(
          text("--adapter names '", name, "', as the model is named: give the adapter another name"));
    if (std::ranges::find(all, name) != all.end())
      throw base::InputError(text("--adapter names '", name, "' twice: give each adapter a name of its own"));
    all.push_back(std::move(name));
  }
  return all;
}

void LoraModules::add_to(run::ModelSource& model) const {
  std::vector<std::filesystem::path> folders;
  for (const std::string& each : told) folders.push_back(module_of(each).folder);
  if (!folders.empty()) run::add_adapters(model, folders);
}

std::filesystem::path find_tokenizer(const std::filesystem::path& told, const run::ModelSource& model) {
  if (!told.empty()) return told;
  const storage::Location folder = folder_of(model);
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (folder.is_path() && (folder / name).is_file()) return (folder / name).path();
  }
  return {};
}

std::unique_ptr<corpus::Tokenizer> tokenizer_of(const std::filesystem::path& told,
                                                const run::ModelSource& model, Needed needed,
                                                const corpus::ChatOptions& chat) {
  const std::filesystem::path path = find_tokenizer(model_folder(told.string(), HubFiles::kTokenizer), model);
  if (path.empty()) {
    if (needed == Needed::kNo) return nullptr;
    throw base::InputError(text("no tokenizer goes with ", model.name(), ": name one with --tokenizer"));
  }
  corpus::TokenizerOptions options{.tools = python_tools()};
  if (!model.model().has_vocabulary()) options.end_token = corpus::kAddedToken;
  if (needed != Needed::kForChats) return corpus::load_tokenizer(path, options);
  options.callers = kCallers;
  corpus::TokenizerOptions for_chats = options;
  for_chats.chats = true;
  for_chats.chat = chat;
  try {
    return corpus::load_tokenizer(path, for_chats);
  } catch (const base::InputError& error) {
    if (!chat.chat_template.empty()) throw;
    base::log_warning(text("there are no chats: ", error.what()));
    return corpus::load_tokenizer(path, options);
  }
}

std::vector<int64_t> end_tokens_of(const run::ModelSource& model, const corpus::Tokenizer* tokenizer) {
  std::vector<int64_t> tokens = run::end_tokens_in(folder_of(model));
  if (tokenizer != nullptr && tokenizer->end_id() >= 0) tokens.push_back(tokenizer->end_id());
  return tokens;
}

}  // namespace sluice::cli
