#include "profile/link_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "graph/link_plan.h"
#include "model/tuning.h"
#include "profile/ranks.h"
#include "profile/timing.h"
#include "runtime/communicators.h"
#include "runtime/link_runner.h"
#include "runtime/optimizer.h"
#include "runtime/parameter_store.h"
#include "runtime/wire_codec.h"

namespace sluice::profile {

namespace {

constexpr int kLeastTransfers = 4;
constexpr int kMostTransfers = 20;
constexpr int64_t kWordBytes = 16;
constexpr int kWords = 4;                                 // exchanged in each repetition
constexpr int64_t kLocalBytesPerSecond = 10'000'000'000;  // if no bytes moved between ranks
// Limits on a plain exchange's bytes from one rank: enough that moving them outlasts the latency.
constexpr int64_t kLeastBulkBytes = 4 << 20;
constexpr int64_t kMostBulkBytes = 64 << 20;

// One-stage pipelines, as many as the ranks hold.
strategy::Strategy flat_strategy(int tp, int world_size) {
  strategy::Strategy strategy;
  for (int first = 0; first + tp <= world_size; first += tp) {
    strategy::Pipeline pipeline{{tp, 1, 1}, std::vector<int>(static_cast<size_t>(tp))};
    std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), first);
    strategy.pipelines.push_back(std::move(pipeline));
  }
  return strategy;
}

model::ParameterTable two_layers(const model::Model& model) {
  return model::parameter_table(model::short_model(model::untuned(model)));
}

// A plain exchange with all peers on one level: equal bytes to each of them.
class Bulk {
 public:
  // `level` returns whether two ranks are peers. REQUIRES: bytes >= 1.
  template <typename Level>
  Bulk(int rank, int world_size, int64_t bytes, const Ranks& ranks, const Level& level)
      : counts_(static_cast<size_t>(world_size), 0) {
    int64_t most_peers = 0;
    int64_t own_peers = 0;
    for (int from = 0; from < world_size; ++from) {
      int64_t peers = 0;
      for (int to = 0; to < world_size; ++to) peers += from != to && level(from, to) ? 1 : 0;
      most_peers = std::max(most_peers, peers);
      if (from == rank) own_peers = peers;
    }
    if (most_peers == 0) return;
    const int64_t piece = (bytes + most_peers - 1) / most_peers;
    for (int to = 0; to < world_size; ++to) {
      if (to != rank && level(rank, to)) counts_[static_cast<size_t>(to)] = piece;
    }
    busiest_bytes_ = piece * most_peers;
    const int64_t own_bytes = std::max<int64_t>(1, piece * own_peers);
    send_ = ranks.bytes(own_bytes);
    receive_ = ranks.bytes(own_bytes);
    send_.zero_();
  }

  // Bytes that the rank with the most peers sends.
  int64_t busiest_bytes() const { return busiest_bytes_; }

  void exchange(comm::Communicator& communicator) {
    communicator.all_to_all(send_.const_data_ptr(), counts_, receive_.mutable_data_ptr(), counts_)->wait();
  }

 private:
  std::vector<int64_t> counts_;
  int64_t busiest_bytes_ = 0;
  at::Tensor send_, receive_;
};

class LinkProbe {
 public:
  LinkProbe(const LinkProbeOptions& options, comm::Transport& transport)
      : options_(options),
        transport_(transport),
        ranks_(transport, options.name + "-links", options.device),
        inter_(transport.communicator(options.name + "-inter", all_ranks(transport))),
        intra_(transport.communicator(options.name + "-intra", all_ranks(transport))),
        table_(two_layers(options.model)),
        plan_(graph::link_plan(table_, flat_strategy(options.tp, transport.world_size()),
                               {transport.world_size(), options.topology})),
        store_(table_, {.rank = transport.rank(),
                        .world_size = transport.world_size(),
                        .precision = {options.dtype},
                        .device = options.device,
                        .moments = options.moments}),
        wires_(runtime::link_wires(table_, plan_, transport.rank())),
        inter_runner_(*inter_),
        intra_runner_(*intra_) {
    runtime::initialize(store_, 1);
    store_.open_step(plan_.layout.holdings(transport.rank()));
    const int64_t element_bytes =
        comm::size_of(options.dtype) + comm::size_of(store_.options().precision.master());
    for (const graph::LinkPlan::Busiest& busiest : plan_.pull.busiest) {
      inter_level_.bytes += busiest.inter_elements * element_bytes;
      intra_level_.bytes += busiest.intra_elements * element_bytes;
    }
    inter_level_.exchanges = intra_level_.exchanges = 2 * static_cast<int64_t>(plan_.pull.busiest.size());
    inter_bulk_ = bulk(inter_level_, /*same_node=*/false);
    intra_bulk_ = bulk(intra_level_, /*same_node=*/true);
  }

  LinkMeasurement measure() {
    Stopwatch stopwatch(options_.device);
    repeat();  // warm-up of buffers and connections
    const int64_t repetitions =
        ranks_.agree(std::llround(static_cast<double>(options_.budget_ns) / stopwatch.lap_ns()));
    for (LinkSamples* level : {&inter_level_, &intra_level_}) {
      level->word_ns.clear(), level->exchange_ns.clear(), level->bulk_ns.clear();
    }
    update_ns_.clear();
    for (int64_t i = 0; i < std::clamp<int64_t>(repetitions, kLeastTransfers, kMostTransfers); ++i) repeat();
    LinkMeasurement measurement;
    measurement.intra = fit_link(intra_level_);
    measurement.inter = plan_.has_inter() ? fit_link(inter_level_) : measurement.intra;
    measurement.host = host_times();
    measurement.code_ps_per_element = code_ps_per_element();
    const int64_t owned = std::max<int64_t>(1, plan_.owned[static_cast<size_t>(transport_.rank())].trained);
    measurement.update_ps_per_element =
        std::max<int64_t>(1, std::llround(median(update_ns_) * 1000 / static_cast<double>(owned)));
    return measurement;
  }

 private:
  int64_t code_ps_per_element() {
    constexpr int64_t kNumbers = 1 << 20;
    constexpr uint64_t kSeed = 1;
    const at::Tensor numbers = at::zeros({kNumbers}, at::dtype(at::kFloat).device(options_.device));
    std::vector<double> times_ns;
    for (int i = 0; i < kLeastTransfers; ++i) {
      ranks_.barrier();
      Stopwatch stopwatch(options_.device);
      runtime::decode(strategy::Codec::kInt8, runtime::encode(strategy::Codec::kInt8, numbers, kSeed),
                      numbers);
      times_ns.push_back(stopwatch.lap_ns());
    }
    return std::max<int64_t>(1, std::llround(lower_quartile(times_ns) * 1000 / kNumbers));
  }

  // All ranks copy at once, as when they offload. Host memory is pinned if there is a GPU.
  cost::LinkTimes host_times() {
    constexpr int64_t kBytes = 16 << 20;
    const at::TensorOptions bytes = at::TensorOptions().dtype(at::kByte);
    const at::Tensor device = at::zeros({kBytes}, bytes.device(options_.device));
    const at::Tensor host =
        at::empty({kBytes}, bytes.device(at::kCPU).pinned_memory(!options_.device.is_cpu()));
    double slower_ns = 1;
    for (const bool out : {true, false}) {
      const at::Tensor& to = out ? host : device;
      const at::Tensor& from = out ? device : host;
      to.copy_(from);  // touches the pages
      std::vector<double> times_ns;
      for (int i = 0; i < kLeastTransfers; ++i) {
        ranks_.barrier();
        Stopwatch stopwatch(options_.device);
        to.copy_(from);
        times_ns.push_back(stopwatch.lap_ns());
      }
      slower_ns = std::max(slower_ns, lower_quartile(times_ns));
    }
    return {0, std::max<int64_t>(1, std::llround(static_cast<double>(kBytes) * 1e9 / slower_ns))};
  }

  // A plain exchange with the bytes of the level's pulls and pushes, within limits.
  std::optional<Bulk> bulk(LinkSamples& level, bool same_node) {
    if (level.bytes == 0) return std::nullopt;
    const strategy::Topology& topology = plan_.topology;
    Bulk bulk(transport_.rank(), transport_.world_size(),
              std::clamp(level.bytes, kLeastBulkBytes, kMostBulkBytes), ranks_,
              [&](int a, int b) { return topology.same_node(a, b) == same_node; });
    level.bulk_bytes = bulk.busiest_bytes();
    return bulk;
  }

  void repeat() {
    if (plan_.has_inter()) {
      run(inter_level_, *inter_, inter_runner_, &link::RoundWire::inter, inter_bulk_);
    }
    run(intra_level_, *intra_, intra_runner_, &link::RoundWire::intra, intra_bulk_);
    ranks_.barrier();
    Stopwatch stopwatch(options_.device);
    runtime::update(store_, {}, /*targets=*/1, /*gradient_norm=*/1);
    update_ns_.push_back(stopwatch.lap_ns());
  }

  void run(LinkSamples& level, comm::Communicator& communicator, runtime::LinkRunner& runner,
           link::WireLevel link::RoundWire::*wire, std::optional<Bulk>& bulk) {
    for (int i = 0; i < kWords; ++i) word(level, communicator);
    const runtime::LinkRunner::Memories pull = runtime::pull_memories(store_);
    const runtime::LinkRunner::Memories push = runtime::push_memories(store_);
    ranks_.barrier();
    Stopwatch stopwatch(options_.device);
    for (const std::vector<link::RoundWire>& round : wires_.pull) {
      for (const link::RoundWire& piece : round) runner.run(piece.*wire, pull, options_.dtype);
    }
    for (const std::vector<link::RoundWire>& round : wires_.push) {
      for (const link::RoundWire& piece : round)
        runner.run(piece.*wire, push, store_.options().precision.master());
    }
    level.exchange_ns.push_back(stopwatch.lap_ns());
    if (!bulk) return;
    ranks_.barrier();
    stopwatch.lap_ns();
    bulk->exchange(communicator);
    level.bulk_ns.push_back(stopwatch.lap_ns());
  }

  // Times an exchange of one word with every other rank.
  void word(LinkSamples& level, comm::Communicator& communicator) {
    const auto size = static_cast<size_t>(communicator.size());
    std::vector<int64_t> bytes(size, kWordBytes);
    bytes[static_cast<size_t>(communicator.rank())] = 0;
    const at::Tensor send = ranks_.bytes(kWordBytes * communicator.size());
    const at::Tensor receive = ranks_.bytes(kWordBytes * communicator.size());
    ranks_.barrier();
    Stopwatch stopwatch(options_.device);
    communicator.all_to_all(send.const_data_ptr(), bytes, receive.mutable_data_ptr(), bytes)->wait();
    level.word_ns.push_back(stopwatch.lap_ns());
  }

  const LinkProbeOptions& options_;
  comm::Transport& transport_;
  Ranks ranks_;
  std::unique_ptr<comm::Communicator> inter_;
  std::unique_ptr<comm::Communicator> intra_;
  model::ParameterTable table_;
  graph::LinkPlan plan_;
  runtime::ParameterStore store_;
  runtime::LinkWires wires_;
  runtime::LinkRunner inter_runner_;
  runtime::LinkRunner intra_runner_;
  LinkSamples inter_level_;
  LinkSamples intra_level_;
  std::optional<Bulk> inter_bulk_;  // none if the level moves nothing
  std::optional<Bulk> intra_bulk_;
  std::vector<double> update_ns_;
};

}  // namespace

cost::LinkTimes fit_link(const LinkSamples& samples) {
  const double latency_ns = lower_quartile(samples.word_ns);
  cost::LinkTimes link{.latency_ns = std::llround(latency_ns), .bytes_per_s = kLocalBytesPerSecond};
  if (samples.bytes == 0) return link;
  const double bulk_ns = lower_quartile(samples.bulk_ns);
  const double least_ns_per_byte =
      std::max(bulk_ns - latency_ns, bulk_ns / 2) / static_cast<double>(samples.bulk_bytes);
  const auto bytes = static_cast<double>(samples.bytes);
  const double moving_ns =
      lower_quartile(samples.exchange_ns) - latency_ns * static_cast<double>(samples.exchanges);
  link.bytes_per_s =
      std::max<int64_t>(1, std::llround(bytes * 1e9 / std::max(moving_ns, bytes * least_ns_per_byte)));
  return link;
}

LinkMeasurement measure_links(const LinkProbeOptions& options, comm::Transport& transport) {
  return LinkProbe(options, transport).measure();
}

}  // namespace sluice::profile
