#include "http/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace sluice::http {
namespace {

using base::Json;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr FieldRule kRules[] = {{"size", kWhole},
                                {"share", kNumber},
                                {"name", kText | kList},
                                {"user", kText, Use::kNoEffect},
                                {"format", kObject, Use::kNeutralOnly, R"({"type": "text"})"}};

auto check(const char* json) {
  return [body = base::parse_json(json, "a body")] { check_fields(body, kRules); };
}

TEST(Fields, KindsAreChecked) {
  check(R"({"size": 5, "share": 1, "name": ["a"], "user": "me", "format": {"type": "text"}})")();
  check(R"({"size": null, "share": 0.5, "name": "a", "other": null, "another": [], "more": false})")();
  EXPECT_THAT(check(R"({"size": "5"})"),
              ThrowsMessage<FieldError>(HasSubstr("size is \"5\": give a whole number")));
  EXPECT_THAT(check(R"({"size": 1.5})"), ThrowsMessage<FieldError>(HasSubstr("size is 1.5")));
  EXPECT_THAT(check(R"({"size": true})"), ThrowsMessage<FieldError>(HasSubstr("size is true")));
  EXPECT_THAT(check(R"({"name": {}})"), ThrowsMessage<FieldError>(HasSubstr("give a text, or a list")));
  EXPECT_THAT(check(R"({"user": 5})"), ThrowsMessage<FieldError>(HasSubstr("user is 5")));
}

TEST(Fields, WhatWouldChangeTheAnswerIsRefusedByItsName) {
  EXPECT_THAT(check(R"({"other": 1})"),
              ThrowsMessage<FieldError>(HasSubstr("other is 1, which this server does not know here")));
  EXPECT_THAT(check(R"({"format": {"type": "json_object"}})"),
              ThrowsMessage<FieldError>(HasSubstr("does not follow")));
  try {
    check(R"({"format": 5})")();
    FAIL();
  } catch (const FieldError& error) {
    EXPECT_EQ(error.field(), "format");
  }
}

TEST(Fields, EntriesAreCountedOutsideTexts) {
  require_few_entries(R"({"a": "[,,,,{{::\",,,"})", 3);
  EXPECT_THAT([] { require_few_entries("[1,2,3,4]", 3); },
              ThrowsMessage<base::InputError>(HasSubstr("more than 3 JSON values")));
  EXPECT_THROW(require_few_entries(std::string(100, '['), 99), base::InputError);
}

}  // namespace
}  // namespace sluice::http
