// The places of blocks in a coded matrix (BaseFormat), and the blocks that contain given rows.
//
// Each row group is coded on its own, in blocks of kWeightBlock numbers along its inputs. Blocks follow row
// after row, as in bitsandbytes, or column after column if the group is stored [in, out]. If every block lies
// in one column, blocks are in the order of their rows, so that a cut by rows needs few runs of them.
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
  // The blocks that contain some of these rows: all blocks, if blocks span several columns.
  base::Interval blocks_of(base::Interval some_rows) const;
  base::Interval words_of(base::Interval some_blocks) const {
    return {first_word + some_blocks.begin * block_words, first_word + some_blocks.end * block_words};
  }
  // Numbers in a block; the last block may have fewer.
  int64_t numbers_of(int64_t block) const {
    return std::min(base::kWeightBlock, rows * columns - block * base::kWeightBlock);
  }
  // Row and column of a block's number in the stored matrix.
  struct Place {
    int64_t row = 0, column = 0;
  };
  Place place_of(int64_t block, int64_t number) const;
};
std::vector<CodedGroup> coded_groups(const Parameter& parameter);

// Neighbouring rows of a group.
struct CodedRows {
  CodedGroup group;
  base::Interval rows;  // in the group
  base::Interval blocks() const { return group.blocks_of(rows); }
  base::Interval words() const { return group.words_of(blocks()); }
};
// `rows`: rows of the parameter, ascending, each interval inside one group.
std::vector<CodedRows> coded_rows(const Parameter& parameter, const std::vector<base::Interval>& rows);

// Decodes blocks `some` and writes the numbers that lie in the run's rows [rows, columns], as Number.
// `blocks`: the first of all the run's blocks.
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

// The largest magnitude of each of a group's outputs, if blocks of the format need it; else empty.
std::vector<float> output_maxima(const BaseFormat& format, const CodedGroup& group, const float* values);
// Codes blocks `some` of a group from the group's numbers [rows, columns], as stored. `to`: the first of
// those blocks.
void encode(const BaseFormat& format, const CodedGroup& group, base::Interval some, const float* values,
            const std::vector<float>& maxima, std::byte* to);

// Why the format cannot hold a matrix, or "": each block of int8 and MXFP4 must lie in one output.
std::string format_fault(const BaseFormat& format, const Parameter& parameter);

}  // namespace sluice::model
