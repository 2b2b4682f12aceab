#include "layers/expanded_base.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "model/coded_weight.h"

namespace sluice::layers {
namespace {

// Calls visit(format, run of rows, words of the run's blocks, rows of the result [rows, columns]).
template <typename Visit>
void for_each_run(const model::Bucket& bucket, const model::Cut& cut, const at::Tensor& words,
                  const at::Tensor& numbers, Visit visit) {
  const base::IntervalSet shard = model::shard_of(bucket, cut);
  int64_t offset = 0;
  for (const model::Parameter& parameter : bucket.parameters) {
    for (const model::CodedRows& run : model::coded_rows(parameter, model::local_rows(parameter, cut))) {
      const base::Interval own = run.words();
      const int64_t elements = run.rows.size() * parameter.columns;
      if (elements == 0) continue;
      visit(parameter.format, run, words.narrow(0, shard.offset_of(own.begin), own.size()),
            numbers.narrow(0, offset, elements).view({run.rows.size(), parameter.columns}));
      offset += elements;
    }
  }
}

at::Tensor room_for(const model::Bucket& bucket, const model::Cut& cut, const at::Tensor& words) {
  return at::empty({model::local_elements(bucket, cut)}, words.options());
}

template <typename Number>
void expand_run(const model::BaseFormat& format, const model::CodedRows& run, const at::Tensor& words,
                const at::Tensor& to) {
  constexpr int64_t kGrainBlocks = 512;
  const base::Interval blocks = run.blocks();
  at::parallel_for(blocks.begin, blocks.end, kGrainBlocks, [&](int64_t begin, int64_t end) {
    model::expand(format, run, {begin, end}, static_cast<const std::byte*>(words.const_data_ptr()),
                  to.mutable_data_ptr<Number>());
  });
}

}  // namespace

at::Tensor expanded(const model::Bucket& bucket, const model::Cut& cut, const at::Tensor& words) {
  if (!words.is_cpu()) return aten::expanded(bucket, cut, words);
  const at::Tensor numbers = room_for(bucket, cut, words);
  for_each_run(bucket, cut, words, numbers,
               [](const model::BaseFormat& format, const model::CodedRows& run, const at::Tensor& own,
                  const at::Tensor& to) {
                 switch (to.scalar_type()) {
                   case at::kDouble: return expand_run<double>(format, run, own, to);
                   case at::kBFloat16: return expand_run<at::BFloat16>(format, run, own, to);
                   default: return expand_run<float>(format, run, own, to);
                 }
               });
  return numbers;
}

namespace aten {
namespace {

// [blocks, bytes] -> [blocks, kWeightBlock] of float.
at::Tensor decoded(base::WeightFormat format, const at::Tensor& bytes_BN) {
  constexpr int64_t kBlock = base::kWeightBlock;
  const auto maxima = [&](int64_t at) {
    return bytes_BN.narrow(1, at, 4).contiguous().view(at::kFloat);  // [blocks, 1]
  };
  if (format == base::WeightFormat::kInt8)
    return bytes_BN.narrow(1, 0, kBlock).contiguous().view(at::kChar).to(at::kFloat) * maxima(kBlock) *
           model::kInt8Step;
  const at::Tensor pairs = bytes_BN.narrow(1, 0, kBlock / 2);
  const at::Tensor high = pairs.bitwise_right_shift(4), low = pairs.bitwise_and(0xF);
  const bool nf4 = format == base::WeightFormat::kNf4;
  const at::Tensor codes = at::stack({nf4 ? high : low, nf4 ? low : high}, 2).view({-1, kBlock});
  const auto& values = nf4 ? model::kNf4Values : model::kE2m1Values;
  const at::Tensor table =
      at::tensor(c10::ArrayRef<float>(values.data(), values.size()), at::kFloat).to(codes.device());
  const at::Tensor numbers = table.index_select(0, codes.view(-1).to(at::kInt)).view({-1, kBlock});
  if (nf4) return numbers * maxima(kBlock / 2);
  const at::Tensor exponents = bytes_BN.narrow(1, kBlock / 2, 2).to(at::kInt) - 127;
  return at::ldexp(numbers.view({-1, 2, kBlock / 2}), exponents.unsqueeze(2)).view({-1, kBlock});
}

// Writes the numbers of blocks [begin, end) of a group to `to`, whose rows are those of `run`.
void place(const model::CodedRows& run, base::Interval blocks, const at::Tensor& numbers_BN,
           const at::Tensor& to) {
  const model::CodedGroup& group = run.group;
  if (group.tiled()) {
    // Whole rows of blocks: [tiles, columns, kWeightBlock] -> [tiles * kWeightBlock, columns].
    const base::Interval rows{blocks.begin / group.columns * base::kWeightBlock,
                              blocks.end / group.columns * base::kWeightBlock};
    const at::Tensor all = numbers_BN.view({-1, group.columns, base::kWeightBlock}).transpose(1, 2);
    const at::Tensor flat = all.reshape({rows.size(), group.columns});
    const base::Interval own = base::intersect(rows, run.rows);
    to.narrow(0, own.begin - run.rows.begin, own.size())
        .copy_(flat.narrow(0, own.begin - rows.begin, own.size()));
    return;
  }
  if (group.outputs_last) {
    const at::Tensor whole = numbers_BN.reshape(-1).narrow(0, 0, group.rows * group.columns);
    to.copy_(whole.view({group.columns, group.rows}).t().narrow(0, run.rows.begin, run.rows.size()));
    return;
  }
  const base::Interval flat{run.rows.begin * group.columns, run.rows.end * group.columns};
  const base::Interval own =
      base::intersect({blocks.begin * base::kWeightBlock, blocks.end * base::kWeightBlock}, flat);
  to.view(-1)
      .narrow(0, own.begin - flat.begin, own.size())
      .copy_(numbers_BN.reshape(-1).narrow(0, own.begin - blocks.begin * base::kWeightBlock, own.size()));
}

// How many blocks are expanded together: about `most`, and whole rows of blocks if blocks are tiled.
int64_t together(const model::CodedGroup& group, int64_t most) {
  if (group.tiled()) return std::max<int64_t>(1, most / group.columns) * group.columns;
  return group.outputs_last ? group.blocks() : most;
}

}  // namespace

at::Tensor expanded(const model::Bucket& bucket, const model::Cut& cut, const at::Tensor& words,
                    int64_t most_blocks) {
  const at::Tensor numbers = room_for(bucket, cut, words);
  for_each_run(bucket, cut, words, numbers,
               [&](const model::BaseFormat& format, const model::CodedRows& run, const at::Tensor& own,
                   const at::Tensor& to) {
                 const base::Interval all = run.blocks();
                 const at::Tensor bytes_BN = own.view({all.size(), run.group.block_words}).view(at::kByte);
                 const int64_t step = together(run.group, most_blocks);
                 for (int64_t begin = all.begin; begin < all.end; begin += step) {
                   const base::Interval some{begin, std::min(all.end, begin + step)};
                   place(run, some,
                         decoded(format.format, bytes_BN.narrow(0, begin - all.begin, some.size())), to);
                 }
               });
  return numbers;
}

}  // namespace aten
}  // namespace sluice::layers
