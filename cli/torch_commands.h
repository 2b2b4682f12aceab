// Commands that need libtorch, for both programs: `sluice` lists them, `sluice-torch` implements them.
#pragma once

#include <string_view>

namespace sluice::cli {

struct TorchCommand {
  std::string_view name;
  const char* about;  // the help text
};

inline constexpr TorchCommand kTorchCommands[] = {
    {"profile", "Measure this machine for a run's model: calibration.json"},
    {"train", "Train a model"},
    {"eval", "Mean token loss of a model on corpora"},
    {"embed", "Embeddings of texts, by a model with an embedding head"},
    {"generate", "Continue prompts with a model"},
    {"serve", "Answer completions and chats over HTTP, as OpenAI's API does"},
    {"export", "Turn a checkpoint into a Hugging Face folder"},
    {"import", "Turn a Hugging Face folder into a checkpoint to train from"},
    {"doctor", "Say what works here, what is missing and how to get it"},
};

// REQUIRES: one of kTorchCommands.
constexpr const char* about_torch_command(std::string_view name) {
  for (const TorchCommand& command : kTorchCommands) {
    if (command.name == name) return command.about;
  }
  return nullptr;
}

}  // namespace sluice::cli
