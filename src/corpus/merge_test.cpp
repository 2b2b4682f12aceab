#include "corpus/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "corpus/indexed.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;

class Merge : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::vector<std::vector<int32_t>>& documents,
                              const std::string& tokenizer, MaskFile mask = MaskFile::kNone,
                              int64_t vocabulary = 1'000) {
    base::make_directories(directory_ / name);
    IndexedWriter writer(directory_ / name / "corpus", {.vocabulary = vocabulary, .mask = mask});
    for (const auto& document : documents) {
      writer.add(document, std::vector<uint8_t>(mask == MaskFile::kWrite ? document.size() : 0, 0));
    }
    writer.commit();
    if (!tokenizer.empty()) base::write_file_atomically(directory_ / name / "tokenizer.model", tokenizer);
    return directory_ / name / "corpus";
  }
  TemporaryDirectory directory_;
};

TEST_F(Merge, DocumentsMasksAndTokenizerComeAlong) {
  const auto first = write("a", {{1, 2, 3}, {}}, "pieces");
  const auto second = write("b", {{4, 5}}, "", MaskFile::kWrite);
  base::write_json(directory_ / "b/lengths.json", {{"vocabulary", 7}, {"end_id", 3}});
  const MergeResult result =
      merge_corpora({.corpora = {first, second, first}, .directory = directory_ / "out"});
  EXPECT_TRUE(result.masked);
  const IndexedCorpus merged(directory_ / "out/corpus");
  ASSERT_EQ(merged.documents(), 5);
  EXPECT_THAT(merged.read(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(merged.read(2), ElementsAre(4, 5));
  EXPECT_THAT(merged.read(3), ElementsAre(1, 2, 3));
  std::vector<uint8_t> mask(2);
  merged.read_mask(0, 1, 2, mask.data());
  EXPECT_THAT(mask, ElementsAre(1, 1));
  merged.read_mask(2, 0, 2, mask.data());
  EXPECT_THAT(mask, ElementsAre(0, 0));
  EXPECT_EQ(base::read_file(directory_ / "out/tokenizer.model"), "pieces");
  const base::Json lengths = base::read_json(directory_ / "out/lengths.json");
  EXPECT_EQ(lengths["tokens"], 8);
  EXPECT_EQ(lengths["vocabulary"], 7);
}

TEST_F(Merge, CorporaOfOtherTokenizersAreRefused) {
  const auto first = write("a", {{1}}, "pieces");
  EXPECT_THROW(
      merge_corpora({.corpora = {first, write("b", {{1}}, "others")}, .directory = directory_ / "out"}),
      base::InputError);
  const auto wide = write("c", {{1}}, "pieces", MaskFile::kNone, 100'000);
  EXPECT_THROW(merge_corpora({.corpora = {first, wide}, .directory = directory_ / "out"}), base::InputError);
  EXPECT_THROW(merge_corpora({.corpora = {first}, .directory = directory_ / "a"}), base::InputError);
  EXPECT_THROW(merge_corpora({.corpora = {}, .directory = directory_ / "out"}), base::InputError);
}

}  // namespace
}  // namespace sluice::corpus
