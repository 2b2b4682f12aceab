#include "runtime/router_corrections.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/interval.h"
#include "link/layout.h"
#include "runtime/read_numbers.h"

namespace sluice::runtime {

namespace {

struct Correction {
  const model::Bucket* bucket;
  base::Interval elements;  // in the bucket
  int64_t first;            // its first number among those of all corrections
};

// All corrections, in the table's order.
std::vector<Correction> corrections_of(const model::ParameterTable& table) {
  std::vector<Correction> all;
  int64_t first = 0;
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.learns != model::Learns::kAsRouterBias) continue;
      all.push_back({&bucket, {parameter.offset, parameter.offset + parameter.size()}, first});
      first += parameter.size();
    }
  }
  return all;
}

// Calls visit(correction, elements of its bucket) for each part of a correction that a rank owns.
template <typename Visit>
void for_each_owned(const std::vector<Correction>& corrections, const link::OwnerLayout& layout, int rank,
                    Visit visit) {
  for (const Correction& correction : corrections) {
    const base::Interval own = base::intersect(layout.owned(*correction.bucket, rank), correction.elements);
    if (!own.empty()) visit(correction, own);
  }
}

// The numbers that this rank owns, one correction after another.
std::vector<float> owned_numbers(const ParameterStore& store, const std::vector<Correction>& corrections,
                                 const link::OwnerLayout& layout) {
  std::vector<at::Tensor> parts;
  for_each_owned(corrections, layout, store.options().rank, [&](const Correction& of, base::Interval own) {
    const OwnerSlice& slice = store.owner(of.bucket->index);
    parts.push_back(slice.master.narrow(0, own.begin - slice.owned.begin, own.size()));
  });
  const std::vector<double> numbers = read_numbers(std::move(parts));
  return {numbers.begin(), numbers.end()};
}

// The numbers that all ranks own, by rank. Layers' corrections lie alike, so few ranks own and send any.
std::vector<float> gathered(const std::vector<float>& own, const std::vector<Correction>& corrections,
                            const link::OwnerLayout& layout, comm::Communicator& control) {
  constexpr int64_t kBytes = sizeof(float);
  std::vector<int64_t> bytes(static_cast<size_t>(layout.ranks), 0);
  for (int rank = 0; rank < layout.ranks; ++rank) {
    for_each_owned(corrections, layout, rank, [&](const Correction&, base::Interval elements) {
      bytes[static_cast<size_t>(rank)] += elements.size() * kBytes;
    });
  }
  std::vector<float> all(
      static_cast<size_t>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) / kBytes));
  std::vector<float> copies;
  for (int rank = 0; rank < layout.ranks; ++rank) copies.insert(copies.end(), own.begin(), own.end());
  const std::vector<int64_t> sent(bytes.size(), std::ssize(own) * kBytes);
  control.all_to_all(copies.data(), sent, all.data(), bytes)->wait();
  return all;
}

}  // namespace

std::shared_ptr<const layers::Corrections> router_corrections(const ParameterStore& store,
                                                              comm::Communicator& control) {
  if (store.options().precision.compute == store.options().precision.master()) return nullptr;
  const std::vector<Correction> corrections = corrections_of(store.table());
  if (corrections.empty()) return nullptr;
  const link::OwnerLayout layout{store.options().world_size};
  const std::vector<float> numbers =
      gathered(owned_numbers(store, corrections, layout), corrections, layout, control);
  at::Tensor all = at::empty({std::ssize(numbers)}, at::TensorOptions().dtype(at::kFloat));
  float* const values = all.mutable_data_ptr<float>();
  const float* next = numbers.data();
  for (int rank = 0; rank < layout.ranks; ++rank) {
    for_each_owned(corrections, layout, rank, [&](const Correction& of, base::Interval own) {
      std::copy_n(next, own.size(), values + of.first + own.begin - of.elements.begin);
      next += own.size();
    });
  }
  all = all.to(store.options().device);
  auto by_layer = std::make_shared<layers::Corrections>();
  for (const Correction& of : corrections) {
    const int64_t layer = of.bucket->layer;
    by_layer->resize(static_cast<size_t>(layer >= 0 ? layer : store.table().model.layers()) + 1);
    by_layer->back() = all.narrow(0, of.first, of.elements.size());
  }
  return by_layer;
}

}  // namespace sluice::runtime
