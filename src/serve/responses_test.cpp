#include "serve/responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/json.h"
#include "serve/request_engine.h"
#include "serve/request_fields.h"

namespace sluice::serve {
namespace {

using base::Json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

struct Told {
  Response response;
  Json error;
  std::vector<std::string> faults;  // of the server
};

template <typename Fault>
Told told_of(const Fault& fault) {
  Told told;
  told.response = fault_response(std::make_exception_ptr(fault),
                                 [&](const std::string& why) { told.faults.push_back(why); });
  told.error = Json::parse(told.response.body).at("error");
  return told;
}

TEST(Responses, MistakesOfTheClientAreItsOwn) {
  const Told field = told_of(http::FieldError("n", "n is 0"));
  EXPECT_EQ(field.response.status, 400);
  EXPECT_EQ(field.error.at("param"), "n");
  EXPECT_EQ(field.error.at("message"), "n is 0");
  const Told input = told_of(base::InputError("the body is no JSON"));
  EXPECT_EQ(input.response.status, 400);
  EXPECT_TRUE(input.error.at("param").is_null());
  const Told model = told_of(UnknownModel("model", "no such model"));
  EXPECT_EQ(model.response.status, 404);
  EXPECT_EQ(model.error.at("code"), "model_not_found");
  for (const Told& each : {field, input, model}) {
    EXPECT_EQ(each.error.at("type"), "invalid_request_error");
    EXPECT_THAT(each.faults, IsEmpty());
    EXPECT_THAT(each.response.fields, IsEmpty()) << "the same request would fail again";
  }
}

TEST(Responses, AnEngineThatHasEndedIsTriedAgainAndIsNoFaultOfTheRequest) {
  const Told told = told_of(Unavailable("rank 3 was lost"));
  EXPECT_EQ(told.response.status, 503);
  EXPECT_THAT(told.response.fields, ElementsAre(Pair("Retry-After", "5")));
  EXPECT_EQ(told.error.at("message"), "rank 3 was lost");
  EXPECT_THAT(told.faults, IsEmpty());
}

TEST(Responses, AllElseIsTheServersFaultWhichIsReported) {
  for (const Told& told : {told_of(base::RunError("the tokenizer has ended")),
                           told_of(std::runtime_error("the tokenizer has ended"))}) {
    EXPECT_EQ(told.response.status, 500);
    EXPECT_EQ(told.error.at("type"), "server_error");
    EXPECT_THAT(told.faults, ElementsAre("the tokenizer has ended"));
  }
}

TEST(Responses, TextThatIsNoUtf8IsStillJson) {
  const Response told = invalid_request(400, "the field \xff is unknown");
  EXPECT_EQ(Json::parse(told.body).at("error").at("message"), "the field \uFFFD is unknown");
  EXPECT_EQ(told.content_type, "application/json");
}

}  // namespace
}  // namespace sluice::serve
