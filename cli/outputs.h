// Options for a command's output paths, which are checked before the command begins.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace sluice::cli {

// A file, which may exist and is replaced, or a folder with its parents.
enum class Output : uint8_t { kFile, kFolder };

// The reason why the output cannot be written there; empty if it can. The check leaves nothing behind. A
// device or a pipe is always accepted.
std::string output_fault(const std::filesystem::path& path, Output output);
// InputError naming option, path and fault. For outputs that only some processes of a command write.
void require_output(const std::string& option, const std::filesystem::path& path, Output output);

// Adds an option for an output path, which is checked while the command's arguments are parsed.
CLI::Option* add_output(CLI::App& command, const std::string& option, std::filesystem::path& path,
                        Output output, const std::string& meaning);

}  // namespace sluice::cli
