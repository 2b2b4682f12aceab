// Where the blocks of a coded matrix lie (BaseFormat), and which of them hold some of its rows.
//
// Each row group is coded on its own, in blocks of kWeightBlock numbers along its inputs, row after row as
// bitsandbytes has them, or, where it is stored [in, out], column after column. If a block has one column of
// these, blocks lie in the order of their rows, so that a cut by rows takes few runs of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/interval.h"
#include "model/parameter.h"
#include "model/weight_blocks.h"

namespace sluice::model {

// One row group of a coded parameter, as it is stored.
struct CodedGroup {
  int64_t rows = 0;
  int64_t columns = 0;
  bool outputs_last = false;
  int64_t first_word = 0;  // in the bucket's flat array
  int64_t block_words = 0;

  int64_t blocks() const { return (rows * columns + base::kWeightBlock - 1) / base::kWeightBlock; }
  bool tiled() const { return outputs_last && rows % base::kWeightBlock == 0; }
  // The blocks that have some of these rows: of columns that blocks run across, all.
  base::Interval blocks_of(base::Interval some_rows) const;
  base::Interval words_of(base::Interval some_blocks) const {
    return {first_word + some_blocks.begin * block_words, first_word + some_blocks.end * block_words};
  }
  // Numbers of a block, the last of which may have fewer.
  int64_t numbers_of(int64_t block) const {
    return std::min(base::kWeightBlock, rows * columns - block * base::kWeightBlock);
  }
  // Where a number of a block stands, as stored.
  struct Place {
    int64_t row = 0, column = 0;
  };
  Place place_of(int64_t block, int64_t number) const;
};
std::vector<CodedGroup> coded_groups(const Parameter& parameter);

// Neighbouring rows of a group.
struct CodedRows {
  CodedGroup group;
  base::Interval rows;  // of the group
  base::Interval blocks() const { return group.blocks_of(rows); }
  base::Interval words() const { return group.words_of(blocks()); }
};
// `rows`: of the parameter, ascending, each of one group.
std::vector<CodedRows> coded_rows(const Parameter& parameter, const std::vector<base::Interval>& rows);

// Writes the numbers of `some` of the run's blocks into its rows [rows, columns], in float or what is made of
// it. `blocks`: the first of all the run's blocks.
template <typename Number>
void expand(const BaseFormat& format, const CodedRows& run, base::Interval some, const std::byte* blocks,
            Number* to) {
  const int64_t block_bytes = run.group.block_words * format.word_bytes, columns = run.group.columns;
  const base::Interval all = run.blocks();
  std::array<float, base::kWeightBlock> numbers;
  for (int64_t block = some.begin; block < some.end; ++block) {
    decode_block(format.format, blocks + (block - all.begin) * block_bytes, numbers.data());
    const int64_t count = run.group.numbers_of(block);
    for (int64_t i = 0; i < count; ++i) {
      const CodedGroup::Place place = run.group.place_of(block, i);
      if (place.row < run.rows.begin || place.row >= run.rows.end) continue;
      to[(place.row - run.rows.begin) * columns + place.column] =
          static_cast<Number>(numbers[static_cast<size_t>(i)]);
    }
  }
}

// The absolute maxima of a group's output rows, where blocks need them; else none.
std::vector<float> output_maxima(const BaseFormat& format, const CodedGroup& group, const float* values);
// Codes some blocks of a group from its numbers [rows, columns], as they are stored. `to`: of its first
// block.
void encode(const BaseFormat& format, const CodedGroup& group, base::Interval some, const float* values,
            const std::vector<float>& maxima, std::byte* to);

// Why a matrix cannot be kept so, or "": blocks of int8 and MXFP4 are of one output each.
std::string format_fault(const BaseFormat& format, const Parameter& parameter);

}  // namespace sluice::model
