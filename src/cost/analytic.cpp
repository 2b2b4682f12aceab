#include "cost/analytic.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/model_figures.h"
#include "model/program.h"

namespace sluice::cost {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

LinkTimes link_times(const strategy::LinkSpeed& speed) {
  return {.latency_ns = std::llround(speed.latency_ns),
          .bytes_per_s = std::max<int64_t>(1, std::llround(speed.bytes_per_ns * 1e9))};
}

// The model's figures for one TP degree.
class Analysis {
 public:
  Analysis(const model::Model& model, const Rates& rates, int64_t element_bytes, int tp)
      : model_(model), rates_(rates), element_bytes_(real(element_bytes)), tp_(tp) {}

  // Time that low-precision products with some matrices save, and the numbers that rounding moves.
  struct Narrow {
    double elements = 0, inputs = 0, outputs = 0;  // the matrices' own, and a token's
    double saved_part = 0;                         // share of their products' time
  };
  OperationTimes block(const model::TokenWork& work, const Narrow& narrow) const {
    const double saved = 2 * narrow.elements * narrow.saved_part / tp_ / rates_.product_flops_per_ns;
    const double rounded_ns = (element_bytes_ + 1) / tp_ / rates_.elementwise_bytes_per_ns;  // a number
    const double products = 2 * real(work.products) / tp_ / rates_.product_flops_per_ns - saved;
    const double saved_of_trained = saved * real(work.trained) / std::max(1.0, real(work.products));
    const double trained = 2 * real(work.trained) / tp_ / rates_.product_flops_per_ns - saved_of_trained;
    const double elementwise = element_bytes_ * real(work.elements) / tp_ / rates_.elementwise_bytes_per_ns;
    const double gathers = work.collectives * collective_ns_per_token();
    const double constant = rates_.layer_overhead_ns + work.collectives * collective_latency_ns();
    const double of_matrices = constant + narrow.elements * rounded_ns;
    const double attention = 2 * real(work.attention) / tp_;  // FLOPs over l²
    const AttentionRate forward = attention_rate(&AttentionKernel::forward);
    const AttentionRate backward = attention_rate(&AttentionKernel::backward);
    const double forward_a = attention / forward.flops_per_ns;
    const double backward_a = 2.5 * attention / backward.flops_per_ns;
    const double scanned = 2 * real(work.scanned) / tp_;
    // A backward computes states again, and two gradients of each product.
    const double scan_forward = scanned / forward.flops_per_ns + forward_a * forward.half_length_tokens;
    const double scan_backward =
        3 * scanned / backward.flops_per_ns + backward_a * backward.half_length_tokens;
    return {
        times(forward_a, products + scan_forward + elementwise + gathers + narrow.inputs * rounded_ns,
              of_matrices),
        times(backward_a, products + scan_backward + 2 * elementwise + gathers + narrow.outputs * rounded_ns,
              of_matrices),
        work.trained == 0
            ? Quadratic{}
            : times(0, trained + gathers + (narrow.inputs + narrow.outputs) * rounded_ns, constant)};
  }

  OperationTimes block(const model::TokenWork& work) const { return block(work, Narrow{}); }

  std::map<base::GemmFormat, OperationTimes> narrow_blocks(const model::Kind& kind) const {
    Narrow narrow;
    for (const model::Parameter& matrix : kind.parameters()) {
      if (!matrix.takes_low_precision()) continue;
      narrow.elements += real(matrix.size());
      narrow.inputs += real(matrix.columns);
      narrow.outputs += real(matrix.rows);
    }
    std::map<base::GemmFormat, OperationTimes> times;
    const auto add = [&](base::GemmFormat format, double speedup) {
      narrow.saved_part = 1 - 1 / speedup;
      times[format] = block(kind.work(), narrow);
    };
    add(base::GemmFormat::kInt8, rates_.int8_speedup);
    add(base::GemmFormat::kFloat8, rates_.float8_speedup);
    return times;
  }

  // Both ends read and write whole rows, whatever TP cuts.
  OperationTimes embedding(const model::TokenWork& work) const {
    const Quadratic each_way = times(0, rows_ns() + work.collectives * collective_ns_per_token(),
                                     rates_.layer_overhead_ns + work.collectives * collective_latency_ns());
    return {each_way, each_way, {}};
  }

  // Three products (logits and two gradients, if the matrix is trained); a sum of statistics each way beside
  // its gathers. An MTP layer goes forward and backward within it.
  OperationTimes head(const model::Kind& kind) const {
    const model::TokenWork work = kind.work();
    const double products = 2 * real(2 * work.products + work.trained) / tp_ / rates_.product_flops_per_ns;
    const double softmax = real(work.elements) * element_bytes_ / tp_ / rates_.elementwise_bytes_per_ns;
    Quadratic whole =
        times(0, products + softmax + 2 * rows_ns() + work.collectives * collective_ns_per_token(),
              rates_.layer_overhead_ns + 5 * collective_latency_ns());
    if (const model::TokenWork mtp = kind.mtp_work(); mtp.products > 0) {
      const OperationTimes own = block(mtp);
      for (const Quadratic& each : {own.forward, own.backward_input, own.backward_weight})
        whole += mtp.window > 0 ? each.through_window() : each;
    }
    return {whole, {}, {}};
  }

  DecodeCost decode(const model::Kind& kind, DecodeShare share, int lanes) const {
    const model::TokenWork work = kind.work();
    const bool alone = share == DecodeShare::kExperts, beside = share == DecodeShare::kBesideExperts;
    double matrices = 0, of_experts = 0;  // elements
    for (const model::Parameter& parameter : kind.parameters()) {
      if (parameter.of_mtp) continue;  // generation does not run it
      (parameter.experts > 0 ? of_experts : matrices) +=
          real(parameter.size()) / (parameter.replicated ? 1 : tp_);
    }
    // The share of the experts' elements that one row visits.
    const double visited = of_experts == 0 ? 0 : std::min(1.0, real(work.routed) / tp_ / of_experts);
    // The embedding reads single rows of its matrix; kExperts has no other matrices.
    if (work.products == 0 || alone) matrices = 0;
    of_experts = beside ? 0 : of_experts / lanes;
    const int64_t multiplied = alone ? work.routed / lanes : work.products - (beside ? work.routed : 0);
    const double products = 2 * real(multiplied) / tp_ / rates_.product_flops_per_ns;
    // Experts alone have one gather and one scatter, as a part of a block has.
    const int collectives = alone ? 2 : work.collectives;
    const double elements = alone ? real(work.elements) / 2 / lanes : real(work.elements);
    const double others = element_bytes_ * elements / tp_ / rates_.memory_bytes_per_ns +
                          (alone ? 1.0 / lanes : 1.0) * collectives * collective_ns_per_token();
    const double overhead =
        rates_.decode_overhead_ns > 0 ? rates_.decode_overhead_ns : rates_.layer_overhead_ns;
    const double fixed = overhead / (alone ? 2 : 1) + collectives * collective_latency_ns();
    const auto read_ns = [&](double rows) {
      const double touched = of_experts * (1 - std::pow(1 - visited, rows));
      return (matrices + touched) * element_bytes_ / rates_.memory_bytes_per_ns;
    };
    DecodeCost cost;
    const auto add = [&](double rows) {
      const double ns = fixed + rows * others + std::max(read_ns(rows), rows * products);
      cost.by_rows.push_back({.rows = std::llround(rows), .ns = std::llround(ns)});
    };
    constexpr double kMostRows = 1 << 16;
    const double balanced = std::ceil(read_ns(kMostRows) / std::max(products, 1e-9));
    for (double rows = 1; rows <= kMostRows; rows *= 2) {
      add(rows);
      if (rows < balanced && balanced < 2 * rows) add(balanced);
    }
    if (alone) return cost;
    const model::CacheBytes cache = kind.cache({.tp = tp_}, static_cast<int64_t>(element_bytes_));
    const double forward_flops = attention_rate(&AttentionKernel::forward).flops_per_ns;
    const double pair = 4 * real(work.attention) / tp_ / forward_flops;
    const int64_t attended =
        std::max(work.attention, work.attention > 0 ? model::products_with_narrow(model_) : 0);
    const double multiplied_ns = 4 * real(attended) / tp_ / forward_flops;
    const double key = std::max(multiplied_ns, real(cache.token) / rates_.memory_bytes_per_ns);
    cost.key = Quadratic::from_ns(key, 0, 0).a;
    cost.pair = Quadratic::from_ns(pair, 0, 0).a;
    cost.state_ns = std::llround(2 * real(cache.sequence) / rates_.memory_bytes_per_ns);
    return cost;
  }

 private:
  // The rate for heads of the model's width, which a wider kernel pads.
  AttentionRate attention_rate(AttentionRate AttentionKernel::*direction) const {
    if (rates_.attention_kernels.empty()) {
      return {direction == &AttentionKernel::forward ? rates_.attention_forward_flops_per_ns
                                                     : rates_.attention_backward_flops_per_ns,
              0};
    }
    const AttentionKernel& kernel = kernel_of_width(rates_.attention_kernels, model_.head_dim());
    AttentionRate rate = kernel.*direction;
    rate.flops_per_ns *= std::min(1.0, real(model_.head_dim()) / real(kernel.width));
    return rate;
  }

  // A wide model on a slow device may exceed the range of coefficients.
  Quadratic times(double a_ns, double b_ns, double c_ns) const {
    constexpr double kMostNs = 0x1p31;
    if (std::max(a_ns, b_ns) < kMostNs) return Quadratic::from_ns(a_ns, b_ns, c_ns);
    throw base::InputError(base::text(
        "at ", rates_.product_flops_per_ns, " FLOPs a nanosecond a token takes ", std::max(a_ns, b_ns) / 1e9,
        " s in one layer, or an end, of a model with hidden ", model_.hidden(), ", heads ", model_.heads(),
        " of ", model_.head_dim(), ", ffn_hidden ", model_.ffn_hidden(), " and vocab ", model_.vocab(),
        ": give a smaller model or a faster machine"));
  }
  double rows_ns() const {
    return 2 * real(model_.hidden()) * element_bytes_ / rates_.elementwise_bytes_per_ns;
  }
  double collective_ns_per_token() const {
    return element_bytes_ * real(model_.hidden()) * (tp_ - 1) / tp_ / rates_.collective.bytes_per_ns;
  }
  double collective_latency_ns() const { return tp_ > 1 ? rates_.collective.latency_ns : 0; }

  const model::Model& model_;
  const Rates& rates_;
  double element_bytes_;
  int tp_;
};

}  // namespace

namespace {

constexpr double kLaunchNs = 5e3;

// Attention, collectives and host time of a cluster whose devices are GPUs.
void take_device(const strategy::Cluster& cluster, Rates& rates) {
  const DeviceRates& device = rates_of_devices(cluster);
  const double pace = cluster.flops_per_ns / device.product_flops_per_ns;
  rates.attention_kernels = device.attention;
  for (AttentionKernel& kernel : rates.attention_kernels) {
    kernel.forward.flops_per_ns *= pace;
    kernel.backward.flops_per_ns *= pace;
  }
  if (cluster.supports_float8 && device.float8_speedup > 0) rates.float8_speedup = device.float8_speedup;
  rates.collective.latency_ns = std::max(rates.collective.latency_ns, device.collective.latency_ns);
  rates.layer_overhead_ns = host_rates().layer_pass_ns;
  rates.ring_step_ns = host_rates().ring_step_ns;
}

}  // namespace

Rates rates_of(const strategy::Cluster& cluster) {
  // Speed of 8-bit units over 16-bit ones by the data sheets of NVIDIA's A100, H100 and L40S.
  constexpr double kUnitsOf8Bits = 2;
  constexpr double kAsFloats = 1;
  std::vector<strategy::LinkSpeed> beyond;
  for (const strategy::NodeGroup& group : cluster.groups) beyond.push_back(group.between);
  const bool cpu = is_cpu(cluster);
  // A core does elementwise work at about one byte of memory traffic for 100 FLOPs of its products.
  const double elementwise = cpu ? cluster.flops_per_ns / 100 : cluster.device_bytes_per_ns;
  Rates rates{.product_flops_per_ns = cluster.flops_per_ns,
              .attention_forward_flops_per_ns = 0.6 * cluster.flops_per_ns,
              .attention_backward_flops_per_ns = 0.45 * cluster.flops_per_ns,
              .elementwise_bytes_per_ns = elementwise,
              .memory_bytes_per_ns = cluster.device_bytes_per_ns,
              .int8_speedup = kUnitsOf8Bits,
              .float8_speedup = cluster.supports_float8 ? kUnitsOf8Bits : kAsFloats,
              .layer_overhead_ns = 20 * kLaunchNs,
              .decode_overhead_ns = 20 * kLaunchNs,
              .collective = cluster.intra_node,
              .intra_node = cluster.intra_node,
              .inter_node = cluster.inter_node,
              .beyond = std::move(beyond),
              .host = {cluster.host_bytes_per_ns, kLaunchNs},
              // 16 bytes read and 14 written for an element's master, two states, gradient and 16-bit copy.
              .update_ns_per_element = 30 / elementwise,
              // A number is read and written as a byte with its part of a factor, then read again and added.
              .code_ns_per_element = 18 / elementwise};
  if (!cpu) take_device(cluster, rates);
  return rates;
}

int64_t host_bytes_of(const strategy::Cluster& cluster) {
  return cluster.host_memory_bytes / cluster.gpus_per_node;
}

DecodeCost analytic_decode(const model::Kind& kind, const model::Model& model, const Rates& rates,
                           int64_t element_bytes, int tp, DecodeShare share, int lanes) {
  return Analysis(model, rates, element_bytes, tp).decode(kind, share, lanes);
}

std::string analytic_source(const model::Model& model, const std::string& where) {
  const std::string counted =
      model.counted()
          ? base::text("; ", model.family(), " is counted from its config.json's fields, not computed")
          : "";
  return base::text("assumed rates of ", where, counted);
}

CostModel::Options analytic_options(const model::Model& model, const Rates& rates,
                                    const AnalyticMemory& memory, std::span<const int> tp_degrees,
                                    const strategy::Topology& topology) {
  CostModel::Options options{.model = model,
                             .intra = link_times(rates.intra_node),
                             .inter = link_times(rates.inter_node),
                             .host = link_times(rates.host),
                             .ring_step_ns = std::llround(rates.ring_step_ns),
                             .update_ps_per_element = std::llround(rates.update_ns_per_element * 1000),
                             .code_ps_per_element = std::llround(rates.code_ns_per_element * 1000),
                             .memory = {.device_bytes = memory.device_bytes,
                                        .element_bytes = memory.element_bytes,
                                        .accumulator_bytes = memory.accumulator_bytes,
                                        .owner_bytes_per_parameter = memory.owner_bytes_per_parameter,
                                        .logits_chunk_bytes = memory.logits_chunk_bytes,
                                        .host_bytes = memory.host_bytes,
                                        .master_bytes = memory.master_bytes},
                             .topology = topology};
  for (const strategy::LinkSpeed& link : rates.beyond) options.beyond.push_back(link_times(link));
  const model::Program program(model);
  for (const int tp : tp_degrees) {
    const std::string fault = model::tp_fault(model, tp);
    SLUICE_ASSERT(fault.empty(), fault);
    const Analysis analysis(model, rates, memory.element_bytes, tp);
    std::vector<KindCost>& kinds = options.kinds_by_tp[tp];
    for (const auto& kind : program.kinds()) {
      const model::TokenWork work = kind->work();
      const model::TokenBytes bytes = kind->bytes({tp}, memory.element_bytes);
      const OperationTimes times = kind == program.kinds().front()  ? analysis.embedding(work)
                                   : kind == program.kinds().back() ? analysis.head(*kind)
                                                                    : analysis.block(work);
      const bool is_block = kind != program.kinds().front() && kind != program.kinds().back();
      kinds.push_back({times, bytes.saved, bytes.deferred, analysis.decode(*kind, DecodeShare::kAll, 1),
                       is_block ? analysis.narrow_blocks(*kind) : KindCost{}.low_precision});
      options.memory.transient_bytes_per_token =
          std::max(options.memory.transient_bytes_per_token, bytes.transient());
    }
  }
  return options;
}

}  // namespace sluice::cost
