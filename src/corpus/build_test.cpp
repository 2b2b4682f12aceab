#include "corpus/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/indexed.h"
#include "corpus/load_tokenizer.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void save_text(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> documents_of(const std::filesystem::path& path, const DocumentOptions& options,
                                      DocumentCounts& counts, const InputOptions& finding = {}) {
  std::vector<std::string> documents;
  for (const InputFile& file : find_inputs({path}, finding).files) {
    for_each_document(file, options, counts, [&](std::string_view whole) { documents.emplace_back(whole); });
  }
  return documents;
}

TEST(Documents, DirectoriesAreReadInOrderOfPath) {
  const TemporaryDirectory directory;
  save_text(directory / "src/b.py", "b");
  save_text(directory / "src/a/z.py", "z");
  save_text(directory / "src/a.md", "a");
  save_text(directory / "src/skipped.bin", "no wanted ending");
  save_text(directory / "src/tests/t.py", "excluded folder");
  save_text(directory / "src/.git/g.py", "hidden folder");
  save_text(directory / "src/binary.py", std::string("x\0y", 3));
  save_text(directory / "src/latin.py", "\xE9");
  save_text(directory / "src/empty.py", "");
  DocumentCounts counts;
  EXPECT_THAT(documents_of(directory / "src", {}, counts), ElementsAre("a", "z", "b"));
  EXPECT_EQ(counts.binary_files, 2);
  EXPECT_EQ(counts.empty_documents, 1);
  EXPECT_EQ(counts.documents, 3);
  EXPECT_EQ(counts.bytes, 3);
  InputOptions finding;
  finding.exclude = {"a*", "?atin.py", "binary.*"};
  finding.suffixes = {".py"};
  EXPECT_THAT(documents_of(directory / "src", {}, counts, finding),
              ElementsAre("hidden folder", "b", "excluded folder"));
}

TEST(Documents, NamedFilesThatAreNotUtf8AreRefusedAndCounted) {
  const TemporaryDirectory directory;
  save_text(directory / "latin", "\xE9t\xE9");
  save_text(directory / "nul", std::string("x\0y", 3));
  DocumentCounts counts;
  EXPECT_TRUE(documents_of(directory / "latin", {}, counts).empty());
  EXPECT_EQ(counts.refused.count, 1);
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
  save_text(directory / "data.jsonl",
            "{\"text\": \"one\\ntwo\"}\n\n{\"id\": 3, \"text\": \"\\u00e9\"}\r\n{\"text\": \"\"}");
  DocumentCounts counts;
  EXPECT_THAT(documents_of(directory / "data.jsonl", {}, counts), ElementsAre("one\ntwo", "\u00e9"));
  EXPECT_EQ(counts.empty_documents, 1);
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
    source_ = base::read_file(std::filesystem::path(SLUICE_SOURCE_DIR) / "src/corpus/build_test.cpp");
    save_text(directory_ / "in/build_test.cpp", source_);
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
  EXPECT_EQ(result.encoded.changed_documents, 0);
  EXPECT_EQ(result.vocabulary, 600);
  EXPECT_EQ(result.lengths.tokens(), corpus.tokens());
}

TEST_F(Build, LengthsFileTellsLengthsAndEntropy) {
  const BuildResult result = build_corpus(options_);
  const base::Json json = base::read_json(directory_ / "out/lengths.json");
  EXPECT_EQ(json["schema"], "sluice.lengths/1");
  EXPECT_EQ(json["count"], result.encoded.counts.documents);
  EXPECT_DOUBLE_EQ(json["unigram_entropy_nats"], result.unigram_entropy_nats());
  EXPECT_EQ(lengths_from_json(json, "lengths").counts(), result.lengths.counts());
  // The entropy once more, from the corpus.
  const IndexedCorpus corpus(directory_ / "out/corpus");
  std::vector<int64_t> counts(600);
  for (int64_t i = 0; i < corpus.documents(); ++i) {
    for (const int32_t token : corpus.read(i)) ++counts[static_cast<size_t>(token)];
  }
  EXPECT_DOUBLE_EQ(unigram_entropy_nats(counts), result.unigram_entropy_nats());
  EXPECT_GT(result.unigram_entropy_nats(), 3.0);
}

TEST_F(Build, SameInputsGiveTheSameBytes) {
  build_corpus(options_);
  const std::string tokens = base::read_file(directory_ / "out/corpus.bin");
  options_.directory = directory_ / "again";
  options_.threads = 3;
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

// A clock that starts with the first report measures the whole stage.
TEST_F(Build, ProgressReachesFromTheBeginningToTheEndOfEachStage) {
  std::map<std::string, std::pair<int64_t, int64_t>> stages;
  std::map<std::string, int64_t> first;
  options_.on_progress = [&](std::string_view stage, int64_t done, int64_t total) {
    stages[std::string(stage)] = {done, total};
    first.try_emplace(std::string(stage), done);
  };
  build_corpus(options_);
  EXPECT_EQ(stages.size(), 3);
  for (const auto& [stage, progress] : stages) EXPECT_EQ(progress.first, progress.second) << stage;
  EXPECT_EQ(first["encode"], 0);
  EXPECT_EQ(first["train tokenizer"], 0);
}

// Ends a build as a full disk would, once `bytes` are encoded.
void interrupt(BuildOptions options, int64_t bytes) {
  options.on_progress = [bytes](std::string_view stage, int64_t done, int64_t) {
    if (stage == "encode" && done >= bytes) throw base::RunError("the disk is full");
  };
  EXPECT_THROW(build_corpus(options), base::RunError);
}

class LongBuild : public Build {
 protected:
  LongBuild() {
    std::string lines;
    for (int i = 0; i < 9'000; ++i) {
      lines += base::text("{\"text\": \"line ", i, " with ", i * i, " things\"}\n");
      if (i % 1'000 == 0) lines += "{\"text\": \"\"}\n";  // counted, not written
    }
    save_text(directory_ / "in/a.jsonl", lines);
    save_text(directory_ / "in/z.jsonl", lines);
    options_.save_bytes = 1;
    options_.threads = 2;
  }
};

TEST_F(LongBuild, InterruptedBuildContinuesToTheSameBytes) {
  const BuildResult whole = build_corpus(options_);
  EXPECT_EQ(whole.continued_documents, 0);
  EXPECT_EQ(whole.encoded.counts.empty_documents, 18);
  BuildOptions second = options_;
  second.directory = directory_ / "second";
  int64_t continued = 0;
  for (const int64_t bytes : {200'000, 300'000, 700'000}) {
    interrupt(second, bytes);
    EXPECT_FALSE(std::filesystem::exists(directory_ / "second/corpus.idx"));
  }
  EXPECT_TRUE(std::filesystem::exists(directory_ / "second/corpus.unfinished"));
  second.on_progress = [&](std::string_view stage, int64_t, int64_t) { EXPECT_EQ(stage, "encode"); };
  const BuildResult result = build_corpus(second);
  continued = result.continued_documents;
  EXPECT_GT(continued, 4'096);
  EXPECT_LT(continued, whole.encoded.counts.documents);
  EXPECT_EQ(result.encoded.counts.documents, whole.encoded.counts.documents);
  EXPECT_EQ(result.encoded.counts.empty_documents, whole.encoded.counts.empty_documents);
  EXPECT_EQ(result.encoded.counts.files, whole.encoded.counts.files);
  EXPECT_EQ(result.encoded.counts.bytes, whole.encoded.counts.bytes);
  for (const char* file : {"corpus.bin", "corpus.idx", "tokenizer.model", "lengths.json"}) {
    EXPECT_EQ(base::read_file(directory_ / "second" / file), base::read_file(directory_ / "out" / file))
        << file;
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "second/corpus.unfinished"));
}

TEST_F(LongBuild, ADamagedStateBeginsAnew) {
  const BuildResult whole = build_corpus(options_);
  BuildOptions second = options_;
  second.directory = directory_ / "second";
  const std::filesystem::path path = directory_ / "second/corpus.unfinished/state.json";
  for (const std::string number : {"read_documents", "file", "documents", "fingerprint"}) {
    interrupt(second, 500'000);
    std::string state = base::read_file(path);
    const size_t digit = state.find_first_of("0123456789", state.find('"' + number + '"'));
    state[digit] = state[digit] == '7' ? '8' : '7';
    save_text(path, state);
    EXPECT_EQ(build_corpus(second).continued_documents, 0) << number;
    EXPECT_EQ(base::read_file(directory_ / "second/corpus.bin"),
              base::read_file(directory_ / "out/corpus.bin"));
  }
}

TEST_F(LongBuild, OtherInputsOrOptionsBeginAnew) {
  interrupt(options_, 500'000);
  options_.documents.delimiter = "";
  EXPECT_EQ(build_corpus(options_).continued_documents, 0);
  interrupt(options_, 500'000);
  save_text(directory_ / "in/a.jsonl", "{\"text\": \"changed\"}\n");
  const BuildResult result = build_corpus(options_);
  EXPECT_EQ(result.continued_documents, 0);
  const auto tokenizer = load_tokenizer(directory_ / "out");
  std::vector<int32_t> first = IndexedCorpus(directory_ / "out/corpus").read(0);
  first.pop_back();
  EXPECT_EQ(tokenizer->decode(first), "changed");
}

TEST_F(LongBuild, SecondBuildIntoTheFolderIsRefused) {
  options_.on_progress = [&](std::string_view stage, int64_t, int64_t) {
    if (stage != "encode") return;
    options_.on_progress = nullptr;
    BuildOptions other = options_;
    EXPECT_THROW(build_corpus(other), base::InputError);
  };
  build_corpus(options_);
}

TEST_F(LongBuild, StrictBuildsEndAtTheFirstFaultInOrderAndLeaveNothing) {
  options_.directory = directory_ / "none";
  options_.documents.strict = true;
  save_text(directory_ / "in/b.jsonl", "{\"text\": \"good\"}\n{\"text\": 5}\n{\"text\": 6\n");
  try {
    build_corpus(options_);
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("b.jsonl:2"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "none"));
}

TEST_F(LongBuild, BadLinesAreLeftOutAndTheFirstOnesKept) {
  std::string lines;
  for (int i = 1; i <= 9'000; ++i)
    lines += i % 3'000 == 7 ? "{\"text\": nothing}\n" : base::text("{\"text\": \"line ", i, "\"}\n");
  save_text(directory_ / "in/b.jsonl", lines + "{\"text\": \"cut");
  const BuildResult whole = build_corpus(options_);
  EXPECT_EQ(whole.encoded.counts.refused.count, 4);
  EXPECT_THAT(whole.encoded.counts.refused.first,
              ElementsAre(HasSubstr("b.jsonl:7 "), HasSubstr("b.jsonl:3007 "), HasSubstr("b.jsonl:6007 ")));
  BuildOptions second = options_;
  second.directory = directory_ / "second";
  interrupt(second, 700'000);
  const BuildResult result = build_corpus(second);
  EXPECT_GT(result.continued_documents, 0);
  EXPECT_EQ(result.encoded.counts.refused.count, 4);
  EXPECT_EQ(result.encoded.counts.refused.first, whole.encoded.counts.refused.first);
}

TEST_F(Build, TokensAroundDocumentsAreTheTokenizersOrAsTold) {
  build_corpus(options_);
  options_.train_vocabulary = 0;
  const auto first_document = [&](const std::string& folder) {
    options_.directory = directory_ / folder;
    build_corpus(options_);
    return IndexedCorpus(directory_ / folder / "corpus").read(0);
  };
  save_text(directory_ / "folder/tokenizer.model", base::read_file(directory_ / "out/tokenizer.model"));
  save_text(directory_ / "folder/tokenizer_config.json",
            R"({"add_bos_token": true, "bos_token": {"content": "e"}, "eos_token": "<unk>"})");
  options_.tokenizer_file = directory_ / "folder/tokenizer.model";
  options_.tokenizer.begin_token = options_.tokenizer.end_token = kNoToken;
  const std::vector<int32_t> bare = first_document("bare");
  options_.tokenizer.begin_token = options_.tokenizer.end_token = "";
  EXPECT_THROW(first_document("unknown"), base::InputError);  // a model's unknown piece ends nothing
  save_text(directory_ / "folder/tokenizer_config.json",
            R"({"add_bos_token": true, "bos_token": {"content": "e"}, "eos_token": "</s>"})");
  options_.tokenizer_file = directory_ / "folder";
  std::vector<int32_t> dressed = first_document("dressed");
  EXPECT_EQ(dressed.size(), bare.size() + 2);
  EXPECT_EQ(dressed.back(), 1);
  EXPECT_TRUE(std::equal(bare.begin(), bare.end(), dressed.begin() + 1));
  EXPECT_EQ(base::read_json(directory_ / "dressed/lengths.json")["begin_id"], dressed.front());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "dressed/tokenizer_config.json"));
}

TEST_F(Build, NothingToEncodeLeavesNoCorpus) {
  build_corpus(options_);
  save_text(directory_ / "latin.txt", "\xE9");
  options_.inputs = {directory_ / "latin.txt"};
  options_.train_vocabulary = 0;
  options_.tokenizer_file = directory_ / "out/tokenizer.model";
  options_.directory = directory_ / "none";
  EXPECT_THROW(build_corpus(options_), base::InputError);
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "none"));
}

}  // namespace
}  // namespace sluice::corpus
