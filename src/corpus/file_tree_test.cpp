#include "corpus/file_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;

namespace fs = std::filesystem;

class FileTree : public testing::Test {
 protected:
  void spit(const std::string& name) {
    fs::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name, std::ios::binary) << name;
  }
  void link(const std::string& name, const fs::path& target) {
    fs::create_directories((directory_ / name).parent_path());
    fs::create_symlink(target, directory_ / name);
  }
  std::vector<std::string> names(TreeOptions options = {}, const std::string& root = "") {
    tree_ = list_tree(directory_ / root, options);
    std::vector<std::string> found;
    for (const TreeFile& file : tree_.files) found.push_back(file.name);
    return found;
  }
  int64_t passed(PassedOver reason) const {
    return tree_.passed_over.kinds[static_cast<size_t>(reason)].count;
  }
  TemporaryDirectory directory_;
  Tree tree_;
};

TEST_F(FileTree, IsInOrderOfName) {
  for (const char* name : {"b", "a/z", "a.b", "a/y/x"}) spit(name);
  EXPECT_THAT(names(), ElementsAre("a.b", "a/y/x", "a/z", "b"));
  EXPECT_EQ(tree_.files.front().size_bytes, 3);
  EXPECT_THAT(names({.excluded = [](const std::string& name) { return name == "a"; }}),
              ElementsAre("a.b", "b"));
}

TEST_F(FileTree, LinksAreFollowedAndNothingIsTakenTwice) {
  for (const char* name : {"in/a", "in/sub/b", "out/c", "out/d"}) spit(name);
  link("in/again", directory_ / "in/sub");
  link("in/c", directory_ / "out/c");
  link("in/shelf", directory_ / "out");
  EXPECT_THAT(names({}, "in"), ElementsAre("a", "c", "shelf/d", "sub/b"));
  EXPECT_EQ(passed(PassedOver::kLinkedBefore), 2);  // again, and shelf/c
  EXPECT_THAT(names({.once = false}, "in"), ElementsAre("a", "again/b", "c", "shelf/c", "shelf/d", "sub/b"));
}

TEST_F(FileTree, CirclesEnd) {
  for (const char* name : {"in/a", "in/sub/b"}) spit(name);
  link("in/sub/up", directory_ / "in");
  link("in/sub/above", directory_.path());
  link("in/self", "self");
  link("in/gone", directory_ / "nowhere");
  for (const bool once : {true, false}) {
    EXPECT_THAT(names({.once = once}, "in"), ElementsAre("a", "sub/b"));
    EXPECT_EQ(passed(PassedOver::kDeadLink), 2);
    EXPECT_EQ(passed(PassedOver::kLinkedBefore), 2);
    EXPECT_THAT(tree_.passed_over.kinds[0].first,
                ElementsAre((directory_ / "in/gone").string(), (directory_ / "in/self").string()));
  }
}

TEST_F(FileTree, PipesAndOwnOutputAreCounted) {
  for (const char* name : {"a", "made/corpus.idx", "made/corpus.bin", "made/lengths.json", "made/own.txt",
                           "out/tokenizer.json", "out/corpus.unfinished/bin", "kept/lengths.json"})
    spit(name);
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(names({.output = directory_ / "out"}), ElementsAre("a", "kept/lengths.json", "made/own.txt"));
  EXPECT_EQ(passed(PassedOver::kSpecial), 1);
  EXPECT_EQ(passed(PassedOver::kOwnOutput), 5);
}

TEST_F(FileTree, TheWalkEndsWhereItIsToldTo) {
  for (const char* name : {"a", "b", "c"}) spit(name);
  names({.only = [](const std::string& name) { return name != "b"; }});
  EXPECT_FALSE(tree_.complete);
  EXPECT_THROW(list_tree(directory_ / "none", {}), base::InputError);
}

}  // namespace
}  // namespace sluice::corpus
