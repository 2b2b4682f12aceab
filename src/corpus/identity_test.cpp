#include "corpus/identity.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using testing::HasSubstr;

// Documents of these lengths, the tokens counted up from `first`.
void write_corpus(const std::filesystem::path& prefix, const std::vector<int64_t>& lengths, int32_t first = 0,
                  MaskFile mask = MaskFile::kNone) {
  IndexedWriter writer(prefix, {.vocabulary = 1000, .mask = mask});
  int32_t next = first;
  for (const int64_t length : lengths) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < length; ++i) tokens.push_back(next++ % 1000);
    const size_t mask_bytes = mask == MaskFile::kWrite ? tokens.size() : 0;
    writer.add(tokens, std::vector<uint8_t>(mask_bytes, 1));
  }
  writer.commit();
}

void overwrite(const std::filesystem::path& path, int64_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file.put(value);
}

// The error of a run that resumes on the corpus at `now` after training on the corpus at `then`.
std::string fault(const std::filesystem::path& then, const std::filesystem::path& now) {
  const Blend before = Blend::open({{then.string(), 1.0}});
  const Blend after = Blend::open({{now.string(), 1.0}});
  try {
    require_same(identities(before), identities(after), after, "step-5");
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Identity, ACopyIsTheSameCorpus) {
  const TemporaryDirectory directory;
  write_corpus(directory / "a", {3, 4, 5});
  write_corpus(directory / "b", {3, 4, 5});
  EXPECT_EQ(fault(directory / "a", directory / "b"), "");
  const std::vector<CorpusIdentity> all = identities(Blend::open({{(directory / "a").string(), 1.0}}));
  EXPECT_EQ(identities_from_json(to_json(all), "manifest"), all);
}

TEST(Identity, EachDifferenceIsNamed) {
  const TemporaryDirectory directory;
  write_corpus(directory / "a", {3, 4, 5});
  write_corpus(directory / "tokens", {3, 4, 5}, 1);
  write_corpus(directory / "order", {5, 4, 3});
  write_corpus(directory / "more", {3, 4, 5, 6});
  write_corpus(directory / "mask", {3, 4, 5}, 0, MaskFile::kWrite);
  EXPECT_THAT(fault(directory / "a", directory / "tokens"),
              testing::AllOf(HasSubstr("tokens is not the one that step-5 was trained on"),
                             HasSubstr("other tokens, or another mask, in documents of the same lengths")));
  EXPECT_THAT(fault(directory / "a", directory / "order"), HasSubstr("of other lengths or in another order"));
  EXPECT_THAT(fault(directory / "a", directory / "more"),
              HasSubstr("4 documents of 18 tokens and had 3 of 12"));
  EXPECT_THAT(fault(directory / "a", directory / "mask"), HasSubstr("another mask"));
}

TEST(Identity, BlocksOfALargeFileAreSpreadFromItsFirstByteToItsLast) {
  const TemporaryDirectory directory;
  const int64_t tokens =
      IndexedCorpus::kContentBlocks * IndexedCorpus::kContentBlockBytes;  // twice the blocks
  write_corpus(directory / "a", {tokens});
  const auto change_shows = [&](int64_t at) {
    write_corpus(directory / "b", {tokens});
    overwrite(directory / "b.bin", at, '\x55');
    return !fault(directory / "a", directory / "b").empty();
  };
  EXPECT_TRUE(change_shows(0));
  EXPECT_TRUE(change_shows(2 * tokens - 1));
  // Between the first two blocks: what sampling does not prove.
  EXPECT_FALSE(change_shows(IndexedCorpus::kContentBlockBytes + 101));
}

TEST(Identity, AMaskWithoutAnyTargetIsRefused) {
  const TemporaryDirectory directory;
  write_corpus(directory / "a", {3, 4}, 0, MaskFile::kWrite);
  Blend::open({{(directory / "a").string(), 1.0}}).require_targets();
  for (int64_t at = 0; at < 7; ++at) overwrite(directory / "a.mask", at, '\0');
  try {
    Blend::open({{(directory / "a").string(), 1.0}}).require_targets();
    FAIL() << "the mask is accepted";
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.mask is 0 for every token"));
  }
}

}  // namespace
}  // namespace sluice::corpus
