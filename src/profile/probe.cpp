#include "profile/probe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/moment_format.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/fit.h"
#include "layers/head.h"
#include "model/program.h"
#include "profile/decode_fit.h"
#include "profile/link_probe.h"
#include "profile/machine.h"
#include "profile/ranks.h"
#include "profile/timing.h"

namespace sluice::profile {

namespace {

constexpr int64_t kLongestTokens = 2048;  // a probe stays short; the fit extrapolates to longer ones
constexpr int64_t kLeastTokens = 16;
constexpr int kLeastRepetitions = 3;
constexpr int kMostRepetitions = 15;

constexpr double KindTimes::*kPasses[] = {&KindTimes::forward_ns, &KindTimes::backward_ns,
                                          &KindTimes::backward_input_ns, &KindTimes::backward_weight_ns};

int64_t longest_tokens(const std::vector<std::vector<int64_t>>& lengths) {
  int64_t longest = kLeastTokens;
  for (const std::vector<int64_t>& each : lengths) {
    longest = std::max(longest, cost::Work::of(each).tokens);
  }
  return longest;
}

std::vector<std::vector<int64_t>> lengths_of(const ProbeOptions& options) {
  return options.lengths.empty() ? probe_lengths(options.context_length) : options.lengths;
}

std::vector<int64_t> packed(size_t count, int64_t length) {
  return std::vector<int64_t>(count, std::max<int64_t>(2, length));
}

// The aligned block of `tp` ranks with this rank; empty for leftover ranks.
std::vector<int> tp_block(int rank, int tp, int world_size) {
  const int first = rank / tp * tp;
  std::vector<int> block;
  if (first + tp > world_size) return block;
  for (int t = 0; t < tp; ++t) block.push_back(first + t);
  return block;
}

// Adds one repetition of each shape.
void time_decoding(const StageProbe& stage, const DecodeShapes& shapes, DecodeTimes& times) {
  for (size_t i = 0; i < shapes.all.size(); ++i) {
    const auto [texts, before, rows] = shapes.all[i];
    times[i].push_back(stage.decode(texts, before, rows));
  }
}

// Measures one TP degree with its groups.
class DegreeProbe {
 public:
  DegreeProbe(const ProbeOptions& options, int tp, base::GemmFormat narrow, comm::Transport& transport)
      : model_(options.model),
        lengths_(lengths_of(options)),
        times_(lengths_.size()),
        device_(options.device),
        narrow_(narrow != base::GemmFormat::kAsComputed) {
    const std::vector<int> block = tp_block(transport.rank(), tp, transport.world_size());
    if (block.empty()) return;
    if (tp > 1) {
      const std::string name =
          base::text(options.name, narrow_ ? "-narrow" : "", "-tp", tp, "-", block.front());
      group_ = transport.communicator(name, block);
    }
    StageProbe::Options stage;
    stage.model = options.model;
    stage.dtype = options.precision.compute;
    stage.device = options.device;
    stage.longest_tokens = longest_tokens(lengths_);
    stage.logits_chunk_bytes = options.logits_chunk_bytes;
    stage.low_precision = narrow;
    stage_ = std::make_unique<StageProbe>(
        stage, layers::TensorParallel{group_.get(), tp, transport.rank() - block.front()});
    bytes_ = stage_->activation_bytes(stage.longest_tokens / tp * tp);
  }

  // Collective over all ranks.
  FittedTimes measure(Ranks& ranks, int64_t budget_ns) {
    Stopwatch stopwatch(device_);
    run_all();  // warm-up of allocator and caches
    const double once_ns = stopwatch.lap_ns();
    const int64_t repetitions = ranks.agree(std::llround(static_cast<double>(budget_ns) / once_ns));
    for (std::vector<StageTimes>& times : times_) times.clear();
    ranks.barrier();
    for (int64_t i = 0; i < std::clamp<int64_t>(repetitions, kLeastRepetitions, kMostRepetitions); ++i) {
      run_all();
    }
    return stage_ == nullptr ? FittedTimes{} : fit_times(lengths_, times_, model::Program(model_));
  }

  // Collective over all ranks. Returns costs by kind; empty on a leftover rank.
  std::vector<cost::DecodeCost> measure_decoding(Ranks& ranks, int64_t budget_ns) const {
    const DecodeShapes shapes(longest_tokens(lengths_), stage_ == nullptr ? 0 : stage_->token_bytes());
    DecodeTimes times(shapes.all.size());
    const auto run_all = [&] {
      if (stage_ != nullptr) time_decoding(*stage_, shapes, times);
    };
    Stopwatch stopwatch(device_);
    run_all();
    const int64_t repetitions =
        ranks.agree(std::llround(static_cast<double>(budget_ns) / std::max(1.0, stopwatch.lap_ns())));
    for (auto& of_shape : times) of_shape.clear();
    ranks.barrier();
    for (int64_t i = 0; i < std::clamp<int64_t>(repetitions, kLeastRepetitions, kMostRepetitions); ++i)
      run_all();
    if (stage_ == nullptr) return {};
    return fit_decoding(shapes, times, model::Program(model_));
  }

  // Activation bytes by kind.
  const std::vector<ActivationBytes>& bytes() const { return bytes_; }

 private:
  // Ranks must not wait for each other in between: with more ranks than cores, a rank that has just waited
  // would have a core to itself for a while.
  void run_all() {
    for (size_t i = 0; i < lengths_.size() && stage_ != nullptr; ++i) {
      times_[i].push_back(stage_->run(lengths_[i]));
    }
  }

  model::Model model_;
  std::vector<std::vector<int64_t>> lengths_;
  std::vector<std::vector<StageTimes>> times_;
  c10::Device device_;
  bool narrow_;
  std::unique_ptr<comm::Communicator> group_;
  std::unique_ptr<StageProbe> stage_;
  std::vector<ActivationBytes> bytes_;
};

void check(const ProbeOptions& options, int world_size) {
  SLUICE_ASSERT(!options.tp_degrees.empty(), "a probe of no TP degree");
  for (const int tp : options.tp_degrees) {
    const std::string fault = model::tp_fault(options.model, tp);
    if (!fault.empty()) throw base::InputError(base::text("[profile] ", fault));
    if (tp < 1 || tp > world_size) {
      throw base::InputError(base::text("[profile] tp ", tp, " needs as many ranks, there are ", world_size,
                                        ": start more ranks or leave the degree out"));
    }
  }
}

std::string hardware(const ProbeOptions& options) {
  const Machine machine = this_machine();
  if (options.device.is_cpu() || machine.gpus.empty()) {
    return base::text(machine.cores, " x ", machine.processor);
  }
  return base::text(machine.gpus.size(), " x ", machine.gpus.front().name);
}

// This rank's measurements.
struct Measured {
  cost::CostModel::Options model;
  std::map<int, std::vector<KindFit>> fits_by_tp;
};

Measured measure(const ProbeOptions& options, Ranks& ranks, comm::Transport& transport) {
  std::map<int, std::vector<KindFit>> fits_by_tp;
  cost::CostModel::Options model = cost::analytic_options(
      options.model, cost::Rates{}, analytic_memory(options), options.tp_degrees, options.topology);
  const bool narrows = options.low_precision != base::GemmFormat::kAsComputed;
  const int64_t probes = 1 + (options.decodes ? 1 : 0) + (narrows ? 1 : 0);
  const int64_t shares = static_cast<int64_t>(options.tp_degrees.size()) * probes + 1;
  auto share_done = [&, done = int64_t{0}]() mutable {
    if (options.progress) options.progress(++done, shares);
  };
  for (const int tp : options.tp_degrees) {
    DegreeProbe degree(options, tp, base::GemmFormat::kAsComputed, transport);
    FittedTimes times = degree.measure(ranks, options.budget_ns / shares);
    fits_by_tp[tp] = std::move(times.fits);
    share_done();
    // A leftover rank has measured nothing; rank 0's figures count.
    for (size_t kind = 0; kind < times.kinds.size(); ++kind) {
      const ActivationBytes& bytes = degree.bytes()[kind];
      model.kinds_by_tp[tp][kind] = {times.kinds[kind], bytes.saved, bytes.deferred, {}, {}};
    }
    if (narrows) {
      DegreeProbe narrow(options, tp, options.low_precision, transport);
      const FittedTimes of_narrow = narrow.measure(ranks, options.budget_ns / shares);
      for (size_t kind = 1; kind + 1 < of_narrow.kinds.size(); ++kind)
        model.kinds_by_tp[tp][kind].low_precision[options.low_precision] = of_narrow.kinds[kind];
      share_done();
    }
    if (!options.decodes) continue;
    std::vector<cost::DecodeCost> decoding = degree.measure_decoding(ranks, options.budget_ns / shares);
    for (size_t kind = 0; kind < decoding.size(); ++kind)
      model.kinds_by_tp[tp][kind].decode = std::move(decoding[kind]);
    share_done();
  }
  LinkProbeOptions links;
  links.model = options.model;
  links.name = options.name;
  links.dtype = options.precision.compute;
  links.device = options.device;
  links.tp = std::ranges::min(options.tp_degrees);
  links.topology = options.topology;
  links.moments = options.moments;
  links.budget_ns = options.budget_ns / shares;
  const LinkMeasurement measured = measure_links(links, transport);
  share_done();
  model.intra = measured.intra;
  model.inter = measured.inter;
  model.host = measured.host;
  model.update_ps_per_element = measured.update_ps_per_element;
  model.code_ps_per_element = measured.code_ps_per_element;
  return {std::move(model), std::move(fits_by_tp)};
}

}  // namespace

std::vector<cost::DecodeCost> probe_decoding(const StageProbe::Options& options,
                                             const layers::TensorParallel& parallel) {
  constexpr int kRepetitions = 5;
  const StageProbe stage(options, parallel);
  const DecodeShapes shapes(options.longest_tokens, stage.token_bytes());
  DecodeTimes times(shapes.all.size());
  time_decoding(stage, shapes, times);  // warm-up
  for (auto& of_shape : times) of_shape.clear();
  for (int i = 0; i < kRepetitions; ++i) time_decoding(stage, shapes, times);
  return fit_decoding(shapes, times, model::Program(options.model));
}

std::vector<std::vector<int64_t>> probe_lengths(int64_t context_length) {
  const int64_t longest = std::clamp(context_length, kLeastTokens, kLongestTokens);
  return {packed(1, longest), packed(4, longest / 8), packed(1, longest / 4), packed(1, longest / 16)};
}

std::vector<std::vector<int64_t>> profile_lengths(int64_t context_length) {
  const int64_t longest = std::max(context_length, kLeastTokens);
  std::vector<std::vector<int64_t>> lengths;
  for (int64_t part = 1; part <= 32; part *= 2) lengths.push_back(packed(1, longest / part));
  lengths.push_back(packed(4, longest / 8));
  lengths.push_back(packed(16, longest / 32));
  return lengths;
}

namespace {

// Condenses the repetitions of one micro-batch: `pick` chooses among the values of each kind's pass.
template <typename Pick>
StageTimes condense(const std::vector<StageTimes>& runs, Pick pick) {
  StageTimes result(runs.front().size());
  for (size_t kind = 0; kind < result.size(); ++kind) {
    KindTimes& times = result[kind];
    for (double KindTimes::*pass : kPasses) {
      std::vector<double> values;
      for (const StageTimes& run : runs) values.push_back(run[kind].*pass);
      times.*pass = pick(values);
    }
    // The fused form saves all-gathers of the weight gradient. One-stage pipelines, where TP is common, run
    // it.
    const double fused_weight_ns = times.backward_ns - times.backward_input_ns;
    times.backward_weight_ns =
        std::clamp(fused_weight_ns, times.backward_weight_ns / 2, times.backward_weight_ns);
  }
  return result;
}

// Disturbed times of short work can look constant; more tokens must cost more all the same.
cost::Fit growing_fit(const std::vector<cost::Sample>& samples, const std::string& what,
                      const cost::Growth& growth) {
  const cost::Fit found = cost::fit(samples, what, growth);
  if (found.a_ns > 0 || found.b_ns > 0) return found;
  const cost::Sample& longest = *std::ranges::max_element(
      samples, {}, [](const cost::Sample& sample) { return cost::Work::of(sample.lengths).tokens; });
  return {.b_ns = longest.time_ns / static_cast<double>(cost::Work::of(longest.lengths).tokens)};
}

double total_ns(const StageTimes& times) {
  double total = 0;
  for (const KindTimes& kind : times) {
    total += kind.forward_ns + kind.backward_input_ns + kind.backward_weight_ns;
  }
  return total;
}

}  // namespace

FittedTimes fit_times(const std::vector<std::vector<int64_t>>& lengths,
                      const std::vector<std::vector<StageTimes>>& times, const model::Program& program) {
  const auto least_of = [](const std::vector<double>& values) { return std::ranges::min(values); };
  std::vector<StageTimes> least;
  std::vector<double> load;  // the machine's: typical time of all kinds together over their least
  for (const std::vector<StageTimes>& runs : times) {
    least.push_back(condense(runs, least_of));
    std::vector<double> whole_ns;
    for (const StageTimes& run : runs) whole_ns.push_back(total_ns(condense({run}, least_of)));
    load.push_back(median(std::move(whole_ns)) / total_ns(least.back()));
  }
  std::vector<KindFit> fits;
  const auto fitted = [&](size_t kind, double KindTimes::*pass, const std::string& what) {
    std::vector<cost::Sample> samples;
    for (size_t i = 0; i < lengths.size(); ++i) {
      samples.push_back({lengths[i], std::max(1.0, least[i][kind].*pass * load[i])});
    }
    const model::TokenWork work = program.kinds()[kind]->work();
    const cost::Fit fit = growing_fit(
        samples, what, {.window = work.window, .linear = work.scanned > 0 && work.attention == 0});
    fits.push_back({what, std::move(samples), fit});
    return fit.quadratic();
  };
  FittedTimes result;
  result.kinds.resize(least.front().size());
  const size_t head = result.kinds.size() - 1;
  for (size_t kind = 1; kind < head; ++kind) {
    const std::string which = head > 2 ? base::text(" of kind ", kind) : "";
    result.kinds[kind] = {fitted(kind, &KindTimes::forward_ns, "forward" + which),
                          fitted(kind, &KindTimes::backward_input_ns, "backward-input" + which),
                          fitted(kind, &KindTimes::backward_weight_ns, "backward-weight" + which)};
  }
  result.kinds.front().forward = fitted(0, &KindTimes::forward_ns, "embedding forward");
  result.kinds.front().backward_input = fitted(0, &KindTimes::backward_input_ns, "embedding backward");
  result.kinds.back().forward = fitted(head, &KindTimes::forward_ns, "head");
  result.fits = std::move(fits);
  return result;
}

cost::AnalyticMemory analytic_memory(const ProbeOptions& options) {
  const int64_t logits_bytes = options.logits_chunk_bytes > 0
                                   ? options.logits_chunk_bytes
                                   : layers::default_logits_chunk_bytes(options.device);
  const int64_t master_bytes = comm::size_of(options.precision.master());
  const int64_t kept_bytes = comm::size_of(options.precision.kept_master());
  const int64_t element_bytes = comm::size_of(options.precision.compute);
  // A chunk's gradient reuses its logits' memory, except on a CPU that computes in a narrower type than the
  // softmax.
  const bool beside = options.device.is_cpu() && element_bytes < master_bytes;
  return {
      .device_bytes = options.device_bytes,
      .element_bytes = element_bytes,
      .accumulator_bytes = master_bytes,
      .owner_bytes_per_parameter = base::owner_bytes_per_parameter(options.moments, master_bytes, kept_bytes),
      .logits_chunk_bytes = logits_bytes + (beside ? logits_bytes * element_bytes / master_bytes : 0),
      .master_bytes = kept_bytes == master_bytes ? 0 : kept_bytes};
}

ProbeResult probe(const ProbeOptions& options, comm::Transport& transport) {
  check(options, transport.world_size());
  Ranks ranks(transport, options.name, options.device);
  Measured measured = measure(options, ranks, transport);
  std::string text;
  if (transport.rank() == 0) {
    const cost::Calibration own{hardware(options),
                                base::text("measured on ", transport.world_size(), " ranks"), measured.model};
    text = cost::to_json(own, {}, transport.world_size()).dump();
  }
  return {cost::calibration_from_json(base::parse_json(ranks.broadcast(text), "the probe"),
                                      "the probe's calibration"),
          std::move(measured.fits_by_tp)};
}

}  // namespace sluice::profile
