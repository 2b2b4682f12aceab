#include "checkpoint/merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
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
  Placed magnitude;       // bucket -1: no DoRA
  int64_t first_row = 0;  // the tensor's first row in the matrix
};

// The given factor of the matrix's tensor, in a frozen or a trained bucket. Without a parameter if there is
// none.
Placed factor_of(const model::ParameterTable& tuned, Interval buckets, const model::Parameter& like,
                 model::Factor factor) {
  for (int64_t index = buckets.begin; index < buckets.end; ++index) {
    for (const model::Parameter& parameter : tuned.buckets[static_cast<size_t>(index)].parameters) {
      if (parameter.role == like.role && parameter.factor == factor && parameter.adapted == like.adapted)
        return {static_cast<int>(index), &parameter};
    }
  }
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
      added.magnitude = factor_of(tuned, own, left, model::Factor::kMagnitude);
      SLUICE_ASSERT(added.right.parameter != nullptr, base::text("no other factor of ", left.name));
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

// A matrix in the bucket of the tuned table that holds it.
struct Stored {
  int bucket = -1;
  int64_t begin = 0;  // its first element
  int64_t columns = 0;
  bool outputs_last = false;
};

// DoRA's factors of the outputs of an adapter's tensor.
std::vector<double> scales_of(const Adapters& adapters, double factor, const Stored& matrix,
                              const ParameterSource& source) {
  constexpr int64_t kChunkRows = 64;
  constexpr double kLeastNorm = 1e-30;
  const int64_t rows = adapters.left.parameter->rows, columns = matrix.columns;
  std::vector<double> scales(static_cast<size_t>(matrix.outputs_last ? columns : rows), 0.0);
  std::vector<float> values;
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t count = std::min(kChunkRows, rows - begin);
    const Interval elements{(adapters.first_row + begin) * columns,
                            (adapters.first_row + begin + count) * columns};
    values.resize(static_cast<size_t>(elements.size()));
    source(matrix.bucket, {matrix.begin + elements.begin, matrix.begin + elements.end}, values.data());
    add_product(adapters, factor, source, columns, elements, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i);
      const int64_t output = matrix.outputs_last ? at % columns : begin + at / columns;
      scales[static_cast<size_t>(output)] += double{values[i]} * values[i];
    }
  }
  std::vector<float> magnitudes(scales.size());
  source(adapters.magnitude.bucket, adapters.magnitude.whole(), magnitudes.data());
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = magnitudes[i] / std::max(std::sqrt(scales[i]), kLeastNorm);
  return scales;
}

// Scales those of `values`, elements `elements` of the matrix, that lie in the adapter's tensor.
void scale(const Adapters& adapters, const Stored& matrix, const std::vector<double>& scales,
           Interval elements, float* values) {
  const int64_t columns = matrix.columns, first = adapters.first_row * columns;
  const Interval own = base::intersect(elements, {first, first + adapters.left.parameter->rows * columns});
  for (int64_t at = own.begin; at < own.end; ++at) {
    const int64_t output = matrix.outputs_last ? at % columns : at / columns - adapters.first_row;
    float& value = values[at - elements.begin];
    value = static_cast<float>(value * scales[static_cast<size_t>(output)]);
  }
}

}  // namespace

ParameterSource merged(const model::ParameterTable& plain, const model::ParameterTable& tuned,
                       ParameterSource source) {
  // By left factor; made when first needed, from the whole matrix.
  const auto scales = std::make_shared<std::map<const model::Parameter*, std::vector<double>>>();
  return [&plain, &tuned, scales, source = std::move(source), places = model::ParameterIndex(tuned)](
             int bucket, Interval interval, float* values) {
    const model::Bucket& from = plain.buckets[static_cast<size_t>(bucket)];
    places.for_each_run(
        from, interval, [&](const model::Parameter& matrix, Interval run, int there, Interval elsewhere) {
          float* const to = values + (run.begin - interval.begin);
          source(there, elsewhere, to);
          const Interval elements{run.begin - matrix.offset, run.end - matrix.offset};
          const Stored stored{there, elsewhere.begin - elements.begin, matrix.columns, matrix.outputs_last};
          for (const Adapters& adapters : adapters_of(tuned, from, matrix)) {
            const model::Parameter* const left = adapters.left.parameter;
            const double factor = model::adapter_factor(tuned.model.lora(), *left);
            add_product(adapters, factor, source, matrix.columns, elements, to);
            if (adapters.magnitude.parameter == nullptr) continue;
            if (!scales->contains(left)) (*scales)[left] = scales_of(adapters, factor, stored, source);
            scale(adapters, stored, scales->at(left), elements, to);
          }
        });
  };
}

}  // namespace sluice::checkpoint
