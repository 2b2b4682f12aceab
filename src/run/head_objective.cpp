#include "run/head_objective.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

namespace sluice::run {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// −log σ(x), without overflow.
double softplus_of_minus(double x) { return x > 0 ? std::log1p(std::exp(-x)) : -x + std::log1p(std::exp(x)); }

at::Tensor rows_of(const std::vector<TextNumbers>& texts, size_t first, size_t step, size_t count) {
  const auto width = static_cast<int64_t>(texts.front().size());
  at::Tensor rows = at::empty({static_cast<int64_t>(count), width}, at::kDouble);
  for (size_t i = 0; i < count; ++i)
    std::ranges::copy(texts[first + i * step], rows[static_cast<int64_t>(i)].data_ptr<double>());
  return rows;
}

// The gradient by rows before they were divided by their lengths, given the gradient by unit rows.
at::Tensor undivided(const at::Tensor& gradient_NH, const at::Tensor& unit_NH, const at::Tensor& length_N1) {
  return (gradient_NH - unit_NH * (gradient_NH * unit_NH).sum(1, /*keepdim=*/true)) / length_N1;
}

struct Units {
  at::Tensor unit_NH, length_N1;
};
Units units_of(const at::Tensor& rows_NH) {
  constexpr double kLeast = 1e-12;  // as torch.nn.functional.normalize
  const at::Tensor length_N1 = rows_NH.norm(2, {1}, /*keepdim=*/true).clamp_min(kLeast);
  return {rows_NH / length_N1, length_N1};
}

}  // namespace

HeadOutcome bradley_terry(const std::vector<TextNumbers>& rewards, const std::vector<double>& margins,
                          double center) {
  HeadOutcome outcome;
  const size_t pairs = rewards.size() / 2;
  const auto count = static_cast<double>(pairs);
  double right = 0, margin = 0;
  for (size_t pair = 0; pair < pairs; ++pair) {
    const double better = rewards[2 * pair].front(), worse = rewards[2 * pair + 1].front();
    const double lead = better - worse - (margins.empty() ? 0 : margins[pair]);
    const double sum = better + worse;
    outcome.loss += (softplus_of_minus(lead) + center * sum * sum) / count;
    right += (better > worse ? 1 : 0) / count;
    margin += (better - worse) / count;
    const double pull = -sigmoid(-lead) / count, centre = 2 * center * sum / count;
    outcome.gradients.push_back({pull + centre});
    outcome.gradients.push_back({-pull + centre});
  }
  outcome.accuracy = right;
  outcome.margin = margin;
  return outcome;
}

HeadOutcome info_nce(const std::vector<TextNumbers>& embeddings, int64_t texts_of_group, double temperature) {
  const auto step = static_cast<size_t>(texts_of_group);
  const size_t groups = embeddings.size() / step;
  const Units query = units_of(rows_of(embeddings, 0, step, groups));
  std::vector<at::Tensor> partners;
  for (size_t place = 1; place < step; ++place) partners.push_back(rows_of(embeddings, place, step, groups));
  const Units partner = units_of(at::cat(partners));
  const at::Tensor scores_NM = query.unit_NH.mm(partner.unit_NH.t()).div_(temperature);
  const at::Tensor log_NM = at::log_softmax(scores_NM, 1);
  HeadOutcome outcome;
  outcome.loss = -log_NM.narrow(1, 0, static_cast<int64_t>(groups)).diagonal().mean().item<double>();
  at::Tensor dscores_NM = log_NM.exp();
  dscores_NM.narrow(1, 0, static_cast<int64_t>(groups)).diagonal().sub_(1);
  dscores_NM.div_(temperature * static_cast<double>(groups));
  const at::Tensor dquery = undivided(dscores_NM.mm(partner.unit_NH), query.unit_NH, query.length_N1);
  const at::Tensor dpartner = undivided(dscores_NM.t().mm(query.unit_NH), partner.unit_NH, partner.length_N1);
  const at::Tensor all = at::cat({dquery, dpartner}).contiguous();
  const auto width = all.size(1);
  outcome.gradients.resize(embeddings.size());
  for (size_t group = 0; group < groups; ++group) {
    for (size_t place = 0; place < step; ++place) {
      const double* const row =
          all.const_data_ptr<double>() + static_cast<int64_t>(place * groups + group) * width;
      outcome.gradients[group * step + place].assign(row, row + width);
    }
  }
  return outcome;
}

namespace {

std::vector<TextNumbers> beginnings(const std::vector<TextNumbers>& embeddings, int64_t width) {
  std::vector<TextNumbers> all;
  for (const TextNumbers& whole : embeddings) all.emplace_back(whole.begin(), whole.begin() + width);
  return all;
}

}  // namespace

HeadOutcome matryoshka_info_nce(const std::vector<TextNumbers>& embeddings, int64_t texts_of_group,
                                double temperature, const std::vector<int64_t>& widths) {
  HeadOutcome outcome = info_nce(embeddings, texts_of_group, temperature);
  for (const int64_t width : widths) {
    if (width == std::ssize(embeddings.front())) continue;
    const HeadOutcome own = info_nce(beginnings(embeddings, width), texts_of_group, temperature);
    outcome.loss += own.loss;
    for (size_t text = 0; text < embeddings.size(); ++text) {
      for (size_t i = 0; i < static_cast<size_t>(width); ++i)
        outcome.gradients[text][i] += own.gradients[text][i];
    }
  }
  return outcome;
}

}  // namespace sluice::run
