#include "cli/outputs.h"

#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

namespace sluice::cli {

namespace fs = std::filesystem;
using base::text;

namespace {

std::string folder_fault(const fs::path& folder, const std::string& what) {
  std::error_code error;
  if (!fs::exists(folder, error)) return text(what, " ", folder.string(), " is not there: make it");
  if (!fs::is_directory(folder, error)) return text(folder.string(), " is no folder: name another place");
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return text(folder.string(), " may not be written to: name another place");
}

// Creates nothing: files that an earlier call left beside the path may be needed to continue from.
std::string file_fault(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return text(path.string(), " is a folder: name a file");
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) return "";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return folder_fault(folder, "the folder");
}

// The longest existing part of the path decides whether the rest can be created.
std::string new_folder_fault(const fs::path& path) {
  std::error_code error;
  fs::path there = path.has_filename() ? path : path.parent_path();
  while (!there.empty() && !fs::exists(there, error)) there = there.parent_path();
  return folder_fault(there.empty() ? fs::path(".") : there, "the folder");
}

}  // namespace

std::string output_fault(const fs::path& path, Output output) {
  if (path.empty()) return "the path is empty: name a place";
  return output == Output::kFile ? file_fault(path) : new_folder_fault(path);
}

void require_output(const std::string& option, const fs::path& path, Output output) {
  const std::string fault = output_fault(path, output);
  if (!fault.empty()) throw base::InputError(text(option, ": ", fault));
}

CLI::Option* add_output(CLI::App& command, const std::string& option, fs::path& path, Output output,
                        const std::string& meaning) {
  return command.add_option(option, path, meaning)->each([option, output](const std::string& given) {
    require_output(option, given, output);
  });
}

}  // namespace sluice::cli
