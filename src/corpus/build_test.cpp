#include "corpus/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "corpus/indexed.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void spit(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> documents_of(const std::filesystem::path& path, const DocumentOptions& options,
                                      DocumentCounts& counts) {
  std::vector<std::string> documents;
  for (const InputFile& file : find_inputs({path}, options).files) {
    for_each_document(file, options, counts, [&](std::string_view whole) { documents.emplace_back(whole); });
  }
  return documents;
}

TEST(Documents, DirectoriesAreReadInOrderOfPath) {
  const TemporaryDirectory directory;
  spit(directory / "src/b.py", "b");
  spit(directory / "src/a/z.py", "z");
  spit(directory / "src/a.md", "a");
  spit(directory / "src/skipped.bin", "no wanted ending");
  spit(directory / "src/tests/t.py", "excluded folder");
  spit(directory / "src/.git/g.py", "hidden folder");
  spit(directory / "src/binary.py", std::string("x\0y", 3));
  spit(directory / "src/latin.py", "\xE9");
  spit(directory / "src/empty.py", "");
  DocumentCounts counts;
  EXPECT_THAT(documents_of(directory / "src", {}, counts), ElementsAre("a", "z", "b"));
  EXPECT_EQ(counts.binary_files, 2);
  EXPECT_EQ(counts.empty_documents, 1);
  EXPECT_EQ(counts.documents, 3);
  EXPECT_EQ(counts.bytes, 3);
  DocumentOptions options;
  options.exclude = {"a*", "?atin.py", "binary.*"};
  options.suffixes = {".py"};
  EXPECT_THAT(documents_of(directory / "src", options, counts),
              ElementsAre("hidden folder", "b", "excluded folder"));
}

TEST(Documents, NamedFilesThatAreNotUtf8AreRefusedAndCounted) {
  const TemporaryDirectory directory;
  spit(directory / "latin", "\xE9t\xE9");
  spit(directory / "nul", std::string("x\0y", 3));
  DocumentCounts counts;
  EXPECT_TRUE(documents_of(directory / "latin", {}, counts).empty());
  EXPECT_EQ(counts.refused_documents, 1);
  EXPECT_THAT(documents_of(directory / "nul", {}, counts), ElementsAre(std::string("x\0y", 3)));
}

TEST(Documents, CutPartsKeepTheirDelimiterAndLoseNothing) {
  EXPECT_THAT(cut_at("a\n\n\n\nb\n\n\n", "\n\n\n"), ElementsAre("a\n\n\n", "\nb\n\n\n"));
  EXPECT_THAT(cut_at("||x|", "|"), ElementsAre("|", "|", "x|"));
  EXPECT_THAT(cut_at("abc", ""), ElementsAre("abc"));
  EXPECT_TRUE(cut_at("", "|").empty());
}

TEST(Documents, JsonLinesGiveOneDocumentALine) {
  const TemporaryDirectory directory;
  spit(directory / "data.jsonl",
       "{\"text\": \"one\\ntwo\"}\n\n{\"id\": 3, \"text\": \"\\u00e9\"}\r\n{\"text\": \"\"}");
  DocumentCounts counts;
  EXPECT_THAT(documents_of(directory / "data.jsonl", {}, counts), ElementsAre("one\ntwo", "\u00e9"));
  EXPECT_EQ(counts.empty_documents, 1);
}

TEST(Documents, BadJsonLinesAreNamed) {
  const TemporaryDirectory directory;
  const auto error_of = [&](const std::string& bytes) -> std::string {
    spit(directory / "bad.jsonl", bytes);
    DocumentCounts counts;
    try {
      documents_of(directory / "bad.jsonl", {}, counts);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of("{\"text\": \"ok\"}\n{\"text\": "), HasSubstr("bad.jsonl:2"));
  EXPECT_THAT(error_of("{\"body\": \"x\"}"), HasSubstr("bad.jsonl:1: there is no text under 'text'"));
  EXPECT_THAT(error_of("{\"text\": 5}"), HasSubstr("--text-key"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("bad.jsonl:1"));
}

TEST(Documents, InputsThatGiveNothingAreRefused) {
  const TemporaryDirectory directory;
  EXPECT_THROW(find_inputs({}, {}), base::InputError);
  EXPECT_THROW(find_inputs({directory.path()}, {}), base::InputError);
  EXPECT_THROW(find_inputs({directory / "absent"}, {}), base::InputError);
}

TEST(Documents, GlobsMatchNames) {
  EXPECT_TRUE(matches_glob("tests", "test*"));
  EXPECT_TRUE(matches_glob("a.b.c", "*.?"));
  EXPECT_TRUE(matches_glob("", "*"));
  EXPECT_FALSE(matches_glob("attests", "test*"));
  EXPECT_FALSE(matches_glob("ab", "?"));
}

class Build : public testing::Test {
 protected:
  Build() {
    source_ = base::read_file(__FILE__);
    spit(directory_ / "in/build_test.cpp", source_);
    options_.inputs = {directory_ / "in"};
    options_.directory = directory_ / "out";
    options_.train_vocabulary = 600;
    options_.documents.delimiter = "\n}\n\n";
  }
  TemporaryDirectory directory_;
  std::string source_;
  BuildOptions options_;
};

TEST_F(Build, CorpusDecodesToItsInputs) {
  const BuildResult result = build_corpus(options_);
  const auto tokenizer = load_tokenizer(directory_ / "out/tokenizer.model");
  const IndexedCorpus corpus(directory_ / "out/corpus", {.vocabulary = tokenizer->vocabulary()});
  EXPECT_GT(corpus.documents(), 10);
  std::string joined;
  for (int64_t i = 0; i < corpus.documents(); ++i) {
    std::vector<int32_t> tokens = corpus.read(i);
    ASSERT_FALSE(tokens.empty());
    EXPECT_EQ(tokens.back(), tokenizer->end_id());
    tokens.pop_back();
    joined += tokenizer->decode(tokens);
  }
  EXPECT_EQ(joined, source_);
  EXPECT_EQ(result.changed_documents, 0);
  EXPECT_EQ(result.vocabulary, 600);
  EXPECT_EQ(result.lengths.tokens(), corpus.tokens());
}

TEST_F(Build, LengthsFileTellsLengthsAndEntropy) {
  const BuildResult result = build_corpus(options_);
  const base::Json json = base::read_json(directory_ / "out/lengths.json");
  EXPECT_EQ(json["schema"], "sluice.lengths/1");
  EXPECT_EQ(json["count"], result.counts.documents);
  EXPECT_DOUBLE_EQ(json["unigram_entropy_nats"], result.unigram_entropy_nats);
  EXPECT_EQ(lengths_from_json(json, "lengths").counts(), result.lengths.counts());
  // The entropy once more, from the corpus.
  const IndexedCorpus corpus(directory_ / "out/corpus");
  std::vector<int64_t> counts(600);
  for (int64_t i = 0; i < corpus.documents(); ++i) {
    for (const int32_t token : corpus.read(i)) ++counts[static_cast<size_t>(token)];
  }
  EXPECT_DOUBLE_EQ(unigram_entropy_nats(counts), result.unigram_entropy_nats);
  EXPECT_GT(result.unigram_entropy_nats, 3.0);
}

TEST_F(Build, SameInputsGiveTheSameBytes) {
  build_corpus(options_);
  const std::string tokens = base::read_file(directory_ / "out/corpus.bin");
  options_.directory = directory_ / "again";
  options_.tokenizer.threads = 3;
  build_corpus(options_);
  EXPECT_EQ(base::read_file(directory_ / "again/corpus.bin"), tokens);
}

TEST_F(Build, GivenTokenizerIsUsedAndCopied) {
  build_corpus(options_);
  BuildOptions second = options_;
  second.directory = directory_ / "second";
  second.train_vocabulary = 0;
  second.tokenizer_file = directory_ / "out/tokenizer.model";
  build_corpus(second);
  for (const char* file : {"corpus.bin", "corpus.idx", "tokenizer.model", "lengths.json"}) {
    EXPECT_EQ(base::read_file(directory_ / "second" / file), base::read_file(directory_ / "out" / file))
        << file;
  }
}

TEST_F(Build, ProgressReachesTheEndOfEachStage) {
  std::map<std::string, std::pair<int64_t, int64_t>> stages;
  options_.on_progress = [&](std::string_view stage, int64_t done, int64_t total) {
    stages[std::string(stage)] = {done, total};
  };
  build_corpus(options_);
  EXPECT_EQ(stages.size(), 3);
  for (const auto& [stage, progress] : stages) EXPECT_EQ(progress.first, progress.second) << stage;
}

TEST_F(Build, NothingToEncodeLeavesNoCorpus) {
  build_corpus(options_);
  spit(directory_ / "latin.txt", "\xE9");
  options_.inputs = {directory_ / "latin.txt"};
  options_.train_vocabulary = 0;
  options_.tokenizer_file = directory_ / "out/tokenizer.model";
  options_.directory = directory_ / "none";
  EXPECT_THROW(build_corpus(options_), base::InputError);
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "none"));
}

}  // namespace
}  // namespace sluice::corpus
