// Options that name what a command writes: whether it can be written is known before the command begins.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace sluice::cli {

// A file, which is replaced where there is one, or a folder with its parents.
enum class Output : uint8_t { kFile, kFolder };

// Why it cannot be made there; empty where it can. What is tried leaves nothing behind. A device or a pipe is
// taken as it is.
std::string output_fault(const std::filesystem::path& path, Output output);
// InputError naming the option, the path and the fault. For what not every process of a command writes.
void require_output(const std::string& option, const std::filesystem::path& path, Output output);

// Adds an option for such a path, which is checked as the command's arguments are read.
CLI::Option* add_output(CLI::App& command, const std::string& option, std::filesystem::path& path,
                        Output output, const std::string& meaning);

}  // namespace sluice::cli
