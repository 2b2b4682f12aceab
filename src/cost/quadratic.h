// Times that grow with the tokens of a micro-batch and with their squares, in fixed point.
#pragma once

#include <cstdint>
#include <span>

#include "cost/fixed_point.h"
#include "strategy/pipeline_micro_batch.h"

namespace sluice::cost {

// Sums over the lengths of a micro-batch, on which its time depends alone. They are exact, so a plan can be
// scored while sequences move between micro-batches.
struct Work {
  int64_t tokens = 0;
  int64_t windowed = 0;  // sum of windowed_square(length, the model's window); 0 without one
  Wide squares = 0;      // sum of squared lengths

  static Work of(std::span<const int64_t> lengths, int64_t window = 0);
  // One lane's part of a sequence of `length` tokens that is cut evenly over `lanes`: the lane's own tokens,
  // and its share of the squares, rounded up so that no square is lost.
  static Work of_lane(int64_t piece_tokens, int64_t length, int lanes, int64_t window = 0);
  // The same for a sequence that may have branches, each of which attends to the prefix and to itself.
  static Work of_lane(int64_t piece_tokens, const strategy::MicroBatchSequence& sequence, int lanes,
                      int64_t window = 0);
  Work& operator+=(const Work& other);
  Work& operator-=(const Work& other);
};

// The counterpart of l² for attention through a window: the square up to the window, beyond it 2·window·l −
// window². Both are twice the pairs of a token with one that it sees.
int64_t windowed_square(int64_t length, int64_t window);

// a·l² + b·l nanoseconds for a sequence (or piece) of l tokens, c once a micro-batch, and a_windowed for each
// windowed_square. All but c are fixed point with kFractionBits fractional bits.
struct Quadratic {
  static constexpr int kFractionBits = 32;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c_ns = 0;
  int64_t a_windowed = 0;

  // REQUIRES: finite values that are not negative; a and b below 2^31.
  static Quadratic from_ns(double a_ns, double b_ns, double c_ns);
  // REQUIRES: 0 <= length < 2^31. Rounded to nearest, c included once.
  int64_t of_sequences(std::span<const int64_t> lengths, int64_t window = 0) const {
    return of_work(Work::of(lengths, window));
  }
  int64_t of_work(const Work& work) const;
  Wide of_work_fixed(const Work& work) const;  // without c, still fixed point
  Quadratic& operator+=(const Quadratic& other);
  Quadratic times(int64_t count) const;
  Quadratic share(int64_t part, int64_t whole) const;  // part ÷ whole of each coefficient, to nearest
  Quadratic through_window() const { return {0, b, c_ns, a}; }  // a becomes a_windowed
  bool operator==(const Quadratic&) const = default;
};

// Fixed point of kFractionBits as nanoseconds, to nearest, halves up. REQUIRES and errors as divide_nearest.
int64_t whole_ns(Wide fixed);

}  // namespace sluice::cost
