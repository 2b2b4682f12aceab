// What generate and serve have in common.
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

// The tokenizer `told`, or the model's own. Null where there is none and it is not needed; else InputError.
// With a model that ends in a head, the end of a document is what the tokenizer adds to a text.
// kForChats: with its chat template, where it has one; `chat` says how that is used, and which it is.
enum class Needed : uint8_t { kNo, kYes, kForChats };
std::unique_ptr<corpus::Tokenizer> tokenizer_of(const std::filesystem::path& told,
                                                const run::ModelSource& model, Needed needed,
                                                const corpus::ChatOptions& chat = {});

// The file `told`, or the model's own; empty: there is none.
std::filesystem::path find_tokenizer(const std::filesystem::path& told, const run::ModelSource& model);

// Adapters by name, as vLLM's --lora-modules gives them: NAME=FOLDER, or a JSON object with name and path.
struct LoraModules {
  std::vector<std::string> told;

  void add_option(CLI::App& command);
  bool empty() const { return told.empty(); }
  // InputError where one is neither, or a name comes twice or is the model's.
  std::vector<std::string> names(const std::string& model) const;
  // Has the model take the adapters.
  void add_to(run::ModelSource& model) const;
};

// Tokens that end a text: the tokenizer's, and what the model's files say. `tokenizer` may be null.
std::vector<int64_t> end_tokens_of(const run::ModelSource& model, const corpus::Tokenizer* tokenizer);

}  // namespace sluice::cli
