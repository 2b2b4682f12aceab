#include "runtime/parameter_store.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "link/wire.h"
#include "model/coded_weight.h"

namespace sluice::runtime {

namespace {

at::TensorOptions tensor_options(const ParameterStore::Options& options, comm::DType dtype) {
  return at::TensorOptions().dtype(scalar_type(dtype)).device(options.device);
}

// Keeps a one-dimensional tensor of at least `size` elements that is little larger, else allocates one. A
// step's memory was proved without another strategy's larger arena.
void fit(at::Tensor& arena, int64_t size, at::TensorOptions options) {
  constexpr int64_t kLargerBy = 64;  // at most 1/64 larger
  const bool fits = arena.defined() && arena.numel() >= size && arena.numel() - size <= size / kLargerBy;
  if (fits) return;
  arena = at::Tensor();
  arena = at::empty({size}, options);
}

// Elements that are narrowed at once, in a copy.
int64_t at_once(const at::Tensor& tensor) { return tensor.is_cpu() ? int64_t{1} << 16 : int64_t{1} << 24; }

void copy_as_bfloat16(const at::Tensor& to, const at::Tensor& from) {
  const int64_t most = at_once(from);
  for (int64_t begin = 0; begin < from.numel(); begin += most) {
    const int64_t elements = std::min(most, from.numel() - begin);
    to.narrow(0, begin, elements).copy_(from.narrow(0, begin, elements).to(at::kBFloat16));
  }
}

}  // namespace

namespace {

constexpr int64_t kBitsBelow = 16;  // bits of a float below those of a bfloat16

}  // namespace

at::Tensor wide_master(const OwnerSlice& slice) {
  if (slice.master.scalar_type() != at::kBFloat16) return slice.master;
  return slice.master.view(at::kShort).to(at::kInt).bitwise_left_shift(kBitsBelow).view(at::kFloat);
}

void set_master(const OwnerSlice& slice, int64_t first, const at::Tensor& numbers) {
  const at::Tensor to = slice.master.narrow(0, first, numbers.numel());
  if (to.scalar_type() != at::kBFloat16) {
    to.copy_(numbers);
    return;
  }
  constexpr int32_t kHalf = 0x7fff, kExponent = 0x7f800000;
  const at::Tensor bits = numbers.to(at::kFloat).view(at::kInt), cut = bits.bitwise_right_shift(kBitsBelow);
  const at::Tensor nearest = bits.add(kHalf).add(cut.bitwise_and(1)).bitwise_right_shift(kBitsBelow);
  const at::Tensor finite = bits.bitwise_and(kExponent).ne(kExponent);
  to.view(at::kShort).copy_(at::where(finite, nearest, cut));
}

ParameterStore::ParameterStore(const model::ParameterTable& table, const Options& options)
    : table_(table),
      options_(options),
      owners_(table.buckets.size()),
      compute_copies_(table.buckets.size()),
      differences_(table.buckets.size()),
      shards_(table.buckets.size()),
      held_(table.buckets.size(), 0) {
  const link::OwnerLayout layout{options.world_size};
  const at::TensorOptions master = tensor_options(options, options.precision.master());
  const at::TensorOptions kept = tensor_options(options, options.precision.kept_master());
  const at::TensorOptions compute = tensor_options(options, options.precision.compute);
  for (const model::Bucket& bucket : table.buckets) {
    OwnerSlice& slice = owners_[static_cast<size_t>(bucket.index)];
    slice.owned = layout.owned(bucket, options.rank);
    slice.master = at::zeros({slice.owned.size()}, bucket.coded ? compute : kept);
    const int64_t learning = bucket.trained && options.trains ? slice.owned.size() : 0;
    const base::MomentFormat format =
        bucket.size < strategy::kLeastDifferences ? base::MomentFormat::kWide : options.moments;
    slice.exp_avg = Moment(learning, format, Moment::Sign::kAny, master);
    slice.exp_avg_sq = Moment(learning, format, Moment::Sign::kNone, master);
    slice.gradient = at::zeros({learning}, master);
  }
  set_parameter_groups(model::parameter_group_runs(table, {}));
  refresh_compute_copies();
}

void ParameterStore::set_parameter_groups(model::ParameterGroupRuns runs) {
  for (size_t bucket = 0; bucket < runs.size(); ++bucket) {
    for (model::ParameterGroupRun& run : runs[bucket])
      run.elements = base::intersect(owners_[bucket].owned, run.elements);
    std::erase_if(runs[bucket], [](const model::ParameterGroupRun& run) { return run.elements.empty(); });
  }
  learning_ = std::move(runs);
}

void ParameterStore::copy_exact(const model::Bucket& bucket) {
  const OwnerSlice& slice = owner(bucket.index);
  for (const model::Parameter& parameter : bucket.parameters) {
    if (!parameter.keeps_its_bits()) continue;
    const base::Interval own = base::intersect(slice.owned, parameter.stored());
    const auto part = [&](const at::Tensor& of) {
      return of.narrow(0, own.begin - slice.owned.begin, own.size());
    };
    if (!own.empty()) part(compute_copy(bucket.index)).copy_(part(slice.master));
  }
}

void ParameterStore::refresh_compute_copies() {
  const at::ScalarType compute = scalar_type(options_.precision.compute);
  const bool narrowed = options_.pull == strategy::PullCodec::kBFloat16 && compute != at::kBFloat16;
  for (const model::Bucket& bucket : table_.buckets) {
    at::Tensor& copy = compute_copies_[static_cast<size_t>(bucket.index)];
    const at::Tensor& master = owner(bucket.index).master;
    // Equal dtypes need no copy: the result aliases the master. Else the copy keeps its memory.
    if (!copy.defined() || copy.is_alias_of(master)) {
      copy = master.to(compute, /*non_blocking=*/false, /*copy=*/copies_apart());
    } else if (!narrowed) {
      copy.copy_(master);
    }
    if (!narrowed) continue;
    copy_as_bfloat16(copy, master);
    copy_exact(bucket);
  }
  ++copies_version_;
  followed_ = false;
}

void ParameterStore::follow_masters() {
  if (!strategy::is_difference(options_.pull)) return refresh_compute_copies();
  for (const model::Bucket& bucket : table_.buckets) {
    if (!bucket.trained) continue;
    const OwnerSlice& slice = owner(bucket.index);
    const at::Tensor& copy = compute_copy(bucket.index);
    const base::IntervalSet coded =
        link::differing(bucket).intersect({slice.owned}).shifted(-slice.owned.begin);
    if (coded.empty()) {
      copy.copy_(slice.master);
      continue;
    }
    CodedNumbers& difference = differences_[static_cast<size_t>(bucket.index)];
    difference = {};  // freed first, so that there are never two
    difference = follow(options_.pull, slice.master, copy, coded);
    copy_exact(bucket);
  }
  ++copies_version_;
  followed_ = true;
}

void ParameterStore::open_step(const std::vector<link::Holding>& holdings, Gradients gradients) {
  const auto trained_room = [&](const link::Holding& holding) {
    const bool trained = table_.buckets[static_cast<size_t>(holding.bucket)].trained;
    return trained && gradients == Gradients::kMade ? holding.room_elements : 0;
  };
  int64_t elements = 0, trained_elements = 0;
  for (const link::Holding& holding : holdings) {
    elements += holding.room_elements;
    trained_elements += trained_room(holding);
  }
  std::fill(shards_.begin(), shards_.end(), ComputeShard{});  // frees an arena that is too small
  fit(parameter_arena_, elements, tensor_options(options_, options_.precision.compute));
  fit(gradient_arena_, trained_elements, tensor_options(options_, options_.precision.master()));
  gradient_arena_.narrow(0, 0, trained_elements).zero_();
  std::fill(held_.begin(), held_.end(), 0);
  int64_t offset = 0, gradient_offset = 0;
  for (const link::Holding& holding : holdings) {
    const auto bucket = static_cast<size_t>(holding.bucket);
    const int64_t size = holding.shard.size();
    const int64_t room = trained_room(holding);
    shards_[bucket] = {parameter_arena_.narrow(0, offset, size),
                       gradient_arena_.narrow(0, gradient_offset, std::min(size, room)),
                       parameter_arena_.narrow(0, offset, holding.room_elements)};
    held_[bucket] = 1;
    offset += holding.room_elements;
    gradient_offset += room;
  }
}

void ParameterStore::close_step() {
  std::fill(shards_.begin(), shards_.end(), ComputeShard{});
  std::fill(held_.begin(), held_.end(), 0);
  parameter_arena_.reset();
  gradient_arena_.reset();
}

ComputeShard& ParameterStore::shard(int bucket) {
  SLUICE_ASSERT(holds(bucket), base::text("rank ", options_.rank, " does not hold bucket ", bucket));
  return shards_[static_cast<size_t>(bucket)];
}

int64_t ParameterStore::owner_bytes() const {
  int64_t bytes = 0;
  for (const OwnerSlice& slice : owners_) {
    bytes += static_cast<int64_t>(slice.master.nbytes() + slice.gradient.nbytes());
    bytes += slice.exp_avg.nbytes() + slice.exp_avg_sq.nbytes();
  }
  for (size_t bucket = 0; bucket < owners_.size(); ++bucket) {
    const at::Tensor& copy = compute_copies_[bucket];
    if (!copy.is_alias_of(owners_[bucket].master)) bytes += static_cast<int64_t>(copy.nbytes());
  }
  return bytes;
}

int64_t ParameterStore::compute_bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor* arena : {&parameter_arena_, &gradient_arena_}) {
    if (arena->defined()) bytes += static_cast<int64_t>(arena->nbytes());
  }
  return bytes;
}

namespace {

// Calls visit(parameter, interval) for every run of the owned slice that lies in one parameter; the
// interval is in flat bucket elements.
template <typename Visit>
void for_each_owned_run(const model::Bucket& bucket, base::Interval owned, Visit visit) {
  for (const model::Parameter& parameter : bucket.parameters) {
    const base::Interval run = base::intersect(owned, parameter.stored());
    if (!run.empty()) visit(parameter, run);
  }
}

constexpr int64_t kGrainElements = 16384;

double initial_deviation(const model::Program& program, model::Start start) {
  constexpr double kDeviation = 0.02;
  if (start != model::Start::kResidual) return kDeviation;
  return kDeviation / std::sqrt(2.0 * static_cast<double>(program.blocks().size()));
}

// An element's initial value from draw `i` of its operation.
double initial_value(const model::Program& program, int64_t position, const model::Parameter& parameter,
                     uint64_t seed, int64_t i) {
  const auto stream = static_cast<uint64_t>(position), draw = static_cast<uint64_t>(i);
  if (parameter.start == model::Start::kAdapter) {
    const int64_t rows = parameter.rows / std::max<int64_t>(1, parameter.experts);
    const auto inputs = static_cast<double>(parameter.transposed ? rows : parameter.columns);
    return (2 * base::random_uniform(seed, stream, draw) - 1) / std::sqrt(inputs);
  }
  if (parameter.start == model::Start::kDecay) {
    constexpr double kMost = 16;
    return std::log(kMost * (1 - base::random_uniform(seed, stream, draw)));
  }
  if (parameter.start == model::Start::kStep) {
    constexpr double kLeast = 0.001, kMost = 0.1;
    const double step = kLeast * std::pow(kMost / kLeast, base::random_uniform(seed, stream, draw));
    return step + std::log(-std::expm1(-step));  // inverse of softplus
  }
  return initial_deviation(program, parameter.start) * base::random_normal(seed, stream, draw);
}

template <typename T>
void initialize_run(const model::Program& program, const model::Bucket& bucket,
                    const model::Parameter& parameter, base::Interval run, uint64_t seed, T* values) {
  const bool ones = parameter.start == model::Start::kOne;
  // Norms come later, from the matrices (load_magnitudes).
  if (ones || parameter.start == model::Start::kZero || parameter.start == model::Start::kNorm) {
    std::fill_n(values, run.size(), ones ? T{1} : T{0});
    return;
  }
  const int64_t first = parameter.place - parameter.offset;  // in the bucket's draws
  at::parallel_for(run.begin, run.end, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i - run.begin] =
          static_cast<T>(initial_value(program, bucket.position, parameter, seed, first + i));
    }
  });
}

}  // namespace

void load_coded(ParameterStore& store, const model::Bucket& bucket, const PlainSource& source) {
  OwnerSlice& slice = store.owner(bucket.index);
  const model::Bucket plain = model::plain_bucket(bucket);
  const at::Tensor host = slice.master.cpu();
  auto* const words = static_cast<std::byte*>(host.mutable_data_ptr());
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const model::BaseFormat& format = bucket.parameters[i].format;
    int64_t first = plain.parameters[i].offset;
    for (const model::CodedGroup& group : model::coded_groups(bucket.parameters[i])) {
      const base::Interval numbers{first, first + group.rows * group.columns};
      first = numbers.end;
      const base::Interval all = group.words_of({0, group.blocks()}), own = base::intersect(all, slice.owned);
      if (own.empty()) continue;
      std::vector<float> values(static_cast<size_t>(numbers.size()));
      source(plain, numbers, values.data());
      std::vector<std::byte> codes(static_cast<size_t>(all.size() * format.word_bytes));
      const std::vector<float> maxima = model::output_maxima(format, group, values.data());
      at::parallel_for(0, group.blocks(), kGrainElements / base::kWeightBlock,
                       [&](int64_t begin, int64_t end) {
                         model::encode(format, group, {begin, end}, values.data(), maxima, codes.data());
                       });
      std::copy_n(codes.begin() + (own.begin - all.begin) * format.word_bytes, own.size() * format.word_bytes,
                  words + (own.begin - slice.owned.begin) * format.word_bytes);
    }
  }
  slice.master.copy_(host);
}

void initialize(ParameterStore& store, uint64_t seed, Coded coded) {
  const model::Program& program = store.table().program;
  const PlainSource drawn = [&](const model::Bucket& plain, base::Interval interval, float* values) {
    for_each_owned_run(plain, interval, [&](const model::Parameter& parameter, base::Interval run) {
      initialize_run(program, plain, parameter, run, seed, values + (run.begin - interval.begin));
    });
  };
  for (const model::Bucket& bucket : store.table().buckets) {
    if (bucket.coded) {
      if (coded == Coded::kLeft) continue;
      load_coded(store, bucket, drawn);
      continue;
    }
    OwnerSlice& slice = store.owner(bucket.index);
    at::Tensor values = slice.master.to(c10::kCPU, scalar_type(store.options().precision.master()));
    for_each_owned_run(bucket, slice.owned, [&](const model::Parameter& parameter, base::Interval run) {
      const int64_t offset = run.begin - slice.owned.begin;
      if (values.scalar_type() == c10::ScalarType::Double) {
        initialize_run(program, bucket, parameter, run, seed, values.mutable_data_ptr<double>() + offset);
      } else {
        initialize_run(program, bucket, parameter, run, seed, values.mutable_data_ptr<float>() + offset);
      }
    });
    slice.master.copy_(values);
  }
  if (coded == Coded::kDrawn) load_magnitudes(store, drawn);
  store.refresh_compute_copies();
}

void load_masters(ParameterStore& store, const MasterSource& source, const PlainSource& coded) {
  std::vector<float> values;
  for (const model::Bucket& bucket : store.table().buckets) {
    if (bucket.coded) {
      SLUICE_ASSERT(coded != nullptr, "a coded bucket needs whole matrices");
      load_coded(store, bucket, coded);
      continue;
    }
    OwnerSlice& slice = store.owner(bucket.index);
    values.resize(static_cast<size_t>(slice.owned.size()));
    const at::Tensor host = at::from_blob(values.data(), {slice.owned.size()}, c10::ScalarType::Float);
    host.copy_(slice.master);
    source(bucket.index, slice.owned, values.data());
    slice.master.copy_(host);
  }
  store.refresh_compute_copies();
}

}  // namespace sluice::runtime
