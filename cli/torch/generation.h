// Shared by generate and serve.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "corpus/tokenizer.h"
#include "run/model_source.h"

namespace sluice::cli {

// The given tokenizer, or the model's own. Null if there is none and none is needed; else InputError. For a
// model that ends in a head, documents end with the tokens that the tokenizer adds to a text. kForChats: with
// its chat template, if it has one; `chat` selects and configures the template.
enum class Needed : uint8_t { kNo, kYes, kForChats };
std::unique_ptr<corpus::Tokenizer> tokenizer_of(const std::filesystem::path& told,
                                                const run::ModelSource& model, Needed needed,
                                                const corpus::ChatOptions& chat = {});

// The given file, or the model's own; empty: there is none.
std::filesystem::path find_tokenizer(const std::filesystem::path& told, const run::ModelSource& model);

// Adapters by name, as in vLLM's --lora-modules: NAME=FOLDER, or a JSON object with name and path.
struct LoraModules {
  std::vector<std::string> told;

  void add_option(CLI::App& command);
  bool empty() const { return told.empty(); }
  // InputError if one is neither, or if a name occurs twice or is the model's.
  std::vector<std::string> names(const std::string& model) const;
  // Adds the adapters to the model.
  void add_to(run::ModelSource& model) const;
};

// The end-of-text tokens of the tokenizer and of the model's files. `tokenizer` may be null.
std::vector<int64_t> end_tokens_of(const run::ModelSource& model, const corpus::Tokenizer* tokenizer);

}  // namespace sluice::cli
