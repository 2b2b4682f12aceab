// Robust least squares of measured cell times to a·(Σ l²) + b·(Σ l) + c with coefficients that are not
// negative. Squares are windowed_square()'s if attention has a window.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cost/cost_model.h"

namespace sluice::cost {

// One timed cell: the lengths of its micro-batch and how long it took.
struct Sample {
  std::vector<int64_t> lengths;
  double time_ns = 0;
};

// How a cell's time grows with the length of a sequence.
struct Growth {
  int64_t window = 0;   // the attention's; 0: none
  bool linear = false;  // there is no attention: a is zero
};

struct Fit {
  double a_ns = 0;
  double b_ns = 0;
  double c_ns = 0;
  int64_t window = 0;
  std::vector<double> residuals;  // predicted ÷ measured − 1, of each sample
  double largest_error = 0;

  double of(std::span<const int64_t> lengths) const;
  Quadratic quadratic() const { return Quadratic::from_ns(a_ns, b_ns, c_ns); }
};

// Relative errors are squared, so short cells count as much as long ones. Large errors (a rank that was
// interrupted) count less by Huber's weights, fitted again until they settle (Huber, Robust Estimation of a
// Location Parameter, 1964). Negative coefficients are avoided by the best of all choices of coefficients
// that are zero, which is exact for three of them. If there are fewer kinds of samples than coefficients, the
// simplest exact fit wins: a and c stay zero first.
// InputError naming `what` if there is no sample, one has no tokens, or a time is not positive and finite.
Fit fit(std::span<const Sample> samples, const std::string& what, const Growth& growth = {});

}  // namespace sluice::cost
