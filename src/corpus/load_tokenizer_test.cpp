#include "corpus/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/utf8.h"
#include "corpus/load_tokenizer.h"
#include "corpus/sentencepiece_tokenizer.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kScripts = std::filesystem::path(SLUICE_SOURCE_DIR) / "tools";

std::string model_of_this_file() {
  SentencePieceTrainer trainer(1'000'000);
  trainer.add(
      base::read_file(std::filesystem::path(SLUICE_SOURCE_DIR) / "src/corpus/load_tokenizer_test.cpp"));
  return trainer.train(512);
}

const std::string& trained_model() {
  static const std::string model = model_of_this_file();
  return model;
}

SentencePieceTokenizer trained() { return {trained_model(), "trained", {.threads = 2}}; }

std::string utf8_of(uint32_t point) {
  const auto tail = [point](int shift) { return static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | (point >> 6)), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | (point >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (point >> 18)), tail(12), tail(6), tail(0)};
}

// White space, control characters, SentencePiece's own symbols, and anything else in Unicode.
std::string random_text(base::Rng& rng) {
  const std::vector<std::string> favourites = {
      " ",      "  ",     "\t",    "\n",   "\r\n",   "\n\n", std::string(1, '\0'),
      "\u2581", "\u2585", "<unk>", "</s>", "<0x0A>", "word", "\u00a0"};
  std::string out;
  for (uint64_t i = rng.below(60); i > 0; --i) {
    const auto point = static_cast<uint32_t>(rng.below(rng.below(2) == 0 ? 0x300 : 0x110000));
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    out += surrogate || rng.below(2) == 0 ? favourites[rng.below(favourites.size())] : utf8_of(point);
  }
  return out;
}

TEST(Tokenizer, GivesRandomTextBackUnchanged) {
  const SentencePieceTokenizer tokenizer = trained();
  base::Rng rng(11);
  std::vector<std::string> texts(3'000);
  for (std::string& each : texts) each = random_text(rng);
  const std::vector<std::vector<int32_t>> ids = tokenizer.encode_all(texts);
  EXPECT_EQ(tokenizer.decode_all(ids), texts);
  for (const auto& each : ids) {
    for (const int32_t id : each) {
      EXPECT_GE(id, 2);  // neither the unknown piece nor the end
      EXPECT_LT(id, tokenizer.vocabulary());
    }
  }
}

TEST(Tokenizer, NoPieceIsAddedBehindAText) {
  const SentencePieceTokenizer tokenizer(trained_model(), "trained",
                                         {.end_token = kAddedToken, .needs_end = true});
  EXPECT_EQ(tokenizer.end_id(), -1);
  EXPECT_EQ(with_ends(tokenizer, {5, 6}), (std::vector<int32_t>{5, 6}));
}

TEST(Tokenizer, KeepsWhiteSpaceAndItsOwnSymbols) {
  const SentencePieceTokenizer tokenizer = trained();
  for (const std::string text : {"", " ", "  leading", "trailing  ", "\tif x:\r\n\t\treturn\n\n\n",
                                 "a\u2581b", "\u2581", "\ufeffmark"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, RowsOfAModelWithoutATokenAreFound) {
  const SentencePieceTokenizer tokenizer = trained();
  using Rows = std::vector<base::Interval>;
  EXPECT_EQ(rows_without_token(tokenizer, 500, {}), Rows{});
  EXPECT_EQ(rows_without_token(tokenizer, 600, {}), (Rows{{512, 600}}));
  const std::vector<int64_t> ends = {3, 512, 550, 599, 700};
  EXPECT_EQ(rows_without_token(tokenizer, 600, ends), (Rows{{513, 550}, {551, 599}}));
  EXPECT_EQ(tokenizer.decode({600, -1}), "");  // ids outside the vocabulary have no text
}

TEST(Tokenizer, TrainingTwiceGivesTheSameModel) { EXPECT_EQ(model_of_this_file(), trained_model()); }

TEST(Tokenizer, TrainedVocabularyHasTheSizeAskedFor) {
  EXPECT_EQ(trained().vocabulary(), 512);
  EXPECT_EQ(trained().end_id(), 1);
  EXPECT_LT(trained().encode("        return tokenizer").size(), 12u);  // runs of blanks are pieces
}

TEST(Tokenizer, TrainingReadsNoMoreThanItsSample) {
  SentencePieceTrainer trainer(100);
  trainer.add(std::string(90, 'a') + "\n" + std::string(90, 'b') + "\n" + std::string(90, 'c'));
  EXPECT_TRUE(trainer.full());
  EXPECT_EQ(trainer.taken_bytes(), 182);
}

TEST(Tokenizer, UnsuitableVocabulariesAreRefused) {
  SentencePieceTrainer trainer(1'000);
  EXPECT_THROW(trainer.train(512), base::InputError);  // no text
  trainer.add("some words");
  const auto advice = [&](int64_t vocabulary) -> std::string {
    try {
      trainer.train(vocabulary);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  };
  // One range, whatever size was asked for.
  const std::string high = advice(50'000);
  const size_t range = high.find("give --train-tokenizer ");
  ASSERT_NE(range, std::string::npos) << high;
  EXPECT_EQ(advice(600).substr(advice(600).find("give --")), high.substr(range));
  const std::string least = high.substr(range, high.find(" to ", range) - range);
  EXPECT_THAT(advice(200), HasSubstr(least));
  EXPECT_THAT(advice(1), HasSubstr(least + " or more"));
}

TEST(Tokenizer, LiesBesideACorpusThatIsNamedByItsFolder) {
  const TemporaryDirectory directory;
  base::make_directories(directory / "code");
  base::write_file_atomically(directory / "code" / "corpus.idx", "");
  base::write_file_atomically(directory / "code" / "tokenizer.model", trained_model());
  for (const char* told : {"code", "code/", "code/corpus", "code/corpus.idx"})
    EXPECT_EQ(tokenizer_beside(directory / told), directory / "code" / "tokenizer.model") << told;
  EXPECT_EQ(tokenizer_beside(directory / "code" / "other" / "corpus"), "");
}

TEST(Tokenizer, FilesThatAreNoModelsAreRefused) {
  const TemporaryDirectory directory;
  base::write_file_atomically(directory / "tokenizer.model", "nonsense");
  base::write_file_atomically(directory / "empty.model", "");
  EXPECT_THROW(load_tokenizer(directory / "tokenizer.model"), base::InputError);
  EXPECT_THROW(load_tokenizer(directory / "empty.model"), base::InputError);
  EXPECT_THROW(load_tokenizer(directory / "absent.model"), base::InputError);
  base::write_file_atomically(directory / "good.model", trained_model());
  EXPECT_EQ(load_tokenizer(directory / "good.model")->vocabulary(), 512);
  EXPECT_THROW(load_tokenizer(directory / "good.model", {.end_token = "<absent>"}), base::InputError);
}

// A package `tokenizers` that maps each character to its code point and ends documents with 7.
constexpr const char* kStubPackage = R"(
class Encoding:
    def __init__(self, ids):
        self.ids = ids
class Tokenizer:
    @staticmethod
    def from_file(path):
        if open(path).read() != "{}":
            raise ValueError("broken file")
        return Tokenizer()
    def no_truncation(self): pass
    def no_padding(self): pass
    def token_to_id(self, token): return {"</s>": 7, "<begin>": 8}.get(token)
    def get_vocab(self, with_added_tokens): return {"x": 0x10FFFF}
    def encode_batch(self, texts, add_special_tokens):
        import os, pathlib
        if "die" in texts:
            os._exit(3)
        once = pathlib.Path(__file__).with_name("died")
        if "die once" in texts and not once.exists():
            once.touch()
            os._exit(3)
        marks = pathlib.Path(__file__).with_name("marks").exists() and add_special_tokens
        return [Encoding([8] * marks + [ord(c) for c in t] + [7] * marks) for t in texts]
    def decode_batch(self, ids, skip_special_tokens): return ["".join(map(chr, i)).replace("lost z", "") for i in ids]
)";

class HuggingFace : public testing::Test {
 protected:
  HuggingFace() {
    base::write_file_atomically(directory_ / "tokenizers.py", kStubPackage);
    base::write_file_atomically(directory_ / "tokenizer.json", "{}");
    base::write_file_atomically(directory_ / "broken.json", "[]");
    ::setenv("PYTHONPATH", directory_.path().c_str(), 1);
  }
  ~HuggingFace() override { ::unsetenv("PYTHONPATH"); }

  std::string error_of(const std::string& file, const TokenizerOptions& options) {
    try {
      load_tokenizer(directory_ / file, options);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory directory_;
  TokenizerOptions options_{.tools = {.interpreter = "/usr/bin/python3", .scripts = kScripts}};
};

TEST_F(HuggingFace, EncodesAndDecodesInTheChild) {
  const auto tokenizer = load_tokenizer(directory_ / "tokenizer.json", options_);
  EXPECT_EQ(tokenizer->vocabulary(), 0x110000);
  EXPECT_EQ(tokenizer->end_id(), 7);
  EXPECT_THAT(tokenizer->encode("a\n\u20ac"), testing::ElementsAre('a', '\n', 0x20AC));
  std::vector<std::string> texts = {"", std::string(300'000, 'x'), "\t \u2581", std::string(1, '\0')};
  EXPECT_EQ(tokenizer->decode_all(tokenizer->encode_all(texts)), texts);
  EXPECT_TRUE(tokenizer->encode_all({}).empty());
}

TEST_F(HuggingFace, SaysWhatDoesNotDecodeToItself) {
  const auto tokenizer = load_tokenizer(directory_ / "tokenizer.json", options_);
  const std::vector<std::string> texts = {"a", "lost z", "", "\u20ac"};
  const std::vector<EncodedText> checked = tokenizer->encode_checked(texts);
  ASSERT_EQ(checked.size(), 4u);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(checked[i].ids, tokenizer->encode(texts[i]));
    EXPECT_EQ(checked[i].changed, i == 1) << texts[i];
  }
}

TEST_F(HuggingFace, SeveralCallersHaveAChildEach) {
  options_.callers = 3;
  const auto tokenizer = load_tokenizer(directory_.path(), options_);  // loaded from the folder
  std::vector<std::jthread> callers;
  for (char c = 'a'; c < 'g'; ++c) {
    callers.emplace_back([&, c] {
      for (size_t i = 0; i < 20; ++i)
        EXPECT_EQ(tokenizer->encode(std::string(i, c)), std::vector<int32_t>(i, c));
    });
  }
}

TEST_F(HuggingFace, BeginsAndEndsAsConfiguredOrAsTold) {
  const auto ends = [&](const std::string& config, const std::string& begin, const std::string& end) {
    if (!config.empty()) base::write_file_atomically(directory_ / "tokenizer_config.json", config);
    TokenizerOptions told = options_;
    told.begin_token = begin;
    told.end_token = end;
    const auto tokenizer = load_tokenizer(directory_ / "tokenizer.json", told);
    return std::pair(tokenizer->begin_id(), tokenizer->end_id());
  };
  EXPECT_EQ(ends("", "", ""), std::pair(-1, 7));
  EXPECT_EQ(ends("", "", kNoToken), std::pair(-1, -1));
  EXPECT_EQ(ends("", "<begin>", "<begin>"), std::pair(8, 8));
  const std::string config =
      R"({"add_bos_token": true, "bos_token": "<begin>", "eos_token": {"content": "<begin>"}})";
  EXPECT_EQ(ends(config, "", ""), std::pair(8, 8));
  EXPECT_EQ(ends(config, kNoToken, "</s>"), std::pair(-1, 7));
}

TEST_F(HuggingFace, WhatIsAddedToATextMayEndDocuments) {
  options_.end_token = kAddedToken;
  options_.needs_end = true;
  EXPECT_EQ(load_tokenizer(directory_ / "tokenizer.json", options_)->end_id(), -1)
      << "it knows an end, but adds none";
  base::write_file_atomically(directory_ / "marks", "");
  const auto tokenizer = load_tokenizer(directory_ / "tokenizer.json", options_);
  EXPECT_EQ(std::pair(tokenizer->begin_id(), tokenizer->end_id()), std::pair(8, 7));
  using testing::ElementsAre;
  EXPECT_THAT(with_ends(*tokenizer, tokenizer->encode("ab")), ElementsAre(8, 'a', 'b', 7));
  EXPECT_THAT(with_ends(*tokenizer, tokenizer->encode("ab"), 3), ElementsAre(8, 'a', 7));
  EXPECT_THAT(with_ends(*tokenizer, tokenizer->encode("ab"), 1), ElementsAre(7));
  EXPECT_THAT(with_ends(*tokenizer, {}), ElementsAre(8, 7));
}

TEST_F(HuggingFace, FaultsAreNamedWithTheWayOut) {
  EXPECT_THAT(error_of("broken.json", options_),
              HasSubstr("not a Hugging Face tokenizer: there is no model in it"));
  EXPECT_THAT(error_of("absent.json", options_), HasSubstr("no such file"));
  TokenizerOptions other = options_;
  other.end_token = "<bye>";
  EXPECT_THAT(error_of("tokenizer.json", other), HasSubstr("no token '<bye>'"));
  other = options_;
  other.tools.interpreter = "/nonexistent/python";
  EXPECT_THAT(error_of("tokenizer.json", other), HasSubstr("cannot start /nonexistent/python"));
  other = options_;
  other.tools.scripts = "/nonexistent";
  EXPECT_THAT(error_of("tokenizer.json", other), HasSubstr("cannot read /nonexistent/hf_tokenize.py"));
  base::write_file_atomically(directory_ / "tokenizers.py", "raise ImportError('libfoo.so: no such file')");
  EXPECT_THAT(error_of("tokenizer.json", options_),
              HasSubstr("cannot import `tokenizers`: ImportError: libfoo.so: no such file"));
  ::unsetenv("PYTHONPATH");
  EXPECT_THAT(error_of("tokenizer.json", options_), HasSubstr("has no package `tokenizers`"));
}

TEST_F(HuggingFace, AChildThatEndsIsStartedAnewAndAskedOnceMore) {
  const auto tokenizer = load_tokenizer(directory_ / "tokenizer.json", options_);
  EXPECT_EQ(tokenizer->encode("die once").size(), 8u);
  EXPECT_THROW(tokenizer->encode("die"), base::RunError);
  EXPECT_EQ(tokenizer->encode("again").size(), 5u);
}

TEST_F(HuggingFace, TheFirstPythonThatServesIsTaken) {
  options_.tools.interpreter.clear();
  options_.tools.usual = {"/nonexistent/python", "/bin/false", "/usr/bin/python3"};
  EXPECT_EQ(load_tokenizer(directory_ / "tokenizer.json", options_)->end_id(), 7);
  options_.tools.usual.pop_back();
  const std::string fault = error_of("tokenizer.json", options_);
  EXPECT_THAT(fault, HasSubstr("cannot start /nonexistent/python: No such file or directory; /bin/false: "));
  EXPECT_THAT(fault, HasSubstr("name another Python with --python"));
}

// Files named like modules, output of modules, and a wrong home of Python change nothing.
TEST_F(HuggingFace, SurroundingsOfTheChildChangeNothing) {
  for (const char* name : {"json.py", "re.py", "chat_template.py", "sluice_channel.py"})
    base::write_file_atomically(directory_ / name, "raise RuntimeError('another module')");
  base::write_file_atomically(directory_ / "sitecustomize.py", "raise RuntimeError('customised')");
  base::write_file_atomically(
      directory_ / "tokenizers.py",
      std::string(
          "import os, sys\nprint('KKKKKKKK')\nos.write(1, b'K' * 64)\nassert not sys.stdin.read()\n") +
          kStubPackage);
  ::setenv("PYTHONHOME", "/nonexistent", 1);
  ::setenv("PYTHONSAFEPATH", "1", 1);
  const auto tokenizer = load_tokenizer(directory_ / "tokenizer.json", options_);
  EXPECT_EQ(tokenizer->encode("abc"), (std::vector<int32_t>{'a', 'b', 'c'}));
  ::unsetenv("PYTHONHOME");
  ::unsetenv("PYTHONSAFEPATH");
}

TEST_F(HuggingFace, AnEndIsAskedForWhereOneIsNeeded) {
  std::string package = kStubPackage;
  package.replace(package.find("\"</s>\": 7"), 9, "\"</no>\": 7");
  base::write_file_atomically(directory_ / "tokenizers.py", package);
  EXPECT_EQ(load_tokenizer(directory_ / "tokenizer.json", options_)->end_id(), -1);
  options_.needs_end = true;
  EXPECT_THAT(error_of("tokenizer.json", options_),
              HasSubstr("no known token to end documents with: name one of its tokens, or 'none'"));
  options_.end_token = kNoToken;
  EXPECT_EQ(load_tokenizer(directory_ / "tokenizer.json", options_)->end_id(), -1);
}

TEST(Utf8, AcceptsExactlyWellFormedText) {
  for (const char* good : {"", "a", "\u00e9", "\u20ac", "\U0010FFFF", "\ud7ff", "\ue000"})
    EXPECT_TRUE(base::is_utf8(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xFF"}) {
    EXPECT_FALSE(base::is_utf8(bad));
  }
  EXPECT_EQ(base::valid_utf8_prefix("ab\xE2\x82"), 2u);
}

TEST(Utf8, EncodedCodePointsAreWellFormed) {
  for (uint32_t point = 0; point < 0x110000; ++point) {
    EXPECT_EQ(base::is_utf8(utf8_of(point)), point < 0xD800 || point > 0xDFFF) << point;
  }
}

TEST(Utf8, CutsBetweenCharacters) {
  EXPECT_EQ(base::utf8_cut("abc", 4), 3u);
  EXPECT_EQ(base::utf8_cut("ab\u20ac\u20ac", 4), 2u);
  EXPECT_EQ(base::utf8_cut("ab\u20ac\u20ac", 5), 5u);
}

}  // namespace
}  // namespace sluice::corpus
