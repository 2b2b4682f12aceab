#include "storage/location.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "storage/s3_client.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string fault(const std::string& text) {
  try {
    locate(text, {});
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Location, OfAPathIsThePath) {
  const Location place = locate("runs/a", {});
  EXPECT_TRUE(place.is_path());
  EXPECT_EQ((place / "step-4" / "x.json").string(), "runs/a/step-4/x.json");
  EXPECT_EQ((place / "step-4").filename(), "step-4");
  EXPECT_EQ((place / "step-4").parent().string(), "runs/a");
  EXPECT_EQ((place / "step-4").with_suffix(".previous").string(), "runs/a/step-4.previous");
}

#ifdef SLUICE_S3
TEST(Location, OfAnObjectIsItsName) {
  const Location place = locate("s3://bucket/runs/a/", {});
  EXPECT_FALSE(place.is_path());
  EXPECT_EQ((place / "step-4" / "x.json").string(), "s3://bucket/runs/a/step-4/x.json");
  EXPECT_EQ((place / "step-4").parent().string(), "s3://bucket/runs/a");
  EXPECT_EQ((place / "step-4").filename(), "step-4");
  EXPECT_EQ((locate("s3://bucket", {}) / "step-4").string(), "s3://bucket/step-4");
  EXPECT_TRUE(same_place(place, locate("s3://bucket/runs/a", {})));
}
#endif

TEST(Location, RefusesWhatNoBucketIsCalled) {
  EXPECT_THAT(fault("s3://"), HasSubstr("names bucket ''"));
  EXPECT_THAT(fault("s3://My_Bucket/x"), HasSubstr("lower-case"));
  EXPECT_THAT(fault("s3:/bucket/x"), HasSubstr("s3:/bucket/x is no bucket: give s3://BUCKET/NAME"));
}

TEST(Location, FilesOfADirectory) {
  const fs::path root = fs::temp_directory_path() / ("sluice-location-" + std::to_string(::getpid()));
  const Location place(root);
  EXPECT_TRUE(place.entries().empty());
  (place / "inner").make_directory();
  EXPECT_FALSE((place / "file").is_file());
  EXPECT_FALSE((place / "inner").is_file());
  (place / "file").write("content");
  EXPECT_EQ((place / "file").read(), "content");
  EXPECT_EQ((place / "file").status()->bytes, 7);
  const auto age = std::chrono::system_clock::now() - (place / "file").status()->written;
  EXPECT_LT(std::chrono::abs(age), std::chrono::hours(1));
  {
    const auto unfinished = (place / "half").create(10);
    unfinished->write("x", 1);
  }
  std::vector<std::string> names;
  for (const Entry& entry : place.entries()) names.push_back(entry.name + (entry.is_directory ? "/" : ""));
  EXPECT_THAT(names, ElementsAre("file", "inner/"));
  EXPECT_TRUE((place / "file").rename(place / "inner" / "moved"));
  EXPECT_EQ((place / "inner" / "moved").read(), "content");
  (place / "none").remove();
  place.remove_tree();
  EXPECT_FALSE(fs::exists(root));
}

TEST(Xml, FindsElementsAndTheirText) {
  const std::string xml = "<A><Key>a&amp;lt;&lt;</Key></A><A><Key/></A><Key>last</Key><A>open";
  EXPECT_THAT(xml_elements(xml, "A"), ElementsAre("<Key>a&amp;lt;&lt;</Key>", "<Key/>"));
  EXPECT_EQ(xml_text(xml, "Key"), "a&lt;<");
  EXPECT_EQ(xml_text(xml, "None"), "");
  EXPECT_EQ(xml_text(xml_escaped("\"a\" & <b>") + "<T>" + xml_escaped("\"a\" & <b>") + "</T>", "T"),
            "\"a\" & <b>");
}

}  // namespace
}  // namespace sluice::storage
