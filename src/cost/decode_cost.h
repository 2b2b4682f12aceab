// What a pass takes that says the next tokens of texts: tokens' rows go through the model, and attend to keys
// and values that stayed of earlier ones. Unlike a micro-batch of training it may have so few rows that
// reading matrices takes longer than multiplying with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/fixed_point.h"

namespace sluice::cost {

// What goes through in one pass; or in several with as many rows each, of which keys are the sum.
struct DecodeWork {
  // With all tokens before it, and with those that a window of the model lets it see.
  struct AttentionWork {
    Wide keys = 0;        // read for one row each
    Wide chunk_keys = 0;  // read for several rows of a text
    Wide pairs = 0;       // of such a row with a key
    bool operator==(const AttentionWork&) const = default;
  };

  int64_t engine_steps = 1;
  int64_t sequences = 0;     // a pass
  int64_t rows = 0;          // likewise
  int64_t sampled_rows = 0;  // of these, behind which a token is drawn
  AttentionWork all, windowed;

  // A text's tokens [begin, end). `window`: the model's; 0: none.
  void add(int64_t begin, int64_t end, bool says, int64_t window);
  // The token `begin` of a text, and in each further pass the next one.
  void add_one_each(int64_t begin, int64_t window);
  bool operator==(const DecodeWork&) const = default;
};

// Of one operation under one TP degree.
struct DecodeCost {
  // With its matrices read, whatever the keys. Between two by the line, beyond the last by the last two's.
  struct Point {
    int64_t rows = 1;
    int64_t ns = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> by_rows;  // ascending; empty: not known
  // Fixed point with Quadratic::kFractionBits: a key read for one row, and a pair of a row with a key where
  // several rows of a text go through.
  int64_t key = 0;
  int64_t pair = 0;
  int64_t state_ns = 0;  // of a recurrent layer's state, read and written

  bool operator==(const DecodeCost&) const = default;
};

// Of one pass of so many rows. REQUIRES: rows >= 0, points.
int64_t of_rows_ns(std::span<const DecodeCost::Point> points, int64_t rows);
// `rows` of a pass go through it, of which its attention has what `work` says, through a window or not.
int64_t decode_ns(const DecodeCost& cost, const DecodeWork& work, int64_t rows, bool windowed);

}  // namespace sluice::cost
