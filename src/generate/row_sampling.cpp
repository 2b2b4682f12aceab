// P: rows, V: the vocabulary, A: alternatives, M: changed logits.
#include "generate/row_sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "ops/device.h"

namespace sluice::generate {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
// Logits of rows that are drawn at once: several matrices of their size are in memory then.
constexpr int64_t kMostBytes = int64_t{32} << 20;

// A number for each row, on the logits' device. [P, 1]
template <typename Figure>
at::Tensor by_row(std::span<const RowDraw> draws, const at::Tensor& like, Figure figure) {
  std::vector<double> figures;
  for (const RowDraw& draw : draws) figures.push_back(static_cast<double>(figure(draw)));
  return ops::to_device(std::span<const double>(figures), like.device()).unsqueeze(1);
}

template <typename Is>
bool any_of(std::span<const RowDraw> draws, Is is) {
  return std::ranges::any_of(draws, [&](const RowDraw& draw) { return is(*draw.sampling); });
}

// Logits of tokens that requests change, as places in the flat matrix. [M]
struct Changes {
  std::vector<int64_t> seen, biased;
  std::vector<double> repetition, less, bias;  // of `seen`, `seen` and `biased`

  void add(int64_t row, int64_t vocabulary, const RowDraw& draw) {
    for (const auto& [token, factor, minus] : penalties_of(*draw.sampling, draw.context, vocabulary)) {
      seen.push_back(row * vocabulary + token);
      repetition.push_back(factor);
      less.push_back(minus);
    }
    for (const auto& [token, more] : draw.sampling->logit_bias) {
      biased.push_back(row * vocabulary + token);
      bias.push_back(more);
    }
  }

  void apply_to(const at::Tensor& logits_PV) const {
    const at::Tensor flat = logits_PV.view(-1);
    const auto here = [&](const auto& values) { return ops::to_device(std::span(values), flat.device()); };
    if (!seen.empty()) {
      const at::Tensor place_M = here(seen), penalty_M = here(repetition);
      const at::Tensor logit_M = flat.index_select(0, place_M);
      const at::Tensor penalised_M = at::where(logit_M > 0, logit_M / penalty_M, logit_M * penalty_M);
      flat.index_copy_(0, place_M, penalised_M - here(less));
    }
    if (!biased.empty()) flat.index_add_(0, here(biased), here(bias));
  }
};

// The logits from which tokens are drawn: those of no tokens are -inf.
at::Tensor drawable(const at::Tensor& logits_PV, std::span<const RowDraw> draws, bool changed) {
  const std::span<const base::Interval> never = draws.front().context.never;
  Changes changes;
  for (size_t row = 0; changed && row < draws.size(); ++row) {
    if (draws[row].sampling->changes_logits())
      changes.add(static_cast<int64_t>(row), logits_PV.size(1), draws[row]);
  }
  if (never.empty() && changes.seen.empty() && changes.biased.empty()) return logits_PV;
  at::Tensor made_PV = logits_PV.clone();
  changes.apply_to(made_PV);
  for (const base::Interval& none : never) {
    const int64_t end = std::min(none.end, made_PV.size(1));
    if (none.begin < end) made_PV.narrow(1, none.begin, end - none.begin).fill_(kNever);
  }
  return made_PV;
}

// The lowest token of those with the highest logit. [P, 1]
at::Tensor likeliest_of(const at::Tensor& logits_PV, const at::Tensor& token_V) {
  return at::where(logits_PV == logits_PV.amax(1, /*keepdim=*/true), token_V, logits_PV.size(1))
      .amin(1, /*keepdim=*/true);
}

// Without the weights of tokens that top_k, top_p or min_p leave out.
at::Tensor candidates_of(const at::Tensor& weight_PV, std::span<const RowDraw> draws,
                         const at::Tensor& place_V) {
  const auto [sorted_PV, token_PV] = at::sort(weight_PV, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  const auto figure = [&](auto of) {
    return by_row(draws, weight_PV, [of](const RowDraw& draw) { return of(*draw.sampling); });
  };
  const double all = std::numeric_limits<double>::infinity();
  const at::Tensor few =
      figure([&](const Sampling& s) { return s.top_k == 0 ? all : static_cast<double>(s.top_k); });
  const at::Tensor share = figure([&](const Sampling& s) { return s.top_p < 1 ? s.top_p : all; });
  const at::Tensor least = figure([](const Sampling& s) { return s.min_p; });
  const at::Tensor before_PV = sorted_PV.cumsum(1) - sorted_PV;
  const at::Tensor stays_PV = (place_V < few)
                                  .logical_and_((before_PV < share * weight_PV.sum(1, true)))
                                  .logical_and_(sorted_PV >= least)
                                  .logical_or_(place_V == 0);
  return at::zeros_like(weight_PV).scatter_(1, token_PV, sorted_PV.masked_fill(stays_PV.logical_not(), 0.0));
}

// [P, 1]
at::Tensor drawn(const at::Tensor& logits_PV, std::span<const RowDraw> draws) {
  const at::Tensor token_V = at::arange(logits_PV.size(1), logits_PV.options().dtype(at::kLong));
  const at::Tensor likeliest_P1 = likeliest_of(logits_PV, token_V);
  if (!any_of(draws, [](const Sampling& sampling) { return sampling.temperature > 0; })) return likeliest_P1;
  const at::Tensor temperature_P1 =
      by_row(draws, logits_PV, [](const RowDraw& draw) { return draw.sampling->temperature; });
  const at::Tensor draws_P1 = temperature_P1 > 0;
  const at::Tensor divisor_P1 = temperature_P1.masked_fill(draws_P1.logical_not(), 1.0);
  at::Tensor weight_PV = ((logits_PV - logits_PV.amax(1, /*keepdim=*/true)) / divisor_P1).exp_();
  const auto leaves_out = [](const Sampling& sampling) {
    return sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0;
  };
  if (any_of(draws, leaves_out)) weight_PV = candidates_of(weight_PV, draws, token_V);
  const at::Tensor until_PV = weight_PV.cumsum(1);
  const at::Tensor uniform_P1 = by_row(draws, logits_PV, [](const RowDraw& draw) {
    return base::random_uniform(draw.sampling->seed, draw.stream, static_cast<uint64_t>(draw.position));
  });
  // The first token up to which the weights exceed the drawn part. Rounding may leave none: then the
  // likeliest.
  const at::Tensor passed_P1 =
      (until_PV <= uniform_P1 * until_PV.narrow(1, until_PV.size(1) - 1, 1)).sum(1, /*keepdim=*/true);
  return at::where(draws_P1.logical_and(passed_P1 < logits_PV.size(1)), passed_P1, likeliest_P1);
}

// The likeliest tokens and their logits. [P, A]
std::pair<at::Tensor, at::Tensor> alternatives_of(const at::Tensor& logits_PV, std::span<const RowDraw> draws,
                                                  int64_t count) {
  const auto [sorted_PV, token_PV] = at::sort(drawable(logits_PV, draws, /*changed=*/false), /*stable=*/true,
                                              /*dim=*/1, /*descending=*/true);
  return {sorted_PV.narrow(1, 0, count), token_PV.narrow(1, 0, count)};
}

// Adds the tokens of some rows.
void sample_some(const at::Tensor& logits_PV, std::span<const RowDraw> draws,
                 std::vector<SampledToken>& tokens) {
  const at::Tensor token_P1 = drawn(drawable(logits_PV, draws, /*changed=*/true), draws);
  const at::Tensor all_P1 = at::logsumexp(logits_PV, 1, /*keepdim=*/true);
  std::vector<at::Tensor> figures{token_P1.to(at::kDouble), logits_PV.gather(1, token_P1) - all_P1};
  int64_t count = 0;
  for (const RowDraw& draw : draws) count = std::max(count, draw.context.alternatives);
  count = std::min(count, logits_PV.size(1));
  if (count > 0) {
    const auto [most_PA, other_PA] = alternatives_of(logits_PV, draws, count);
    figures.push_back(other_PA.to(at::kDouble));
    figures.push_back(most_PA - all_P1);
  }
  const at::Tensor found = at::cat(figures, 1).cpu();  // the only wait of a device
  for (int64_t row = 0; row < std::ssize(draws); ++row) {
    const double* of_row = found.const_data_ptr<double>() + row * found.size(1);
    SampledToken& token = tokens.emplace_back(SampledToken{static_cast<int64_t>(of_row[0]), of_row[1], {}});
    for (int64_t i = 0; i < std::min(count, draws[static_cast<size_t>(row)].context.alternatives); ++i)
      token.alternatives.push_back({static_cast<int64_t>(of_row[2 + i]), of_row[2 + count + i]});
  }
}

}  // namespace

std::vector<SampledToken> sample_on_device(const at::Tensor& logits_PV, std::span<const RowDraw> draws) {
  SLUICE_ASSERT(logits_PV.size(0) == std::ssize(draws), "a draw for each row of logits");
  const int64_t row_bytes = logits_PV.size(1) * static_cast<int64_t>(sizeof(double));
  const int64_t most = std::max<int64_t>(1, kMostBytes / row_bytes);
  std::vector<SampledToken> tokens;
  for (int64_t begin = 0; begin < logits_PV.size(0); begin += most) {
    const int64_t rows = std::min(most, logits_PV.size(0) - begin);
    sample_some(logits_PV.narrow(0, begin, rows).to(at::kDouble),
                draws.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)), tokens);
  }
  return tokens;
}

std::vector<SampledToken> sample_rows(const at::Tensor& logits_PV, std::span<const RowDraw> draws) {
  if (!logits_PV.is_cpu()) return sample_on_device(logits_PV, draws);
  SLUICE_ASSERT(logits_PV.size(0) == std::ssize(draws), "a draw for each row of logits");
  const at::Tensor wide_PV = logits_PV.to(at::kDouble).contiguous();
  const auto vocabulary = static_cast<size_t>(wide_PV.size(1));
  const double* row = wide_PV.const_data_ptr<double>();
  std::vector<SampledToken> tokens;
  for (const RowDraw& draw : draws) {
    tokens.push_back(
        sample_token({row, vocabulary}, *draw.sampling, draw.stream, draw.position, draw.context));
    row += vocabulary;
  }
  return tokens;
}

}  // namespace sluice::generate
