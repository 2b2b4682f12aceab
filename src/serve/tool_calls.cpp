#include "serve/tool_calls.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace sluice::serve {
namespace {

using base::Json;

// A row whose marks are part of another row's marks stands before it.
constexpr std::array<ToolFormat, 6> kToolFormats = {{
    {.name = "glm",
     .template_mark = "<arg_key>",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .syntax = CallSyntax::kTagged,
     .name_end = "\n",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>"},
    {.name = "qwen-coder",
     .template_mark = "<function=",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .syntax = CallSyntax::kTagged,
     .name_begin = "<function=",
     .name_end = ">",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>"},
    {.name = "hermes", .template_mark = "<tool_call>", .begin = "<tool_call>", .end = "</tool_call>"},
    {.name = "granite", .template_mark = "<|tool_call|>", .begin = "<|tool_call|>", .bare = true},
    {.name = "mistral",
     .template_mark = "[TOOL_CALLS]",
     .begin = "[TOOL_CALLS]",
     .syntax = CallSyntax::kNamedJson,
     .name_end = "[ARGS]"},
    {.name = "llama3",
     .template_mark = "\"parameters\": dictionary",
     .begin = "<|python_tag|>",
     .bare = true},
}};

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The end of the JSON value that `text` begins with; npos: incomplete. Strings in it may have brackets.
size_t end_of_json(std::string_view text) {
  int64_t depth = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        inside = false;
      continue;
    }
    if (text[i] == '"') inside = true;
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (depth == 0 && (text[i] == '}' || text[i] == ']')) return i + 1;
  }
  return std::string_view::npos;
}

std::optional<Json> json_of(std::string_view text) {
  try {
    return base::parse_json(std::string(text), "a tool call");
  } catch (const base::InputError&) {
    return std::nullopt;
  }
}

// Calls write the object of arguments itself, or as a string.
std::optional<std::string> arguments_of(const Json& arguments) {
  if (arguments.is_object()) return base::json_text(arguments);
  if (!arguments.is_string()) return std::nullopt;
  const std::optional<Json> inner = json_of(arguments.get<std::string>());
  return inner && inner->is_object() ? std::optional(base::json_text(*inner)) : std::nullopt;
}

bool add_json_call(const Json& call, std::vector<ToolCall>& calls) {
  if (!call.is_object()) return false;
  const Json* const function = base::find(call, "function");
  if (function != nullptr && function->is_object()) return add_json_call(*function, calls);
  const Json* const name = base::find(call, "name");
  if (name == nullptr || !name->is_string()) return false;
  for (const char* const key : {"arguments", "parameters"}) {
    const Json* const found = base::find(call, key);
    if (found == nullptr || found->is_null()) continue;
    const std::optional<std::string> arguments = arguments_of(*found);
    if (arguments) calls.push_back({name->get<std::string>(), *arguments});
    return arguments.has_value();
  }
  calls.push_back({name->get<std::string>(), "{}"});
  return true;
}

// JSON objects or lists of them in a row, with ";" or nothing between.
bool add_json_calls(std::string_view text, std::vector<ToolCall>& calls) {
  for (text = stripped(text); !text.empty(); text = stripped(text)) {
    if (text.front() == ';' || text.front() == ',') {
      text.remove_prefix(1);
      continue;
    }
    const size_t end = end_of_json(text);
    if ((text.front() != '{' && text.front() != '[') || end == std::string_view::npos) return false;
    const std::optional<Json> value = json_of(text.substr(0, end));
    if (!value) return false;
    for (const Json& call : value->is_array() ? *value : Json::array({*value})) {
      if (!add_json_call(call, calls)) return false;
    }
    text.remove_prefix(end);
  }
  return true;
}

bool add_named_call(const ToolFormat& format, std::string_view text, std::vector<ToolCall>& calls) {
  text = stripped(text);
  if (text.starts_with('[') || text.starts_with('{')) return add_json_calls(text, calls);
  const size_t brace = text.find('{');
  if (brace == std::string_view::npos) return false;
  std::string_view name = stripped(text.substr(0, brace));
  if (name.ends_with(format.name_end)) name = stripped(name.substr(0, name.size() - format.name_end.size()));
  name = name.substr(0, name.find('['));  // [CALL_ID] and the like
  const std::optional<Json> arguments = json_of(stripped(text.substr(brace)));
  if (name.empty() || !arguments || !arguments->is_object()) return false;
  calls.push_back({std::string(name), base::json_text(*arguments)});
  return true;
}

// Takes the text between the first `begin` and the next `end`,
// and advances `text` past them; nothing: they are missing.
std::optional<std::string_view> take_between(std::string_view& text, std::string_view begin,
                                             std::string_view end) {
  const size_t from = text.find(begin);
  if (from == std::string_view::npos) return std::nullopt;
  const size_t to = text.find(end, from + begin.size());
  if (to == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(from + begin.size(), to - from - begin.size());
  text.remove_prefix(to + end.size());
  return taken;
}

bool add_tagged_call(const ToolFormat& format, std::string_view text, std::vector<ToolCall>& calls) {
  text = stripped(text);
  // A call without arguments may end after its name.
  const std::string named = std::string(text) + std::string(format.name_end);
  std::string_view rest = named;
  const std::optional<std::string_view> name = take_between(rest, format.name_begin, format.name_end);
  if (!name || stripped(*name).empty() || name->find(format.key_begin) != std::string_view::npos)
    return false;
  Json arguments = Json::object();
  while (const auto key = take_between(rest, format.key_begin, format.key_end)) {
    const auto value = take_between(rest, format.value_begin, format.value_end);
    if (!value) return false;
    const std::string_view shown = stripped(*value);
    // Numbers, lists and objects are JSON, strings are literal.
    const std::optional<Json> json = json_of(shown);
    arguments[std::string(stripped(*key))] = json && !json->is_string() ? *json : Json(std::string(shown));
  }
  calls.push_back({std::string(stripped(*name)), base::json_text(arguments)});
  return true;
}

bool add_calls(const ToolFormat& format, std::string_view text, std::vector<ToolCall>& calls) {
  switch (format.syntax) {
    case CallSyntax::kJson: return add_json_calls(text, calls);
    case CallSyntax::kNamedJson: return add_named_call(format, text, calls);
    case CallSyntax::kTagged: return add_tagged_call(format, text, calls);
  }
  return false;
}

}  // namespace

const ToolFormat* tool_format_named(std::string_view name) {
  const auto found = std::ranges::find(kToolFormats, name, &ToolFormat::name);
  return found == kToolFormats.end() ? nullptr : &*found;
}

const ToolFormat* tool_format_of_template(std::string_view chat_template) {
  const auto found = std::ranges::find_if(kToolFormats, [&](const ToolFormat& format) {
    return chat_template.find(format.template_mark) != std::string_view::npos;
  });
  return found == kToolFormats.end() ? nullptr : &*found;
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFormat& format : kToolFormats)
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

ParsedText parse_tool_calls(const ToolFormat& format, const std::string& text,
                            const std::vector<std::string>& tools) {
  ParsedText parsed;
  const ParsedText all_content{text, {}};
  std::string_view rest = text;
  size_t begin = rest.find(format.begin);
  if (begin == std::string_view::npos) {
    const auto is_offered = [&](const ToolCall& call) {
      return std::ranges::find(tools, call.name) != tools.end();
    };
    if (!format.bare || !add_calls(format, rest, parsed.calls) ||
        !std::ranges::all_of(parsed.calls, is_offered))
      return all_content;
    return parsed;
  }
  while (begin != std::string_view::npos) {
    parsed.content += rest.substr(0, begin);
    rest.remove_prefix(begin + format.begin.size());
    const size_t end = format.end.empty() ? rest.find(format.begin) : rest.find(format.end);
    if (!add_calls(format, rest.substr(0, end), parsed.calls)) return all_content;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + format.end.size());
    begin = rest.find(format.begin);
  }
  parsed.content += rest;
  parsed.content = stripped(parsed.content);
  return parsed;
}

size_t content_before_calls(const ToolFormat& format, std::string_view text) {
  if (format.bare) {
    const std::string_view shown = stripped(text);
    if (shown.empty() || shown.front() == '{' || shown.front() == '[') return 0;
  }
  if (const size_t begin = text.find(format.begin); begin != std::string_view::npos) return begin;
  for (size_t length = std::min(format.begin.size() - 1, text.size()); length > 0; --length) {
    if (text.ends_with(format.begin.substr(0, length))) return text.size() - length;
  }
  return text.size();
}

}  // namespace sluice::serve
