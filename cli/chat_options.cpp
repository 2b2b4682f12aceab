#include "cli/chat_options.h"

#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "cli/environment.h"

namespace sluice::cli {

void add_chat_options(CLI::App& app, corpus::ChatOptions& options) {
  app.add_option("--chat-template", options.chat_template,
                 "A Jinja file to render conversations by, or the name of one of the tokenizer's templates "
                 "(default: its own; with tools the one called tool_use, with documents the one called rag)");
  app.add_option("--sanitize", options.sanitize,
                 "Messages whose control tokens are read as text: users, all but the assistant's; "
                 "all; or none")
      ->check(CLI::IsMember({"users", "all", "none"}))
      ->capture_default_str();
  app.add_option("--template-argument", options.arguments,
                 "An argument of the chat template, NAME=VALUE, as enable_thinking=false; may be given again")
      ->allow_extra_args(false);
  app.add_option("--chat-date", options.date,
                 "The day that chat templates are told, YYYY-MM-DD (default: SOURCE_DATE_EPOCH's, or today)");
}

void refuse_chat_options(const CLI::App& app, const std::string& cure, std::string_view allowed) {
  for (const char* option : {"--chat-template", "--sanitize", "--template-argument", "--chat-date"}) {
    if (option != allowed && app.count(option) > 0) {
      throw base::InputError(base::text(option, " is for conversations, and there are none: ", cure));
    }
  }
}

std::string date_of_builds() {
  const auto told = environment();
  const auto found = told.find("SOURCE_DATE_EPOCH");
  std::time_t now = std::time(nullptr);
  if (found != told.end()) {
    const auto seconds = base::parse_integer(found->second);
    if (!seconds) {
      throw base::InputError(
          base::text("SOURCE_DATE_EPOCH is '", found->second, "': give seconds since 1970, or --chat-date"));
    }
    now = static_cast<std::time_t>(*seconds);
  }
  std::tm day{};
  found != told.end() ? ::gmtime_r(&now, &day) : ::localtime_r(&now, &day);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &day);
  return text;
}

}  // namespace sluice::cli
