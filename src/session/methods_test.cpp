#include "session/methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::session {
namespace {

TEST(Methods, AreThoseThatAreOffered) {
  EXPECT_EQ(method_named("ours", 1), plan::ours());
  EXPECT_THROW(method_named("another", 1), base::InputError);
  offer_method(
      "another", [](uint64_t) { return plan::plain(); }, false);
  EXPECT_EQ(method_named("another", 1), plan::plain());
  EXPECT_EQ(proposing_method_named("ours", 1), plan::ours());
  try {
    proposing_method_named("another", 1);
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'another', which plans batches: propose with ours"));
  }
}

}  // namespace
}  // namespace sluice::session
