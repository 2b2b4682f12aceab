#include "cli/environment.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/text.h"

namespace sluice::cli {

using base::text;

namespace {

constexpr const char* kPython = "SLUICE_PYTHON";

}  // namespace

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
  return std::filesystem::path(variables.at("HOME")) / ".cache" / "sluice";
}

storage::Location locate(const std::string& place) {
  if (!storage::is_s3(place)) return storage::locate(place, {});
  return storage::locate(place, storage::s3_access_from(environment()));
}

corpus::IndexedOptions corpus_places() {
  return {.locate = &locate, .cache = dependencies_directory() / "corpora"};
}

corpus::PythonTools python_tools() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path root = program.parent_path().parent_path();
  const std::filesystem::path installed = root / "share/sluice";
  const bool is_installed = std::filesystem::exists(installed / "hf_tokenize.py", error);
  corpus::PythonTools tools{.scripts = is_installed ? installed : root / "tools"};
  const auto variables = environment();
  if (const auto told = variables.find(kPython); told != variables.end()) tools.interpreter = told->second;
  // This user's dependencies come first, then those of the user that built the program.
  for (const std::filesystem::path& folder :
       {dependencies_directory(), std::filesystem::path(SLUICE_BUILD_DEPS)}) {
    const std::filesystem::path python = folder / "tools/bin/python";
    const bool is_new = std::ranges::find(tools.usual, python) == tools.usual.end();
    if (is_new && ::access(python.c_str(), X_OK) == 0) tools.usual.push_back(python);
  }
  tools.usual.emplace_back("python3");
  return tools;
}

void add_python_option(CLI::App& command) {
  const auto remember = [](const std::string& python) { ::setenv(kPython, python.c_str(), 1); };
  command.add_option_function<std::string>(
      "--python", remember,
      text("Python that has the packages tokenizers and pyarrow (default: $", kPython,
           ", the build's, or the PATH's python3)"));
}

}  // namespace sluice::cli
