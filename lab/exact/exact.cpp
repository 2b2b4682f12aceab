#include "exact/exact.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/never.h"
#include "base/text.h"
#include "plan/search.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/recurrence.h"

namespace sluice::exact {
namespace {

using plan::CandidateSearch;
using plan::SchemeCost;
using plan::SortedBatch;

using Subset = uint32_t;  // bits are places in descending order of length

bool contains(Subset subset, size_t place) { return (subset >> place & 1) != 0; }

// Sequences in descending order of length.
struct Batch : SortedBatch {
  using SortedBatch::SortedBatch;
  size_t subsets() const { return size_t{1} << sorted.size(); }
  Subset all() const { return static_cast<Subset>(subsets() - 1); }
  bool equals_before(size_t place) const { return place > 0 && sorted[place] == sorted[place - 1]; }

  // A subset of the same lengths that uses the first of equal ones: it represents all such subsets.
  Subset canonical(Subset subset) const {
    Subset result = 0;
    size_t next = 0;  // the first of this length that is not used yet
    for (size_t place = 0; place < sorted.size(); ++place) {
      if (!equals_before(place)) next = place;
      if (contains(subset, place)) result |= Subset{1} << next++;
    }
    return result;
  }
  // Sequences by place.
  std::vector<strategy::MicroBatchSequence> sequences() const {
    std::vector<strategy::MicroBatchSequence> sequences;
    for (size_t place = 0; place < sorted.size(); ++place)
      sequences.push_back({sequence_of[place], sorted[place]});
    return sequences;
  }
};

// A possible micro-batch of a plan.
struct Option {
  Subset bin = 0;                // all its sequences
  std::vector<Subset> own = {};  // by lane, if several: its whole sequences
  int first_lane = 0;
  int lanes = 1;
  cost::ExchangeChoice exchange = {};
  int end_lane() const { return first_lane + lanes; }
  bool beside(const Option& other) const {
    return end_lane() <= other.first_lane || other.end_lane() <= first_lane;
  }
};

// Fills `own` and calls visit(shared) for every way in which lanes of a micro-batch have some of its
// sequences whole and share the rest, at least one.
template <typename Visit>
void for_each_own(Subset shared, std::vector<Subset>& own, size_t lane, const Visit& visit) {
  if (lane == own.size()) {
    if (shared != 0) visit(shared);
    return;
  }
  for (Subset mine = shared;; mine = (mine - 1) & shared) {
    own[lane] = mine;
    for_each_own(shared ^ mine, own, lane + 1, visit);
    if (mine == 0) return;
  }
}

std::vector<strategy::MicroBatchSequence> take(Subset subset,
                                               const std::vector<strategy::MicroBatchSequence>& sequences) {
  std::vector<strategy::MicroBatchSequence> taken;
  for (size_t place = 0; place < sequences.size(); ++place) {
    if (contains(subset, place)) taken.push_back(sequences[place]);
  }
  return taken;
}

// `sequences`: by place.
strategy::PipelineMicroBatch micro_batch_of(const Option& option,
                                            const std::vector<strategy::MicroBatchSequence>& sequences) {
  strategy::PipelineMicroBatch micro_batch{.first_lane = option.first_lane,
                                           .lanes = option.lanes,
                                           .sequences = {},
                                           .exchange = option.exchange.exchange};
  micro_batch.nested_lanes = option.exchange.nested_lanes;
  Subset shared = option.bin;
  for (const Subset own : option.own) shared &= ~own;
  micro_batch.sequences = take(shared, sequences);
  if (std::ranges::all_of(option.own, [](Subset own) { return own == 0; })) return micro_batch;
  for (const Subset own : option.own) micro_batch.own.push_back(take(own, sequences));
  return micro_batch;
}

// The optima of one kind of pipeline by canonical subset, if below a limit, with their micro-batches in the
// order of injection.
class PipelineTable {
 public:
  // `only_all`: only the whole batch will be asked for.
  PipelineTable(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
                const Batch& batch, int64_t limit_ns, bool only_all)
      : scheme_(scheme),
        batch_(batch),
        limit_ns_(limit_ns),
        only_all_(only_all),
        table_(scheme.scheme().pp),
        best_ns_(batch.subsets(), base::kNever),
        micro_batches_(batch.subsets()) {
    best_ns_[0] = 0;
    list_options(pipeline, cost);
    if (scheme.scheme().pp == 1 && scheme.scheme().cp == 1) {
      add_up();
      return;
    }
    const int64_t shortest = batch.sorted.empty() ? 0 : batch.sorted.back();
    for (int stage = 0; stage < table_.stages(); ++stage) {
      busy_ns_.resize(busy_ns_.size() + static_cast<size_t>(scheme.scheme().cp),
                      scheme.floors().fill_ns(stage, shortest));
    }
    extend(0);
  }

  int64_t best_ns(Subset subset) const { return best_ns_[batch_.canonical(subset)]; }
  std::vector<Option> micro_batches(Subset canonical) const {
    std::vector<Option> micro_batches;
    for (const int option : micro_batches_[canonical])
      micro_batches.push_back(options_[static_cast<size_t>(option)]);
    return micro_batches;
  }

 private:
  // Lists every subset on every run of lanes that holds it, with the exchange that costs least there.
  void list_options(const strategy::Pipeline& pipeline, const cost::CostModel& cost) {
    const schedule::MicroBatchTimes times(pipeline, cost);
    strategy::PipelinePlan plan{.pipeline = pipeline, .micro_batches = {}};
    const std::vector<strategy::MicroBatchSequence> sequences = batch_.sequences();
    first_of_.push_back(0);
    for (Subset bin = 0; bin < batch_.subsets(); ++bin) {
      for (int lanes = 1; lanes <= pipeline.scheme.cp && bin != 0; ++lanes) {
        std::vector<Subset> own(lanes == 1 ? 0 : static_cast<size_t>(lanes));
        for_each_own(bin, own, 0, [&](Subset) {
          strategy::PipelineMicroBatch micro_batch =
              micro_batch_of({.bin = bin, .own = own, .lanes = lanes}, sequences);
          const int64_t shortest = micro_batch.sequences.back().length_tokens;
          if (micro_batch.tokens() > scheme_.lane_max_len_tokens()) return;
          if (lanes > std::max<int64_t>(1, shortest / 2)) return;
          for (int first = 0; first + lanes <= pipeline.scheme.cp; ++first) {
            micro_batch.first_lane = first;
            micro_batch.number = static_cast<int>(plan.micro_batches.size());
            const auto exchange = times.cheapest_exchange(micro_batch, scheme_.lane_max_len_tokens());
            micro_batch.exchange = exchange.exchange;
            micro_batch.nested_lanes = exchange.nested_lanes;
            plan.micro_batches.push_back(micro_batch);
            options_.push_back(
                {.bin = bin, .own = own, .first_lane = first, .lanes = lanes, .exchange = exchange});
          }
        });
      }
      first_of_.push_back(static_cast<int>(options_.size()));
    }
    for (const schedule::TimedMicroBatch& micro_batch : schedule::timed_micro_batches(plan, cost))
      table_.append(micro_batch);
  }

  std::span<const schedule::MicroBatchTable::Cells> cells(int option) const { return table_.row(option); }

  // With one stage and lane, a subset is the micro-batch with its longest sequence plus the best of the rest.
  void add_up() {
    for (Subset subset = 1; subset < batch_.subsets(); ++subset) {
      const Subset first = subset & (~subset + 1);
      const Subset others = subset ^ first;
      for (Subset more = others;; more = (more - 1) & others) {
        const Subset rest = others ^ more;
        const int option = first_of_[first | more];
        if (option < first_of_[(first | more) + 1] && best_ns_[rest] != base::kNever) {
          const int64_t ns = best_ns_[rest] + cells(option)[0].all_ns();
          if (ns < best_ns_[subset]) {
            best_ns_[subset] = ns;
            micro_batches_[subset] = micro_batches_[rest];
            micro_batches_[subset].push_back(option);
          }
        }
        if (more == 0) break;
      }
    }
  }

  // Tries every next micro-batch, as long as each stage of each lane is busy for less than the limit. The
  // order of micro-batches beside each other changes nothing: the lower lanes come first.
  void extend(Subset used) {
    if (used != 0 && (!only_all_ || used == batch_.all())) {
      const int64_t ns =
          recurrence_.makespan_ns(table_, chosen_, scheme_.scheme().cp, scheme_.credit_tokens(),
                                  std::min(best_ns_[used], limit_ns_) - 1);
      if (ns != base::kNever) {
        best_ns_[used] = ns;
        micro_batches_[used] = chosen_;
      }
    }
    const Subset left = batch_.all() & ~used;
    for (Subset bin = left; bin != 0; bin = (bin - 1) & left) {
      const Subset next = used | bin;
      if (batch_.canonical(next) != next) continue;
      for (int option = first_of_[bin]; option < first_of_[bin + 1]; ++option) {
        const Option& of = options_[static_cast<size_t>(option)];
        if (!chosen_.empty()) {
          const Option& before = options_[static_cast<size_t>(chosen_.back())];
          if (of.beside(before) && of.first_lane < before.first_lane) continue;
        }
        const std::vector<int64_t> busy_before_ns = busy_ns_;
        if (occupy(option)) {
          chosen_.push_back(option);
          extend(next);
          chosen_.pop_back();
        }
        busy_ns_ = busy_before_ns;
      }
    }
  }

  // Whether all the option's stages can still end below the limit: lanes of a micro-batch begin it together.
  bool occupy(int option) {
    const Option& of = options_[static_cast<size_t>(option)];
    bool below = true;
    for (int stage = 0; stage < table_.stages(); ++stage) {
      const auto first = busy_ns_.begin() + stage * scheme_.scheme().cp + of.first_lane;
      const bool whole = table_.stages() == 1;  // else cells of other micro-batches run between its own
      const int64_t begin_ns = whole ? *std::max_element(first, first + of.lanes) : 0;
      for (int lane = 0; lane < of.lanes; ++lane) {
        int64_t& busy_ns = first[lane];
        busy_ns = std::max(busy_ns, begin_ns) + cells(option)[static_cast<size_t>(stage)].all_ns();
        below = below && busy_ns < limit_ns_;
      }
    }
    return below;
  }

  const SchemeCost& scheme_;
  const Batch& batch_;
  int64_t limit_ns_;
  bool only_all_;
  std::vector<Option> options_;
  std::vector<int> first_of_;        // by subset, then the end
  schedule::MicroBatchTable table_;  // by option
  schedule::Recurrence recurrence_;
  std::vector<int> chosen_;       // options, being extended
  std::vector<int64_t> busy_ns_;  // sums over `chosen_`, by stage, then lane, fill included
  std::vector<int64_t> best_ns_;  // by canonical subset
  std::vector<std::vector<int>> micro_batches_;
};

// The properties that determine a pipeline's times.
using Kind = std::pair<strategy::Scheme, std::vector<int>>;

Kind kind_of(const strategy::Pipeline& pipeline, const cost::CostModel& cost) {
  Kind kind{pipeline.scheme, {}};
  for (int stage = 0; stage + 1 < pipeline.scheme.pp; ++stage) {
    kind.second.push_back(strategy::boundary_level(pipeline, stage, cost.options().topology));
  }
  return kind;
}

void check_limits(const strategy::Strategy& strategy, size_t sequences) {
  bool staged = false;
  int lanes = 1;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    staged = staged || pipeline.scheme.pp > 1;
    lanes = std::max(lanes, pipeline.scheme.cp);
  }
  const std::string name = base::text("strategy '", to_text(strategy), "'");
  if (lanes > kMostExactLanes) {
    throw base::InputError(base::text("exact planning takes at most ", kMostExactLanes, " lanes, but ", name,
                                      " has a pipeline of ", lanes, ": plan with method ours"));
  }
  const int most = lanes > 1 ? kMostLanedExactSequences
                   : staged  ? kMostStagedExactSequences
                             : kMostExactSequences;
  if (sequences <= static_cast<size_t>(most)) return;
  throw base::InputError(base::text("exact planning takes at most ", kMostExactSequences, " sequences, ",
                                    kMostStagedExactSequences, " where pp > 1, ", kMostLanedExactSequences,
                                    " where cp > 1, but there are ", sequences, " for ", name,
                                    ": plan with method ours"));
}

// Assigns subsets to pipelines: least[p][s] is the least last end of the pipelines before p that share s.
class Shares {
 public:
  Shares(const std::vector<const PipelineTable*>& tables, const Batch& batch)
      : least_ns_(tables.size() + 1, std::vector<int64_t>(batch.subsets(), base::kNever)),
        last_(tables.size(), std::vector<Subset>(batch.subsets(), 0)) {
    least_ns_[0][0] = 0;
    for (size_t p = 0; p < tables.size(); ++p) {
      for (Subset all = 0; all < batch.subsets(); ++all) {
        for (Subset here = all;; here = (here - 1) & all) {
          const int64_t ns = std::max(least_ns_[p][all ^ here], tables[p]->best_ns(here));
          if (ns < least_ns_[p + 1][all]) {
            least_ns_[p + 1][all] = ns;
            last_[p][all] = here;
          }
          if (here == 0) break;
        }
      }
    }
  }
  int64_t least_ns(Subset all) const { return least_ns_.back()[all]; }
  std::vector<Subset> by_pipeline(Subset all) const {
    std::vector<Subset> result(last_.size(), 0);
    for (size_t p = last_.size(); p > 0; --p) {
      result[p - 1] = last_[p - 1][all];
      all ^= result[p - 1];
    }
    return result;
  }

 private:
  std::vector<std::vector<int64_t>> least_ns_;
  std::vector<std::vector<Subset>> last_;
};

strategy::PipelinePlan pipeline_plan(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                     const PipelineTable& table, const Batch& batch, Subset subset) {
  strategy::PipelinePlan plan{
      .pipeline = pipeline, .max_len_tokens = scheme.lane_max_len_tokens(), .micro_batches = {}};
  std::vector<strategy::MicroBatchSequence> sequences = batch.sequences();
  Subset left = subset;
  for (const Option& option : table.micro_batches(batch.canonical(subset))) {
    for (size_t place = 0; place < batch.sorted.size(); ++place) {
      if (!contains(option.bin, place)) continue;
      size_t of = 0;  // the first left of this length
      while (!contains(left, of) || batch.sorted[of] != batch.sorted[place]) ++of;
      left ^= Subset{1} << of;
      sequences[place].sequence = batch.sequence_of[of];
    }
    strategy::PipelineMicroBatch& micro_batch =
        plan.micro_batches.emplace_back(micro_batch_of(option, sequences));
    if (micro_batch.lanes > 1) micro_batch.number = static_cast<int>(plan.micro_batches.size()) - 1;
    std::ranges::sort(micro_batch.sequences, {}, &strategy::MicroBatchSequence::sequence);
    for (auto& own : micro_batch.own) std::ranges::sort(own, {}, &strategy::MicroBatchSequence::sequence);
  }
  plan.micro_batches = strategy::in_injection_order(std::move(plan.micro_batches), pipeline.scheme.cp);
  return plan;
}

}  // namespace

std::optional<ExactPlan> exact_plan(const strategy::Strategy& strategy, const plan::SchemeCosts& schemes,
                                    const cost::CostModel& cost, std::span<const int64_t> lengths) {
  check_limits(strategy, lengths.size());
  const Batch batch({lengths.begin(), lengths.end()});
  CandidateSearch search(strategy, schemes, batch);
  if (!search.lower_bound_ns()) return std::nullopt;
  const std::vector<plan::PackedPipeline> known = search.run(plan::Effort::kFull);
  ExactPlan plan{.pipelines = {}, .makespan_ns = plan::last_end_ns(known)};
  for (const plan::PackedPipeline& pipeline : known) plan.pipelines.push_back(pipeline.plan);
  std::map<Kind, PipelineTable> tables;
  std::vector<const PipelineTable*> table_of;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const auto [table, added] =
        tables.try_emplace(kind_of(pipeline, cost), pipeline, schemes.of(pipeline), cost, batch,
                           plan.makespan_ns, strategy.pipelines.size() == 1);
    table_of.push_back(&table->second);
  }
  const Shares shares(table_of, batch);
  if (shares.least_ns(batch.all()) >= plan.makespan_ns) return plan;
  plan = {.pipelines = {}, .makespan_ns = shares.least_ns(batch.all())};
  const std::vector<Subset> share_of = shares.by_pipeline(batch.all());
  for (size_t p = 0; p < share_of.size(); ++p) {
    const strategy::Pipeline& pipeline = strategy.pipelines[p];
    plan.pipelines.push_back(pipeline_plan(pipeline, schemes.of(pipeline), *table_of[p], batch, share_of[p]));
  }
  return plan;
}

namespace {

class Exact : public plan::Method {
 public:
  // It proves plans of few lanes only, so its proposals have no lanes.
  base::Feasible<std::vector<plan::Proposal>> propose(const plan::PlannerOptions& options,
                                                      const cost::CostModel& cost) const override {
    plan::PlannerOptions whole = options;
    whole.max_cp = 1;
    return Method::propose(whole, cost);
  }
  std::optional<strategy::StepPlan> plan(const plan::Planner& planner, int64_t step,
                                         const std::vector<strategy::Sequence>& sequences) const override {
    const plan::PlannerOptions& options = planner.options();
    const std::vector<int64_t> lengths = strategy::lengths_of(sequences);
    std::optional<ExactPlan> best;
    std::vector<strategy::CandidateEstimate> estimates;
    for (const size_t candidate : planner.preference(step)) {
      const strategy::Strategy& strategy = options.candidates[candidate];
      std::optional<ExactPlan> next = exact_plan(strategy, planner.schemes(), planner.cost(), lengths);
      if (!next) continue;
      estimates.push_back({to_text(strategy), next->makespan_ns});
      if (!best || next->makespan_ns < best->makespan_ns) best = std::move(next);
      if (options.selection != plan::Selection::kBest) break;
    }
    if (!best) return std::nullopt;
    return strategy::StepPlan{.step = step,
                              .sequences = sequences,
                              .pipelines = std::move(best->pipelines),
                              .estimated_ns = best->makespan_ns,
                              .lower_bound_ns = best->makespan_ns,
                              .candidates = std::move(estimates)};
  }
};

}  // namespace

std::shared_ptr<const plan::Method> method() {
  static const auto method = std::make_shared<const Exact>();
  return method;
}

}  // namespace sluice::exact
