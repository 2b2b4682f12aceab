#include "runtime/differences.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "link/wire.h"

namespace sluice::runtime {

using strategy::kCodecGroup;
using strategy::PullCodec;

namespace {

// Calls visit(numbers [begin, end)) part after part. A part is as many whole groups as are processed at once,
// so that wider copies of them take little memory.
template <typename Visit>
void for_each_part_of(int64_t numbers, const at::Device& device, const Visit& visit) {
  const int64_t at_once = int64_t{1} << (device.is_cpu() ? 16 : 22);
  for (int64_t begin = 0; begin < numbers; begin += at_once)
    visit(base::Interval{begin, std::min(numbers, begin + at_once)});
}

at::Tensor in(const at::Tensor& x_N, base::Interval some) { return x_N.narrow(0, some.begin, some.size()); }

double largest(PullCodec codec) { return codec == PullCodec::kInt8Difference ? 127 : 7; }

// Multiplies and adds one by one, in the same order on every rank: the same bits everywhere.
void add_products(const at::Tensor& codes_N, const at::Tensor& factor_N, const at::Tensor& copy_N,
                  at::ScalarType wide) {
  const at::Tensor difference_N = codes_N.to(wide).mul_(factor_N.to(wide));
  copy_N.copy_(copy_N.to(wide).add_(difference_N));
}

// The dtype in which differences are computed: float for narrower copies.
at::ScalarType wide_type(const at::Tensor& copy) {
  return copy.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The group factor of each of these numbers, which begin with a group.
at::Tensor of_groups(const at::Tensor& factor_G, base::Interval numbers) {
  const at::Tensor own_G =
      in(factor_G, {numbers.begin / kCodecGroup, strategy::codec_groups(numbers.end)}).unsqueeze(1);
  return own_G.expand({own_G.size(0), kCodecGroup}).reshape({-1}).narrow(0, 0, numbers.size());
}

// Makes the codes and the groups' factors of a part that begins with a group.
void quantise(PullCodec codec, const at::Tensor& difference_N, const CodedNumbers& made) {
  const int64_t numbers = made.codes.numel(), groups = made.factors.numel();
  const at::Tensor difference_GC = difference_N.view({groups, kCodecGroup});
  const double most = largest(codec);
  const at::Tensor factor_G1 = (difference_GC.abs().amax(1, /*keepdim=*/true) / most).to(at::kFloat);
  const at::Tensor divisor_G1 = at::where(factor_G1 == 0, 1.0, factor_G1).to(difference_N.scalar_type());
  const at::Tensor whole_GC = difference_GC.div_(divisor_G1).round_().nan_to_num_(0).clamp_(-most, most);
  made.codes.copy_(whole_GC.view({-1}).narrow(0, 0, numbers));
  made.factors.copy_(factor_G1.view({-1}));
}

}  // namespace

CodedNumbers follow(PullCodec codec, const at::Tensor& master_N, const at::Tensor& copy_N,
                    const base::IntervalSet& coded) {
  const int64_t numbers = copy_N.numel();
  const at::ScalarType wide = wide_type(copy_N);
  const CodedNumbers made{at::empty({numbers}, copy_N.options().dtype(at::kShort)),
                          at::empty({strategy::codec_groups(numbers)}, copy_N.options().dtype(at::kFloat))};
  for_each_part_of(numbers, copy_N.device(), [&](base::Interval part) {
    const base::Interval groups{part.begin / kCodecGroup, strategy::codec_groups(part.end)};
    const at::Tensor difference_N = at::zeros({groups.size() * kCodecGroup}, copy_N.options().dtype(wide));
    const base::IntervalSet own = coded.intersect({part});
    for (const base::Interval& some : own.intervals()) {
      const base::Interval here{some.begin - part.begin, some.end - part.begin};
      in(difference_N, here).copy_(in(master_N, some)).sub_(in(copy_N, some));
    }
    quantise(codec, difference_N, {in(made.codes, part), in(made.factors, groups)});
    add_products(in(made.codes, part), of_groups(made.factors, part), in(copy_N, part), wide);
  });
  return made;
}

namespace {

// Whether a shard's groups lie end to end, as its elements do.
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
    for_each_part_of(copy_N.numel(), copy_N.device(), [&](base::Interval part) {
      add_products(in(came.codes, part), of_groups(came.factors, part), in(copy_N, part), wide);
    });
    return;
  }
  const base::IntervalSet groups = link::coding_groups(shard);
  int64_t element = 0;
  for (const base::Interval& some : shard.intervals()) {
    const int64_t first = some.begin / kCodecGroup, skipped = some.begin % kCodecGroup;
    const at::Tensor factor_G =
        came.factors.narrow(0, groups.offset_of(first), strategy::codec_groups(some.end) - first);
    for_each_part_of(skipped + some.size(), copy_N.device(), [&](base::Interval part) {
      const int64_t before = part.begin == 0 ? skipped : 0;  // in the first group, before the part
      const base::Interval own{element + part.begin + before - skipped, element + part.end - skipped};
      add_products(in(came.codes, own), of_groups(factor_G, part).narrow(0, before, own.size()),
                   in(copy_N, own), wide);
    });
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
