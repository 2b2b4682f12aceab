#include "ops/state_pass.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "ops/cpu/blas.h"
#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

bool dense(const StatePass& pass) {
  const at::Tensor* const all[] = {&pass.state_SKX, &pass.rows_BCX, &pass.read_BCK, &pass.end_BW1,
                                   &pass.added_BKX, &pass.left_BCK, &pass.came_BKX};
  return std::ranges::all_of(all,
                             [](const at::Tensor* each) { return !each->defined() || is_dense_cpu(*each); });
}

// state = end∘state + added, for a state [K, X] and one end per row or one for all; came = the old state.
template <bool kAdds, bool kTells, typename T>
SLUICE_SIMD void advance(T* state, const T* end, int64_t ends, const T* added, T* came, int64_t keys,
                         int64_t columns) {
  for (int64_t k = 0; k < keys; ++k) {
    const T factor = end[ends == 1 ? 0 : k];
#pragma omp simd
    for (int64_t x = k * columns; x < (k + 1) * columns; ++x) {
      const T now = state[x];
      state[x] = now * factor + (kAdds ? added[x] : T(0));
      if (kTells) came[x] = now;
    }
  }
}

// A head of a piece is a task: its state stays in a core's cache from chunk to chunk.
template <typename T>
void pass_on_cpu(const StatePass& pass) {
  const int64_t heads = pass.heads, keys = pass.state_SKX.size(1), columns = pass.state_SKX.size(2);
  const int64_t rows = pass.rows_BCX.size(1), levels = std::ssize(pass.chunks.levels);
  const int64_t ends = pass.end_BW1.size(1);
  const auto of = [](const at::Tensor& all, int64_t index, int64_t size) {
    return all.defined() ? all.data_ptr<T>() + index * size : nullptr;
  };
  at::parallel_for(0, pass.state_SKX.size(0), 1, [&](int64_t first, int64_t end) {
    for (int64_t task = first; task < end; ++task) {
      T* const state = of(pass.state_SKX, task, keys * columns);
      for (int64_t i = 0; i < levels; ++i) {
        const base::Interval& level = pass.chunks.levels[static_cast<size_t>(pass.back ? levels - 1 - i : i)];
        if (task >= level.size() * heads) continue;
        const int64_t b = level.begin * heads + task;
        T* const own = of(pass.rows_BCX, b, rows * columns);
        const T *read = of(pass.read_BCK, b, rows * keys), *left = of(pass.left_BCK, b, rows * keys),
                *added = of(pass.added_BKX, b, keys * columns);
        if (read != nullptr) {
          multiply<Form::kPlain, Form::kPlain>({rows, columns, keys}, read, state, own, Result::kAddedTo,
                                               static_cast<T>(pass.read_factor));
        }
        T* const came = of(pass.came_BKX, b, keys * columns);
        const auto step = added == nullptr
                              ? came == nullptr ? advance<false, false, T> : advance<false, true, T>
                          : came == nullptr ? advance<true, false, T>
                                            : advance<true, true, T>;
        step(state, of(pass.end_BW1, b, ends), ends, added, came, keys, columns);
        if (left != nullptr) {
          multiply<Form::kTransposed, Form::kPlain>({keys, columns, rows}, left, static_cast<const T*>(own),
                                                    state, Result::kAddedTo,
                                                    static_cast<T>(pass.left_factor));
        }
      }
    }
  });
}

}  // namespace

void pass_states(const StatePass& pass) {
  RECORD_USER_SCOPE("sluice::pass_states");
  if (dense(pass)) {
    AT_DISPATCH_FLOATING_TYPES(pass.state_SKX.scalar_type(), "pass_states",
                               [&] { pass_on_cpu<scalar_t>(pass); });
    return;
  }
  if constexpr (gpu::kBuilt) {
    if (gpu::pass_states(pass)) return;
  }
  aten::pass_states(pass);
}

void aten::pass_states(const StatePass& pass) {
  const auto of = [&](const at::Tensor& x_BX, const base::Interval& level) {
    return x_BX.narrow(0, level.begin * pass.heads, level.size() * pass.heads);
  };
  const int64_t levels = std::ssize(pass.chunks.levels);
  for (int64_t i = 0; i < levels; ++i) {
    const base::Interval& level = pass.chunks.levels[static_cast<size_t>(pass.back ? levels - 1 - i : i)];
    at::Tensor state = pass.state_SKX.narrow(0, 0, level.size() * pass.heads),
               rows = of(pass.rows_BCX, level);
    if (pass.read_BCK.defined()) rows.baddbmm_(of(pass.read_BCK, level), state, /*beta=*/1, pass.read_factor);
    const at::Tensor added = pass.added_BKX.defined() ? of(pass.added_BKX, level).clone() : at::Tensor();
    if (pass.came_BKX.defined()) of(pass.came_BKX, level).copy_(state);
    state.mul_(of(pass.end_BW1, level));
    if (added.defined()) state.add_(added);
    if (pass.left_BCK.defined())
      state.baddbmm_(of(pass.left_BCK, level).transpose(1, 2), rows, /*beta=*/1, pass.left_factor);
  }
}

}  // namespace sluice::ops
