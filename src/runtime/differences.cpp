#include "runtime/differences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "link/wire.h"

namespace sluice::runtime {

using strategy::kCodecGroup;
using strategy::PullCodec;

namespace {

double largest(PullCodec codec) { return codec == PullCodec::kInt8Difference ? 127 : 7; }

// Products and sums one by one, on whichever rank: the same bits everywhere.
void add_products(const at::Tensor& codes_N, const at::Tensor& factor_N, const at::Tensor& copy_N,
                  at::ScalarType wide) {
  const at::Tensor difference_N = codes_N.to(wide).mul_(factor_N.to(wide));
  copy_N.copy_(copy_N.to(wide).add_(difference_N));
}

// What differences are worked out in: float of narrower copies.
at::ScalarType wide_type(const at::Tensor& copy) {
  return copy.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor of_groups(const at::Tensor& factor_G, int64_t numbers) {
  return factor_G.unsqueeze(1).expand({factor_G.numel(), kCodecGroup}).reshape({-1}).narrow(0, 0, numbers);
}

}  // namespace

CodedNumbers follow(PullCodec codec, const at::Tensor& master_N, const at::Tensor& copy_N,
                    const base::IntervalSet& coded) {
  const int64_t numbers = copy_N.numel(), groups = strategy::codec_groups(numbers);
  const at::ScalarType wide = wide_type(copy_N);
  at::Tensor difference_N = at::zeros({groups * kCodecGroup}, copy_N.options().dtype(wide));
  for (const base::Interval& some : coded.intervals()) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, some.begin, some.size()); };
    part(difference_N).copy_(part(master_N)).sub_(part(copy_N));
  }
  const at::Tensor difference_GC = difference_N.view({groups, kCodecGroup});
  const double most = largest(codec);
  const at::Tensor factor_G1 = (difference_GC.abs().amax(1, /*keepdim=*/true) / most).to(at::kFloat);
  const at::Tensor divisor_G1 = at::where(factor_G1 == 0, 1.0, factor_G1).to(wide);
  const at::Tensor code_N = difference_GC.div_(divisor_G1)
                                .round_()
                                .nan_to_num_(0)
                                .clamp_(-most, most)
                                .to(at::kShort)
                                .view({-1})
                                .narrow(0, 0, numbers)
                                .contiguous();
  CodedNumbers made{code_N, factor_G1.view({-1})};
  add_products(made.codes, of_groups(made.factors, numbers), copy_N, wide);
  return made;
}

namespace {

// Whether a shard's groups lie end to end as its elements do.
bool in_whole_groups(const base::IntervalSet& shard) {
  for (const base::Interval& some : shard.intervals()) {
    const bool last = some == shard.intervals().back();
    if (some.begin % kCodecGroup != 0 || (!last && some.end % kCodecGroup != 0)) return false;
  }
  return true;
}

}  // namespace

void add_differences(const CodedNumbers& came, const base::IntervalSet& shard, const at::Tensor& copy_N) {
  const at::ScalarType wide = wide_type(copy_N);
  if (in_whole_groups(shard)) {
    add_products(came.codes, of_groups(came.factors, copy_N.numel()), copy_N, wide);
    return;
  }
  const base::IntervalSet groups = link::coding_groups(shard);
  int64_t element = 0;
  for (const base::Interval& some : shard.intervals()) {
    const int64_t first = some.begin / kCodecGroup, skipped = some.begin % kCodecGroup;
    const at::Tensor factor_G =
        came.factors.narrow(0, groups.offset_of(first), strategy::codec_groups(some.end) - first);
    add_products(came.codes.narrow(0, element, some.size()),
                 of_groups(factor_G, skipped + some.size()).narrow(0, skipped, some.size()),
                 copy_N.narrow(0, element, some.size()), wide);
    element += some.size();
  }
}

int64_t packed_bytes(PullCodec codec, int64_t numbers) {
  return codec == PullCodec::kInt8Difference ? numbers : (numbers + 1) / 2;
}

at::Tensor packed(PullCodec codec, const at::Tensor& codes_N) {
  if (codec == PullCodec::kInt8Difference) return codes_N.to(at::kChar).view(at::kByte);
  const int64_t numbers = codes_N.numel();
  const at::Tensor even = at::constant_pad_nd(codes_N.add(8).to(at::kByte), {0, numbers % 2}).view({-1, 2});
  return even.select(1, 0).bitwise_or(even.select(1, 1).mul(16));
}

void unpack(PullCodec codec, const at::Tensor& bytes, const at::Tensor& codes_N) {
  if (codec == PullCodec::kInt8Difference) {
    codes_N.copy_(bytes.view(at::kChar));
    return;
  }
  const at::Tensor both = at::stack({bytes.bitwise_and(15), bytes.__rshift__(4)}, 1);
  codes_N.copy_(both.view({-1}).narrow(0, 0, codes_N.numel())).sub_(8);
}

}  // namespace sluice::runtime
