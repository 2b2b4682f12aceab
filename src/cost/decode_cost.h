// The time of an engine step in text generation. Its tokens' rows go through the model and attend to keys and
// values in the KV cache. Unlike a micro-batch of training it may have so few rows that reading matrices
// takes longer than multiplying with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/fixed_point.h"

namespace sluice::cost {

// The work of one engine step, or of several with as many rows each; keys and pairs are sums over the steps.
struct DecodeWork {
  // Attention to all tokens before a row, or to those that a window of the model lets it see.
  struct AttentionWork {
    Wide keys = 0;        // read for one row each
    Wide chunk_keys = 0;  // read for several rows of a sequence
    Wide pairs = 0;       // pairs of such a row with a key
    bool operator==(const AttentionWork&) const = default;
  };

  int64_t engine_steps = 1;
  int64_t sequences = 0;     // in a step
  int64_t rows = 0;          // in a step
  int64_t sampled_rows = 0;  // rows whose logits give a token
  AttentionWork all, windowed;

  // Tokens [begin, end) of a sequence; `says`: a token is drawn after them. `window`: the model's; 0: none.
  void add(int64_t begin, int64_t end, bool says, int64_t window);
  // Token `begin` of a sequence, and in each further step the next one.
  void add_one_each(int64_t begin, int64_t window);
  bool operator==(const DecodeWork&) const = default;
};

// The cost of one operation under one TP degree.
struct DecodeCost {
  // Time with its matrices read, without keys: linear between points, beyond the last as before it.
  struct Point {
    int64_t rows = 1;
    int64_t ns = 0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> by_rows;  // ascending; empty: not known
  // Fixed point with Quadratic::kFractionBits: a key read for one row, and a pair of a row with a key if a
  // step has several rows of a sequence.
  int64_t key = 0;
  int64_t pair = 0;
  int64_t state_ns = 0;  // reading and writing a recurrent layer's state

  bool operator==(const DecodeCost&) const = default;
};

// Time of one step with so many rows. REQUIRES: rows >= 0, points is not empty.
int64_t of_rows_ns(std::span<const DecodeCost::Point> points, int64_t rows);
// Time of `work`'s steps on an operation that has `rows` in each; `windowed`: its attention has a window.
int64_t decode_ns(const DecodeCost& cost, const DecodeWork& work, int64_t rows, bool windowed);

}  // namespace sluice::cost
