// From timed passes that say texts to what they cost (cost/decode_cost.h).
#pragma once

#include <cstdint>
#include <vector>

#include "cost/decode_cost.h"
#include "model/program.h"

namespace sluice::profile {

// Passes that tell the figures apart: a row of each of few to many texts, runs of rows of one text, and both
// again behind tokens whose keys stay.
struct DecodeShapes {
  struct Shape {
    int64_t sequences = 1, before = 0, rows = 1;
  };
  // None takes more than so many tokens of a text, or 2,048 rows. A token's keys and values take
  // `token_bytes` of a rank: what is read of them should not stay in its caches, as it would not of many
  // texts.
  DecodeShapes(int64_t longest_tokens, int64_t token_bytes);

  std::vector<Shape> all;
  size_t several_sequences = 0;  // so many of them are a row of each text, ascending
  size_t chunks = 0;             // then so many are runs of rows of one, ascending
  // Indices in `all`: pairs that differ in the tokens before alone.
  size_t few = 0, few_behind = 0, chunk = 0, chunk_behind = 0;
};

// By shape, repetition and kind, nanoseconds of one operation.
using DecodeTimes = std::vector<std::vector<std::vector<double>>>;

// What a quarter of the repetitions do not exceed counts.
std::vector<cost::DecodeCost> fit_decoding(const DecodeShapes& shapes, const DecodeTimes& times,
                                           const model::Program& program);

}  // namespace sluice::profile
