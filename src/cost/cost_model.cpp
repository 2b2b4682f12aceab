#include "cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/token_dispatch_cost.h"
#include "model/border_rows.h"
#include "model/model_figures.h"

namespace sluice::cost {
namespace {

// Value of a degree in a map that the calibration fills.
template <typename T>
const T& of_tp(const std::map<int, T>& by_tp, int tp) {
  const auto found = by_tp.find(tp);
  if (found != by_tp.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [degree, unused] : by_tp) known.push_back(base::text(degree));
  throw base::InputError(base::text("the calibration has no layer times for tp ", tp, " (it has tp ",
                                    base::join(known, ", "),
                                    "): calibrate again with this degree or leave its schemes out"));
}

// A rank sends about as much as it receives, as all ranks have matrices about as large. With one rank both
// are equal.
int64_t largest_update_bytes(const model::Program& program, const MemoryModel& memory) {
  int64_t most = 0;
  const base::Interval blocks = program.blocks_in(program.run());
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    for (const model::Parameter& parameter : program.kind_at(position).parameters()) {
      if (!parameter.trained || parameter.one_dimensional() || parameter.depthwise) continue;
      const int64_t matrices = std::max({int64_t{1}, parameter.experts, parameter.stacked});
      const bool apart = parameter.tensors.size() > 1 && parameter.experts == 0;
      const int64_t rows = apart ? std::ranges::max(parameter.groups, {}, &model::RowGroup::rows).rows
                                 : parameter.rows / matrices;
      const int64_t elements = rows * parameter.columns, least = std::min(rows, parameter.columns);
      most = std::max(
          most, memory.matrix_update_bytes(4 * elements, 2 * elements + 2 * least * least, 5 * elements));
    }
  }
  return most;
}

}  // namespace

std::shared_ptr<const CostModel::Figures> CostModel::figures_of(Options options) {
  // Balanced lanes hold contiguous parts and attend to earlier lanes alone: attention must be causal.
  if (!options.model.causal()) options.exchanges.balanced = false;
  auto figures = std::make_shared<Figures>();
  figures->window = options.model.window();
  figures->latent = options.model.latent() != nullptr;
  figures->program = model::Program(options.model, options.cut_times);
  if (options.trunk) figures->program = figures->program.trunk(*options.trunk);
  const model::Program& program = figures->program;
  figures->before.emplace_back();
  for (int64_t position = 0; position < program.size(); ++position) {
    BlockCounts counts = figures->before.back();
    const model::TokenWork work = program.kind_at(position).work();
    if (work.window > 0) ++counts.windowed;
    if (work.scanned > 0) ++counts.recurrent;
    if (work.routed > 0) ++counts.experts;
    figures->before.push_back(counts);
  }
  for (const auto& [tp, kinds] : options.kinds_by_tp) {
    SLUICE_ASSERT(kinds.size() == program.kinds().size(),
                  base::text("figures of ", kinds.size(), " kinds for ", program.kinds().size()));
    Sums& sums = figures->sums_by_tp[tp];
    const auto add = [](std::vector<Sum>& of, const Quadratic& times) {
      const Sum before = of.empty() ? Sum{} : of.back();
      if (of.empty()) of.push_back(before);
      of.push_back({before.a + times.a, before.b + times.b, before.c_ns + times.c_ns,
                    before.a_windowed + times.a_windowed});
    };
    for (int64_t position = 0; position < program.size(); ++position) {
      const OperationTimes& times = kinds[static_cast<size_t>(program.at(position).kind)].times;
      const bool windowed = program.kind_at(position).work().window > 0;
      add(sums.forward, windowed ? times.forward.through_window() : times.forward);
      add(sums.backward_input, windowed ? times.backward_input.through_window() : times.backward_input);
      add(sums.backward_weight, times.backward_weight);
      const model::TokenWork work = program.kind_at(position).work();
      const auto add_visited = [&](std::vector<Wide>& of, const Quadratic& all) {
        if (of.empty()) of.push_back(0);
        of.push_back(of.back() + all.share(work.routed, std::max<int64_t>(1, work.products)).b);
      };
      add_visited(sums.visited_forward, times.forward);
      add_visited(sums.visited_input, times.backward_input);
      add_visited(sums.visited_weight, times.backward_weight);
    }
  }
  if (options.newton_schulz_steps > 0 && options.scheme_times.empty())
    figures->matrix_update_bytes = largest_update_bytes(program, options.memory);
  figures->options = std::move(options);
  return figures;
}

CostModel::CostModel(Options options) : figures_(figures_of(std::move(options))) {}

CostModel CostModel::with(Options options) const {
  CostModel model = *this;
  model.figures_ = figures_of(std::move(options));
  return model;
}

const KindCost& CostModel::kind_cost(const strategy::Scheme& scheme, int64_t position) const {
  const std::vector<KindCost>& kinds = of_tp(options().kinds_by_tp, scheme.tp);
  return kinds[static_cast<size_t>(program().at(position).kind)];
}

bool CostModel::decodes(const strategy::Scheme& scheme) const {
  if (!options().kinds_by_tp.contains(scheme.tp)) return false;
  return std::ranges::none_of(options().kinds_by_tp.at(scheme.tp),
                              [](const KindCost& kind) { return kind.decode.by_rows.empty(); });
}

int64_t CostModel::decode_ns(const strategy::Scheme& scheme, base::Interval run,
                             const DecodeWork& work) const {
  const std::vector<KindCost>& kinds = of_tp(options().kinds_by_tp, scheme.tp);
  std::vector<int64_t> count(kinds.size());
  for (int64_t position = run.begin; position < run.end; ++position)
    ++count[static_cast<size_t>(program().at(position).kind)];
  int64_t sum = 0;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    if (count[kind] == 0) continue;
    const bool windowed = window() > 0 && program().kinds()[kind]->work().window > 0;
    const int64_t rows = kind + 1 == kinds.size() ? work.sampled_rows : work.rows;
    sum += count[kind] * cost::decode_ns(kinds[kind].decode, work, rows, windowed);
  }
  return sum * conditions_.slowed_percent / 100;
}

const SchemeTimes* CostModel::published(const strategy::Scheme& scheme) const {
  return options().scheme_times.empty() ? nullptr : &row_of(options().scheme_times, scheme);
}

bool CostModel::has_scheme(const strategy::Scheme& scheme) const {
  if (scheme.pp > program().blocks().size() || !program().tp_fault(scheme.tp).empty()) return false;
  return options().scheme_times.empty() ? options().kinds_by_tp.contains(scheme.tp)
                                        : options().scheme_times.contains({scheme.tp, scheme.pp});
}

std::vector<strategy::Scheme> CostModel::schemes(int most_ranks) const {
  std::vector<strategy::Scheme> schemes;
  const auto add = [&](const strategy::Scheme& scheme) {
    if (scheme.ranks() <= most_ranks && has_scheme(scheme)) schemes.push_back(scheme);
  };
  for (const auto& [degrees, unused] : options().scheme_times) {
    add({.tp = degrees.first, .pp = degrees.second});
  }
  if (!options().scheme_times.empty()) return schemes;
  for (int tp = 1; tp <= std::min(most_ranks, options().topology.node_ranks()); tp *= 2) {
    for (int pp = 1; tp * pp <= most_ranks; pp *= 2) add({.tp = tp, .pp = pp});
  }
  return schemes;
}

int64_t CostModel::in_expert_slots(const strategy::Scheme& scheme, int64_t of_all) const {
  const int64_t even = divide_up(of_all, scheme.ep), spare = options().redundant_experts;
  if (scheme.ep == 1 || spare == 0) return even;
  return even + divide_up(of_all, options().model.experts().count) * spare;
}

int64_t CostModel::expert_imbalance_percent(const strategy::Scheme& scheme) const {
  const auto known = options().expert_imbalance_percent.find(scheme.ep);
  return known == options().expert_imbalance_percent.end() ? kExpertImbalancePercent : known->second;
}

// Times of one kind of cell alone, with all weight gradients in kBackwardWeight. REQUIRES: kind != kBackward.
Quadratic CostModel::own_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  Quadratic priced = priced_times(scheme, kind, run);
  if (low_precision_gemms() != nullptr) priced = narrowed_times(priced, scheme, kind, run);
  if (scheme.ep > 1) priced += divided_times(scheme, kind, run);
  if (branches()) {
    const Quadratic attended = priced.share(conditions_.attended_ppm, Conditions::kWhole);
    priced.a = attended.a;
    priced.a_windowed = attended.a_windowed;
  }
  return conditions_.slowed_percent == 100 ? priced : priced.share(conditions_.slowed_percent, 100);
}

// The same without low precision, EP, branches and slowdown.
Quadratic CostModel::priced_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  if (const SchemeTimes* known = published(scheme)) {
    return known->cell_times(kind, program().blocks_in(run).size(), program().blocks().size() / scheme.pp);
  }
  if (kind != CellKind::kForward) run = program().walked_back(run);
  const Sums& sums = of_tp(figures_->sums_by_tp, scheme.tp);
  const std::vector<Sum>& before = kind == CellKind::kForward         ? sums.forward
                                   : kind == CellKind::kBackwardInput ? sums.backward_input
                                                                      : sums.backward_weight;
  if (run.empty()) return {};
  const Sum& first = before[static_cast<size_t>(run.begin)];
  const Sum& last = before[static_cast<size_t>(run.end)];
  return {narrow(last.a - first.a), narrow(last.b - first.b), narrow(last.c_ns - first.c_ns),
          narrow(last.a_windowed - first.a_windowed)};
}

bool CostModel::knows(base::GemmFormat format, const strategy::Scheme& scheme) const {
  const auto kinds = options().kinds_by_tp.find(scheme.tp);
  if (kinds == options().kinds_by_tp.end()) return false;
  const auto blocks = std::span(kinds->second).subspan(1, kinds->second.size() - 2);
  return std::ranges::all_of(blocks,
                             [&](const KindCost& kind) { return kind.low_precision.contains(format); });
}

// The run's times with those of low-precision layers in place of their full-precision ones.
Quadratic CostModel::narrowed_times(Quadratic times, const strategy::Scheme& scheme, CellKind kind,
                                    base::Interval run) const {
  const strategy::LowPrecisionGemms& gemms = *low_precision_gemms();
  if (!knows(gemms.format, scheme)) return times;
  if (kind != CellKind::kForward) run = program().walked_back(run);
  Quadratic OperationTimes::*const of_cell = kind == CellKind::kForward ? &OperationTimes::forward
                                             : kind == CellKind::kBackwardInput
                                                 ? &OperationTimes::backward_input
                                                 : &OperationTimes::backward_weight;
  for (const int layer : gemms.layers) {
    const int64_t position = program().blocks().begin + layer;
    if (position < run.begin || position >= run.end) continue;
    const KindCost& own = kind_cost(scheme, position);
    const Quadratic narrow = own.low_precision.at(gemms.format).*of_cell, wide = own.times.*of_cell;
    const bool windowed = program().kind_at(position).work().window > 0;
    (windowed ? times.a_windowed : times.a) += narrow.a - wide.a;
    times.b += narrow.b - wide.b;
    times.c_ns += narrow.c_ns - wide.c_ns;
  }
  return times;
}

// The time that EP adds to a cell. The busiest lane's experts take longer than the mean lane's. A backward
// recomputes gate and up: of a lane's assignments beyond the mean or, if the policy keeps none, of all. The
// rows' travel adds what no products hide.
// REQUIRES: scheme.ep > 1.
Quadratic CostModel::divided_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  if (!options().scheme_times.empty()) return {};
  if (kind != CellKind::kForward) run = program().walked_back(run);
  const int64_t layers = counts_of(run).experts;
  if (layers == 0) return {};
  const Sums& sums = of_tp(figures_->sums_by_tp, scheme.tp);
  const auto of_run = [&](const std::vector<Wide>& before) {
    return before[static_cast<size_t>(run.end)] - before[static_cast<size_t>(run.begin)];
  };
  const Wide forward = of_run(sums.visited_forward), weight = of_run(sums.visited_weight);
  const int64_t busiest = expert_imbalance_percent(scheme);
  if (kind == CellKind::kBackwardWeight) return {0, narrow(weight * (busiest - 100) / 100)};
  const bool backward = kind == CellKind::kBackwardInput;
  const bool keeps_travelled = options().execution->keeps_dispatched();
  const int64_t kept_percent = !policy().keeps_dispatched() ? 0 : keeps_travelled ? busiest : 100;
  const Wide again = backward ? forward * 2 / 3 * (busiest - kept_percent) / 100 : 0;
  const Wide once = backward ? of_run(sums.visited_input) : forward;
  const strategy::Topology& topology = options().topology;
  const LinkTimes& between = options().link(topology.level_between_nodes(scheme.ep * scheme.tp));
  const TokenDispatchCost travel = token_dispatch_cost(options().model, options().memory.element_bytes,
                                                       scheme, {options().intra, between, topology});
  const Wide moving = Wide{backward && !keeps_travelled ? travel.backward : travel.forward} * layers;
  const Wide hides = (once + (backward ? weight : 0)) * busiest / 100 + again;
  const Wide more = once * (busiest - 100) / 100 + again;
  const Wide shown = options().execution->exposed_dispatch(moving, hides);
  return {0, narrow(more + shown), layers * (kUsualDispatchChunks + 2) * travel.latency_ns};
}

CostModel::BlockCounts CostModel::counts_of(base::Interval run) const {
  if (run.empty()) return {};
  const BlockCounts& first = figures_->before[static_cast<size_t>(run.begin)];
  const BlockCounts& last = figures_->before[static_cast<size_t>(run.end)];
  return {last.windowed - first.windowed, last.recurrent - first.recurrent, last.experts - first.experts};
}

// States have float or wider numbers, and a TP rank's heads.
int64_t CostModel::state_bytes(const strategy::Scheme& scheme) const {
  const int64_t wide = std::max<int64_t>(4, options().memory.element_bytes);
  return model::state_elements(options().model, scheme.tp) * wide;
}

Quadratic CostModel::cell_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  if (kind == CellKind::kBackward) {
    Quadratic both = cell_times(scheme, CellKind::kBackwardInput, run);
    return both += cell_times(scheme, CellKind::kBackwardWeight, run);
  }
  const bool one_cell = !options().execution->defers_weight_gradients();
  if (one_cell && kind == CellKind::kBackwardWeight) return {};
  Quadratic times = own_times(scheme, kind, run);
  if (kind != CellKind::kBackwardInput) return times;
  if (one_cell) times += own_times(scheme, CellKind::kBackwardWeight, run);
  for (int again = 0; again < options().execution->repeated_forwards(); ++again)
    times += own_times(scheme, CellKind::kForward, program().blocks_in(program().walked_back(run)));
  if (policy().recomputes()) times += recompute_times(scheme, run);
  return times;
}

bool MemoryModel::narrow_masters() {
  constexpr int64_t kNarrowBytes = 2;
  const bool known = layer_parameters == 0 && accumulator_bytes == 4 && owner_bytes_per_parameter > 8;
  if (!known || kept_master_bytes() == kNarrowBytes) return false;
  owner_bytes_per_parameter -= kept_master_bytes() - kNarrowBytes;
  master_bytes = kNarrowBytes;
  return true;
}

bool MemoryModel::code_moments() {
  const int64_t coded = kept_master_bytes() + accumulator_bytes + 2;
  if (layer_parameters > 0 || owner_bytes_per_parameter <= coded) return false;
  owner_bytes_per_parameter = coded;
  return true;
}

int64_t CostModel::recomputed_blocks(base::Interval blocks) const {
  if (!policy().recomputes_some()) return policy().recomputes() ? blocks.size() : 0;
  int64_t count = 0;
  for (int64_t position = blocks.begin; position < blocks.end; ++position)
    count += recomputes(position) ? 1 : 0;
  return count;
}

Quadratic CostModel::recompute_times(const strategy::Scheme& scheme, base::Interval run) const {
  const base::Interval blocks = program().blocks_in(program().walked_back(run));
  Quadratic times;
  for (int64_t begin = blocks.begin, end = begin; begin < blocks.end; begin = end) {
    const bool again = recomputes(begin);
    while (end < blocks.end && program().at(end).kind == program().at(begin).kind && recomputes(end) == again)
      ++end;
    if (!again) continue;
    const model::TokenWork work = program().kind_at(begin).work();
    const Quadratic forward = own_times({.tp = scheme.tp, .pp = scheme.pp}, CellKind::kForward, {begin, end});
    // divided_times() counts the recomputation of experts' gate and up, whatever the policy.
    const int64_t recomputed = work.recomputed - (scheme.ep > 1 ? work.routed * 2 / 3 : 0);
    times += {0, forward.share(recomputed, work.products).b, forward.c_ns};
  }
  return times;
}

int64_t CostModel::cell_ns(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                           const Work& work) const {
  if (kind != CellKind::kBackward) return cell_times(scheme, kind, run).of_work(work);
  return cell_ns(scheme, CellKind::kBackwardInput, run, work) +
         cell_ns(scheme, CellKind::kBackwardWeight, run, work);
}

Quadratic CostModel::stage_times(const strategy::Scheme& scheme, int stage) const {
  const base::Interval run = stage_run(scheme, stage);
  Quadratic times = cell_times(scheme, CellKind::kForward, run);
  return times += cell_times(scheme, CellKind::kBackward, run);
}

int CostModel::first_backward_stage(const strategy::Scheme& scheme) const {
  int stage = 0;
  while (stage < scheme.pp && program().walked_back(stage_run(scheme, stage)).empty()) ++stage;
  return stage;
}

int CostModel::slowest_stage(const strategy::Scheme& scheme) const {
  int slowest = 0;
  for (int stage = 1; stage < scheme.pp; ++stage) {
    if (stage_times(scheme, stage).b >= stage_times(scheme, slowest).b) slowest = stage;
  }
  return slowest;
}

int64_t CostModel::transfer_bytes(const strategy::Scheme& scheme, int64_t tokens) const {
  const int64_t width = model::widest_border(program(), scheme.tp, scheme.pp);
  return divide_up(tokens, scheme.tp) * width * options().memory.element_bytes;
}

int64_t CostModel::transfer_ns(const strategy::Scheme& scheme, int64_t tokens, int level) const {
  const int64_t sharers = level == 0 ? 1 : nic_sharers(scheme.tp);
  return options().link(level).of_bytes(transfer_bytes(scheme, tokens) * sharers);
}

// Queries and outputs would be no fewer bytes: docs/decisions/0005-ring-payload.md.
int64_t CostModel::ring_bytes_per_token(const strategy::Scheme& scheme) const {
  return model::ring_elements(options().model, scheme.tp) * options().memory.element_bytes;
}

// The time of making keys and values again from latent rows, as a share of a block's products. A backward
// makes them again and has two gradients as large.
int64_t CostModel::keys_made_again(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  const int64_t made = model::products_of_keys(options().model);
  if (made == 0) return 0;
  Wide sum = 0;
  const base::Interval blocks = program().blocks_in(run);
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    const Wide forward = kind_cost(scheme, position).times.forward.b;
    sum += forward * made / program().kind_at(position).work().products;
  }
  return narrow((kind == CellKind::kForward ? sum : 3 * sum) * conditions_.slowed_percent / 100);
}

namespace {

// Counts layers in which a recurrence and attention stand side by side.
int64_t doubly_mixed(const model::Program& program, base::Interval blocks) {
  int64_t count = 0;
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    const model::TokenWork work = program.kind_at(position).work();
    if (work.scanned > 0 && work.attention > 0) ++count;
  }
  return count;
}

}  // namespace

RingTimes CostModel::ring_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                                int level) const {
  SLUICE_ASSERT(kind != CellKind::kBackward, "a ring's transfers belong to the input gradient");
  if (kind == CellKind::kBackwardWeight) return {};
  if (kind == CellKind::kBackwardInput) run = program().walked_back(run);
  const int64_t blocks = kind == CellKind::kForward ? 1 : 2 + options().execution->repeated_forwards();
  const BlockCounts counts = counts_of(run);
  const base::Interval blocks_of_run = program().blocks_in(run);
  const int64_t sharers = level == 0 ? 1 : nic_sharers(scheme.tp);
  const Quadratic times = cell_times(scheme, kind, run);
  return {.link = options().link(level),
          .layers = blocks_of_run.size() - counts.windowed - counts.recurrent +
                    (counts.recurrent > 0 ? doubly_mixed(program(), blocks_of_run) : 0),
          .host_ns = blocks * options().ring_step_ns,
          .bytes_per_token = blocks * ring_bytes_per_token(scheme) * sharers,
          .made_per_token = keys_made_again(scheme, kind, run),
          .a = times.a,
          .windowed_layers = counts.windowed,
          .window = window(),
          .sides = options().model.causal() ? 1 : 2,
          .a_windowed = times.a_windowed,
          .scanned_layers = counts.recurrent,
          .state_bytes = state_bytes(scheme)};
}

int64_t CostModel::exchange_ns(int64_t busiest_bytes, int level) const {
  return options().link(level).of_bytes(busiest_bytes);
}

// Rounding to bfloat16 is a copy, as packing is.
int64_t CostModel::code_ns(strategy::Codec codec, int64_t elements) const {
  const bool copied = codec == strategy::Codec::kNone || codec == strategy::Codec::kBFloat16;
  return copied ? 0 : divide_nearest(Wide{elements} * options().code_ps_per_element, 1000);
}

int64_t CostModel::products_ns(double multiply_adds) const {
  if (options().kinds_by_tp.empty()) return 0;
  const auto& [tp, costs] = *options().kinds_by_tp.begin();
  double least_ns = 0;  // of a multiply-add
  for (size_t kind = 1; kind + 1 < costs.size(); ++kind) {
    const auto products = static_cast<double>(program().kinds()[kind]->work().products);
    const double token_ns =
        std::ldexp(static_cast<double>(costs[kind].times.forward.b), -Quadratic::kFractionBits) * tp;
    const double ns = products > 0 ? token_ns / products : 0;
    if (ns > 0 && (least_ns == 0 || ns < least_ns)) least_ns = ns;
  }
  return std::llround(multiply_adds * least_ns);
}

int64_t CostModel::update_ns(int64_t owned_elements) const {
  return divide_nearest(Wide{owned_elements} * options().update_ps_per_element, 1000);
}

}  // namespace sluice::cost
