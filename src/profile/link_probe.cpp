#include "profile/link_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "graph/link_plan.h"
#include "profile/ranks.h"
#include "profile/timing.h"
#include "runtime/communicators.h"
#include "runtime/link_runner.h"
#include "runtime/optimizer.h"
#include "runtime/parameter_store.h"

namespace sluice::profile {

namespace {

constexpr int kLeastRepetitions = 4;
constexpr int kMostRepetitions = 20;
constexpr int64_t kWordBytes = 16;
constexpr int kWords = 4;                                 // exchanged in each repetition
constexpr int64_t kLocalBytesPerSecond = 10'000'000'000;  // where nothing was moved between ranks

// As many pipelines of one stage as the ranks hold.
strategy::Strategy flat_strategy(int tp, int world_size) {
  strategy::Strategy strategy;
  for (int first = 0; first + tp <= world_size; first += tp) {
    strategy::Pipeline pipeline{{tp, 1, 1}, std::vector<int>(static_cast<size_t>(tp))};
    std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), first);
    strategy.pipelines.push_back(std::move(pipeline));
  }
  return strategy;
}

model::ParameterTable two_layers(model::Shape shape) {
  shape.layers = std::min<int64_t>(shape.layers, 2);
  return model::parameter_table(shape);
}

// Exchanges of one level: how long each took, over how many bytes.
struct Level {
  std::vector<double> word_ns;
  std::vector<double> exchange_ns;  // of pulls and pushes of all rounds together, one value a repetition
  int64_t exchanges = 0;            // in each of those
  int64_t bytes = 0;

  cost::LinkTimes times() const {
    const double latency_ns = lower_quartile(word_ns);
    const double moving_ns = lower_quartile(exchange_ns) - latency_ns * static_cast<double>(exchanges);
    const double total_bytes = static_cast<double>(bytes);
    return {.latency_ns = std::llround(latency_ns),
            .bytes_per_s = bytes == 0 ? kLocalBytesPerSecond
                                      : std::max<int64_t>(
                                            1, std::llround(total_bytes * 1e9 / std::max(1.0, moving_ns)))};
  }
};

class LinkProbe {
 public:
  LinkProbe(const LinkProbeOptions& options, comm::Transport& transport)
      : options_(options),
        transport_(transport),
        ranks_(transport, options.name + "-links", options.device),
        inter_(transport.communicator(options.name + "-inter", all_ranks(transport))),
        intra_(transport.communicator(options.name + "-intra", all_ranks(transport))),
        table_(two_layers(options.shape)),
        plan_(graph::link_plan(table_, flat_strategy(options.tp, transport.world_size()),
                               {transport.world_size(), options.gpus_per_node})),
        store_(table_, {transport.rank(), transport.world_size(), {options.dtype}, options.device}),
        wires_(runtime::link_wires(table_, plan_, transport.rank())),
        inter_runner_(*inter_),
        intra_runner_(*intra_) {
    runtime::initialize(store_, 1);
    store_.open_step(plan_.layout.holdings(transport.rank()));
    const int64_t element_bytes =
        comm::size_of(options.dtype) + comm::size_of(store_.options().precision.master());
    for (const graph::LinkPlan::Busiest& busiest : plan_.busiest) {
      inter_level_.bytes += busiest.inter_elements * element_bytes;
      intra_level_.bytes += busiest.intra_elements * element_bytes;
    }
    inter_level_.exchanges = intra_level_.exchanges = 2 * static_cast<int64_t>(plan_.busiest.size());
  }

  LinkMeasurement measure() {
    Stopwatch stopwatch(options_.device);
    repeat();  // warms buffers and connections up
    const int64_t repetitions =
        ranks_.agree(std::llround(static_cast<double>(options_.budget_ns) / stopwatch.lap_ns()));
    inter_level_.word_ns.clear(), inter_level_.exchange_ns.clear();
    intra_level_.word_ns.clear(), intra_level_.exchange_ns.clear();
    update_ns_.clear();
    for (int64_t i = 0; i < std::clamp<int64_t>(repetitions, kLeastRepetitions, kMostRepetitions); ++i)
      repeat();
    LinkMeasurement measurement;
    measurement.intra = intra_level_.times();
    measurement.inter = plan_.has_inter() ? inter_level_.times() : measurement.intra;
    measurement.host = host_times();
    const int64_t owned = std::max<int64_t>(1, plan_.owned_elements[static_cast<size_t>(transport_.rank())]);
    measurement.update_ps_per_element =
        std::max<int64_t>(1, std::llround(median(update_ns_) * 1000 / static_cast<double>(owned)));
    return measurement;
  }

 private:
  // All ranks copy at once, as they offload; pinned where there is a device.
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
      for (int i = 0; i < kLeastRepetitions; ++i) {
        ranks_.barrier();
        Stopwatch stopwatch(options_.device);
        to.copy_(from);
        times_ns.push_back(stopwatch.lap_ns());
      }
      slower_ns = std::max(slower_ns, lower_quartile(times_ns));
    }
    return {0, std::max<int64_t>(1, std::llround(static_cast<double>(kBytes) * 1e9 / slower_ns))};
  }

  void repeat() {
    if (plan_.has_inter()) {
      run(inter_level_, *inter_, inter_runner_, &link::RoundWire::inter);
    }
    run(intra_level_, *intra_, intra_runner_, &link::RoundWire::intra);
    ranks_.barrier();
    Stopwatch stopwatch(options_.device);
    runtime::update(store_, {}, /*targets=*/1, /*gradient_norm=*/1);
    update_ns_.push_back(stopwatch.lap_ns());
  }

  void run(Level& level, comm::Communicator& communicator, runtime::LinkRunner& runner,
           link::WireLevel link::RoundWire::*wire) {
    for (int i = 0; i < kWords; ++i) word(level, communicator);
    const runtime::LinkRunner::Memories pull = runtime::pull_memories(store_);
    const runtime::LinkRunner::Memories push = runtime::push_memories(store_);
    ranks_.barrier();
    Stopwatch stopwatch(options_.device);
    for (const link::RoundWire& round : wires_.pull) runner.run(round.*wire, pull, options_.dtype);
    for (const link::RoundWire& round : wires_.push) {
      runner.run(round.*wire, push, store_.options().precision.master());
    }
    level.exchange_ns.push_back(stopwatch.lap_ns());
  }

  // An exchange of one word with every other rank.
  void word(Level& level, comm::Communicator& communicator) {
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
  Level inter_level_;
  Level intra_level_;
  std::vector<double> update_ns_;
};

}  // namespace

LinkMeasurement measure_links(const LinkProbeOptions& options, comm::Transport& transport) {
  return LinkProbe(options, transport).measure();
}

}  // namespace sluice::profile
