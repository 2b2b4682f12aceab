#include "corpus/dataset_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatasetFolder : public testing::Test {
 protected:
  void spit(const std::string& name, const std::string& bytes = "") {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name, std::ios::binary) << bytes;
  }
  // The split's files below the folder, or the error.
  std::vector<std::string> files(const std::string& split) {
    try {
      const auto found = dataset_files(directory_.path(), split);
      if (!found) return {"none"};
      std::vector<std::string> names;
      for (const auto& path : *found) {
        names.push_back(std::filesystem::relative(path, directory_.path()).string());
      }
      return names;
    } catch (const base::InputError& error) {
      return {error.what()};
    }
  }
  TemporaryDirectory directory_;
};

TEST_F(DatasetFolder, SourceTreeIsNone) {
  spit("a.py");
  spit("tests/data/table.parquet");
  EXPECT_THAT(files("train"), ElementsAre("none"));
  spit("README.md", "---\ntitle: a page\n---\n");
  spit("package.json", "{}");
  EXPECT_THAT(files("train"), ElementsAre("none"));
}

TEST_F(DatasetFolder, SavedFilesComeInTheirOrder) {
  spit("dataset_dict.json", R"({"splits": ["train", "held"]})");
  spit("held/dataset_info.json", "{}");
  spit("held/state.json", R"({"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]})");
  EXPECT_THAT(files("held"), ElementsAre("held/data-1.arrow", "held/data-0.arrow"));
  EXPECT_THAT(files("test"), ElementsAre(HasSubstr("no split 'test': choose from train, held with --split")));
  spit("state.json", R"({"_indices_data_files": [{"filename": "x"}], "_data_files": []})");
  spit("dataset_info.json", "{}");
  std::filesystem::remove(directory_ / "dataset_dict.json");
  EXPECT_THAT(files("train"), ElementsAre(HasSubstr("flatten_indices")));
}

TEST_F(DatasetFolder, HubCopiesAreSplitByTheWordsInTheirNames) {
  for (const char* name : {"data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet",
                           "data/validation-00000-of-00001.parquet", "en/contest_dev.parquet",
                           "en/part.parquet", "README.md", ".cache/x.parquet"}) {
    spit(name);
  }
  EXPECT_THAT(files("train"), ElementsAre("data/train-00000-of-00002.parquet",
                                          "data/train-00001-of-00002.parquet", "en/part.parquet"));
  EXPECT_THAT(files("validation"),
              ElementsAre("data/validation-00000-of-00001.parquet", "en/contest_dev.parquet"));
  EXPECT_THAT(files("test"), ElementsAre(HasSubstr("choose from train, validation")));
}

TEST_F(DatasetFolder, CardMakesJsonADataSet) {
  spit("README.md", "---\nconfigs:\n- config_name: default\n---\nwords\n");
  spit("train.jsonl.gz");
  spit("test.jsonl");
  spit("dataset_infos.json");
  spit("script.py");
  EXPECT_THAT(files("train"), ElementsAre("train.jsonl.gz"));
  EXPECT_THAT(files("test"), ElementsAre("test.jsonl"));
}

}  // namespace
}  // namespace sluice::corpus
