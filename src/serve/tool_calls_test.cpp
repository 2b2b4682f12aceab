#include "serve/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::serve {
namespace {

using testing::IsEmpty;

struct Case {
  const char* format;
  const char* text;
  const char* content;
  std::vector<ToolCall> calls;
};

void expect_parsed(const Case& each) {
  const ParsedText parsed = parse_tool_calls(*tool_format_named(each.format), each.text, {"look", "add"});
  EXPECT_EQ(parsed.content, each.content) << each.text;
  ASSERT_EQ(parsed.calls.size(), each.calls.size()) << each.text;
  for (size_t i = 0; i < each.calls.size(); ++i) {
    EXPECT_EQ(parsed.calls[i].name, each.calls[i].name);
    EXPECT_EQ(parsed.calls[i].arguments, each.calls[i].arguments);
  }
}

TEST(ToolCalls, EachFamilyWritesThemItsWay) {
  const ToolCall oslo{"look", R"({"city":"Oslo"})"};
  const ToolCall sum{"add", R"({"a":2,"b":[1,"}"]})"};
  const std::vector<Case> cases = {
      {"hermes",
       "Let me see.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
       "Let me see.",
       {oslo}},
      {"hermes",
       "<tool_call>{\"name\": \"look\", \"arguments\": \"{\\\"city\\\": "
       "\\\"Oslo\\\"}\"}</tool_call>\n<tool_call>{\"name\": \"add\", "
       "\"arguments\": {\"a\": 2, \"b\": [1, \"}\"]}}</tool_call>",
       "",
       {oslo, sum}},
      {"hermes", "<tool_call>{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}", "", {oslo}},
      {"mistral",
       "[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}, {\"name\": \"add\", "
       "\"arguments\": {\"a\": 2, \"b\": [1, \"}\"]}}]",
       "",
       {oslo, sum}},
      {"mistral",
       "[TOOL_CALLS]look[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]add{\"a\": 2, \"b\": [1, \"}\"]}",
       "",
       {oslo, sum}},
      {"mistral", "[TOOL_CALLS]look[CALL_ID]9[ARGS]{\"city\": \"Oslo\"}", "", {oslo}},
      {"llama3", "{\"name\": \"look\", \"parameters\": {\"city\": \"Oslo\"}}", "", {oslo}},
      {"llama3",
       "<|python_tag|>{\"name\": \"look\", \"parameters\": {\"city\": \"Oslo\"}}; {\"name\": \"add\", "
       "\"parameters\": {\"a\": 2, \"b\": [1, \"}\"]}}",
       "",
       {oslo, sum}},
      {"granite", "<|tool_call|>[{\"name\": \"look\", \"arguments\": {\"city\": \"Oslo\"}}]", "", {oslo}},
      {"glm",
       "Well.\n<tool_call>look\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
       "Well.",
       {oslo}},
      {"glm",
       "<tool_call>add\n<arg_key>a</arg_key><arg_value>2</arg_value><arg_key>b</arg_key><arg_value>[1, "
       "\"}\"]</arg_value></tool_call>",
       "",
       {sum}},
      {"glm", "<tool_call>look</tool_call>", "", {{"look", "{}"}}},
      {"qwen-coder",
       "<tool_call>\n<function=look>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
       "",
       {oslo}},
  };
  for (const Case& each : cases) expect_parsed(each);
}

TEST(ToolCalls, WhatIsNoCallIsContent) {
  for (const Case& each : std::vector<Case>{
           {"hermes", "Plain.", "Plain.", {}},
           {"hermes", "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>", {}},
           {"hermes",
            "<tool_call>{\"name\": \"look\", \"arguments\": [1]}</tool_call>",
            "<tool_call>{\"name\": \"look\", \"arguments\": [1]}</tool_call>",
            {}},
           {"hermes", "<tool_call>{\"name\": \"look\", \"argu", "<tool_call>{\"name\": \"look\", \"argu", {}},
           {"llama3",
            "{\"name\": \"other\", \"parameters\": {}}",
            "{\"name\": \"other\", \"parameters\": {}}",
            {}},
           {"llama3", "{\"city\": \"Oslo\"}", "{\"city\": \"Oslo\"}", {}},
           {"llama3", "", "", {}},
           {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", {}},
           {"glm", "<tool_call>", "<tool_call>", {}}})
    expect_parsed(each);
}

TEST(ToolCalls, ATextThatGoesOnIsShownUpToWhereACallMayBegin) {
  const ToolFormat& hermes = *tool_format_named("hermes");
  EXPECT_EQ(content_before_calls(hermes, "Well <tool"), 5U);
  EXPECT_EQ(content_before_calls(hermes, "Well <tool_call>{"), 5U);
  EXPECT_EQ(content_before_calls(hermes, "a < b"), 5U);
  EXPECT_EQ(content_before_calls(*tool_format_named("llama3"), " {\"name"), 0U);
  EXPECT_EQ(content_before_calls(*tool_format_named("llama3"), "The"), 3U);
}

TEST(ToolCalls, TemplatesTellTheFormat) {
  const auto name = [](const char* text) {
    const ToolFormat* const format = tool_format_of_template(text);
    return format == nullptr ? "" : std::string(format->name);
  };
  EXPECT_EQ(name("{{ '<tool_call>\\n' }}{{ tool_call | tojson }}"), "hermes");
  EXPECT_EQ(name("<tool_call>{name}<arg_key>"), "glm");
  EXPECT_EQ(name("<tool_call>\\n<function=' + name"), "qwen-coder");
  EXPECT_EQ(name("[TOOL_CALLS]"), "mistral");
  EXPECT_EQ(name("{\"name\": function name, \"parameters\": dictionary of argument name and its value}"),
            "llama3");
  EXPECT_EQ(name("{{ message.content }}"), "");
  EXPECT_EQ(tool_format_named("nobody"), nullptr);
}

}  // namespace
}  // namespace sluice::serve
