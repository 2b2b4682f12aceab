#include "cost/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::cost {
namespace {

using Row = std::array<double, 3>;  // Σ l², Σ l, 1

Row row_of(std::span<const int64_t> lengths, int64_t window) {
  const Work work = Work::of(lengths, window);
  return {static_cast<double>(window > 0 ? Wide{work.windowed} : work.squares),
          static_cast<double>(work.tokens), 1};
}

double dot(const Row& a, const Row& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// Samples divided by their times, so that every target is one.
struct Problem {
  std::vector<Row> rows;
  Row scale{};  // each column's largest value, for a well-conditioned system

  std::vector<double> weights;  // one for each row's squared error

  double squared_error(const Row& x) const {
    double sum = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      sum += weights[i] * (dot(rows[i], x) - 1) * (dot(rows[i], x) - 1);
    }
    return sum;
  }
};

Problem relative_problem(std::span<const Sample> samples, int64_t window) {
  Problem problem;
  for (const Sample& sample : samples) {
    Row row = row_of(sample.lengths, window);
    for (double& value : row) value /= sample.time_ns;
    problem.rows.push_back(row);
    for (size_t k = 0; k < 3; ++k) problem.scale[k] = std::max(problem.scale[k], row[k]);
  }
  for (Row& row : problem.rows) {
    for (size_t k = 0; k < 3; ++k) row[k] /= problem.scale[k];
  }
  problem.weights.assign(samples.size(), 1);
  return problem;
}

// Normal equations of the chosen columns by elimination with pivots; nothing when they are dependent or a
// coefficient comes out negative.
std::optional<Row> solve(const Problem& problem, const std::vector<size_t>& columns) {
  const size_t n = columns.size();
  std::array<std::array<double, 4>, 3> m{};
  for (size_t r = 0; r < problem.rows.size(); ++r) {
    const Row& row = problem.rows[r];
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) m[i][j] += problem.weights[r] * row[columns[i]] * row[columns[j]];
      m[i][n] += problem.weights[r] * row[columns[i]];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r) pivot = std::abs(m[r][i]) > std::abs(m[pivot][i]) ? r : pivot;
    std::swap(m[i], m[pivot]);
    if (std::abs(m[i][i]) < 1e-12 * static_cast<double>(problem.rows.size())) return std::nullopt;
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (size_t j = i; j <= n; ++j) m[r][j] -= factor * m[i][j];
    }
  }
  Row x{};
  for (size_t i = 0; i < n; ++i) {
    x[columns[i]] = m[i][n] / m[i][i];
    if (x[columns[i]] < 0) return std::nullopt;
  }
  return x;
}

// The best of all choices of columns.
Row least_squares(const Problem& problem, const std::string& what, const Growth& growth) {
  // Fewer columns first: more of them win only when they fit better.
  static const std::vector<std::vector<size_t>> kChoices = {{1}, {0}, {2}, {1, 2}, {0, 1}, {0, 2}, {0, 1, 2}};
  std::optional<Row> best;
  double best_error = 0;
  for (const std::vector<size_t>& columns : kChoices) {
    if (growth.linear && std::ranges::find(columns, 0U) != columns.end()) continue;
    const std::optional<Row> x = solve(problem, columns);
    if (!x) continue;
    const double error = problem.squared_error(*x);
    if (!best || error < best_error * (1 - 1e-9) - 1e-18) {
      best = x;
      best_error = error;
    }
  }
  SLUICE_ASSERT(best.has_value(), what + ": one positive column always fits");
  return *best;
}

// Huber's weights: one up to 1.345 deviations, beyond them falling with the error. The deviation is that of a
// normal distribution with the same median of absolute errors, and at least a thousandth: clocks are no
// finer.
std::vector<double> huber_weights(const Problem& problem, const Row& x) {
  std::vector<double> errors;
  for (const Row& row : problem.rows) errors.push_back(std::abs(dot(row, x) - 1));
  std::vector<double> sorted = errors;
  std::ranges::sort(sorted);
  const double limit = 1.345 * std::max(1e-3, 1.4826 * sorted[sorted.size() / 2]);
  for (double& error : errors) error = error <= limit ? 1 : limit / error;
  return errors;
}

void check(std::span<const Sample> samples, const std::string& what) {
  if (samples.empty()) throw base::InputError(base::text(what, ": there is no timed sample to fit"));
  for (const Sample& sample : samples) {
    if (Work::of(sample.lengths).tokens <= 0)
      throw base::InputError(base::text(what, ": a sample has no tokens"));
    if (!std::isfinite(sample.time_ns) || sample.time_ns <= 0) {
      throw base::InputError(base::text(what, ": a sample took ", sample.time_ns, " ns"));
    }
  }
}

}  // namespace

double Fit::of(std::span<const int64_t> lengths) const {
  return dot(row_of(lengths, window), {a_ns, b_ns, c_ns});
}

Fit fit(std::span<const Sample> samples, const std::string& what, const Growth& growth) {
  check(samples, what);
  constexpr int kRounds = 50;
  Problem problem = relative_problem(samples, growth.window);
  Row best = least_squares(problem, what, growth);
  for (int round = 0; round < kRounds; ++round) {
    problem.weights = huber_weights(problem, best);
    const Row next = least_squares(problem, what, growth);
    const Row step = {next[0] - best[0], next[1] - best[1], next[2] - best[2]};
    best = next;
    if (dot(step, step) <= 1e-20 * dot(best, best)) break;
  }
  Fit result{.a_ns = best[0] / problem.scale[0],
             .b_ns = best[1] / problem.scale[1],
             .c_ns = best[2] / problem.scale[2],
             .window = growth.window};
  for (const Sample& sample : samples) {
    result.residuals.push_back(result.of(sample.lengths) / sample.time_ns - 1);
    result.largest_error = std::max(result.largest_error, std::abs(result.residuals.back()));
  }
  return result;
}

}  // namespace sluice::cost
