#include "checkpoint/merge.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "model/lora_targets.h"
#include "model/parameter_index.h"

namespace sluice::checkpoint {
namespace {

using base::Interval;

// A factor of an adapter with its bucket: factors may lie in a trained or in a frozen
// bucket.
struct Placed {
  int bucket = -1;
  const model::Parameter* parameter = nullptr;

  Interval whole() const { return {parameter->offset, parameter->offset + parameter->size()}; }
};

// Left and right factor of one tensor in a stored matrix.
struct Adapters {
  Placed left;
  Placed right;
  int64_t first_row = 0;  // the tensor's first row in the matrix
};

// The given factor of the matrix's tensor, in a frozen or a trained bucket.
Placed factor_of(const model::ParameterTable& tuned, Interval buckets, const model::Parameter& like,
                 model::Factor factor) {
  for (int64_t index = buckets.begin; index < buckets.end; ++index) {
    for (const model::Parameter& parameter : tuned.buckets[static_cast<size_t>(index)].parameters) {
      if (parameter.role == like.role && parameter.factor == factor && parameter.adapted == like.adapted)
        return {static_cast<int>(index), &parameter};
    }
  }
  SLUICE_ASSERT(false, base::text("no other factor of ", like.name));
  return {};
}

std::vector<Adapters> adapters_of(const model::ParameterTable& tuned, const model::Bucket& plain,
                                  const model::Parameter& matrix) {
  std::vector<Adapters> adapters;
  const Interval own = tuned.program.at(plain.position).own;
  for (int64_t index = own.begin; index < own.end; ++index) {
    for (const model::Parameter& left : tuned.buckets[static_cast<size_t>(index)].parameters) {
      if (left.role != matrix.role || left.factor != model::Factor::kLeft) continue;
      Adapters& added = adapters.emplace_back();
      added.left = {static_cast<int>(index), &left};
      added.right = factor_of(tuned, own, left, model::Factor::kRight);
      for (int group = 0; group < left.adapted; ++group)
        added.first_row += matrix.groups[static_cast<size_t>(group)].rows;
    }
  }
  return adapters;
}

// The flat positions of `row` within `elements`, which counts from the matrix's first element.
Interval columns_of(int64_t row, int64_t columns, Interval elements) {
  return base::intersect({row * columns, (row + 1) * columns}, elements);
}

// Adds the adapters' product to `values`, the elements `elements` of a matrix; each expert's factors apply to
// its own rows.
void add_product(const Adapters& adapters, double factor, const ParameterSource& source, int64_t columns,
                 Interval elements, float* values) {
  const int64_t experts = std::max<int64_t>(1, adapters.right.parameter->experts);
  const int64_t rank = adapters.right.parameter->rows / experts;
  const int64_t rows_of_expert = adapters.left.parameter->rows / experts;
  const Interval rows =
      base::intersect({elements.begin / columns, (elements.end - 1) / columns + 1},
                      {adapters.first_row, adapters.first_row + adapters.left.parameter->rows});
  if (rows.empty()) return;
  std::vector<float> left(static_cast<size_t>(rows.size() * rank));
  const int64_t first = adapters.left.whole().begin + (rows.begin - adapters.first_row) * rank;
  source(adapters.left.bucket, {first, first + rows.size() * rank}, left.data());
  const auto expert_of = [&](int64_t row) { return (row - adapters.first_row) / rows_of_expert; };
  const Interval own{expert_of(rows.begin), expert_of(rows.end - 1) + 1};
  std::vector<float> right(static_cast<size_t>(own.size() * rank * columns));
  const int64_t begin = adapters.right.whole().begin + own.begin * rank * columns;
  source(adapters.right.bucket, {begin, begin + std::ssize(right)}, right.data());
  std::vector<double> sum(static_cast<size_t>(columns));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::ranges::fill(sum, 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      const double scale = factor * left[static_cast<size_t>((row - rows.begin) * rank + k)];
      const float* from = right.data() + ((expert_of(row) - own.begin) * rank + k) * columns;
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
          const Interval elements{run.begin - matrix.offset, run.end - matrix.offset};
          for (const Adapters& adapters : adapters_of(tuned, from, matrix))
            add_product(adapters, model::adapter_factor(tuned.model.lora(), *adapters.left.parameter), source,
                        matrix.columns, elements, to);
        });
  };
}

}  // namespace sluice::checkpoint
