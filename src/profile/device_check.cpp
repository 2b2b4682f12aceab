#include "profile/device_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/text.h"
#include "ops/attention.h"
#include "ops/device.h"
#include "profile/timing.h"
#include "transport/device_transport.h"
#include "transport/gloo.h"
#include "transport/socket.h"

namespace sluice::profile {
namespace {

using base::text;

// In units of the greatest number of the reference. Bfloat16 has 8 bits; sums are of some hundred products.
double most_error(at::ScalarType type) { return type == at::kBFloat16 ? 2e-2 : 1e-5; }

std::string three_digits(double value) {
  std::array<char, 32> digits{};
  (void)std::snprintf(digits.data(), digits.size(), "%.3g", value);
  return digits.data();
}

// The median of some ten calls, or of as many as take 0.3 s.
double median_ns(c10::Device device, const std::function<void()>& call) {
  constexpr double kMostNs = 3e8;
  call();  // warm-up
  synchronize(device);
  Stopwatch stopwatch(device);
  std::vector<double> laps_ns;
  double sum_ns = 0;
  while (laps_ns.empty() || (laps_ns.size() < 10 && sum_ns < kMostNs)) {
    call();
    sum_ns += laps_ns.emplace_back(stopwatch.lap_ns());
  }
  return median(std::move(laps_ns));
}

// Numbers between -1 and 1 without a pattern, the same on every machine: [shape], FP64 on the host.
at::Tensor numbers(at::IntArrayRef shape, double seed) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return at::sin(at::arange(count, at::kDouble) * (12.9898 + seed)).view(shape);
}

// The fault of `found`, which should be `wanted` (FP64, host) but for rounding; empty: none.
std::string fault_of(const std::string& name, const at::Tensor& found, const at::Tensor& wanted) {
  const double most = most_error(found.scalar_type());
  const at::Tensor difference = (found.to(at::kCPU, at::kDouble) - wanted).abs().max();
  const double error = (difference / wanted.abs().max()).item<double>();
  if (error <= most) return "";  // false for NaN
  return text(name, " differs from the host's by ", error, " of its greatest number, rounding by at most ",
              most);
}

// Runs a check; an exception becomes its fault.
DeviceCheck checked(const std::string& what, const std::function<void(DeviceCheck&)>& check) {
  DeviceCheck result{.what = what, .figure = "", .fault = ""};
  try {
    check(result);
  } catch (const std::exception& error) {
    result.fault = error.what();
  }
  return result;
}

void check_product(c10::Device device, at::ScalarType type, DeviceCheck& result) {
  const at::Tensor a = numbers({192, 320}, 1).to(type), b = numbers({320, 256}, 2).to(type);
  const at::Tensor wanted = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
  result.fault = fault_of("a product", at::matmul(a.to(device), b.to(device)), wanted);
  const int64_t wide = device.is_cpu() ? 512 : 4096;
  const at::Tensor x = at::ones({wide, wide}, at::dtype(type).device(device));
  const double ns = median_ns(device, [&] { at::matmul(x, x); });
  const double flops =
      2.0 * static_cast<double>(wide) * static_cast<double>(wide) * static_cast<double>(wide);
  result.figure =
      text(three_digits(flops / ns / 1e3), " TFLOP/s in ", type == at::kBFloat16 ? "bfloat16" : "float32");
}

// Causal attention over packed sequences, with half as many heads of keys.
struct Attention {
  ops::AttentionInput input;
  at::Tensor dout;
  ops::AttentionResult result;
  ops::AttentionGradient gradient;

  Attention(const std::vector<int64_t>& lengths, c10::Device device, at::ScalarType type,
            at::ScalarType rounded) {
    const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const auto given = [&](int64_t heads, double seed) {
      return numbers({rows, heads, 64}, seed).to(rounded).to(device, type);
    };
    input = {.q_TND = given(4, 1), .k_TKD = given(2, 2), .v_TKD = given(2, 3), .scale = 0.125};
    dout = given(4, 4);
    gradient = {at::empty_like(input.q_TND), at::empty_like(input.k_TKD), at::empty_like(input.v_TKD)};
    const ops::PackedSequences sequences = ops::packed_sequences(lengths, device);
    result = ops::attention(input, sequences);
    ops::attention_backward(dout, input, result, sequences, gradient);
  }
};

void check_attention(c10::Device device, at::ScalarType type, DeviceCheck& result) {
  const std::vector<int64_t> lengths{70, 1, 185};
  const Attention found(lengths, device, type, type);
  const Attention wanted(lengths, at::kCPU, at::kDouble, type);
  const auto note = [&](const std::string& name, const at::Tensor& own, const at::Tensor& reference) {
    if (result.fault.empty()) result.fault = fault_of(name, own, reference);
  };
  note("attention", found.result.out_TND, wanted.result.out_TND);
  note("attention's gradient of queries", found.gradient.dq_TND, wanted.gradient.dq_TND);
  note("attention's gradient of keys", found.gradient.dk_TKD, wanted.gradient.dk_TKD);
  note("attention's gradient of values", found.gradient.dv_TKD, wanted.gradient.dv_TKD);
  const std::vector<int64_t> longer{device.is_cpu() ? 256 : 4096};
  const double ns = median_ns(device, [&] { Attention(longer, device, type, type); });
  const double tokens_per_s = static_cast<double>(longer.front()) / ns * 1e9;
  result.figure =
      text(base::human_count(std::llround(tokens_per_s)), " tokens/s forward and backward, 4 heads");
}

void check_memory(c10::Device device, DeviceCheck& result) {
  const int64_t count = int64_t{device.is_cpu() ? 16 : 256} << 20;  // of 4 bytes
  const at::Tensor written = at::arange(count, at::dtype(at::kInt).device(device));
  at::Tensor copy = at::empty_like(written);
  const double ns = median_ns(device, [&] { copy.copy_(written); });
  const int64_t sum = copy.sum(at::kLong).item<int64_t>(), wanted = count / 2 * (count - 1);
  if (!at::equal(copy, written) || sum != wanted)
    result.fault = text("numbers that were written and copied sum to ", sum, ", not to ", wanted);
  result.figure = text(three_digits(8.0 * static_cast<double>(count) / ns), " GB/s read and written");
}

// One rank's part of a sum in which element i of rank r is r + i: what is wrong with it.
std::string sum_fault(comm::Communicator& all, c10::Device device) {
  constexpr int64_t kCount = 1000;
  const int64_t ranks = all.size();
  const at::Tensor given = at::arange(ranks * kCount, at::dtype(at::kFloat).device(device)) + all.rank();
  const at::Tensor sums = at::empty_like(given.slice(0, 0, kCount));
  all.reduce_scatter(given.data_ptr(), sums.data_ptr(), kCount, comm::DType::kFloat32)->wait();
  const at::Tensor own = at::arange(all.rank() * kCount, (all.rank() + 1) * kCount, at::kFloat);
  const at::Tensor wanted = own * ranks + ranks * (ranks - 1) / 2;
  return at::equal(sums.cpu(), wanted) ? ""
                                       : text("a sum over ", ranks, " ranks is wrong on rank ", all.rank());
}

std::string rank_fault(const transport::Launch& launch, c10::Device device) {
  const auto host = transport::gloo_transport({.launch = launch, .address = "127.0.0.1"});
  ops::prepare_device(device);
  transport::DeviceTransport between;
  if (!device.is_cpu())
    between = transport::device_transport(
        *host, {.kind = transport::DeviceTransportKind::kNccl, .device = device.index(), .most_blocks = {}});
  comm::Transport& transport = device.is_cpu() ? *host : *between.transport;
  std::vector<int> ranks(static_cast<size_t>(launch.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::string fault = sum_fault(*transport.communicator("check", ranks), device);
  transport.check();
  return fault;
}

}  // namespace

std::vector<DeviceCheck> check_device(c10::Device device) {
  const at::ScalarType type = device.is_cpu() ? at::kFloat : at::kBFloat16;
  return {checked("product",
                  [&](DeviceCheck& result) {
                    ops::prepare_device(device);
                    check_product(device, type, result);
                  }),
          checked("attention", [&](DeviceCheck& result) { check_attention(device, type, result); }),
          checked("copies", [&](DeviceCheck& result) { check_memory(device, result); })};
}

DeviceCheck check_collective(const std::vector<c10::Device>& devices) {
  const auto ranks = static_cast<int>(devices.size());
  transport::Socket listener = transport::listen_at("127.0.0.1");
  std::mutex mutex;
  DeviceCheck result = checked("collective", [&](DeviceCheck& all) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const transport::Launch launch{.rank = rank,
                                       .world_size = ranks,
                                       .local_rank = rank,
                                       .local_size = ranks,
                                       .master_port = transport::port_of(listener),
                                       .listening_fd = rank == 0 ? ::dup(listener.fd()) : -1};
        const DeviceCheck own = checked("", [&](DeviceCheck& of_rank) {
          of_rank.fault = rank_fault(launch, devices[static_cast<size_t>(rank)]);
        });
        const std::lock_guard lock(mutex);
        if (all.fault.empty()) all.fault = own.fault;
      });
    }
  });
  result.figure = text(devices.front().is_cpu() ? "Gloo" : "NCCL", ", a sum over ",
                       base::human_count(ranks, devices.front().is_cpu() ? "thread" : "GPU",
                                         devices.front().is_cpu() ? "threads" : "GPUs"));
  return result;
}

}  // namespace sluice::profile
