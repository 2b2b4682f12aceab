// Fits cost curves (cost/decode_cost.h) to timed engine steps.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/decode_cost.h"
#include "model/program.h"

namespace sluice::profile {

// Engine steps that tell the coefficients apart: one row of each of few to many sequences behind few cached
// tokens, runs of rows of one sequence, and both again behind many.
struct DecodeShapes {
  struct Shape {
    int64_t sequences = 1, before = 0, rows = 1;
  };
  // No step takes more than `longest_tokens` of a sequence, or more than 2,048 rows. A token's keys and
  // values take `token_bytes` on a rank. The cached keys should be too large for the rank's caches, as those
  // of many sequences are.
  DecodeShapes(int64_t longest_tokens, int64_t token_bytes);

  std::vector<Shape> all;
  size_t several_sequences = 0;  // the first shapes: one row of each sequence, ascending
  size_t chunks = 0;             // the next ones: runs of rows of one sequence, ascending
  // Indices in `all` of pairs that differ in the cached tokens alone.
  size_t few = 0, few_behind = 0, chunk = 0, chunk_behind = 0;
};

// Nanoseconds of one operation, by shape, repetition and kind.
using DecodeTimes = std::vector<std::vector<std::vector<double>>>;

// Fits the median repetition of each shape.
std::vector<cost::DecodeCost> fit_decoding(const DecodeShapes& shapes, const DecodeTimes& times,
                                           const model::Program& program);

}  // namespace sluice::profile
