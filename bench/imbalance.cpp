// The cost of uneven routing if lanes divide experts, as tables in Markdown. Experts lie in order, are placed
// by the token counts of earlier steps, or have spare expert slots as well. The tables are written by
// bench/record.py imbalance.
//
// There are eight made-up workloads, each on three files of lengths. Batches are planned as usual; a workload
// draws the token-to-expert assignments of each document. Experts are placed anew every kPlaceEvery steps, a
// few steps behind, as in training. In each layer, a pass waits for the lane with the most assignments. Step
// times by the clock are relative to steps in which every lane of a group has as many.
//
//   imbalance_bench
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "expert_models.h"
#include "graph/build.h"
#include "inputs.h"
#include "model/expert_slots.h"
#include "plan/batch_sample.h"
#include "plan/place_experts.h"
#include "plan/planner.h"
#include "strategy/pass.h"

namespace {

using namespace sluice;
using Shares = std::vector<double>;  // one share per expert

constexpr int kRanks = 64;
constexpr int kExpertLanes = 16;
constexpr int64_t kContextTokens = 32'768;
constexpr int64_t kTokensARank = 8'192;
constexpr int kLayers = 3;  // number of layers that are simulated
constexpr int kSteps = 40;
constexpr int kPlaceEvery = 10;
constexpr int kBehind = 4;         // steps that are planned before counts arrive
constexpr int kSampledRows = 400;  // rows per step and layer whose experts are drawn one by one

struct Workload {
  const char* name;
  const char* text;
  double power = 0;       // shares by Zipf's law
  double hot = 0;         // share of one expert
  double hot_eighth = 0;  // share of an eighth of the experts
  int shift_every = 0;    // steps after which each expert has its neighbour's share
  int turn_every = 0;     // steps after which shares are dealt anew
  double topic = 1;       // factor of a document's own quarter of the experts
};
constexpr Workload kWorkloads[] = {
    {.name = "W0", .text = "all alike"},
    {.name = "W1", .text = "Zipf, power 0.5", .power = 0.5},
    {.name = "W2", .text = "Zipf, power 1", .power = 1},
    {.name = "W3", .text = "one has 20 %", .hot = 0.2},
    {.name = "W4", .text = "an eighth have half", .hot_eighth = 0.5},
    {.name = "W5", .text = "power 0.7, wandering one expert each 5 steps", .power = 0.7, .shift_every = 5},
    {.name = "W6", .text = "documents prefer a quarter, tenfold", .topic = 10},
    {.name = "W7", .text = "power 1, dealt anew each 20 steps", .power = 1, .turn_every = 20},
};

std::vector<size_t> shuffled(size_t count, uint64_t seed) {
  base::Rng rng(seed, 21);
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  for (size_t i = count - 1; i > 0; --i)
    std::swap(all[i], all[static_cast<size_t>(rng.between(0, static_cast<int64_t>(i)))]);
  return all;
}

// A document's shares of the experts in a layer.
Shares shares_of(const Workload& workload, size_t experts, uint64_t layer, int step, int64_t document) {
  const uint64_t turn = workload.turn_every > 0 ? static_cast<uint64_t>(step / workload.turn_every) : 0;
  const size_t shift = workload.shift_every > 0 ? static_cast<size_t>(step / workload.shift_every) : 0;
  const std::vector<size_t> order = shuffled(experts, 100 * layer + turn);
  Shares shares(experts, 0);
  for (size_t i = 0; i < experts; ++i)
    shares[order[(i + shift) % experts]] = std::pow(static_cast<double>(i + 1), -workload.power);
  const auto weigh = [&](size_t first, size_t count, double share) {
    double all = 0, own = 0;
    for (const double each : shares) all += each;
    for (size_t i = first; i < first + count; ++i) own += shares[order[i % experts]];
    for (size_t i = first; i < first + count; ++i)
      shares[order[i % experts]] *= share / (1 - share) * (all - own) / own;
  };
  if (workload.hot > 0) weigh(0, 1, workload.hot);
  if (workload.hot_eighth > 0) weigh(0, experts / 8, workload.hot_eighth);
  if (workload.topic > 1) {
    const size_t first = base::random_bits(5, layer, static_cast<uint64_t>(document)) % 4 * (experts / 4);
    for (size_t i = first; i < first + experts / 4; ++i) shares[order[i]] *= workload.topic;
  }
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= all;
  return shares;
}

// Adds `visits` assignments drawn by the normal approximation.
void add_visits(const Shares& shares, int64_t visits, base::Rng& rng, std::vector<int64_t>& to) {
  for (size_t expert = 0; expert < shares.size(); ++expert) {
    const double mean = static_cast<double>(visits) * shares[expert];
    const double drawn =
        mean + std::sqrt(mean * (1 - shares[expert])) *
                   base::random_normal(static_cast<uint64_t>(rng.between(0, 1 << 30)), 3, expert);
    to[expert] += std::max<int64_t>(0, std::llround(drawn));
  }
}

// The experts of one row: those with the highest perturbed logarithms (Gumbel-max).
std::vector<size_t> chosen(const Shares& shares, int64_t count, base::Rng& rng) {
  std::vector<std::pair<double, size_t>> scores;
  for (size_t expert = 0; expert < shares.size(); ++expert) {
    const double uniform =
        (static_cast<double>(rng.between(0, 1 << 30)) + 0.5) / static_cast<double>(1 << 30);
    scores.emplace_back(std::log(shares[expert]) - std::log(-std::log(std::min(uniform, 1 - 1e-12))), expert);
  }
  std::ranges::partial_sort(scores, scores.begin() + count, std::ranges::greater());
  std::vector<size_t> experts;
  for (int64_t i = 0; i < count; ++i) experts.push_back(scores[static_cast<size_t>(i)].second);
  return experts;
}

// Ways of placing experts.
struct Way {
  int spare = 0;
  bool placed = true;
  bool together = false;
};
constexpr Way kWays[] = {
    {.placed = false}, {}, {.spare = 1}, {.spare = 2}, {.together = true}};  // as the table's columns
constexpr size_t kWayCount = std::size(kWays);

// The results of one workload, by way.
struct Outcome {
  std::array<double, kWayCount>
      busiest{};                          // visits of the slowest lane over those of a lane if all have alike
  std::array<double, kWayCount> lanes{};  // lanes that a row travels to
};

class Trial {
 public:
  Trial(const Workload& workload, const model::Experts& experts, const std::vector<strategy::StepPlan>& plans)
      : workload_(workload), count_(static_cast<size_t>(experts.count)), per_token_(experts.per_token) {
    for (size_t way = 0; way < kWayCount; ++way)
      seats_[way].assign(kLayers, model::even_expert_slots(experts.count));
    forget();
    for (int step = 0; step < kSteps; ++step) run(plans[static_cast<size_t>(step)], step);
    for (size_t way = 0; way < kWayCount; ++way) {
      outcome_.busiest[way] /= balanced_;
      outcome_.lanes[way] /= static_cast<double>(rows_);
    }
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  static constexpr int kFirstCounted = kPlaceEvery + kBehind;

  void forget() {
    use_.assign(kLayers, {std::vector<int64_t>(count_, 0), std::vector<int64_t>(count_ * count_, 0)});
  }

  void run(const strategy::StepPlan& plan, int step) {
    if (next_ && step == next_from_) seats_ = *std::exchange(next_, std::nullopt);
    for (int layer = 0; layer < kLayers; ++layer) {
      base::Rng rng(static_cast<uint64_t>(step * kLayers + layer), 8);
      const auto shares = [&](int64_t document) {
        return shares_of(workload_, count_, static_cast<uint64_t>(layer), step, document);
      };
      std::vector<Shares> of_sequence;
      for (const strategy::Sequence& sequence : plan.sequences)
        of_sequence.push_back(shares(sequence.document));
      for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
        for (const strategy::Pass& pass : strategy::passes(pipeline))
          run_pass(pipeline, pass, of_sequence, layer, step, rng);
      }
      for (int row = 0; row < kSampledRows; ++row) run_row(plan, of_sequence, layer, step, rng);
    }
    if ((step + 1) % kPlaceEvery == 0) place(step);
  }

  void run_pass(const strategy::PipelinePlan& pipeline, const strategy::Pass& pass,
                const std::vector<Shares>& of_sequence, int layer, int step, base::Rng& rng) {
    std::array<int64_t, kWayCount> slowest{};
    double balanced = 0;
    for (int first = pass.first_lane; first < pass.end_lane(); first += kExpertLanes) {
      std::vector<int64_t> visits(count_, 0);
      for (int lane = first; lane < first + kExpertLanes; ++lane) {
        const int micro_batch = strategy::micro_batch_on(pipeline, pass, lane);
        if (micro_batch < 0) continue;
        for (const strategy::Piece& scheduled :
             pipeline.micro_batches[static_cast<size_t>(micro_batch)].pieces_on(lane))
          add_visits(of_sequence[static_cast<size_t>(scheduled.sequence)], scheduled.tokens() * per_token_,
                     rng, visits);
      }
      const double all = static_cast<double>(std::accumulate(visits.begin(), visits.end(), int64_t{0}));
      balanced = std::max(balanced, all / kExpertLanes);
      std::vector<int64_t>& counted = use_[static_cast<size_t>(layer)].assignments;
      std::ranges::transform(counted, visits, counted.begin(), std::plus());
      for (size_t way = 0; way < kWayCount; ++way) {
        const std::vector<int>& seats = seats_[way][static_cast<size_t>(layer)];
        const double busiest = model::expert_load_imbalance(visits, seats, kExpertLanes) * all / kExpertLanes;
        slowest[way] = std::max<int64_t>(slowest[way], std::llround(busiest));
      }
    }
    if (step < kFirstCounted) return;
    balanced_ += balanced;
    for (size_t way = 0; way < kWayCount; ++way) outcome_.busiest[way] += static_cast<double>(slowest[way]);
  }

  // Draws a row of some document, with probability proportional to the document's length.
  void run_row(const strategy::StepPlan& plan, const std::vector<Shares>& of_sequence, int layer, int step,
               base::Rng& rng) {
    int64_t token = rng.between(0, plan.tokens() - 1);
    size_t sequence = 0;
    while (token >= plan.sequences[sequence].length_tokens) token -= plan.sequences[sequence++].length_tokens;
    const std::vector<size_t> experts = chosen(of_sequence[sequence], per_token_, rng);
    for (const size_t a : experts) {
      for (const size_t b : experts) {
        if (a != b) ++use_[static_cast<size_t>(layer)].coactivations[a * count_ + b];
      }
    }
    if (step < kFirstCounted) return;
    ++rows_;
    for (size_t way = 0; way < kWayCount; ++way) {
      if (kWays[way].spare > 0) continue;
      const std::vector<int>& seats = seats_[way][static_cast<size_t>(layer)];
      std::set<size_t> lanes;
      for (const size_t expert : experts) {
        const auto seat = std::ranges::find(seats, static_cast<int>(expert)) - seats.begin();
        lanes.insert(static_cast<size_t>(seat) / (seats.size() / kExpertLanes));
      }
      outcome_.lanes[way] += static_cast<double>(lanes.size());
    }
  }

  void place(int step) {
    next_ = seats_;
    next_from_ = step + 1 + kBehind;
    for (size_t way = 0; way < kWayCount; ++way) {
      if (!kWays[way].placed) continue;
      std::vector<plan::ExpertUse> use = use_;
      for (plan::ExpertUse& layer : use) {
        if (!kWays[way].together) layer.coactivations.clear();
      }
      (*next_)[way] = plan::place_experts(use, kExpertLanes, kWays[way].spare).layers;
    }
    forget();
  }

  using Seats = std::array<std::vector<std::vector<int>>, kWayCount>;
  const Workload& workload_;
  size_t count_;
  int64_t per_token_;
  Seats seats_;
  std::optional<Seats> next_;
  int next_from_ = 0;
  std::vector<plan::ExpertUse> use_;
  double balanced_ = 0;
  int64_t rows_ = 0;
  Outcome outcome_;
};

struct Mixture {
  const char* name;
  const char* config;
};
constexpr Mixture kMixtures[] = {{"Qwen3-30B-A3B", bench::kQwen3}, {"gpt-oss-120b", bench::kGptOss}};
struct Lengths {
  const char* name;
  const char* path;
};
constexpr Lengths kLengths[] = {{"code", "bench/data/code_lengths.txt"},
                                {"wikipedia", "bench/data/wikipedia_lengths.txt"},
                                {"system", "bench/data/system_lengths.txt"}};

plan::Planner planner_of(cost::CostModel cost) {
  const std::string strategy = base::text("<1,1,", kRanks, ",", kRanks, ",", kExpertLanes, ">");
  plan::PlannerOptions options{.world_size = kRanks,
                               .candidates = {strategy::parse_strategy(strategy, kRanks)}};
  return {std::move(options), std::move(cost)};
}

// The first steps' batches, planned and timed by the clock with this imbalance and so many spare slots.
double mean_step_ns(const std::vector<strategy::StepPlan>& plans, cost::CostModel::Options options,
                    double busiest, int spare) {
  options.expert_imbalance_percent[kExpertLanes] = static_cast<int>(std::lround(100 * busiest));
  options.redundant_experts = spare;
  const plan::Planner planner = planner_of(cost::CostModel(std::move(options)));
  const model::ParameterTable table =
      model::parameter_table(planner.cost().options().model, planner.cost().program());
  constexpr size_t kTimed = 6;
  double sum = 0;
  for (size_t i = 0; i < kTimed; ++i) {
    const strategy::StepPlan plan = planner.plan(0, plans[i].sequences);
    sum += static_cast<double>(
        graph::build(plan, table, planner.cost(), kRanks, {.disabled_passes = {"verify"}}).makespan_ns);
  }
  return sum / kTimed;
}

void print(const Mixture& mixture, const Lengths& lengths) {
  const cost::CostModel::Options options = bench::expert_costs(mixture.config, "h100x8", kRanks);
  const plan::Planner planner = planner_of(cost::CostModel(options));
  const std::vector<int64_t> all = bench::read_lengths(lengths.path, 2, kContextTokens);
  std::vector<strategy::StepPlan> plans;
  int64_t documents = 0;
  for (const std::vector<int64_t>& batch : plan::stratified_batches(
           all, {.tokens_per_step = kTokensARank * kRanks, .batches = kSteps, .seed = 1'000'003})) {
    std::vector<strategy::Sequence> sequences = plan::sequences_of(batch);
    for (strategy::Sequence& sequence : sequences) sequence.document = documents++;
    plans.push_back(planner.plan(0, sequences));
  }
  const double balanced_ns = mean_step_ns(plans, options, 1, 0);
  for (const Workload& workload : kWorkloads) {
    const Outcome outcome = Trial(workload, options.model.experts(), plans).outcome();
    std::printf("| %s | %s | %s: %s |", mixture.name, lengths.name, workload.name, workload.text);
    for (size_t way = 0; way + 1 < kWayCount; ++way) {
      const double step_ns = mean_step_ns(plans, options, outcome.busiest[way], kWays[way].spare);
      std::printf(" %.2f, %.3f |", outcome.busiest[way], step_ns / balanced_ns);
    }
    std::printf(" %.2f | %.2f | %.2f, %.2f |\n", outcome.lanes[0], outcome.lanes[1],
                outcome.lanes[kWayCount - 1], outcome.busiest[kWayCount - 1]);
    std::fflush(stdout);
  }
}

}  // namespace

int main() {
  try {
    std::printf(
        "| model | lengths | visits | in order | placed | 1 to spare | 2 to spare | lanes a row: in order | "
        "placed | "
        "together |\n|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (const Mixture& mixture : kMixtures) {
      for (const Lengths& lengths : kLengths) print(mixture, lengths);
    }
  } catch (const base::Error& error) {
    std::fprintf(stderr, "imbalance_bench: %s\n", error.what());
    return 2;
  }
}
