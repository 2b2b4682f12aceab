#include "plan/exact.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/greedy_dispatch.h"
#include "plan/search.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using Subset = uint32_t;  // of places in descending order of length
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

bool contains(Subset subset, size_t place) { return (subset >> place & 1) != 0; }

// Sequences in descending order of length.
struct Batch {
  explicit Batch(std::span<const int64_t> lengths) : sequence_of(longest_first(lengths)) {
    for (const int sequence : sequence_of) sorted.push_back(lengths[static_cast<size_t>(sequence)]);
  }
  size_t subsets() const { return size_t{1} << sorted.size(); }
  Subset all() const { return static_cast<Subset>(subsets() - 1); }
  bool equals_before(size_t place) const { return place > 0 && sorted[place] == sorted[place - 1]; }

  // The same lengths, always the first of equal ones: which stand for each other.
  Subset canonical(Subset subset) const {
    Subset result = 0;
    size_t next = 0;  // the first of this length that is not taken yet
    for (size_t place = 0; place < sorted.size(); ++place) {
      if (!equals_before(place)) next = place;
      if (contains(subset, place)) result |= Subset{1} << next++;
    }
    return result;
  }
  cost::Work work(Subset subset) const {
    cost::Work work;
    for (size_t place = 0; place < sorted.size(); ++place) {
      if (contains(subset, place)) work += cost::Work::of_lane(sorted[place], sorted[place], 1);
    }
    return work;
  }

  std::vector<int> sequence_of;
  std::vector<int64_t> sorted;
};

// The best of one kind of pipeline by canonical subset, where it is below a limit; its micro-batches in the
// order of injection.
class PipelineTable {
 public:
  // `only_all`: nothing less than the whole batch is asked for.
  PipelineTable(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
                const Batch& batch, int64_t limit_ns, bool only_all)
      : times_(pipeline, cost),
        scheme_(scheme),
        batch_(batch),
        limit_ns_(limit_ns),
        only_all_(only_all),
        load_{.stages = scheme.scheme().pp, .lanes = 1, .credit_tokens = scheme.credit_tokens(), .units = {}},
        best_ns_(batch.subsets(), kNever),
        bins_(batch.subsets()) {
    best_ns_[0] = 0;
    for (Subset bin = 0; bin < batch.subsets(); ++bin) {
      const cost::Work work = batch.work(bin);
      fits_.push_back(bin != 0 && work.tokens <= scheme.max_len_tokens());
      units_.push_back(fits_.back() ? times_.of(std::span(&work, 1), 0) : schedule::TimedUnit{});
    }
    if (scheme.scheme().pp == 1) {
      add_up();
      return;
    }
    const int64_t shortest = batch.sorted.empty() ? 0 : batch.sorted.back();
    for (int stage = 0; stage < load_.stages; ++stage) busy_ns_.push_back(scheme.fill_ns(stage, shortest));
    extend(0);
  }

  int64_t best_ns(Subset subset) const { return best_ns_[batch_.canonical(subset)]; }
  const std::vector<Subset>& bins(Subset canonical) const { return bins_[canonical]; }

 private:
  int64_t busy_ns(Subset bin, size_t stage) const {
    const schedule::TimedUnit& unit = units_[bin];
    return unit.forward_ns[stage] + unit.backward_input_ns[stage] + unit.backward_weight_ns[stage];
  }

  // One stage: each subset is its longest sequence's micro-batch and the best of the rest.
  void add_up() {
    for (Subset subset = 1; subset < batch_.subsets(); ++subset) {
      const Subset first = subset & (~subset + 1);
      const Subset others = subset ^ first;
      for (Subset more = others;; more = (more - 1) & others) {
        const Subset rest = others ^ more;
        if (fits_[first | more] && best_ns_[rest] != kNever) {
          const int64_t ns = best_ns_[rest] + busy_ns(first | more, 0);
          if (ns < best_ns_[subset]) {
            best_ns_[subset] = ns;
            bins_[subset] = bins_[rest];
            bins_[subset].push_back(first | more);
          }
        }
        if (more == 0) break;
      }
    }
  }

  // Stages: every next micro-batch, as long as no stage is busy up to the limit.
  void extend(Subset used) {
    if (used != 0 && (!only_all_ || used == batch_.all())) {
      const int64_t ns = schedule::schedule_pipeline(load_).makespan_ns;
      if (ns < std::min(best_ns_[used], limit_ns_)) {
        best_ns_[used] = ns;
        bins_[used] = chosen_;
      }
    }
    const Subset left = batch_.all() & ~used;
    for (Subset bin = left; bin != 0; bin = (bin - 1) & left) {
      const Subset next = used | bin;
      if (!fits_[bin] || batch_.canonical(next) != next) continue;
      bool below = true;
      for (size_t stage = 0; stage < busy_ns_.size(); ++stage) {
        busy_ns_[stage] += busy_ns(bin, stage);
        below = below && busy_ns_[stage] < limit_ns_;
      }
      if (below) {
        load_.units.push_back(units_[bin]);
        chosen_.push_back(bin);
        extend(next);
        chosen_.pop_back();
        load_.units.pop_back();
      }
      for (size_t stage = 0; stage < busy_ns_.size(); ++stage) busy_ns_[stage] -= busy_ns(bin, stage);
    }
  }

  schedule::UnitTimes times_;
  const SchemeCost& scheme_;
  const Batch& batch_;
  int64_t limit_ns_;
  bool only_all_;
  std::vector<char> fits_;                  // by micro-batch
  std::vector<schedule::TimedUnit> units_;  // by micro-batch
  schedule::PipelineLoad load_;             // being extended
  std::vector<Subset> chosen_;              // of it
  std::vector<int64_t> busy_ns_;            // of it, by stage, fill included
  std::vector<int64_t> best_ns_;            // by canonical subset
  std::vector<std::vector<Subset>> bins_;
};

// What tells one pipeline's times from another's.
using Kind = std::pair<strategy::Scheme, std::vector<bool>>;

Kind kind_of(const strategy::Pipeline& pipeline, const cost::CostModel& cost) {
  Kind kind{pipeline.scheme, {}};
  for (int stage = 0; stage + 1 < pipeline.scheme.pp; ++stage) {
    kind.second.push_back(schedule::boundary_in_node(pipeline, cost, stage));
  }
  return kind;
}

void check_limits(const strategy::Strategy& strategy, size_t sequences) {
  bool staged = false;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    staged = staged || pipeline.scheme.pp > 1;
    if (pipeline.scheme.cp == 1) continue;
    throw base::InputError(base::text("strategy '", to_text(strategy),
                                      "': exact planning knows no cp > 1: plan with method ours"));
  }
  const int most = staged ? kMostStagedExactSequences : kMostExactSequences;
  if (sequences <= static_cast<size_t>(most)) return;
  throw base::InputError(base::text("exact planning takes at most ", kMostExactSequences, " sequences, ",
                                    kMostStagedExactSequences, " where pp > 1, but there are ", sequences,
                                    " for strategy '", to_text(strategy), "': plan with method ours"));
}

// Subsets to pipelines: least[p][s] is the least last end of the pipelines before p that share s.
class Shares {
 public:
  Shares(const std::vector<const PipelineTable*>& tables, const Batch& batch)
      : least_ns_(tables.size() + 1, std::vector<int64_t>(batch.subsets(), kNever)),
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
  strategy::PipelinePlan plan{.pipeline = pipeline, .max_len_tokens = scheme.max_len_tokens(), .units = {}};
  Subset left = subset;
  for (const Subset bin : table.bins(batch.canonical(subset))) {
    strategy::Unit& unit = plan.units.emplace_back();
    for (size_t place = 0; place < batch.sorted.size(); ++place) {
      if (!contains(bin, place)) continue;
      size_t of = 0;  // the first left of this length
      while (!contains(left, of) || batch.sorted[of] != batch.sorted[place]) ++of;
      left ^= Subset{1} << of;
      unit.sequences.push_back({batch.sequence_of[of], batch.sorted[of]});
    }
    std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
  }
  return plan;
}

}  // namespace

std::optional<ExactPlan> exact_plan(const strategy::Strategy& strategy,
                                    const std::map<strategy::Scheme, SchemeCost>& schemes,
                                    const cost::CostModel& cost, std::span<const int64_t> lengths) {
  check_limits(strategy, lengths.size());
  const SortedBatch sorted(std::vector<int64_t>(lengths.begin(), lengths.end()));
  CandidateSearch search(strategy, schemes, cost, sorted);
  if (!search.lower_bound_ns()) return std::nullopt;
  const std::vector<PackedPipeline> known = search.run(kNever, Effort::kFull);
  ExactPlan plan{.pipelines = {}, .makespan_ns = last_end_ns(known)};
  for (const PackedPipeline& pipeline : known) plan.pipelines.push_back(pipeline.plan);
  const Batch batch(lengths);
  std::map<Kind, PipelineTable> tables;
  std::vector<const PipelineTable*> table_of;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const auto [table, added] =
        tables.try_emplace(kind_of(pipeline, cost), pipeline, schemes.at(pipeline.scheme), cost, batch,
                           plan.makespan_ns, strategy.pipelines.size() == 1);
    table_of.push_back(&table->second);
  }
  const Shares shares(table_of, batch);
  if (shares.least_ns(batch.all()) >= plan.makespan_ns) return plan;
  plan = {.pipelines = {}, .makespan_ns = shares.least_ns(batch.all())};
  const std::vector<Subset> share_of = shares.by_pipeline(batch.all());
  for (size_t p = 0; p < share_of.size(); ++p) {
    const strategy::Pipeline& pipeline = strategy.pipelines[p];
    plan.pipelines.push_back(
        pipeline_plan(pipeline, schemes.at(pipeline.scheme), *table_of[p], batch, share_of[p]));
  }
  return plan;
}

}  // namespace sluice::plan
