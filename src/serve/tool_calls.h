// Tool calls in generated text. Families write calls
// in different ways; each way is a row of a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::serve {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object, as text
};

// A text without its calls, and the calls.
struct ParsedText {
  std::string content;
  std::vector<ToolCall> calls;
};

// The syntax of a call's name and arguments between the marks of a call.
enum class CallSyntax : uint8_t {
  kJson,       // {"name": …, "arguments": {…}}, or a list of such
  kNamedJson,  // likewise, or NAME{…} with a mark or nothing between
  kTagged,     // the name, then each argument between marks
};

struct ToolFormat {
  std::string_view name;           // the value of --tool-format
  std::string_view template_mark;  // found in the chat templates of the family
  std::string_view begin, end;     // around a call; `end` empty: up to the next call, or the text's end
  CallSyntax syntax = CallSyntax::kJson;
  bool bare = false;  // calls may lack `begin`: then the whole text is calls
  // For kTagged, and between a name and its JSON:
  std::string_view name_begin, name_end, key_begin, key_end, value_begin, value_end;
};

// The format with that name; for a chat template, the first in
// the table whose mark it contains. Null: no format is known.
const ToolFormat* tool_format_named(std::string_view name);
const ToolFormat* tool_format_of_template(std::string_view chat_template);
// "hermes, mistral, …".
std::string tool_format_names();

// The calls in a whole text. `tools`: the names that the request offers; calls without
// marks must name one of them. If a call cannot be read, the whole text is content.
ParsedText parse_tool_calls(const ToolFormat& format, const std::string& text,
                            const std::vector<std::string>& tools);

// The number of bytes of an unfinished text that may be shown as content: up to where a call may begin.
size_t content_before_calls(const ToolFormat& format, std::string_view text);

}  // namespace sluice::serve
