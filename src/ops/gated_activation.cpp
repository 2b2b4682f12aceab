// T: rows, F: width, G = 2F: gate and up side by side.
//
// A rule is written once, for numbers of the CPU's loops and for ATen's tensors. It takes them by value: with
// references, loops over bfloat16 get half the vector width and take 1.4 times as long.
#include "ops/gated_activation.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/record_function.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

#define SLUICE_INLINE [[gnu::always_inline]] inline

template <typename A>
SLUICE_INLINE A sigma(A x) {
  return vector_sigmoid(x);
}
SLUICE_INLINE at::Tensor sigma(const at::Tensor& x) { return at::sigmoid(x); }
template <typename A>
SLUICE_INLINE A tanh_of(A x) {
  return vector_tanh(x);
}
SLUICE_INLINE at::Tensor tanh_of(const at::Tensor& x) { return at::tanh(x); }
template <typename A>
SLUICE_INLINE A at_most(A x, A limit) {
  return x > limit ? limit : x;
}
SLUICE_INLINE at::Tensor at_most(const at::Tensor& x, double limit) { return x.clamp_max(limit); }
template <typename A>
SLUICE_INLINE A at_least(A x, A limit) {
  return x < limit ? limit : x;
}
SLUICE_INLINE at::Tensor at_least(const at::Tensor& x, double limit) { return x.clamp_min(limit); }
// `x` where `of` lies within both limits, else 0.
template <typename A>
SLUICE_INLINE A within(A x, A of, A least, A most) {
  return of > most || of < least ? A(0) : x;
}
SLUICE_INLINE at::Tensor within(const at::Tensor& x, const at::Tensor& of, double least, double most) {
  return x * of.ge(least).mul(of.le(most));
}

// The type of a rule's constants: as wide as numbers, so that loops need no conversion; for tensors a scalar.
template <typename A>
struct ConstantOf {
  using type = A;
};
template <>
struct ConstantOf<at::Tensor> {
  using type = double;
};
template <typename A>
using Constant = typename ConstantOf<A>::type;

template <typename A>
struct Gradients {
  A value, gate, up;
};

// With silu'(g) = σ(g)·(1 + g·(1 - σ(g))): dg = da · u · silu'(g), du = da · silu(g).
struct Swiglu {
  template <typename A>
  SLUICE_INLINE A value(A g, A u) const {
    return g * sigma(g) * u;
  }
  template <typename A>
  SLUICE_INLINE Gradients<A> gradients(A d, A g, A u) const {
    using C = Constant<A>;
    const A s = sigma(g);
    const A silu = g * s;
    return {silu * u, d * u * (s + silu * (C(1) - s)), d * silu};
  }
};

// With t = tanh(z) and z = c·(g + k·g³), gelu(g) = g·(1 + t)/2 and gelu'(g) = (1 + t)/2 + g·(1 - t²)/2 ·
// c·(1 + 3·k·g²): dg = da · u · gelu'(g), du = da · gelu(g).
struct Geglu {
  static constexpr double kCubic = 0.044715;
  static constexpr double kSlope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

  template <typename A>
  SLUICE_INLINE A bend(A g) const {
    using C = Constant<A>;
    return tanh_of(A(C(kSlope) * (g + C(kCubic) * g * g * g)));
  }
  template <typename A>
  SLUICE_INLINE A value(A g, A u) const {
    using C = Constant<A>;
    return C(0.5) * g * (C(1) + bend(g)) * u;
  }
  template <typename A>
  SLUICE_INLINE Gradients<A> gradients(A d, A g, A u) const {
    using C = Constant<A>;
    const A t = bend(g);
    const A half = C(0.5) * (C(1) + t);
    const A slope = C(kSlope) * (C(1) + C(3 * kCubic) * g * g);
    return {g * half * u, d * u * (half + C(0.5) * g * (C(1) - t * t) * slope), d * g * half};
  }
};

// a = (u' + 1)·g'·s with g' = min(g, L), u' = min(max(u, −L), L), s = σ(α·g'). Beyond the cuts there is no
// gradient; within: dg = da·(u' + 1)·s·(1 + α·g'·(1 − s)), du = da·g'·s.
template <typename C>
struct ClampedSwiglu {
  C slope, limit;

  template <typename A>
  SLUICE_INLINE A value(A gate, A up) const {
    const A g = at_most(gate, limit), u = at_least(at_most(up, limit), -limit);
    return (u + C(1)) * g * sigma(A(slope * g));
  }
  template <typename A>
  SLUICE_INLINE Gradients<A> gradients(A d, A gate, A up) const {
    const A g = at_most(gate, limit), u = at_least(at_most(up, limit), -limit);
    const A s = sigma(A(slope * g));
    const A dg = d * (u + C(1)) * s * (C(1) + slope * g * (C(1) - s)), du = d * g * s;
    const C infinity = std::numeric_limits<C>::infinity();
    return {(u + C(1)) * g * s, within(dg, gate, -infinity, limit), within(du, up, -limit, limit)};
  }
};

// Calls `f` with the activation's rule, whose constants are as wide as C.
template <typename C, typename F>
auto with_rule(const GatedActivation& activation, F f) {
  switch (activation.rule) {
    case GatedRule::kSwiglu: return f(Swiglu{});
    case GatedRule::kGeglu: return f(Geglu{});
    case GatedRule::kClampedSwiglu: break;
  }
  return f(ClampedSwiglu<C>{static_cast<C>(activation.slope), static_cast<C>(activation.limit)});
}

template <typename Rule, typename S, typename A>
SLUICE_SIMD_WIDE void forward_rows(Rule rule, const S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      const A u = static_cast<A>(gate_up[width + i]);
      a[i] = narrow<S>(rule.value(g, u));
    }
  }
}

template <typename Rule, typename S, typename A>
SLUICE_SIMD_WIDE void backward_rows(Rule rule, const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width, da += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      const A u = static_cast<A>(gate_up[width + i]);
      const A d = static_cast<A>(da[i]);
      const auto [value, gate, up] = rule.gradients(d, g, u);
      a[i] = narrow<S>(value);
      gate_up[i] = narrow<S>(gate);
      gate_up[width + i] = narrow<S>(up);
    }
  }
}

// Rows of one thread.
int64_t grain(int64_t width) {
  constexpr int64_t kElements = 4096;
  return kElements / width + 1;
}

}  // namespace

namespace aten {

at::Tensor gated_activation(const GatedActivation& activation, const at::Tensor& gate_up_TG) {
  const int64_t width = gate_up_TG.size(1) / 2;
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor g = wide_TG.narrow(1, 0, width), u = wide_TG.narrow(1, width, width);
  return with_rule<double>(activation, [&](const auto& rule) { return rule.value(g, u); })
      .to(gate_up_TG.scalar_type());
}

at::Tensor gated_activation_backward(const GatedActivation& activation, const at::Tensor& da_TF,
                                     const at::Tensor& gate_up_TG) {
  const int64_t width = da_TF.size(1);
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor g = wide_TG.narrow(1, 0, width), u = wide_TG.narrow(1, width, width);
  const Gradients<at::Tensor> made =
      with_rule<double>(activation, [&](const auto& rule) { return rule.gradients(da_TF, g, u); });
  gate_up_TG.narrow(1, 0, width).copy_(made.gate);
  gate_up_TG.narrow(1, width, width).copy_(made.up);
  return made.value.to(da_TF.scalar_type());
}

}  // namespace aten

at::Tensor gated_activation(const GatedActivation& activation, const at::Tensor& gate_up_TG) {
  RECORD_USER_SCOPE("sluice::gated_activation");
  if constexpr (gpu::kBuilt) {
    if (activation.rule == GatedRule::kSwiglu && gpu::can({gate_up_TG})) return gpu::swiglu(gate_up_TG);
  }
  if (!is_dense_cpu(gate_up_TG)) return aten::gated_activation(activation, gate_up_TG);
  const int64_t rows = gate_up_TG.size(0), width = gate_up_TG.size(1) / 2;
  at::Tensor a_TF = at::empty({rows, width}, gate_up_TG.options());
  SLUICE_DISPATCH(gate_up_TG, "a gated activation", [&] {
    using A = at::opmath_type<scalar_t>;
    const scalar_t* gate_up = gate_up_TG.const_data_ptr<scalar_t>();
    scalar_t* a = a_TF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, grain(width), [&](int64_t begin, int64_t end) {
      with_rule<A>(activation, [&]<typename Rule>(const Rule& rule) {
        forward_rows<Rule, scalar_t, A>(rule, gate_up + begin * 2 * width, a + begin * width, end - begin,
                                        width);
      });
    });
  });
  return a_TF;
}

at::Tensor gated_activation_backward(const GatedActivation& activation, const at::Tensor& da_TF,
                                     const at::Tensor& gate_up_TG) {
  RECORD_USER_SCOPE("sluice::gated_activation_backward");
  if constexpr (gpu::kBuilt) {
    if (activation.rule == GatedRule::kSwiglu && gpu::can({da_TF, gate_up_TG}))
      return gpu::swiglu_backward(da_TF, gate_up_TG);
  }
  if (!is_dense_cpu(gate_up_TG) || !is_dense_cpu(da_TF))
    return aten::gated_activation_backward(activation, da_TF, gate_up_TG);
  const int64_t rows = da_TF.size(0), width = da_TF.size(1);
  at::Tensor a_TF = at::empty({rows, width}, da_TF.options());
  SLUICE_DISPATCH(da_TF, "a gated activation's gradient", [&] {
    using A = at::opmath_type<scalar_t>;
    const scalar_t* da = da_TF.const_data_ptr<scalar_t>();
    scalar_t* gate_up = gate_up_TG.mutable_data_ptr<scalar_t>();
    scalar_t* a = a_TF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, grain(width), [&](int64_t begin, int64_t end) {
      with_rule<A>(activation, [&]<typename Rule>(const Rule& rule) {
        backward_rows<Rule, scalar_t, A>(rule, da + begin * width, gate_up + begin * 2 * width,
                                         a + begin * width, end - begin, width);
      });
    });
  });
  return a_TF;
}

}  // namespace sluice::ops
