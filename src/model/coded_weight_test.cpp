#include "model/coded_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::model {
namespace {

using base::Interval;
using base::kWeightBlock;
using base::WeightFormat;

std::vector<float> decoded(WeightFormat format, const std::vector<std::byte>& block) {
  std::vector<float> numbers(kWeightBlock);
  decode_block(format, block.data(), numbers.data());
  return numbers;
}

std::vector<std::byte> encoded(WeightFormat format, const std::vector<float>& numbers, float maximum = 0) {
  std::vector<std::byte> block(static_cast<size_t>(base::block_bytes(format)));
  encode_block(format, numbers.data(), static_cast<int64_t>(numbers.size()), maximum, block.data());
  return block;
}

TEST(WeightBlocks, Nf4TakesTheNearestQuantileTimesTheMaximum) {
  std::vector<float> numbers(kWeightBlock, 0.0F);
  for (size_t i = 0; i < 16; ++i) numbers[i] = kNf4Values[i] * 3.0F;
  numbers[16] = 0.03F * 3.0F;  // nearer to 0 than to 0.0796
  numbers[17] = 0.05F * 3.0F;  // the other way round
  numbers[18] = -0.95F * 3.0F;
  const std::vector<std::byte> block = encoded(WeightFormat::kNf4, numbers);
  EXPECT_EQ(block[0], std::byte{0x01});  // the first of a pair is the upper half
  EXPECT_EQ(block[1], std::byte{0x23});
  EXPECT_EQ(block_maximum(WeightFormat::kNf4, block.data()), 3.0F);
  const std::vector<float> back = decoded(WeightFormat::kNf4, block);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(back[i], kNf4Values[i] * 3.0F);
  EXPECT_EQ(back[16], 0.0F);
  EXPECT_EQ(back[17], kNf4Values[8] * 3.0F);
  EXPECT_EQ(back[18], -3.0F);
}

TEST(WeightBlocks, Int8CountsInPartsOfTheRowsMaximum) {
  const std::vector<float> back =
      decoded(WeightFormat::kInt8, encoded(WeightFormat::kInt8, {2.0F, -2.0F, 0.5F, -0.0079F}, 2.0F));
  EXPECT_EQ(back[0], 127.0F * 2.0F * kInt8Step);
  EXPECT_EQ(back[1], -back[0]);
  EXPECT_EQ(back[2], 32.0F * 2.0F * kInt8Step);
  EXPECT_EQ(back[3], -1.0F * 2.0F * kInt8Step);
}

TEST(WeightBlocks, Mxfp4SharesAPowerOfTwoAmongHalfABlock) {
  std::vector<float> numbers(kWeightBlock, 0.0F);
  numbers[0] = 6.0F;
  numbers[1] = -2.5F;  // between 2 and 3: to the even code
  numbers[2] = 0.75F;  // between 0.5 and 1: to the even code
  numbers[3] = 7.5F;   // as large as may be
  numbers[32] = 0.375F;
  const std::vector<std::byte> block = encoded(WeightFormat::kMxfp4, numbers);
  const std::vector<float> back = decoded(WeightFormat::kMxfp4, block);
  EXPECT_EQ(back[0], 6.0F);
  EXPECT_EQ(back[1], -2.0F);
  EXPECT_EQ(back[2], 1.0F);
  EXPECT_EQ(back[3], 6.0F);
  EXPECT_EQ(back[32], 0.375F);
  EXPECT_EQ(block[32], std::byte{127});
  EXPECT_EQ(block[33], std::byte{127 - 4});  // 0.375 = 6 / 16
}

TEST(WeightBlocks, NothingButZerosStaysZeros) {
  for (const WeightFormat format : {WeightFormat::kNf4, WeightFormat::kInt8, WeightFormat::kMxfp4}) {
    for (const float number : decoded(format, encoded(format, std::vector<float>(kWeightBlock, 0.0F))))
      EXPECT_EQ(number, 0.0F) << base::name_of(format);
  }
}

CodedGroup group_of(int64_t rows, int64_t columns, bool outputs_last) {
  return {.rows = rows, .columns = columns, .outputs_last = outputs_last, .first_word = 0, .block_words = 9};
}

TEST(CodedWeight, EachNumberHasOnePlaceInOneBlock) {
  for (const auto& [rows, columns, outputs_last] : {std::tuple{3, 128, false},
                                                    {5, 40, false},
                                                    {128, 3, true},
                                                    {40, 5, true},
                                                    {64, 1, true},
                                                    {7, 9, false}}) {
    const CodedGroup group = group_of(rows, columns, outputs_last);
    std::set<std::pair<int64_t, int64_t>> places;
    for (int64_t block = 0; block < group.blocks(); ++block) {
      for (int64_t i = 0; i < group.numbers_of(block); ++i) {
        const CodedGroup::Place place = group.place_of(block, i);
        EXPECT_TRUE(place.row >= 0 && place.row < rows && place.column >= 0 && place.column < columns);
        EXPECT_TRUE(places.insert({place.row, place.column}).second);
        const Interval of_row = group.blocks_of({place.row, place.row + 1});
        EXPECT_TRUE(block >= of_row.begin && block < of_row.end)
            << rows << " x " << columns << " row " << place.row;
      }
    }
    EXPECT_EQ(std::ssize(places), rows * columns);
  }
}

Outline quantized(WeightFormat format, int64_t word_bytes) {
  Outline outline = outline_of_odd_sizes();
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"all-linear"}});
  quantize_base(outline, {format, word_bytes});
  return outline;
}

// Each TP rank's expansion of its words equals its part of one rank's expansion of all words.
TEST(CodedWeight, TpRanksExpandTheirRowsFromTheirWords) {
  const ParameterTable table = parameter_table(quantized(WeightFormat::kNf4, 4));
  int64_t coded_parameters = 0;
  base::Rng random(7);
  for (const Bucket& bucket : table.buckets) {
    if (!bucket.coded) continue;
    EXPECT_FALSE(bucket.trained);
    EXPECT_EQ(shard_of(bucket, {}).size(), bucket.size);
    for (const Parameter& parameter : bucket.parameters) {
      ++coded_parameters;
      int64_t first_row = 0;
      for (const CodedGroup& group : coded_groups(parameter)) {
        std::vector<float> values(static_cast<size_t>(group.rows * group.columns));
        for (float& value : values) value = static_cast<float>(random.between(-1000, 1000)) / 1000.0F;
        std::vector<std::byte> words(
            static_cast<size_t>(group.blocks() * group.block_words * parameter.format.word_bytes));
        encode(parameter.format, group, {0, group.blocks()}, values.data(),
               output_maxima(parameter.format, group, values.data()), words.data());
        const CodedRows whole{group, {0, group.rows}};
        std::vector<float> all(values.size());
        expand(parameter.format, whole, whole.blocks(), words.data(), all.data());
        for (int t = 0; t < 2; ++t) {
          for (const CodedRows& run : coded_rows(parameter, local_rows(parameter, {.tp = 2, .t = t}))) {
            if (run.group.first_word != group.first_word) continue;
            std::vector<float> own(static_cast<size_t>(run.rows.size() * group.columns));
            expand(parameter.format, run, run.blocks(),
                   words.data() + run.blocks().begin * group.block_words * parameter.format.word_bytes,
                   own.data());
            EXPECT_TRUE(std::equal(own.begin(), own.end(), all.begin() + run.rows.begin * group.columns))
                << parameter.name << " rows " << run.rows.begin;
          }
        }
        first_row += group.rows;
      }
      EXPECT_EQ(first_row, parameter.rows);
    }
  }
  EXPECT_GT(coded_parameters, 0);
}

TEST(CodedWeight, BlocksOfOneOutputNeedRowsOfWholeOnes) {
  Outline outline = outline_of_odd_sizes();
  EXPECT_THROW(quantize_base(outline, BaseFormat{WeightFormat::kNf4, 4}), base::InputError);  // no adapters
  adapt(outline, {.rank = 2, .alpha = 4, .targets = {"all-linear"}});
  EXPECT_THROW(quantize_base(outline, BaseFormat{WeightFormat::kInt8, 4}), base::InputError);
}

TEST(CodedWeight, ManifestsKeepTheFormatAndUntunedModelsForgetIt) {
  const Outline outline = quantized(WeightFormat::kNf4, 2);
  Outline read = untuned(outline).outline();
  EXPECT_FALSE(read.base.coded());
  read_tuning(tuning_to_json(outline), "manifest", read);
  EXPECT_EQ(read.base, outline.base);
  EXPECT_EQ(read, outline);
}

}  // namespace
}  // namespace sluice::model
