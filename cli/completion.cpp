// sluice completion: prints a shell's script, which asks the program's own --help and so knows all options.
#include "cli/completion.h"

#include <algorithm>
#include <iostream>
#include <string>

#include "cli/embedded.h"

namespace sluice::cli {

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script that completes commands and options in a shell: bash, zsh or fish");
  std::vector<std::string> shells;
  for (const EmbeddedFile& file : completion_files()) shells.emplace_back(file.stem);
  const auto print = [](const std::string& shell) {
    const auto script = std::ranges::find(completion_files(), std::string_view(shell), &EmbeddedFile::stem);
    std::cout << script->content;
  };
  command->add_option_function<std::string>("shell", print, "Shell that is to read the script")
      ->required()
      ->check(CLI::IsMember(shells));
}

}  // namespace sluice::cli
