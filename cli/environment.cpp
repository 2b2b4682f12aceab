#include "cli/environment.h"

#include <unistd.h>

#include <fstream>

namespace sluice::cli {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::filesystem::path dependencies_directory() {
  const auto variables = environment();
  if (const auto chosen = variables.find("SLUICE_DEPS"); chosen != variables.end()) return chosen->second;
  const auto home = variables.find("HOME");
  return std::filesystem::path(home == variables.end() ? "/root" : home->second) / ".cache" / "sluice";
}

storage::Location locate(const std::string& text) {
  if (!storage::is_s3(text)) return storage::locate(text, {});
  return storage::locate(text, storage::s3_access_from(environment()));
}

corpus::PythonTools python_tools() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path root = program.parent_path().parent_path();
  const std::filesystem::path installed = root / "share/sluice";
  const bool is_installed = std::filesystem::exists(installed / "hf_tokenize.py", error);
  return {.interpreter = dependencies_directory() / "tools" / "bin" / "python",
          .scripts = is_installed ? installed : root / "tools"};
}

}  // namespace sluice::cli
