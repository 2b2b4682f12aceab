#include "corpus/dataset_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatasetFolderTest : public testing::Test {
 protected:
  void spit(const std::string& name, const std::string& bytes = "") { texts_[name] = bytes; }
  // The split's files, or the error.
  std::vector<std::string> files(const DatasetChoice& choice, bool saved = false) {
    DatasetFolder folder{.name = "folder",
                         .read = [this](const std::string& name) { return texts_.at(name); }};
    for (const auto& [name, ignored] : texts_) folder.files.push_back(name);
    try {
      // The script needs a package for cards only, which the system's Python lacks.
      return saved ? saved_dataset(folder, choice).files
                   : hub_dataset(folder, choice, {.scripts = SLUICE_SOURCE_DIR "/tools"}).files;
    } catch (const base::InputError& error) {
      return {error.what()};
    }
  }
  std::map<std::string, std::string> texts_;
};

TEST_F(DatasetFolderTest, KnowsDataByItsNames) {
  for (const char* name : {"a.jsonl", "b/train.json.gz", "x.parquet", "y.csv", "z.tsv.zst", "data.arrow"})
    EXPECT_TRUE(is_dataset_file(name)) << name;
  for (const char* name : {"a.py", "train.txt", "README.md"}) EXPECT_FALSE(is_dataset_file(name)) << name;
  EXPECT_TRUE(may_lie_beside_data("sub/README.md"));
  EXPECT_TRUE(may_lie_beside_data(".gitattributes"));
  EXPECT_FALSE(may_lie_beside_data("a.py"));
  EXPECT_TRUE(is_dataset_card("---\nlicense: mit\nconfigs:\n- config_name: a\n---\nwords\n"));
  EXPECT_FALSE(is_dataset_card("---\ntitle: a page\n---\nconfigs: of something else\n"));
}

TEST_F(DatasetFolderTest, SavedFilesComeInTheirOrder) {
  spit("dataset_dict.json", R"({"splits": ["train", "held"]})");
  spit("held/state.json", R"({"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]})");
  spit("held/data-0.arrow");
  EXPECT_THAT(files({"held"}, true), ElementsAre(HasSubstr("data-1.arrow, which is not there")));
  spit("held/data-1.arrow");
  EXPECT_THAT(files({"held"}, true), ElementsAre("held/data-1.arrow", "held/data-0.arrow"));
  EXPECT_THAT(files({"test"}, true),
              ElementsAre(HasSubstr("no split 'test': choose from train, held with --split")));
  EXPECT_THAT(files({"held", "main"}, true), ElementsAre(HasSubstr("leave --subset main out")));
  texts_ = {{"state.json", R"({"_indices_data_files": [{"filename": "x"}], "_data_files": []})"}};
  EXPECT_THAT(files({}, true), ElementsAre(HasSubstr("flatten_indices")));
}

TEST_F(DatasetFolderTest, ShardsNameTheirSplits) {
  for (const char* name : {"data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet",
                           "data/train_sft-00000-of-00001-abc.parquet", "en/contest_dev.parquet", "README.md",
                           ".cache/x.parquet"}) {
    spit(name);
  }
  EXPECT_THAT(files({"train"}),
              ElementsAre("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"));
  EXPECT_THAT(files({"train_sft"}), ElementsAre("data/train_sft-00000-of-00001-abc.parquet"));
  EXPECT_THAT(files({"test"}), ElementsAre(HasSubstr("no split 'test': choose from train, train_sft")));
  EXPECT_THAT(files({"train", "main"}),
              ElementsAre(HasSubstr("no configuration 'main': choose from default")));
}

TEST_F(DatasetFolderTest, WordsInNamesTellSplits) {
  for (const char* name : {"training.jsonl", "b-train.jsonl", "contest.jsonl", "val_1.jsonl", "dev.jsonl.gz"})
    spit(name);
  EXPECT_THAT(files({"train"}), ElementsAre("b-train.jsonl", "training.jsonl"));
  EXPECT_THAT(files({"validation"}), ElementsAre("dev.jsonl.gz", "val_1.jsonl"));
  texts_ = {{"test/a.json", ""}, {"a.json", ""}, {"train/x/b.json", ""}, {"train/c.json", ""}};
  EXPECT_THAT(files({"train"}), ElementsAre("train/c.json", "train/x/b.json"));
  texts_ = {{"some.csv", ""}, {"other.csv", ""}, {"more.txt", ""}};
  EXPECT_THAT(files({"train"}), ElementsAre("other.csv", "some.csv"));
  texts_ = {{"a.py", ""}};
  EXPECT_THAT(files({"train"}), ElementsAre(HasSubstr("its files end in .py")));
}

}  // namespace
}  // namespace sluice::corpus
