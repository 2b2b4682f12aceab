#include "cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::cost {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 31;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Thirteen days: thousands of cells add up to less than what 64 bits hold.
constexpr int64_t kLongestNs = int64_t{1} << 50;

int64_t narrow(Wide value, int64_t most = std::numeric_limits<int64_t>::max()) {
  SLUICE_ASSERT(value >= 0, "a duration is negative");
  if (value > most) {
    throw base::InputError(
        "by the calibration a cell or transfer takes more than 13 days: correct its figures or plan fewer "
        "tokens");
  }
  return static_cast<int64_t>(value);
}

// Of positive values, which rarely need 128 bits: dividing those takes ten times as long.
Wide divide(Wide value, Wide by) {
  constexpr Wide kNarrow = std::numeric_limits<int64_t>::max();
  if (value > kNarrow || by > kNarrow) return value / by;
  return static_cast<uint64_t>(value) / static_cast<uint64_t>(by);
}

// A duration: value ÷ by to nearest, halves up. REQUIRES: value >= 0, by > 0.
int64_t divide_nearest(Wide value, Wide by) { return narrow(divide(value + by / 2, by), kLongestNs); }

// The same of fixed point.
int64_t whole_ns(Wide fixed) {
  constexpr Wide kHalf = Wide{1} << (Quadratic::kFractionBits - 1);
  return narrow((fixed + kHalf) >> Quadratic::kFractionBits, kLongestNs);
}

int64_t fixed_point(double value, const char* name) {
  SLUICE_ASSERT(std::isfinite(value) && value >= 0 && value < 0x1p31,
                base::text("coefficient ", name, " is ", value, " ns"));
  return std::llround(std::ldexp(value, Quadratic::kFractionBits));
}

// Value of a degree in a map that the calibration fills.
template <typename T>
const T& of_tp(const std::map<int, T>& by_tp, int tp, const char* what) {
  const auto found = by_tp.find(tp);
  if (found != by_tp.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [degree, unused] : by_tp) known.push_back(base::text(degree));
  throw base::InputError(base::text("the calibration has no ", what, " for tp ", tp, " (it has tp ",
                                    base::join(known, ", "),
                                    "): calibrate again with this degree or leave its schemes out"));
}

}  // namespace

const char* name_of(CellKind kind) {
  switch (kind) {
    case CellKind::kForward: return "forward";
    case CellKind::kBackward: return "backward";
    case CellKind::kBackwardInput: return "backward-input";
    case CellKind::kBackwardWeight: return "backward-weight";
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

int64_t windowed_square(int64_t length, int64_t window) {
  return length <= window ? length * length : window * (2 * length - window);
}

Work Work::of(std::span<const int64_t> lengths, int64_t window) {
  Work work;
  for (const int64_t length : lengths) work += of_lane(length, length, 1, window);
  return work;
}

Work Work::of_lane(int64_t piece_tokens, int64_t length, int lanes, int64_t window) {
  SLUICE_ASSERT(length >= 0 && length < kMaxLength && lanes >= 1,
                base::text("length ", length, " on ", lanes, " lanes"));
  const int64_t windowed = window == 0 ? 0 : divide_up(windowed_square(length, window), lanes);
  return {piece_tokens, windowed, (Wide{length} * length + lanes - 1) / lanes};
}

Work& Work::operator+=(const Work& other) {
  tokens += other.tokens;
  windowed += other.windowed;
  squares += other.squares;
  return *this;
}

Work& Work::operator-=(const Work& other) {
  tokens -= other.tokens;
  windowed -= other.windowed;
  squares -= other.squares;
  return *this;
}

Quadratic Quadratic::from_ns(double a_ns, double b_ns, double c_ns) {
  SLUICE_ASSERT(std::isfinite(c_ns) && c_ns >= 0 && c_ns < 0x1p62, base::text("coefficient c is ", c_ns));
  return {fixed_point(a_ns, "a"), fixed_point(b_ns, "b"), std::llround(c_ns)};
}

Wide Quadratic::of_work_fixed(const Work& work) const {
  const Wide whole = Wide{a} * work.squares + Wide{b} * work.tokens;
  return a_windowed == 0 ? whole : whole + Wide{a_windowed} * work.windowed;
}

int64_t Quadratic::of_work(const Work& work) const { return whole_ns(of_work_fixed(work)) + c_ns; }

Quadratic& Quadratic::operator+=(const Quadratic& other) {
  a = narrow(Wide{a} + other.a);
  b = narrow(Wide{b} + other.b);
  c_ns = narrow(Wide{c_ns} + other.c_ns);
  a_windowed = narrow(Wide{a_windowed} + other.a_windowed);
  return *this;
}

Quadratic Quadratic::times(int64_t count) const {
  return {narrow(Wide{a} * count), narrow(Wide{b} * count), narrow(Wide{c_ns} * count),
          narrow(Wide{a_windowed} * count)};
}

Quadratic Quadratic::share(int64_t part, int64_t whole) const {
  const auto of = [&](int64_t value) { return narrow((Wide{value} * part + whole / 2) / whole); };
  return {of(a), of(b), of(c_ns), of(a_windowed)};
}

int64_t LinkTimes::of_bytes(int64_t bytes) const {
  return latency_ns + divide_nearest(Wide{bytes} * 1'000'000'000, bytes_per_s);
}

namespace {

// Of what `transfers_ns` takes beside `attention`, of which lanes hide all but the part on what they held at
// first.
int64_t exposed_beside(Wide transfers_ns, Wide attention, int lanes) {
  const Wide exposed = (transfers_ns << Quadratic::kFractionBits) - (attention - divide(attention, lanes));
  return exposed <= 0 ? 0 : whole_ns(exposed);
}

}  // namespace

// A lane's tokens are two chunks of each of m sequences. Where all are longer than the window,
// k·windowed = 2·window·k·tokens − m·window², so 2·m·window, what its chunks see of others, follows from the
// sums.
int64_t RingTimes::exposed_in_windows_ns(const Work& shared, int lanes) const {
  if (windowed_layers == 0 || lanes == 1 || shared.tokens == 0) return 0;
  const Wide most = Wide{lanes - 1} * shared.tokens;
  const Wide seen = 2 * Wide{lanes} * (2 * Wide{window} * shared.tokens - shared.windowed) / window;
  const auto tokens = static_cast<int64_t>(std::clamp<Wide>(seen, 0, most));
  const int64_t steps = std::min<int64_t>(lanes - 1, 2 * divide_up(tokens, shared.tokens));
  const int64_t step_ns = link.of_bytes(bytes_per_token * tokens) + link.latency_ns * (steps - 1);
  return exposed_beside(Wide{windowed_layers} * step_ns, Wide{a_windowed} * shared.windowed, lanes);
}

int64_t RingTimes::exposed_ns(const Work& shared, int lanes) const {
  if (layers == 0 || lanes == 1) return exposed_in_windows_ns(shared, lanes);
  const Wide steps_ns = Wide{lanes - 1} * layers * link.of_bytes(bytes_per_token * shared.tokens);
  return exposed_beside(steps_ns, Wide{a} * shared.squares, lanes) + exposed_in_windows_ns(shared, lanes);
}

std::shared_ptr<const CostModel::Tables> CostModel::tables_of(const Options& options) {
  auto tables = std::make_shared<Tables>();
  tables->program = model::Program(options.shape);
  const model::Program& program = tables->program;
  tables->windowed_before = {0};
  for (int64_t position = 0; position < program.size(); ++position) {
    tables->windowed_before.push_back(tables->windowed_before.back() +
                                      (program.kind_at(position).work().window > 0 ? 1 : 0));
  }
  for (const auto& [tp, kinds] : options.kinds_by_tp) {
    SLUICE_ASSERT(kinds.size() == program.kinds().size(),
                  base::text("figures of ", kinds.size(), " kinds for ", program.kinds().size()));
    Sums& sums = tables->sums_by_tp[tp];
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
    }
  }
  return tables;
}

CostModel::CostModel(Options options, std::shared_ptr<const Tables> tables)
    : options_(std::move(options)), tables_(std::move(tables)) {}

CostModel::CostModel(Options options) : options_(std::move(options)), tables_(tables_of(options_)) {}

CostModel CostModel::under(const strategy::MemoryPolicy& policy) const {
  Options options = options_;
  options.policy = policy;
  return CostModel(std::move(options), tables_);
}

const KindCost& CostModel::kind_cost(int tp, int64_t position, const char* what) const {
  return of_tp(options_.kinds_by_tp, tp, what)[static_cast<size_t>(program().at(position).kind)];
}

const SchemeTimes* CostModel::row(const strategy::Scheme& scheme) const {
  const auto& rows = options_.scheme_times;
  if (rows.empty()) return nullptr;
  const auto found = rows.find({scheme.tp, scheme.pp});
  if (found != rows.end()) return &found->second;
  std::vector<std::string> known;
  for (const auto& [degrees, unused] : rows) {
    known.push_back(to_text(strategy::Scheme{.tp = degrees.first, .pp = degrees.second}));
  }
  throw base::InputError(base::text("the calibration has no row for scheme ", to_text(scheme), " (it has ",
                                    base::join(known, ", "), "): leave the scheme out"));
}

bool CostModel::has_scheme(const strategy::Scheme& scheme) const {
  if (scheme.pp > program().blocks().size() || !program().tp_fault(scheme.tp).empty()) return false;
  return options_.scheme_times.empty() ? options_.kinds_by_tp.contains(scheme.tp)
                                       : options_.scheme_times.contains({scheme.tp, scheme.pp});
}

bool CostModel::is_derived(const strategy::Scheme& scheme) const {
  const SchemeTimes* known = row(scheme);
  return known != nullptr && known->derived;
}

std::vector<strategy::Scheme> CostModel::schemes(int most_ranks) const {
  std::vector<strategy::Scheme> schemes;
  const auto add = [&](const strategy::Scheme& scheme) {
    if (scheme.ranks() <= most_ranks && has_scheme(scheme)) schemes.push_back(scheme);
  };
  for (const auto& [degrees, unused] : options_.scheme_times) {
    add({.tp = degrees.first, .pp = degrees.second});
  }
  if (!options_.scheme_times.empty()) return schemes;
  for (int tp = 1; tp <= std::min(most_ranks, options_.gpus_per_node); tp *= 2) {
    for (int pp = 1; tp * pp <= most_ranks; pp *= 2) add({.tp = tp, .pp = pp});
  }
  return schemes;
}

Quadratic CostModel::row_times(const SchemeTimes& row, int pp, CellKind kind, int64_t blocks) const {
  const Quadratic third = row.stage.share(1, 3);
  const Quadratic rest = {row.stage.a - 2 * third.a, row.stage.b - 2 * third.b,
                          row.stage.c_ns - 2 * third.c_ns};
  return (kind == CellKind::kBackwardWeight ? rest : third).share(blocks, program().blocks().size() / pp);
}

// Of one kind alone, with all weight gradients in kBackwardWeight. REQUIRES: kind != kBackward.
Quadratic CostModel::own_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  if (const SchemeTimes* known = row(scheme)) {
    return row_times(*known, scheme.pp, kind, program().blocks_in(run).size());
  }
  const Sums& sums = of_tp(tables_->sums_by_tp, scheme.tp, "layer times");
  const std::vector<Sum>& before = kind == CellKind::kForward         ? sums.forward
                                   : kind == CellKind::kBackwardInput ? sums.backward_input
                                                                      : sums.backward_weight;
  if (run.empty()) return {};
  const Sum& first = before[static_cast<size_t>(run.begin)];
  const Sum& last = before[static_cast<size_t>(run.end)];
  return {narrow(last.a - first.a), narrow(last.b - first.b), narrow(last.c_ns - first.c_ns),
          narrow(last.a_windowed - first.a_windowed)};
}

int64_t CostModel::windowed_blocks(base::Interval run) const {
  const std::vector<int64_t>& before = tables_->windowed_before;
  return run.empty() ? 0 : before[static_cast<size_t>(run.end)] - before[static_cast<size_t>(run.begin)];
}

Quadratic CostModel::cell_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run) const {
  if (kind == CellKind::kBackward) {
    Quadratic both = cell_times(scheme, CellKind::kBackwardInput, run);
    return both += cell_times(scheme, CellKind::kBackwardWeight, run);
  }
  const bool one_cell = options_.backward_cells == BackwardCells::kOne;
  if (one_cell && kind == CellKind::kBackwardWeight) return {};
  Quadratic times = own_times(scheme, kind, run);
  if (kind != CellKind::kBackwardInput) return times;
  if (one_cell) times += own_times(scheme, CellKind::kBackwardWeight, run);
  if (options_.repeat_forward) times += own_times(scheme, CellKind::kForward, program().blocks_in(run));
  if (options_.policy.recompute) times += recompute_times(scheme, run);
  return times;
}

Quadratic CostModel::recompute_times(const strategy::Scheme& scheme, base::Interval run) const {
  const base::Interval blocks = program().blocks_in(run);
  Quadratic times;
  for (int64_t begin = blocks.begin, end = begin; begin < blocks.end; begin = end) {
    while (end < blocks.end && program().at(end).kind == program().at(begin).kind) ++end;
    const model::TokenWork work = program().kind_at(begin).work();
    const Quadratic forward = own_times(scheme, CellKind::kForward, {begin, end});
    times += {0, forward.share(work.recomputed, work.products).b, forward.c_ns};
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

int CostModel::slowest_stage(const strategy::Scheme& scheme) const {
  int slowest = 0;
  for (int stage = 1; stage < scheme.pp; ++stage) {
    if (stage_times(scheme, stage).b >= stage_times(scheme, slowest).b) slowest = stage;
  }
  return slowest;
}

int64_t CostModel::transfer_bytes(const strategy::Scheme& scheme, int64_t tokens) const {
  return divide_up(tokens, scheme.tp) * options_.shape.hidden * options_.memory.element_bytes;
}

int64_t CostModel::transfer_ns(const strategy::Scheme& scheme, int64_t tokens, bool same_node) const {
  const int64_t bytes = transfer_bytes(scheme, tokens);
  return same_node ? options_.intra.of_bytes(bytes) : options_.inter.of_bytes(bytes * nic_sharers(scheme.tp));
}

// Queries and outputs would be no fewer: docs/decisions/0005-ring-payload.md.
int64_t CostModel::ring_bytes_per_token(const strategy::Scheme& scheme) const {
  const int64_t kv_heads = divide_up(options_.shape.kv_heads, scheme.tp);
  return 2 * kv_heads * options_.shape.head_dim * options_.memory.element_bytes;
}

RingTimes CostModel::ring_times(const strategy::Scheme& scheme, CellKind kind, base::Interval run,
                                bool same_node) const {
  SLUICE_ASSERT(kind != CellKind::kBackward, "a ring's transfers belong to the input gradient");
  if (kind == CellKind::kBackwardWeight) return {};
  const int64_t blocks = kind == CellKind::kForward ? 1 : options_.repeat_forward ? 3 : 2;
  const int64_t windowed = windowed_blocks(run);
  const Quadratic times = cell_times(scheme, kind, run);
  return {.link = same_node ? options_.intra : options_.inter,
          .layers = program().blocks_in(run).size() - windowed,
          .bytes_per_token = blocks * ring_bytes_per_token(scheme) * (same_node ? 1 : nic_sharers(scheme.tp)),
          .a = times.a,
          .windowed_layers = windowed,
          .window = window(),
          .a_windowed = times.a_windowed};
}

int64_t CostModel::exchange_ns(int64_t busiest_bytes, bool same_node) const {
  return (same_node ? options_.intra : options_.inter).of_bytes(busiest_bytes);
}

int64_t CostModel::update_ns(int64_t owned_elements) const {
  return divide_nearest(Wide{owned_elements} * options_.update_ps_per_element, 1000);
}

int64_t CostModel::saved_bytes_per_token(const strategy::Scheme& scheme, int64_t position) const {
  if (const SchemeTimes* known = row(scheme)) {
    return divide_up(known->saved_bytes_per_token, program().blocks().size() / scheme.pp);
  }
  return kind_cost(scheme.tp, position, "saved bytes").saved_bytes_per_token;
}

int64_t CostModel::deferred_bytes_per_token(const strategy::Scheme& scheme, int64_t position) const {
  if (row(scheme) != nullptr || options_.backward_cells == BackwardCells::kOne) return 0;
  return kind_cost(scheme.tp, position, "deferred bytes").deferred_bytes_per_token;
}

int64_t CostModel::util_len_tokens(const strategy::Scheme& scheme) const {
  if (const SchemeTimes* known = row(scheme)) return known->util_len_tokens;
  const Quadratic slowest = stage_times(scheme, slowest_stage(scheme));
  if (slowest.b == 0) return 0;
  return divide_nearest((Wide{slowest.c_ns} << Quadratic::kFractionBits) * 85, Wide{slowest.b} * 15);
}

}  // namespace sluice::cost
