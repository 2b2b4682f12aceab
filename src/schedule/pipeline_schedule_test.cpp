#include "schedule/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "schedule/test_cells.h"

namespace sluice::schedule {
namespace {

using base::Rng;
using cost::CellKind;

bool is_backward(CellKind kind) { return kind == CellKind::kBackward || kind == CellKind::kBackwardInput; }
bool ends_micro_batch(CellKind kind) {
  return kind == CellKind::kBackward || kind == CellKind::kBackwardWeight;
}

// A load whose cells all take the same times.
PipelineLoad uniform_load(int stages, int micro_batches, int64_t forward, int64_t input, int64_t weight,
                          int64_t transfer = 0) {
  PipelineLoad load{.stages = stages, .lanes = 1, .credit_tokens = 1'000'000};
  const auto s = static_cast<size_t>(stages);
  const TimedMicroBatch micro_batch{.tokens = 1,
                                    .forward_ns = std::vector<int64_t>(s, forward),
                                    .backward_input_ns = std::vector<int64_t>(s, input),
                                    .backward_weight_ns = std::vector<int64_t>(s, weight),
                                    .transfer_ns = std::vector<int64_t>(s - 1, transfer)};
  load.micro_batches.assign(static_cast<size_t>(micro_batches), micro_batch);
  return load;
}

PipelineLoad random_load(uint64_t seed, int64_t most_lanes) {
  Rng rng(seed, 7);
  PipelineLoad load{.stages = static_cast<int>(rng.between(1, 5)),
                    .lanes = static_cast<int>(rng.between(1, most_lanes))};
  load.credit_tokens = rng.between(100, 400);
  const int64_t most_transfer = rng.below(2) == 0 ? 0 : 40;
  const int64_t micro_batches = rng.between(0, 12);
  Rng policies(seed, 8);
  const bool has_policies = policies.below(3) == 0;
  for (int64_t u = 0; u < micro_batches; ++u) {
    TimedMicroBatch micro_batch;
    micro_batch.fused = has_policies && policies.below(2) == 0;
    if (micro_batch.fused) micro_batch.credit_tokens = policies.between(1, 100);
    micro_batch.lanes = rng.below(3) == 0 ? static_cast<int>(rng.between(1, load.lanes)) : 1;
    micro_batch.first_lane = static_cast<int>(rng.between(0, load.lanes - micro_batch.lanes));
    micro_batch.tokens = rng.between(1, 100);
    for (int stage = 0; stage < load.stages; ++stage) {
      micro_batch.forward_ns.push_back(rng.between(1, 30));
      micro_batch.backward_input_ns.push_back(rng.between(1, 30));
      micro_batch.backward_weight_ns.push_back(rng.between(1, 30));
      if (stage > 0) micro_batch.transfer_ns.push_back(rng.between(0, most_transfer));
    }
    load.micro_batches.push_back(micro_batch);
  }
  if (policies.below(3) == 0) end_backwards(static_cast<int>(policies.between(1, load.stages)), load);
  return load;
}

std::string print(const PipelineSchedule& schedule) {
  std::string out;
  for (size_t s = 0; s < schedule.cells.size(); ++s) {
    for (size_t lane = 0; lane < schedule.cells[s].size(); ++lane) {
      out += base::text("stage ", s, " lane ", lane, ":");
      for (const Cell& cell : schedule.cells[s][lane]) {
        const char* letter = cell.kind == CellKind::kForward         ? "F"
                             : cell.kind == CellKind::kBackward      ? "D"
                             : cell.kind == CellKind::kBackwardInput ? "B"
                                                                     : "W";
        out += base::text(" ", letter, cell.micro_batch, "@", cell.start_ns, "-", cell.end_ns);
      }
      out += "\n";
    }
  }
  return out + base::text("makespan ", schedule.makespan_ns, " peak ", schedule.peak_tokens, "\n");
}

// A twin of the header's policy on one lane, computed tick by tick: at every nanosecond every stage looks at
// the whole history and decides.
class TickTwin {
 public:
  explicit TickTwin(const PipelineLoad& load) : load_(load) {
    schedule_.cells.assign(static_cast<size_t>(load.stages), std::vector<std::vector<Cell>>(1));
  }

  PipelineSchedule run() {
    bool left = !load_.micro_batches.empty();
    for (now_ = 0; left; ++now_) {
      left = false;
      for (int u = 0; u < micro_batches(); ++u) left = left || !done_everywhere(u);
      deliver();
      for (int stage = 0; stage < load_.stages; ++stage) start(stage);
    }
    schedule_.makespan_ns = load_.micro_batches.empty() ? 0 : now_ - 1;
    return schedule_;
  }

 private:
  using Key = std::tuple<int, int, char>;  // stage, micro-batch, F | B | W
  struct Choice {
    char letter = ' ';
    int micro_batch = -1;
  };

  const TimedMicroBatch& micro_batch(int u) const { return load_.micro_batches[static_cast<size_t>(u)]; }
  int micro_batches() const { return static_cast<int>(load_.micro_batches.size()); }
  bool started(int stage, int u, char letter) const { return started_.contains({stage, u, letter}); }
  bool done(int stage, int u, char letter) const {
    const auto cell = started_.find({stage, u, letter});
    return cell != started_.end() && cell->second.end_ns <= now_;
  }
  bool done_everywhere(int u) const {
    for (int stage = micro_batch(u).first_backward_stage; stage < load_.stages; ++stage) {
      if (!done(stage, u, 'W')) return false;
    }
    return done(load_.stages - 1, u, 'F');
  }
  bool free(int stage) const {
    const auto& cells = schedule_.cells[static_cast<size_t>(stage)].front();
    return cells.empty() || cells.back().end_ns <= now_;
  }
  bool fused(int stage, int u) const {
    return turns_alone(u) || micro_batch(u).fused ||
           (u + 1 == micro_batches() && stage == micro_batch(u).first_backward_stage);
  }
  // No gradient leaves the last stage.
  bool turns_alone(int u) const { return micro_batch(u).first_backward_stage >= load_.stages - 1; }

  struct Transfer {
    int64_t ready = 0;
    int micro_batch = 0;
    int from = 0;
    int to = 0;
    char letter = 'F';
    int64_t end = -1;  // -1: waits
  };

  // Starts transfers whose cell is done: the longest ready first, then the older micro-batch. Both ends'
  // streams must be free, and no micro-batch overtakes another.
  void deliver() {
    for (const auto& [key, cell] : started_) {
      const auto& [stage, u, letter] = key;
      const int to = letter == 'F' ? stage + 1 : stage - 1;
      const bool known = std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& t) {
        return t.micro_batch == u && t.from == stage && t.letter == letter;
      });
      if (letter == 'W' || cell.end_ns > now_ || to == load_.stages || known) continue;
      if (letter == 'B' && to < micro_batch(u).first_backward_stage) continue;
      transfers_.push_back(
          {.ready = cell.end_ns, .micro_batch = u, .from = stage, .to = to, .letter = letter});
    }
    bool again = true;
    while (again) again = start_transfers();
  }
  // Returns whether some transfers took no time: others may be ready after them.
  bool start_transfers() {
    std::sort(transfers_.begin(), transfers_.end(), [](const Transfer& a, const Transfer& b) {
      return std::tie(a.ready, a.micro_batch) < std::tie(b.ready, b.micro_batch);
    });
    bool arrived = false;
    for (size_t i = 0; i < transfers_.size(); ++i) {
      Transfer& transfer = transfers_[i];
      if (transfer.end >= 0 || !may_start(i)) continue;
      transfer.end = now_ + micro_batch(transfer.micro_batch)
                                .transfer_ns[static_cast<size_t>(std::min(transfer.from, transfer.to))];
      arrival_[{transfer.to, transfer.micro_batch, transfer.letter}] = transfer.end;
      arrived = arrived || transfer.end == now_;
    }
    return arrived;
  }
  bool may_start(size_t index) const {
    const Transfer& transfer = transfers_[index];
    for (size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& other = transfers_[i];
      if (other.letter != transfer.letter) continue;
      const bool meet = other.from == transfer.from || other.from == transfer.to ||
                        other.to == transfer.from || other.to == transfer.to;
      if (meet && other.end > now_) return false;
      if (other.micro_batch < transfer.micro_batch && other.from == transfer.from && other.end < 0)
        return false;
    }
    return true;
  }
  bool arrived(int stage, int u, char letter) const {
    const auto found = arrival_.find({stage, u, letter});
    return found != arrival_.end() && found->second <= now_;
  }

  bool fed_backward(int stage, int u) const {
    if (started(stage, u, 'B') || stage < micro_batch(u).first_backward_stage) return false;
    return stage == load_.stages - 1 ? done(stage, u, 'F') : arrived(stage, u, 'B');
  }
  bool allowed_backward(int stage, int u) const {
    if (!fused(stage, u)) return true;
    for (int older = 0; older < u; ++older) {
      if (!done(stage, older, 'W')) return false;
    }
    return true;
  }
  bool ready_forward(int stage, int u) const {
    if (started(stage, u, 'F')) return false;
    if (stage > 0) return arrived(stage, u, 'F');
    int64_t used = micro_batch(u).credit();
    for (int older = 0; older < u; ++older) {
      if (!started(0, older, 'F')) return false;
      if (!done_everywhere(older)) used += micro_batch(older).credit();
    }
    return used <= load_.credit_tokens;
  }
  // The next micro-batch to enter does not fit the credit that is left.
  bool waits_for_credit() const {
    int64_t used = 0;
    for (int u = 0; u < micro_batches(); ++u) {
      if (!started(0, u, 'F')) return used + micro_batch(u).credit() > load_.credit_tokens;
      if (!done_everywhere(u)) used += micro_batch(u).credit();
    }
    return false;
  }
  int oldest_weight(int stage) const {
    for (int u = 0; u < micro_batches(); ++u) {
      if (done(stage, u, 'B') && !started(stage, u, 'W')) return u;
    }
    return -1;
  }
  Choice choose(int stage) const {
    for (int u = 0; u < micro_batches(); ++u) {
      if (!fed_backward(stage, u)) continue;
      return allowed_backward(stage, u) ? Choice{'B', u} : Choice{'W', oldest_weight(stage)};
    }
    for (int u = 0; stage > 0 && waits_for_credit() && u < micro_batches(); ++u) {
      if (done_everywhere(u)) continue;
      if (done(stage, u, 'B') && !started(stage, u, 'W')) return {'W', u};
      break;
    }
    for (int u = 0; u < micro_batches(); ++u) {
      if (!ready_forward(stage, u)) continue;
      const bool weights_first = stage + 1 == load_.stages && fused(stage, u) && oldest_weight(stage) >= 0;
      return weights_first ? Choice{'W', oldest_weight(stage)} : Choice{'F', u};
    }
    const int weight = oldest_weight(stage);
    return weight < 0 ? Choice{} : Choice{'W', weight};
  }
  void start(int stage) {
    const Choice choice = choose(stage);
    if (choice.micro_batch < 0 || !free(stage)) return;
    const auto s = static_cast<size_t>(stage);
    const TimedMicroBatch& of = micro_batch(choice.micro_batch);
    const bool whole = choice.letter == 'B' && fused(stage, choice.micro_batch);
    const int64_t duration = choice.letter == 'F' ? of.forward_ns[s]
                             : choice.letter == 'W'
                                 ? of.backward_weight_ns[s]
                                 : of.backward_input_ns[s] + (whole ? of.backward_weight_ns[s] : 0);
    const CellKind kind = choice.letter == 'F'   ? CellKind::kForward
                          : choice.letter == 'W' ? CellKind::kBackwardWeight
                          : whole                ? CellKind::kBackward
                                                 : CellKind::kBackwardInput;
    const Cell cell{kind, choice.micro_batch, now_, now_ + duration};
    started_[{stage, choice.micro_batch, choice.letter}] = cell;
    if (whole) started_[{stage, choice.micro_batch, 'W'}] = cell;
    schedule_.cells[s].front().push_back(cell);
    note_credit();
  }
  void note_credit() {
    int64_t used = 0;
    for (int u = 0; u < micro_batches(); ++u) {
      if (started(0, u, 'F') && !done_everywhere(u)) used += micro_batch(u).credit();
    }
    schedule_.peak_tokens = std::max(schedule_.peak_tokens, used);
  }

  const PipelineLoad& load_;
  int64_t now_ = 0;
  std::map<Key, Cell> started_;
  std::vector<Transfer> transfers_;
  std::map<Key, int64_t> arrival_;
  PipelineSchedule schedule_;
};

TEST(PipelineSchedule, OneStageAlternatesForwardAndWholeBackward) {
  EXPECT_EQ(print(schedule_pipeline(uniform_load(1, 2, 10, 12, 8))),
            "stage 0 lane 0: F0@0-10 D0@10-30 F1@30-40 D1@40-60\n"
            "makespan 60 peak 1\n");
}

TEST(PipelineSchedule, EqualsItsTickByTickTwin) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const PipelineLoad load = random_load(seed, 1);
    ASSERT_EQ(print(schedule_pipeline(load)), print(TickTwin(load).run())) << "seed " << seed;
  }
}

TEST(PipelineSchedule, StageZeroFusesTheLastBackwardAfterOlderWeightGradients) {
  EXPECT_EQ(print(schedule_pipeline(uniform_load(2, 2, 10, 10, 10, 1))),
            "stage 0 lane 0: F0@0-10 F1@10-20 B0@32-42 W0@42-52 D1@52-72\n"
            "stage 1 lane 0: F0@11-21 B0@21-31 F1@31-41 B1@41-51 W0@51-61 W1@61-71\n"
            "makespan 72 peak 2\n");
}

TEST(PipelineSchedule, UnitUnderAPolicyIsFusedEverywhereAfterOlderWeightGradients) {
  PipelineLoad load = uniform_load(2, 3, 10, 10, 10);
  load.micro_batches[1].fused = true;
  const PipelineSchedule schedule = schedule_pipeline(load);
  EXPECT_EQ(print(schedule),
            "stage 0 lane 0: F0@0-10 F1@10-20 F2@20-30 B0@30-40 W0@40-50 D1@70-90 D2@90-110\n"
            "stage 1 lane 0: F0@10-20 B0@20-30 W0@30-40 F1@40-50 D1@50-70 F2@70-80 B2@80-90 W2@90-100\n"
            "makespan 110 peak 3\n");
}

TEST(PipelineSchedule, AdmissionWaitsForCreditOfEveryStage) {
  PipelineLoad load = uniform_load(2, 2, 10, 10, 10);
  load.credit_tokens = 1;
  EXPECT_EQ(print(schedule_pipeline(load)),
            "stage 0 lane 0: F0@0-10 B0@30-40 W0@40-50 F1@50-60 D1@80-100\n"
            "stage 1 lane 0: F0@10-20 B0@20-30 W0@30-40 F1@60-70 B1@70-80 W1@80-90\n"
            "makespan 100 peak 1\n");
}

TEST(PipelineSchedule, TiedUnitRunsOnItsLanesInStep) {
  PipelineLoad load = uniform_load(1, 3, 10, 10, 10);
  load.lanes = 2;
  load.micro_batches[1].lanes = 2;
  load.micro_batches[2].first_lane = 1;
  EXPECT_EQ(print(schedule_pipeline(load)),
            "stage 0 lane 0: F0@0-10 D0@10-30 F1@30-40 D1@40-60\n"
            "stage 0 lane 1: F1@30-40 D1@40-60 F2@60-70 D2@70-90\n"
            "makespan 90 peak 1\n");
}

// The rounds are micro-batches 0 and 2; 1; 3. Micro-batch 2's gradient is there at 12, but lane 2 runs the
// last round's forward first, as in the order of a lane whose micro-batches are the rounds. Times are the
// micro-batches' own.
TEST(PipelineSchedule, TiedLanesKeepInStep) {
  PipelineLoad load = uniform_load(2, 4, 10, 10, 10);
  load.lanes = 3;
  load.micro_batches[0].lanes = 2;
  load.micro_batches[1].lanes = 2;
  load.micro_batches[2] = {.first_lane = 2,
                           .tokens = 1,
                           .forward_ns = {4, 4},
                           .backward_input_ns = {4, 4},
                           .backward_weight_ns = {4, 4},
                           .transfer_ns = {0}};
  load.micro_batches[3].first_lane = 1;
  load.micro_batches[3].lanes = 2;
  EXPECT_EQ(
      print(schedule_pipeline(load)),
      "stage 0 lane 0: F0@0-10 F1@10-20 B0@30-40 W0@40-50 B1@50-60 W1@60-70\n"
      "stage 0 lane 1: F0@0-10 F1@10-20 F3@20-30 B0@30-40 W0@40-50 B1@50-60 W1@60-70 D3@70-90\n"
      "stage 0 lane 2: F2@0-4 F3@20-30 B2@30-34 W2@34-38 D3@70-90\n"
      "stage 1 lane 0: F0@10-20 B0@20-30 F1@30-40 B1@40-50 W0@70-80 W1@80-90\n"
      "stage 1 lane 1: F0@10-20 B0@20-30 F1@30-40 B1@40-50 F3@50-60 B3@60-70 W0@70-80 W1@80-90 W3@90-100\n"
      "stage 1 lane 2: F2@4-8 B2@8-12 F3@50-60 B3@60-70 W2@70-74 W3@90-100\n"
      "makespan 100 peak 3\n");
}

// Every property that graph lowering and memory rely on, on one schedule.
void check(const PipelineLoad& load, const PipelineSchedule& schedule, const std::string& name) {
  const auto stages = static_cast<size_t>(load.stages);
  std::map<std::tuple<size_t, int, char>, Cell> cells;
  int64_t busiest = 0;
  for (size_t s = 0; s < stages; ++s) {
    for (const auto& lane : schedule.cells[s]) {
      int64_t free = 0;
      int64_t work = 0;
      for (const Cell& cell : lane) {
        ASSERT_GE(cell.start_ns, free) << name;
        free = cell.end_ns;
        work += cell.end_ns - cell.start_ns;
        if (cell.kind == CellKind::kForward) cells[{s, cell.micro_batch, 'F'}] = cell;
        if (is_backward(cell.kind)) cells[{s, cell.micro_batch, 'B'}] = cell;
        if (ends_micro_batch(cell.kind)) cells[{s, cell.micro_batch, 'W'}] = cell;
      }
      busiest = std::max(busiest, work);
    }
  }
  const auto first =
      static_cast<size_t>(load.micro_batches.empty() ? 0 : load.micro_batches[0].first_backward_stage);
  ASSERT_EQ(cells.size(), (3 * stages - 2 * first) * load.micro_batches.size()) << name;
  ASSERT_GE(schedule.makespan_ns, busiest) << name;
  ASSERT_LE(schedule.peak_tokens, load.credit_tokens) << name;
  for (size_t u = 0; u < load.micro_batches.size(); ++u) {
    const int micro_batch = static_cast<int>(u);
    for (size_t s = 0; s < stages; ++s) {
      const Cell& forward = cells.at({s, micro_batch, 'F'});
      if (s > 0) {
        ASSERT_LE(cells.at({s - 1, micro_batch, 'F'}).end_ns, forward.start_ns) << name;
      }
      if (s < first) continue;
      const Cell& backward = cells.at({s, micro_batch, 'B'});
      const Cell& weight = cells.at({s, micro_batch, 'W'});
      ASSERT_LE(forward.end_ns, backward.start_ns) << name;
      if (backward.kind == CellKind::kBackwardInput) {
        ASSERT_LE(backward.end_ns, weight.start_ns) << name;
      }
      if (s + 1 == stages) continue;
      ASSERT_GE(cells.at({s + 1, micro_batch, 'F'}).start_ns,
                forward.end_ns + load.micro_batches[u].transfer_ns[s])
          << name;
      ASSERT_LE(cells.at({s + 1, micro_batch, 'B'}).end_ns + load.micro_batches[u].transfer_ns[s],
                backward.start_ns)
          << name;
    }
  }
}

// Tokens between the start of a micro-batch's first forward and the end of its last weight gradient.
void check_credit(const PipelineLoad& load, const PipelineSchedule& schedule, const std::string& name) {
  std::vector<int64_t> begin(load.micro_batches.size()), end(load.micro_batches.size(), 0);
  for (const auto& stage : schedule.cells) {
    for (const auto& lane : stage) {
      for (const Cell& cell : lane) {
        const auto u = static_cast<size_t>(cell.micro_batch);
        if (cell.kind == CellKind::kForward && &stage == &schedule.cells[0]) begin[u] = cell.start_ns;
        end[u] = std::max(end[u], cell.end_ns);
      }
    }
  }
  for (int lane = 0; lane < load.lanes; ++lane) {
    for (const int64_t now : begin) {
      int64_t used = 0;
      for (size_t u = 0; u < load.micro_batches.size(); ++u) {
        const TimedMicroBatch& micro_batch = load.micro_batches[u];
        const bool covers =
            lane >= micro_batch.first_lane && lane < micro_batch.first_lane + micro_batch.lanes;
        if (covers && begin[u] <= now && now < end[u]) used += micro_batch.credit();
      }
      ASSERT_LE(used, load.credit_tokens) << name;
    }
  }
}

TEST(PipelineSchedule, RandomLoadsFinishInOrderAndWithinCredit) {
  for (uint64_t seed = 1000; seed < 11'000; ++seed) {
    const PipelineLoad load = random_load(seed, 4);
    const PipelineSchedule schedule = schedule_pipeline(load);
    const std::string name = base::text("seed ", seed);
    check(load, schedule, name);
    check_credit(load, schedule, name);
    if (HasFatalFailure()) return;
  }
}

TEST(PipelineSchedule, EqualMicroBatchesWithAmpleCreditBeatFusedOneForwardOneBackward) {
  for (int stages = 2; stages <= 6; ++stages) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      const PipelineSchedule schedule = schedule_pipeline(uniform_load(stages, micro_batches, 10, 11, 9));
      EXPECT_LE(schedule.makespan_ns, (micro_batches + stages - 1) * 30)
          << stages << " stages, " << micro_batches << " units";
    }
  }
}

// Fused 1F1B keeps as many micro-batches in flight as there are stages; so much credit is given.
TEST(PipelineSchedule, EqualMicroBatchesWithTightCreditBeatFusedOneForwardOneBackward) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 40; ++micro_batches) {
      PipelineLoad load = uniform_load(stages, micro_batches, 10, 11, 9);
      load.credit_tokens = stages;
      EXPECT_LE(schedule_pipeline(load).makespan_ns, (micro_batches + stages - 1) * 30)
          << stages << " stages, " << micro_batches << " units";
    }
  }
}

TEST(PipelineSchedule, UnitAboveCreditIsOurMistake) {
  PipelineLoad load = uniform_load(1, 1, 1, 1, 1);
  load.credit_tokens = 0;
  EXPECT_THROW(schedule_pipeline(load), base::AssertionError);
}

TEST(PipelineSchedule, NoUnitsTakeNoTime) {
  EXPECT_EQ(print(schedule_pipeline(uniform_load(2, 0, 1, 1, 1))),
            "stage 0 lane 0:\nstage 1 lane 0:\nmakespan 0 peak 0\n");
}

}  // namespace
}  // namespace sluice::schedule
