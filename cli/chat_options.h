// Options for rendering conversations, shared by all commands that render them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "corpus/chat.h"

namespace sluice::cli {

void add_chat_options(CLI::App& app, corpus::ChatOptions& options);

// InputError if one of these options other than `allowed` was given to a call that renders no conversation;
// `cure` is the way out for the message.
void refuse_chat_options(const CLI::App& app, const std::string& cure, std::string_view allowed = "");

// The date for chat templates unless an option gives another: SOURCE_DATE_EPOCH's, or today.
std::string date_of_builds();

}  // namespace sluice::cli
