#include "layers/kv_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "model/layer.h"

namespace sluice::layers {
namespace {

// Adds a layer's cache for its mixer, if the mixer needs any.
struct AddRoom {
  int64_t tp, rows, texts;
  const at::TensorOptions &like, &wide;
  at::Tensor& both;
  CachedStates& states;

  void operator()(const model::Attention& own) const {
    both = at::empty({rows, 2 * std::max<int64_t>(1, own.kv_heads / tp), own.head_dim}, like);
  }
  void operator()(const model::LatentAttention& own) const {
    both = at::empty({rows, 1, own.kv_rank + own.rotated}, like);
  }
  void operator()(const model::StateHeads& own) const {
    states = {at::empty({texts, own.value_heads / tp, own.key_width, own.value_width}, wide),
              at::empty({texts, own.convolution - 1, own.mixed() / tp}, like)};
  }
  void operator()(const model::DeltaRule& own) const { (*this)(own.heads); }
  void operator()(const model::Mamba2& own) const { (*this)(own.heads); }
  void operator()(const model::Gla& own) const { (*this)(own.heads); }
  void operator()(const model::Kda& own) const { (*this)(own.heads); }
  void operator()(const model::ShortConvolution& own) const { (*this)(own.heads); }
  void operator()(const model::Mlp&) const {}
  void operator()(const model::RoutedExperts&) const {}
  void operator()(const model::LayerInput&) const {}
};

}  // namespace

KvCache::KvCache(const LayerContext& context, const model::Program& program, base::Interval blocks,
                 int64_t rows, int64_t texts, const at::TensorOptions& like)
    : first_block_(blocks.begin) {
  const at::TensorOptions wide = like.dtype(like.dtype() == at::kDouble ? at::kDouble : at::kFloat);
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    const AddRoom add{context.parallel.tp,   rows, texts, like, wide, both_.emplace_back(),
                      states_.emplace_back()};
    for (const model::Part& part : program.kind_at(position).layer()->parts) std::visit(add, part.mixer);
  }
}

void KvCache::fill_randomly() const {
  constexpr int64_t kDrawn = 1024;  // random rows; all others repeat them
  for (const at::Tensor& both : both_) {
    if (!both.defined()) continue;
    const int64_t rows = both.size(0), drawn = std::min(rows, kDrawn);
    const at::Tensor first = both.narrow(0, 0, drawn).normal_();
    for (int64_t row = drawn; row < rows; row += drawn) {
      const int64_t count = std::min(drawn, rows - row);
      both.narrow(0, row, count).copy_(first.narrow(0, 0, count));
    }
  }
  for (const auto& [state, last] : states_) {
    if (!state.defined()) continue;
    at::Tensor(state).normal_();
    at::Tensor(last).normal_();
  }
}

CachedKeys KvCache::of(int64_t position) const {
  const at::Tensor& both_RJD = both_[static_cast<size_t>(position - first_block_)];
  if (both_RJD.size(1) == 1) return {both_RJD, both_RJD};
  const int64_t heads = both_RJD.size(1) / 2;
  return {both_RJD.narrow(1, 0, heads), both_RJD.narrow(1, heads, heads)};
}

}  // namespace sluice::layers
