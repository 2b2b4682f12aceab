#include "session/methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::session {
namespace {

TEST(Methods, AreThoseThatAreOffered) {
  EXPECT_EQ(method_named(parse_method("ours"), 1), plan::ours());
  EXPECT_THROW(parse_method("another"), base::InputError);
  EXPECT_THROW(parse_method("exact"), base::InputError) << "not offered yet";
  EXPECT_THROW(method_named(MethodName::kExact, 1), base::InputError);
  offer_method(
      MethodName::kExact, [](uint64_t) { return plan::plain(); }, false);
  EXPECT_EQ(method_named(parse_method("exact"), 1), plan::plain());
  EXPECT_NO_THROW(check_proposes(MethodName::kOurs));
  try {
    check_proposes(MethodName::kExact);
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'exact', which plans batches: propose with ours"));
  }
}

}  // namespace
}  // namespace sluice::session
