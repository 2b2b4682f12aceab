#include "corpus/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::HasSubstr;

base::Json arguments_of(const std::vector<std::string>& told) {
  return base::parse_json(options_text({.arguments = told}), "options").at("arguments");
}

std::string fault_of(const std::string& argument) {
  try {
    arguments_of({argument});
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TemplateArguments, AreJsonOrTexts) {
  const base::Json found =
      arguments_of({"a=false", "b=[1, {\"c\": 2}]", "d=plain = text", "e=", "f=\"07\"", "g=1e3x"});
  EXPECT_EQ(found, base::Json({{"a", false},
                               {"b", {1, {{"c", 2}}}},
                               {"d", "plain = text"},
                               {"e", ""},
                               {"f", "07"},
                               {"g", "1e3x"}}));
}

TEST(TemplateArguments, MeantAsJsonAndBrokenAreNamed) {
  EXPECT_THAT(fault_of("documents=[{\"a\": 1}"), HasSubstr("--template-argument documents"));
  EXPECT_THAT(fault_of("x={a: 1}"), HasSubstr("is not JSON"));
  EXPECT_THAT(fault_of("x=" + std::string(500, '[')), HasSubstr("nest"));
  EXPECT_THAT(fault_of("=1"), HasSubstr("give NAME=VALUE"));
}

TEST(NamedTemplates, AreReadAsPythonWritesThem) {
  const TemporaryDirectory folder;
  base::write_file_atomically(
      folder / "tokenizer_config.json",
      R"({"model_max_length": Infinity, "chat_template": [{"name": "odd", "template": 3},
                                  {"name": "rag", "template": "by documents"}]})");
  EXPECT_EQ(template_text({.chat_template = "rag"}, folder / "tokenizer.json"), "by documents");
  EXPECT_EQ(template_text({.chat_template = "odd"}, folder / "tokenizer.json"), "");
}

TEST(Findings, KeepTheFirst) {
  Findings one, other;
  for (const char* each : {"a", "b"}) one.add(each);
  for (const char* each : {"c", "d", "e", "f"}) other.add(each);
  one += other;
  EXPECT_EQ(one.count, 6);
  EXPECT_EQ(one.shown("; "), "a; b; c; …");
  EXPECT_EQ(Findings{}.shown("; "), "");
}

}  // namespace
}  // namespace sluice::corpus
