#include "model/coded_weight.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace sluice::model {

base::Interval CodedGroup::blocks_of(base::Interval some_rows) const {
  constexpr int64_t kBlock = base::kWeightBlock;
  if (some_rows.empty()) return {0, 0};
  if (tiled()) {
    const int64_t behind = (some_rows.end + kBlock - 1) / kBlock;
    return {some_rows.begin / kBlock * columns, behind * columns};
  }
  if (outputs_last) return {0, blocks()};
  return {some_rows.begin * columns / kBlock, (some_rows.end * columns + kBlock - 1) / kBlock};
}

CodedGroup::Place CodedGroup::place_of(int64_t block, int64_t number) const {
  if (tiled()) return {block / columns * base::kWeightBlock + number, block % columns};
  const int64_t flat = block * base::kWeightBlock + number;
  if (outputs_last) return {flat % rows, flat / rows};
  return {flat / columns, flat % columns};
}

std::vector<CodedGroup> coded_groups(const Parameter& parameter) {
  std::vector<CodedGroup> groups;
  int64_t word = parameter.offset;
  for (const RowGroup& group : parameter.groups) {
    const CodedGroup& made = groups.emplace_back(CodedGroup{.rows = group.rows,
                                                            .columns = parameter.columns,
                                                            .outputs_last = parameter.outputs_last,
                                                            .first_word = word,
                                                            .block_words = parameter.format.block_words()});
    word += made.blocks() * made.block_words;
  }
  return groups;
}

std::vector<CodedRows> coded_rows(const Parameter& parameter, const std::vector<base::Interval>& rows) {
  std::vector<CodedRows> runs;
  const std::vector<CodedGroup> groups = coded_groups(parameter);
  int64_t first = 0;
  auto next = rows.begin();
  for (const CodedGroup& group : groups) {
    for (; next != rows.end() && next->begin < first + group.rows; ++next) {
      SLUICE_ASSERT(next->end <= first + group.rows, "rows of two groups");
      runs.push_back({group, {next->begin - first, next->end - first}});
    }
    first += group.rows;
  }
  return runs;
}

namespace {

size_t output_of(const CodedGroup& group, const CodedGroup::Place& place) {
  return static_cast<size_t>(group.outputs_last ? place.column : place.row);
}

}  // namespace

std::vector<float> output_maxima(const BaseFormat& format, const CodedGroup& group, const float* values) {
  if (format.format != base::WeightFormat::kInt8) return {};
  std::vector<float> maxima(static_cast<size_t>(group.outputs_last ? group.columns : group.rows), 0.0F);
  for (int64_t row = 0; row < group.rows; ++row) {
    for (int64_t column = 0; column < group.columns; ++column) {
      float& most = maxima[output_of(group, {row, column})];
      most = std::max(most, std::fabs(values[row * group.columns + column]));
    }
  }
  return maxima;
}

void encode(const BaseFormat& format, const CodedGroup& group, base::Interval some, const float* values,
            const std::vector<float>& maxima, std::byte* to) {
  const int64_t block_bytes = group.block_words * format.word_bytes;
  std::array<float, base::kWeightBlock> numbers;
  for (int64_t block = some.begin; block < some.end; ++block) {
    const int64_t count = group.numbers_of(block);
    for (int64_t i = 0; i < count; ++i) {
      const CodedGroup::Place place = group.place_of(block, i);
      numbers[static_cast<size_t>(i)] = values[place.row * group.columns + place.column];
    }
    const float maximum = maxima.empty() ? 0.0F : maxima[output_of(group, group.place_of(block, 0))];
    encode_block(format.format, numbers.data(), count, maximum, to + block * block_bytes);
  }
}

std::string format_fault(const BaseFormat& format, const Parameter& parameter) {
  const int64_t least = format.format == base::WeightFormat::kInt8    ? base::kWeightBlock
                        : format.format == base::WeightFormat::kMxfp4 ? base::kWeightBlock / 2
                                                                      : 1;
  for (const RowGroup& group : parameter.groups) {
    const int64_t inputs = parameter.outputs_last ? group.rows : parameter.columns;
    if (inputs % least != 0)
      return base::text(parameter.name, " has rows of ", inputs, " numbers, no multiple of ", least);
  }
  return "";
}

}  // namespace sluice::model
