// How conversations are rendered, as options of every command that renders some.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "corpus/chat.h"

namespace sluice::cli {

void add_chat_options(CLI::App& app, corpus::ChatOptions& options);

// InputError where one of them, but `allowed`, was given to a call that renders no conversation; `cure` says
// what would.
void refuse_chat_options(const CLI::App& app, const std::string& cure, std::string_view allowed = "");

// The day that templates are told unless an option says another: SOURCE_DATE_EPOCH's, or today.
std::string date_of_builds();

}  // namespace sluice::cli
