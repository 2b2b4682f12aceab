#include "checkpoint/merge.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "model/parameter_index.h"

namespace sluice::checkpoint {
namespace {

using base::Interval;

// The adapters of one stored matrix.
struct Adapters {
  struct Pair {
    const model::Parameter* left = nullptr;
    const model::Parameter* right = nullptr;
    int64_t first_row = 0;  // of the matrix
  };
  int bucket = -1;
  std::vector<Pair> pairs;
};

Adapters adapters_of(const model::ParameterTable& tuned, const model::Bucket& plain,
                     const model::Parameter& matrix) {
  Adapters adapters;
  const Interval own = tuned.program.at(plain.position).own;
  for (int64_t index = own.begin; index < own.end; ++index) {
    for (const model::Parameter& left : tuned.buckets[static_cast<size_t>(index)].parameters) {
      if (left.role != matrix.role || left.factor != model::Factor::kLeft) continue;
      // Left and right of a matrix follow one another, frozen or trained alike.
      Adapters::Pair pair{.left = &left, .right = &left + 1};
      for (int group = 0; group < left.adapted; ++group)
        pair.first_row += matrix.groups[static_cast<size_t>(group)].rows;
      adapters.bucket = static_cast<int>(index);
      adapters.pairs.push_back(pair);
    }
  }
  return adapters;
}

// Elements of a matrix by rows: those of `row` in the interval, which counts from its first element.
Interval columns_of(int64_t row, int64_t columns, Interval elements) {
  return base::intersect({row * columns, (row + 1) * columns}, elements);
}

// Adds factor · left·right to `values`, which are the matrix's elements `elements`.
void add_pair(const Adapters::Pair& pair, int bucket, double factor, const ParameterSource& source,
              int64_t columns, Interval elements, float* values) {
  const int64_t rank = pair.right->rows;
  const Interval rows = base::intersect({elements.begin / columns, (elements.end - 1) / columns + 1},
                                        {pair.first_row, pair.first_row + pair.left->rows});
  if (rows.empty()) return;
  std::vector<float> left(static_cast<size_t>(rows.size() * rank));
  std::vector<float> right(static_cast<size_t>(pair.right->size()));
  const int64_t first = pair.left->offset + (rows.begin - pair.first_row) * rank;
  source(bucket, {first, first + rows.size() * rank}, left.data());
  source(bucket, {pair.right->offset, pair.right->offset + pair.right->size()}, right.data());
  std::vector<double> sum(static_cast<size_t>(columns));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::ranges::fill(sum, 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      const double scale = factor * left[static_cast<size_t>((row - rows.begin) * rank + k)];
      const float* from = right.data() + k * columns;
      for (int64_t column = 0; column < columns; ++column)
        sum[static_cast<size_t>(column)] += scale * from[column];
    }
    const Interval part = columns_of(row, columns, elements);
    for (int64_t at = part.begin; at < part.end; ++at) {
      float& value = values[at - elements.begin];
      value = static_cast<float>(value + sum[static_cast<size_t>(at - row * columns)]);
    }
  }
}

}  // namespace

ParameterSource merged(const model::ParameterTable& plain, const model::ParameterTable& tuned,
                       ParameterSource source) {
  return [&plain, &tuned, source = std::move(source), places = model::ParameterIndex(tuned)](
             int bucket, Interval interval, float* values) {
    const model::Bucket& from = plain.buckets[static_cast<size_t>(bucket)];
    places.for_each_run(
        from, interval, [&](const model::Parameter& matrix, Interval run, int there, Interval elsewhere) {
          float* const to = values + (run.begin - interval.begin);
          source(there, elsewhere, to);
          const Adapters adapters = adapters_of(tuned, from, matrix);
          const Interval elements{run.begin - matrix.offset, run.end - matrix.offset};
          for (const Adapters::Pair& pair : adapters.pairs)
            add_pair(pair, adapters.bucket, tuned.shape.lora.factor(), source, matrix.columns, elements, to);
        });
  };
}

}  // namespace sluice::checkpoint
