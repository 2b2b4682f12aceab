#include "study/system_kinds.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "report/figures.h"

namespace sluice::study {
namespace {

TEST(System, NamesAreDistinctAndFound) {
  std::set<std::string> names;
  for (const SystemKind& kind : system_kinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_EQ(&system_kind(kind.name), &kind);
  }
}

TEST(System, EachHasItsOwnColourInReports) {
  std::set<std::string> styles;
  for (size_t index = 0; index < system_kinds().size(); ++index) {
    EXPECT_TRUE(styles.insert(report::system_style(index)).second) << system_kinds()[index].name;
  }
}

TEST(System, UnknownOneListsTheKnown) {
  try {
    system_kind("megatorn");
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'megatron'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::study
