#include "corpus/indexed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kFixtures = std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/data/corpus";

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The format written down a second time, field by field, so that single fields can be spoiled.
struct RawIndex {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t code = 8;
  uint64_t sequences = 3;
  uint64_t documents = 4;
  std::vector<int32_t> lengths{2, 0, 3};
  std::vector<int64_t> pointers{0, 4, 4};
  std::vector<int64_t> boundaries{0, 1, 2, 3};

  std::string bytes() const {
    std::string out = magic;
    put(out, version);
    put(out, code);
    put(out, sequences);
    put(out, documents);
    for (const int32_t length : lengths) put(out, length);
    for (const int64_t pointer : pointers) put(out, pointer);
    for (const int64_t boundary : boundaries) put(out, boundary);
    return out;
  }
};

const std::string kTokens{"\1\0\2\0\3\0\4\0\5\0", 10};

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void save_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "no error";
}

// The error that opening this index and these tokens gives.
std::string opening_error(const std::string& index, const std::string& tokens = kTokens,
                          const std::string& mask = "") {
  const TemporaryDirectory directory;
  save_bytes(directory / "bad.idx", index);
  save_bytes(directory / "bad.bin", tokens);
  if (!mask.empty()) save_bytes(directory / "bad.mask", mask);
  return error_of([&] { IndexedCorpus corpus(directory / "bad"); });
}

// The fixtures hold five sequences; uint16 a document each, int32 two documents of two and of three.
std::vector<int32_t> fixture_tokens(const std::vector<int64_t>& sequences, int64_t vocabulary) {
  const int64_t lengths[] = {3, 1, 0, 5, 40};
  std::vector<int32_t> tokens;
  for (const int64_t i : sequences) {
    for (int64_t j = 0; j < lengths[i]; ++j)
      tokens.push_back(static_cast<int32_t>((7919 * i + 31 * j) % vocabulary));
  }
  return tokens;
}

TEST(Indexed, ReadsWhatAnotherWriterWrote) {
  const IndexedCorpus corpus(kFixtures / "uint16", {.vocabulary = 65'000});
  ASSERT_EQ(corpus.documents(), 5);
  EXPECT_EQ(corpus.tokens(), 49);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(corpus.read(i), fixture_tokens({i}, 65'000)) << i;
  corpus.check_tokens(65'000);
}

TEST(Indexed, ACorpusThatIsNotThereIsRefusedWithTheCommandThatMakesIt) {
  for (const char* name : {"none/mine", "none/mine/corpus", "none/mine/corpus.idx"}) {
    try {
      const IndexedCorpus corpus{name};
      FAIL() << name;
    } catch (const base::InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("none/mine/corpus.idx"));
      EXPECT_THAT(error.what(), testing::HasSubstr("sluice corpus build TEXTS --out none/mine)"));
    }
  }
}

TEST(Indexed, SequencesOfADocumentAreReadAsOne) {
  const IndexedCorpus corpus(kFixtures / "int32", {.vocabulary = 100'000});
  ASSERT_EQ(corpus.documents(), 2);
  EXPECT_EQ(corpus.tokens(), 49);
  EXPECT_EQ(corpus.read(0), fixture_tokens({0, 1}, 100'000));
  EXPECT_EQ(corpus.read(1), fixture_tokens({2, 3, 4}, 100'000));
  corpus.check_tokens(100'000);
}

TEST(Indexed, WritesTheBytesThatAnotherWriterWrites) {
  const TemporaryDirectory directory;
  const IndexedCorpus source(kFixtures / "uint16");
  IndexedWriter writer(directory / "copy", {.vocabulary = 65'000, .mask = MaskFile::kWrite});
  for (int64_t i = 0; i < source.documents(); ++i) {
    std::vector<uint8_t> mask(static_cast<size_t>(source.length(i)));
    source.read_mask(i, 0, source.length(i), mask.data());
    writer.add(source.read(i), mask);
  }
  writer.commit();
  for (const char* suffix : {".bin", ".idx", ".mask"}) {
    EXPECT_EQ(slurp(with_suffix(directory / "copy", suffix)),
              slurp(with_suffix(kFixtures / "uint16", suffix)));
  }
}

TEST(Indexed, ReadsRangesAndCountsTheirBytes) {
  const IndexedCorpus corpus(kFixtures / "int32.idx");
  std::vector<int32_t> tokens(3);
  corpus.read(1, 5 + 10, 3, tokens.data());  // tokens of the last sequence
  for (int64_t j = 0; j < 3; ++j) {
    EXPECT_EQ(tokens[static_cast<size_t>(j)], (7919 * 4 + 31 * (10 + j)) % 100'000);
  }
  EXPECT_EQ(corpus.read_bytes(), 12);
  EXPECT_THROW(corpus.read(1, 43, 3, tokens.data()), base::AssertionError);
}

TEST(Indexed, MaskIsReadByRangeAndIsOnesWithoutFile) {
  const IndexedCorpus masked(kFixtures / "uint16");
  std::vector<uint8_t> mask(4);
  masked.read_mask(3, 1, 4, mask.data());
  EXPECT_THAT(mask, testing::ElementsAre(1, 0, 1, 0));  // tokens 5 to 8 of the file
  const IndexedCorpus plain(kFixtures / "int32");
  plain.read_mask(1, 1, 4, mask.data());
  EXPECT_THAT(mask, testing::Each(1));
}

TEST(Indexed, RoundTripsRandomDocumentsOfBothTypes) {
  const TemporaryDirectory directory;
  base::Rng rng(3);
  for (const int64_t vocabulary : {1'000, 65'499, 65'500, 200'000}) {
    std::vector<std::vector<int32_t>> documents(200);
    IndexedWriter writer(directory / "random", {.vocabulary = vocabulary});
    for (auto& document : documents) {
      document.resize(rng.below(3'000));
      for (int32_t& token : document) token = static_cast<int32_t>(rng.between(0, vocabulary - 1));
      writer.add(document);
    }
    writer.commit();
    const IndexedCorpus corpus(directory / "random", {.vocabulary = vocabulary});
    EXPECT_EQ(corpus.token_type(), vocabulary < 65'500 ? TokenType::kUint16 : TokenType::kInt32);
    for (size_t i = 0; i < documents.size(); ++i)
      EXPECT_EQ(corpus.read(static_cast<int64_t>(i)), documents[i]);
  }
}

TEST(Indexed, UncommittedWriterLeavesNothingAndKeepsTheOldCorpus) {
  const TemporaryDirectory directory;
  {
    IndexedWriter writer(directory / "corpus", {.vocabulary = 10});
    writer.add(std::vector<int32_t>{1, 2});
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  IndexedWriter first(directory / "corpus", {.vocabulary = 10, .mask = MaskFile::kWrite});
  first.add(std::vector<int32_t>{1, 2}, std::vector<uint8_t>{0, 1});
  first.commit();
  { IndexedWriter second(directory / "corpus", {.vocabulary = 10}); }
  EXPECT_EQ(IndexedCorpus(directory / "corpus").tokens(), 2);
}

TEST(Indexed, NewCorpusReplacesTheOldOneAndItsMask) {
  const TemporaryDirectory directory;
  IndexedWriter first(directory / "corpus", {.vocabulary = 10, .mask = MaskFile::kWrite});
  first.add(std::vector<int32_t>{1, 2}, std::vector<uint8_t>{0, 1});
  first.commit();
  IndexedWriter second(directory / "corpus", {.vocabulary = 10});
  second.add(std::vector<int32_t>{3});
  second.commit();
  const IndexedCorpus corpus(directory / "corpus");
  EXPECT_EQ(corpus.tokens(), 1);
  EXPECT_FALSE(corpus.has_mask());
}

TEST(Indexed, RawIndexIsValid) { EXPECT_EQ(opening_error(RawIndex().bytes()), "no error"); }

TEST(Indexed, WrongMagicIsRefused) {
  RawIndex index;
  index.magic = "NOTANIDX!";
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("bad.idx does not begin with MMIDIDX"));
}

TEST(Indexed, TruncationAtAnyByteIsRefused) {
  const std::string whole = RawIndex().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(opening_error(whole.substr(0, size)), HasSubstr("sluice corpus build")) << size;
  }
  EXPECT_THAT(opening_error(whole.substr(0, 50)), HasSubstr("(it is truncated)"));
  EXPECT_THAT(opening_error(whole + "x"), HasSubstr("(it is too long)"));
}

TEST(Indexed, HugeCountsAreRefusedWithoutOverflow) {
  RawIndex index;
  index.sequences = ~uint64_t{0};
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("truncated"));
  index.sequences = 3;
  index.documents = uint64_t{1} << 61;
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("truncated"));
}

TEST(Indexed, UnknownVersionAndTypeAreRefused) {
  RawIndex index;
  index.version = 2;
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("version 2"));
  index = {};
  index.code = 6;
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("token type code 6"));
}

TEST(Indexed, NegativeLengthIsRefused) {
  RawIndex index;
  index.lengths[1] = -7;
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("sequence 1 has the negative length -7"));
}

TEST(Indexed, OffsetsOutsideTheTokensAreRefused) {
  for (const int64_t pointer : {int64_t{6}, int64_t{-2}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    RawIndex index;
    index.pointers[2] = pointer;
    EXPECT_THAT(opening_error(index.bytes()), HasSubstr("sequence 2 covers 6 bytes at offset")) << pointer;
  }
  EXPECT_THAT(opening_error(RawIndex().bytes(), kTokens.substr(0, 9)), HasSubstr("bad.bin has 9"));
}

TEST(Indexed, DocumentIndexBeyondSequencesIsRefused) {
  RawIndex index;
  index.boundaries[3] = 4;
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("entry 3 of the document index is 4"));
}

TEST(Indexed, DocumentIndexMustCoverSequencesInOrder) {
  RawIndex index;
  index.boundaries = {0, 2, 1, 3};
  EXPECT_THAT(opening_error(index.bytes()),
              HasSubstr("entry 2 of the document index is 1, below the one before"));
  index.boundaries = {0, 1, 2, 2};
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("goes from sequence 0 to 2 of 3"));
  index.boundaries = {0, 0, 0, 3};
  EXPECT_EQ(opening_error(index.bytes()), "no error");
  index.pointers = {4, 4, 0};  // each a document: any order; one document: not
  EXPECT_THAT(opening_error(index.bytes()), HasSubstr("sequence 1 does not follow the one before it"));
  index.boundaries = {0, 1, 2, 3};
  EXPECT_EQ(opening_error(index.bytes()), "no error");
}

TEST(Indexed, WithoutDocumentsEachSequenceIsOne) {
  const TemporaryDirectory directory;
  RawIndex index;
  index.documents = 1;
  index.boundaries = {0};
  save_bytes(directory / "raw.idx", index.bytes());
  save_bytes(directory / "raw.bin", kTokens);
  EXPECT_EQ(IndexedCorpus(directory / "raw").documents(), 3);
}

TEST(Indexed, MaskOfAnotherSizeIsRefused) {
  EXPECT_THAT(opening_error(RawIndex().bytes(), kTokens, "1111"), HasSubstr(".mask has 4 bytes"));
}

TEST(Indexed, MissingFilesAreRefused) {
  const TemporaryDirectory directory;
  EXPECT_THAT(error_of([&] { IndexedCorpus corpus(directory / "none"); }), HasSubstr("none.bin"));
}

TEST(Indexed, TokenOutsideTheVocabularyIsNamed) {
  const IndexedCorpus corpus(kFixtures / "int32");
  const std::string error = error_of([&] { corpus.check_tokens(31'700); });
  EXPECT_THAT(error, HasSubstr("document 1 has token 31707 at position 6, but the vocabulary has 31700"));
  const IndexedCorpus checked(kFixtures / "int32", {.vocabulary = 31'700});
  std::vector<int32_t> token(1);
  EXPECT_EQ(error_of([&] { checked.read(1, 5, 1, token.data()); }), "no error");
  EXPECT_EQ(error_of([&] { checked.read(1, 6, 1, token.data()); }), error);
}

TEST(Indexed, NegativeTokenIsRefusedWithoutVocabulary) {
  const TemporaryDirectory directory;
  RawIndex index;
  index.code = 4;
  index.pointers = {0, 8, 8};
  save_bytes(directory / "negative.idx", index.bytes());
  save_bytes(directory / "negative.bin", std::string(16, '\0') + std::string(4, '\xFF'));
  const IndexedCorpus corpus(directory / "negative");
  EXPECT_THAT(error_of([&] { corpus.read(2); }), HasSubstr("document 2 has token -1 at position 2"));
}

}  // namespace
}  // namespace sluice::corpus
