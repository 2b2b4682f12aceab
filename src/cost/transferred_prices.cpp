#include "cost/transferred_prices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace sluice::cost {
namespace {

constexpr std::array kPasses{&OperationTimes::forward, &OperationTimes::backward_input,
                             &OperationTimes::backward_weight};
constexpr std::array kCoefficients{&Quadratic::a, &Quadratic::b, &Quadratic::c_ns};

using Kinds = std::span<const KindCost>;

// Measured coefficients over counted ones; 1 if nothing was counted or measured.
struct Correction {
  std::array<std::array<double, kCoefficients.size()>, kPasses.size()> factors;

  Correction(Kinds measured, Kinds counted) {
    for (size_t pass = 0; pass < kPasses.size(); ++pass) {
      for (size_t i = 0; i < kCoefficients.size(); ++i) {
        const double expected = sum(counted, pass, i), found = sum(measured, pass, i);
        factors[pass][i] = expected > 0 && found > 0 ? found / expected : 1;
      }
    }
  }

  void apply(OperationTimes& times) const {
    for (size_t pass = 0; pass < kPasses.size(); ++pass) {
      for (size_t i = 0; i < kCoefficients.size(); ++i) {
        int64_t& value = times.*kPasses[pass].*kCoefficients[i];
        constexpr double kMost = 0x1p62;
        value = std::llround(std::min(static_cast<double>(value) * factors[pass][i], kMost));
      }
    }
  }

 private:
  // A windowed layer's squares are squares, too.
  static double sum(Kinds kinds, size_t pass, size_t coefficient) {
    double all = 0;
    for (const KindCost& kind : kinds) {
      const Quadratic& times = kind.times.*kPasses[pass];
      all += static_cast<double>(times.*kCoefficients[coefficient]);
      if (coefficient == 0) all += static_cast<double>(times.a_windowed);
    }
    return all;
  }
};

int nearest_degree(const std::map<int, std::vector<KindCost>>& measured, int tp) {
  int nearest = measured.begin()->first;
  for (const auto& [degree, kinds] : measured) {
    if (std::abs(degree - tp) < std::abs(nearest - tp)) nearest = degree;
  }
  return nearest;
}

void correct(const std::vector<KindCost>& measured, const std::vector<KindCost>& counted,
             std::vector<KindCost>& kinds) {
  const auto blocks = [](const std::vector<KindCost>& all) { return Kinds(all).subspan(1, all.size() - 2); };
  const Correction of_embedding(Kinds(measured).first(1), Kinds(counted).first(1));
  const Correction of_blocks(blocks(measured), blocks(counted));
  const Correction of_head(Kinds(measured).last(1), Kinds(counted).last(1));
  of_embedding.apply(kinds.front().times);
  for (size_t kind = 1; kind + 1 < kinds.size(); ++kind) of_blocks.apply(kinds[kind].times);
  of_head.apply(kinds.back().times);
}

}  // namespace

CostModel::Options transferred_options(const CostModel::Options& measured, const model::Model& model,
                                       const Rates& rates, const AnalyticMemory& memory,
                                       std::span<const int> tp_degrees) {
  CostModel::Options options = analytic_options(model, rates, memory, tp_degrees, measured.topology);
  options.intra = measured.intra;
  options.inter = measured.inter;
  options.beyond = measured.beyond;
  options.host = measured.host;
  options.ring_step_ns = measured.ring_step_ns;
  options.update_ps_per_element = measured.update_ps_per_element;
  options.code_ps_per_element = measured.code_ps_per_element;
  options.memory.attention_bytes = measured.memory.attention_bytes;
  options.memory.attention_bytes_per_token = measured.memory.attention_bytes_per_token;
  if (measured.kinds_by_tp.empty()) return options;
  for (const int tp : tp_degrees) {
    const int known = nearest_degree(measured.kinds_by_tp, tp);
    const std::vector<int> degree{known};
    const CostModel::Options counted =
        analytic_options(measured.model, rates, memory, degree, measured.topology);
    correct(measured.kinds_by_tp.at(known), counted.kinds_by_tp.at(known), options.kinds_by_tp.at(tp));
  }
  return options;
}

}  // namespace sluice::cost
