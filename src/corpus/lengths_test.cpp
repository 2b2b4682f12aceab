#include "corpus/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "corpus/indexed.h"
#include "corpus/length_chart.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::filesystem::path& path) {
  try {
    read_lengths(path);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lengths, PercentilesEqualThoseOfTheSortedList) {
  base::Rng rng(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<int32_t> lengths(1 + rng.below(300));
    for (int32_t& length : lengths) length = static_cast<int32_t>(rng.below(1'000));
    const LengthDistribution distribution(lengths);
    std::sort(lengths.begin(), lengths.end());
    for (const int64_t ppm : kPercentilesPpm) {
      const size_t rank = (lengths.size() * static_cast<size_t>(ppm) + 999'999) / 1'000'000;
      EXPECT_EQ(distribution.percentile(ppm), lengths[std::max<size_t>(rank, 1) - 1]);
    }
  }
}

TEST(Lengths, BinsArePowersOfTwo) {
  const LengthDistribution lengths(std::vector<int32_t>{1, 2, 3, 4, 9});
  EXPECT_THAT(lengths.histogram(), ElementsAre(LengthBin{0, 2, 1, 1}, LengthBin{2, 4, 2, 5},
                                               LengthBin{4, 8, 1, 4}, LengthBin{8, 16, 1, 9}));
  EXPECT_EQ(lengths.tokens(), 19);
  EXPECT_EQ(lengths.padding_ppm(), (45 - 19) * 1'000'000 / 45);
}

TEST(Lengths, JsonIsReadBack) {
  const LengthDistribution lengths(std::vector<int32_t>{7, 7, 100, 0});
  const base::Json json = base::parse_json(lengths_text(to_json(lengths)), "lengths");
  EXPECT_EQ(lengths_from_json(json, "lengths").counts(), lengths.counts());
  EXPECT_EQ(json["percentiles"]["p50"], 7);
  EXPECT_EQ(json["lengths"].dump(), "[[0,1],[7,2],[100,1]]");
  EXPECT_EQ(json["max"], 100);
}

TEST(Lengths, AreReadFromEveryKindOfFile) {
  const TemporaryDirectory directory;
  base::write_file_atomically(directory / "plain.txt", "# from somewhere\n30\n\n 10 \n20 # twenty\n");
  EXPECT_THAT(read_lengths(directory / "plain.txt"), ElementsAre(30, 10, 20));
  base::write_file_atomically(directory / "lengths.json",
                              lengths_text(to_json(LengthDistribution(std::vector<int32_t>{30, 10, 10}))));
  EXPECT_THAT(read_lengths(directory / "lengths.json"), ElementsAre(10, 10, 30));
  IndexedWriter writer(directory / "corpus");
  writer.add(std::vector<int32_t>{1, 2, 3});
  writer.add(std::vector<int32_t>{4});
  writer.commit();
  for (const auto& path :
       {directory.path(), directory / "corpus", directory / "corpus.idx", directory / "corpus.bin"}) {
    EXPECT_THAT(read_lengths(path), ElementsAre(3, 1)) << path;
  }
}

TEST(Lengths, BadFilesAreNamed) {
  const TemporaryDirectory directory;
  const auto error_with = [&](const std::string& bytes) {
    base::write_file_atomically(directory / "bad.txt", bytes);
    return error_of(directory / "bad.txt");
  };
  EXPECT_THAT(error_with("5\nfive\n"), HasSubstr("bad.txt:2: 'five' is not a length"));
  EXPECT_THAT(error_with("-1"), HasSubstr("bad.txt:1"));
  EXPECT_THAT(error_with("3000000000"), HasSubstr("3000000000"));
  EXPECT_THAT(error_with("# nothing\n"), HasSubstr("holds no lengths"));
  EXPECT_THAT(error_of(directory / "absent"), HasSubstr("absent"));
  base::write_file_atomically(directory / "bad.json",
                              R"({"schema": "sluice.lengths/1", "lengths": [[-1, 2]]})");
  EXPECT_THAT(error_of(directory / "bad.json"), HasSubstr("[-1, 2]"));
  base::write_file_atomically(directory / "bad.json", R"({"schema": "sluice.plan/1"})");
  EXPECT_THAT(error_of(directory / "bad.json"), HasSubstr("sluice.lengths/1"));
}

TEST(Lengths, EntropyOfEvenAndCertainTokens) {
  EXPECT_DOUBLE_EQ(unigram_entropy_nats(std::vector<int64_t>{5, 5, 0, 5, 5}), std::log(4.0));
  EXPECT_DOUBLE_EQ(unigram_entropy_nats(std::vector<int64_t>{9, 0}), 0.0);
  EXPECT_DOUBLE_EQ(unigram_entropy_nats(std::vector<int64_t>{}), 0.0);
}

TEST(LengthChart, TableAndHistogramAreText) {
  const NamedLengths named{"four", LengthDistribution(std::vector<int32_t>{1, 2, 3, 9})};
  EXPECT_EQ(lengths_table({named}),
            "      documents  tokens  mean  p50  p90  p99  p99.9  longest  padding\n"
            "four          4      15     4    2    9    9      9        9   58.3 %\n");
  EXPECT_EQ(lengths_histogram(named),
            "length  documents                                  tokens\n"
            " 0 - 2     25.0 %  ████████████▌                    6.7 %  ███▍\n"
            " 2 - 4     50.0 %  █████████████████████████       33.3 %  ████████████████▋\n"
            " 4 - 8      0.0 %                                   0.0 %\n"
            "8 - 16     25.0 %  ████████████▌                   60.0 %  ██████████████████████████████\n");
}

TEST(LengthChart, PictureEscapesNamesAndHasABarForEachBin) {
  const NamedLengths named{"<a&b>", LengthDistribution(std::vector<int32_t>{1, 2, 3, 9})};
  const std::string svg = lengths_svg({named, named});
  EXPECT_THAT(svg, HasSubstr(">&lt;a&amp;b&gt;<"));
  EXPECT_THAT(svg, HasSubstr(">4 documents, 15 tokens"));
  size_t bars = 0;
  for (size_t at = svg.find("<title>"); at != svg.npos; at = svg.find("<title>", at + 1)) ++bars;
  EXPECT_EQ(bars, 2u * 2 * 4);
}

TEST(LengthChart, BarsAreAsTallAsTheGridSays) {
  const std::string svg = lengths_svg({{"three", LengthDistribution(std::vector<int32_t>{1, 3, 3})}});
  EXPECT_THAT(svg, HasSubstr(">100 %<"));
  EXPECT_THAT(svg, HasSubstr("height=\"171.43\""));  // of 200 pixels: 6 of 7 tokens
}

}  // namespace
}  // namespace sluice::corpus
