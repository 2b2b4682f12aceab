#include "runtime/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <map>

#include "runtime/narrow_masters.h"
#include "runtime/read_numbers.h"

namespace sluice::runtime {

AdamW::Rates AdamW::rates_of(const model::ParameterGroupRun& run) const {
  const double usual = run.one_dimensional ? 0.0 : weight_decay;
  if (run.group < 0) return {lr, usual};
  const ParameterGroup& group = groups[static_cast<size_t>(run.group)];
  return {group.lr, group.weight_decay.value_or(usual)};
}

double AdamW::gradient_scale(int64_t targets, double gradient_norm) const {
  const double mean = 1.0 / static_cast<double>(targets);
  return clip > 0 ? mean * std::min(1.0, clip / (gradient_norm + 1e-6)) : mean;
}

namespace {

// Elements that a CPU processes at once in a wider copy: as many as its caches hold.
constexpr int64_t kCpuPart = int64_t{1} << 16;

// The parts of an owner slice that learn by gradient, merged into the longest runs.
std::vector<base::Interval> with_gradients(const ParameterStore& store, int bucket) {
  std::vector<base::Interval> runs;
  for (const model::ParameterGroupRun& run : store.parameter_groups(bucket)) {
    if (run.learns != model::Learns::kByGradient) continue;
    if (!runs.empty() && runs.back().end == run.elements.begin) {
      runs.back().end = run.elements.end;
    } else {
      runs.push_back(run.elements);
    }
  }
  return runs;
}

// Applies counts that stand in place of gradients, as they were summed.
void update_counted(ParameterStore& store, const AdamW& options) {
  for (const model::Bucket& bucket : store.table().buckets) {
    const OwnerSlice& slice = store.owner(bucket.index);
    for (const model::ParameterGroupRun& run : store.parameter_groups(bucket.index)) {
      if (run.learns == model::Learns::kByGradient) continue;
      store.wait_for_readers(bucket.index);
      const auto part = [&](const at::Tensor& of) {
        return of.narrow(0, run.elements.begin - slice.owned.begin, run.elements.size());
      };
      const at::Tensor counted = part(slice.gradient);
      if (run.learns == model::Learns::kAsRouterBias) {
        const int64_t first = run.elements.begin - slice.owned.begin;
        const at::Tensor masters = read_masters(slice, {first, first + run.elements.size()});
        masters.sub_(counted.sign(), options.moe_router_bias_update_rate);
        write_masters(slice, first, masters, master_chance(options.update, bucket.index));
      } else {
        part(slice.master).copy_(counted);
      }
      part(store.compute_copy(bucket.index)).copy_(part(slice.master));
    }
  }
}

}  // namespace

// Part by part, because on a CPU the norm makes a copy in double.
double squared_gradient_norm(const ParameterStore& store) {
  std::vector<at::Tensor> norms;
  for (const model::Bucket& bucket : store.table().buckets) {
    const OwnerSlice& slice = store.owner(bucket.index);
    for (const base::Interval run : with_gradients(store, bucket.index)) {
      const int64_t most = slice.gradient.is_cpu() ? kCpuPart : run.size();
      for (int64_t begin = run.begin; begin < run.end; begin += most) {
        const int64_t elements = std::min(most, run.end - begin);
        const at::Tensor gradient = slice.gradient.narrow(0, begin - slice.owned.begin, elements);
        norms.push_back(
            at::linalg_vector_norm(gradient, 2, std::nullopt, /*keepdim=*/false, c10::ScalarType::Double));
      }
    }
  }
  double squares = 0;
  for (const double norm : read_numbers(norms)) squares += norm * norm;
  return squares;
}

namespace {

// Runs of a slice that are updated with the same rates, as _fused_adamw_ takes them.
struct Runs {
  std::vector<at::Tensor> masters, gradients, exp_avgs, exp_avg_sqs, steps;

  void apply(const AdamW& options, const AdamW::Rates& rates) {
    at::_fused_adamw_(masters, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, rates.lr,
                      options.beta1, options.beta2, rates.weight_decay, options.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
};

// The seed that rounds one moment of a bucket in one update: `moment` 0 or 1.
uint64_t chance_of(const AdamW& options, int bucket, int moment) {
  const auto update = static_cast<uint32_t>(options.update);
  return uint64_t{hashed(update)} << 32 |
         hashed(2 * static_cast<uint32_t>(bucket) + static_cast<uint32_t>(moment));
}

// Coded moments and narrow masters are widened, updated and coded again part by part, so that little memory
// is wide at a time: on a CPU as much as its caches hold.
void update_slice(OwnerSlice& slice, int bucket, const std::vector<model::ParameterGroupRun>& learning,
                  const AdamW& options, const at::Tensor& step) {
  const int64_t coded_part = slice.master.is_cpu() ? kCpuPart : int64_t{1} << 24;
  const int64_t all = slice.owned.size(),
                part = slice.exp_avg.coded() || is_narrow(slice.master) ? coded_part : all;
  for (int64_t begin = 0; begin < all; begin += part) {
    const base::Interval some{begin, std::min(all, begin + part)};
    const at::Tensor exp_avg = slice.exp_avg.read(some), exp_avg_sq = slice.exp_avg_sq.read(some);
    const at::Tensor masters = read_masters(slice, some);
    std::map<AdamW::Rates, Runs> by_rates;
    for (const model::ParameterGroupRun& run : learning) {
      const base::Interval own = base::intersect(
          some, {run.elements.begin - slice.owned.begin, run.elements.end - slice.owned.begin});
      if (own.empty() || !options.updates(run)) continue;
      Runs& runs = by_rates[options.rates_of(run)];
      runs.masters.push_back(masters.narrow(0, own.begin - begin, own.size()));
      runs.gradients.push_back(slice.gradient.narrow(0, own.begin, own.size()));
      runs.exp_avgs.push_back(exp_avg.narrow(0, own.begin - begin, own.size()));
      runs.exp_avg_sqs.push_back(exp_avg_sq.narrow(0, own.begin - begin, own.size()));
      runs.steps.push_back(step);
    }
    for (auto& [rates, runs] : by_rates) runs.apply(options, rates);
    write_masters(slice, begin, masters, master_chance(options.update, bucket));
    slice.exp_avg.write(begin, exp_avg, chance_of(options, bucket, 0), slice.owned.begin + begin);
    slice.exp_avg_sq.write(begin, exp_avg_sq, chance_of(options, bucket, 1), slice.owned.begin + begin);
  }
}

}  // namespace

void update(ParameterStore& store, const AdamW& options, int64_t targets, double gradient_norm) {
  const double scale = options.gradient_scale(targets, gradient_norm);
  update_counted(store, options);
#ifdef SLUICE_CUDA
  if (update_by_kernel(store, options, scale)) {
    if (store.copies_apart()) store.follow_masters();
    return;
  }
#endif
  const at::Tensor step =
      at::full({}, static_cast<double>(options.update),
               at::TensorOptions().dtype(c10::ScalarType::Float).device(store.options().device));
  for (const model::Bucket& bucket : store.table().buckets) {
    if (!bucket.trained) continue;
    OwnerSlice& slice = store.owner(bucket.index);
    slice.gradient.mul_(scale);
    store.wait_for_readers(bucket.index);
    update_slice(slice, bucket.index, store.parameter_groups(bucket.index), options, step);
  }
  store.follow_masters();
}

}  // namespace sluice::runtime
