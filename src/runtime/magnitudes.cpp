// The magnitudes with which DoRA begins (model::Lora).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "model/coded_weight.h"
#include "runtime/parameter_store.h"

namespace sluice::runtime {
namespace {

using base::Interval;

// A matrix in the bucket that holds it.
struct Found {
  const model::Bucket* bucket = nullptr;
  size_t index = 0;  // among the bucket's parameters
  const model::Parameter& parameter() const { return bucket->parameters[index]; }
};

Found matrix_of(const model::ParameterTable& table, int64_t position, const model::Parameter& magnitude) {
  const Interval own = table.program.at(position).own;
  for (int64_t at = own.begin; at < own.end; ++at) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(at)];
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const model::Parameter& parameter = bucket.parameters[i];
      if (parameter.role == magnitude.role && parameter.factor == model::Factor::kNone) return {&bucket, i};
    }
  }
  SLUICE_ASSERT(false, magnitude.name);
  return {};
}

// The rows of the matrix that belong to the tensor with these magnitudes.
Interval rows_of(const model::Parameter& matrix, const model::Parameter& magnitude) {
  if (matrix.tensors.size() == 1) return {0, matrix.rows};
  int64_t begin = 0;
  for (int group = 0; group < magnitude.adapted; ++group)
    begin += matrix.groups[static_cast<size_t>(group)].rows;
  return {begin, begin + matrix.groups[static_cast<size_t>(magnitude.adapted)].rows};
}

// Calls visit(row, numbers) for each of some rows of a matrix that is not coded.
template <typename Visit>
void for_each_plain_row(const model::Bucket& bucket, const model::Parameter& matrix, Interval rows,
                        const PlainSource& source, Visit visit) {
  constexpr int64_t kChunkNumbers = int64_t{1} << 20;
  const int64_t chunk = std::max<int64_t>(1, kChunkNumbers / matrix.columns);
  std::vector<float> values;
  for (int64_t begin = rows.begin; begin < rows.end; begin += chunk) {
    const int64_t end = std::min(begin + chunk, rows.end);
    values.resize(static_cast<size_t>((end - begin) * matrix.columns));
    source(bucket, {matrix.offset + begin * matrix.columns, matrix.offset + end * matrix.columns},
           values.data());
    for (int64_t row = begin; row < end; ++row) visit(row, values.data() + (row - begin) * matrix.columns);
  }
}

// The same for a coded matrix, whose groups are coded and expanded whole.
template <typename Visit>
void for_each_coded_row(const model::Bucket& bucket, size_t index, Interval rows, const PlainSource& source,
                        Visit visit) {
  const model::Parameter& matrix = bucket.parameters[index];
  const model::Bucket plain = model::plain_bucket(bucket);
  int64_t first_row = 0;
  for (const model::CodedGroup& group : model::coded_groups(matrix)) {
    const Interval own{first_row, first_row + group.rows};
    first_row = own.end;
    const Interval wanted = base::intersect(own, rows);
    if (wanted.empty()) continue;
    const int64_t begin = plain.parameters[index].offset + own.begin * matrix.columns;
    std::vector<float> values(static_cast<size_t>(group.rows * group.columns));
    source(plain, {begin, begin + std::ssize(values)}, values.data());
    std::vector<std::byte> codes(
        static_cast<size_t>(group.blocks() * group.block_words * matrix.format.word_bytes));
    model::encode(matrix.format, group, {0, group.blocks()}, values.data(),
                  model::output_maxima(matrix.format, group, values.data()), codes.data());
    const model::CodedRows all{group, {0, group.rows}};
    model::expand(matrix.format, all, all.blocks(), codes.data(), values.data());
    for (int64_t row = wanted.begin; row < wanted.end; ++row)
      visit(row, values.data() + (row - own.begin) * matrix.columns);
  }
}

// Norms of the outputs [outputs.begin, outputs.end) of a tensor of the matrix.
std::vector<double> norms_of(const Found& matrix, const model::Parameter& magnitude, Interval outputs,
                             const PlainSource& source) {
  const model::Parameter& stored = matrix.parameter();
  const Interval tensor = rows_of(stored, magnitude);
  const Interval rows =
      stored.outputs_last ? tensor : Interval{tensor.begin + outputs.begin, tensor.begin + outputs.end};
  std::vector<double> squares(static_cast<size_t>(outputs.size()), 0.0);
  const auto add = [&](int64_t row, const float* numbers) {
    for (int64_t column = 0; column < stored.columns; ++column) {
      const int64_t output = (stored.outputs_last ? column : row - tensor.begin) - outputs.begin;
      if (output < 0 || output >= outputs.size()) continue;
      squares[static_cast<size_t>(output)] += double{numbers[column]} * numbers[column];
    }
  };
  if (stored.format.coded()) {
    for_each_coded_row(*matrix.bucket, matrix.index, rows, source, add);
  } else {
    for_each_plain_row(*matrix.bucket, stored, rows, source, add);
  }
  for (double& square : squares) square = std::sqrt(square);
  return squares;
}

void set(at::Tensor& host, int64_t first, const std::vector<double>& values) {
  if (host.scalar_type() == at::kDouble) {
    std::ranges::copy(values, host.mutable_data_ptr<double>() + first);
  } else {
    std::ranges::transform(values, host.mutable_data_ptr<float>() + first,
                           [](double value) { return static_cast<float>(value); });
  }
}

}  // namespace

void load_magnitudes(ParameterStore& store, const PlainSource& source) {
  const model::ParameterTable& table = store.table();
  for (const model::Bucket& bucket : table.buckets) {
    OwnerSlice& slice = store.owner(bucket.index);
    at::Tensor host;
    for (const model::Parameter& magnitude : bucket.parameters) {
      if (magnitude.start != model::Start::kNorm) continue;
      const Interval own = base::intersect(slice.owned, magnitude.stored());
      if (own.empty()) continue;
      if (!host.defined())
        host = slice.master.to(at::kCPU, scalar_type(store.options().precision.master()), false, true);
      const Found matrix = matrix_of(table, bucket.position, magnitude);
      const Interval outputs{own.begin - magnitude.offset, own.end - magnitude.offset};
      set(host, own.begin - slice.owned.begin, norms_of(matrix, magnitude, outputs, source));
    }
    if (host.defined()) slice.master.copy_(host);
  }
}

}  // namespace sluice::runtime
