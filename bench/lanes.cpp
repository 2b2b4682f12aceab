// One pipeline of many lanes: planning time, and its makespan over the proved lower bound (the work divided
// by the lanes, or the path of the longest sequence), beside a dynamic CP scheduler in the manner of
// Megatron-LM's: powers of two, phases of groups that are balanced by s² ÷ cp up to 5 % of slack. Both are
// timed by the same costs. Plans are validated and re-scored before they count.
//
//   lanes_bench [DATA_FOLDER [REPEATS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "inputs.h"
#include "plan/planner.h"
#include "schedule/pipeline_schedule.h"

namespace {

using namespace sluice;

constexpr int kLanes = 512;
constexpr int64_t kLongestTokens = 131'072;
constexpr int kWarmUps = 2;

// CPU time of this thread: what else runs on the machine counts little.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// llama-7b on nodes of eight H100.
cost::CostModel cost_of_machine() {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", kLanes / 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9,
                                    .element_bytes = 2,
                                    .owner_bytes_per_parameter = 12};
  const std::vector<int> degrees = {1};
  return cost::CostModel(cost::analytic_options(model::named_shape("llama-7b"), cost::rates_of(cluster),
                                                memory, degrees, cluster.gpus_per_node));
}

// `stretch` times as long as in the file.
std::vector<int64_t> draw(const std::vector<int64_t>& lengths, int64_t stretch, int count, base::Rng& rng) {
  std::vector<int64_t> batch;
  for (int i = 0; i < count; ++i) {
    const int64_t length = lengths[rng.below(lengths.size())] * stretch;
    batch.push_back(std::clamp<int64_t>(length, 2, kLongestTokens));
  }
  return batch;
}

// 80 % of up to 4K tokens, 19 % of up to 64K and 1 % of up to 128K, each class with 1/x from its lower end.
std::vector<int64_t> draw_long_tailed(int count, base::Rng& rng) {
  std::vector<int64_t> batch;
  for (int i = 0; i < count; ++i) {
    const uint64_t of = rng.below(100);
    const int64_t most = of < 80 ? 4096 : of < 99 ? 65'536 : kLongestTokens;
    const int64_t least = of < 80 ? 64 : most / 16;
    const int64_t inverse = rng.between(1'000'000 * least / most, 1'000'000);
    batch.push_back(std::min(kLongestTokens, 1'000'000 * least / inverse));
  }
  return batch;
}

// Phases follow each other on all lanes. In a phase every group of lanes runs its sequences, each cut over
// all of the group; sequences of one lane share micro-batches.
class DynamicCp {
 public:
  DynamicCp(const plan::SchemeCost& scheme, std::vector<int64_t> lengths)
      : scheme_(scheme), left_(std::move(lengths)) {
    std::sort(left_.begin(), left_.end(), std::greater<>());
  }

  int64_t makespan_ns() {
    int64_t sum_ns = 0;
    while (!left_.empty()) sum_ns += phase_ns();
    return sum_ns;
  }

 private:
  struct Group {
    int64_t lanes = 1;
    double load = 0;  // s² ÷ cp
    std::vector<int64_t> lengths;
  };

  int64_t lanes_of(int64_t length) const {
    int64_t lanes = 1;
    while (lanes * scheme_.lane_max_len_tokens() < length) lanes *= 2;
    return lanes;
  }

  int64_t time_ns(const Group& group) const {
    const auto lanes = static_cast<int>(group.lanes);
    int64_t sum_ns = 0;
    int64_t tokens = 0;
    for (const int64_t length : group.lengths) {
      const bool shares = lanes == 1;
      sum_ns += scheme_.lane_ns(length, static_cast<int>(std::min<int64_t>(lanes, length / 2 + 1))) -
                (shares ? scheme_.micro_batch_ns() : 0);
      tokens += shares ? length : 0;
    }
    const int64_t most = scheme_.lane_max_len_tokens();
    return sum_ns + (tokens + most - 1) / most * scheme_.micro_batch_ns();
  }

  // A new group while lanes are free, else the one of its size with the least load that stays within the
  // slack of the heaviest.
  bool place(int64_t length, std::vector<Group>& groups, int64_t& free_lanes, double heaviest) const {
    constexpr double kSlack = 0.05;
    const int64_t lanes = lanes_of(length);
    const double load =
        static_cast<double>(length) * static_cast<double>(length) / static_cast<double>(lanes);
    if (lanes <= free_lanes) {
      free_lanes -= lanes;
      groups.push_back({lanes, load, {length}});
      return true;
    }
    Group* least = nullptr;
    for (Group& group : groups) {
      if (group.lanes == lanes && (least == nullptr || group.load < least->load)) least = &group;
    }
    if (least == nullptr || least->load + load > heaviest * (1 + kSlack)) return false;
    least->load += load;
    least->lengths.push_back(length);
    return true;
  }

  // Lanes that are left double the groups with the most work a lane.
  static void widen(std::vector<Group>& groups, int64_t free_lanes) {
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.load > b.load; });
    for (bool any = true; any && free_lanes > 0;) {
      any = false;
      for (Group& group : groups) {
        if (group.lanes > free_lanes) continue;
        free_lanes -= group.lanes;
        group.lanes *= 2;
        any = true;
      }
    }
  }

  int64_t phase_ns() {
    std::vector<Group> groups;
    std::vector<int64_t> later;
    int64_t free_lanes = kLanes;
    double heaviest = 0;
    for (const int64_t length : left_) {
      if (!place(length, groups, free_lanes, heaviest)) later.push_back(length);
      heaviest = std::max(heaviest, groups.back().load);
    }
    left_ = std::move(later);
    widen(groups, free_lanes);
    int64_t slowest_ns = 0;
    for (const Group& group : groups) slowest_ns = std::max(slowest_ns, time_ns(group));
    return slowest_ns;
  }

  const plan::SchemeCost& scheme_;
  std::vector<int64_t> left_;
};

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) {
    sequences.push_back({.document = static_cast<int64_t>(sequences.size()), .length_tokens = length});
  }
  return sequences;
}

void check(const strategy::StepPlan& plan, const cost::CostModel& cost) {
  strategy::validate(plan, kLanes);
  const schedule::PipelineLoad load = schedule::pipeline_load(plan.pipelines.front(), cost, kLanes);
  if (schedule::schedule_pipeline(load).makespan_ns != plan.estimated_ns) {
    throw base::RunError("a plan's estimate is not the time of its schedule");
  }
}

void run(const std::string& name, const std::vector<int64_t>& lengths, const cost::CostModel& cost,
         int repeats) {
  const strategy::Scheme scheme{.cp = kLanes};
  const plan::SchemeCost priced(scheme, cost, kLanes);
  const strategy::Strategy strategy = strategy::parse_strategy(base::text("1x", to_text(scheme)), kLanes);
  const plan::Planner planner({.world_size = kLanes, .candidates = {strategy}}, cost);
  const std::vector<strategy::Sequence> sequences = sequences_of(lengths);
  const strategy::StepPlan plan = planner.plan(0, sequences);
  check(plan, cost);
  std::vector<double> ours_ms, theirs_ms;
  int64_t theirs_ns = 0;
  for (int repeat = -kWarmUps; repeat < repeats; ++repeat) {
    double begin_ms = cpu_ms();
    planner.plan(0, sequences);
    const double ms = cpu_ms() - begin_ms;
    begin_ms = cpu_ms();
    theirs_ns = DynamicCp(priced, lengths).makespan_ns();
    if (repeat < 0) continue;
    ours_ms.push_back(ms);
    theirs_ms.push_back(cpu_ms() - begin_ms);
  }
  std::sort(ours_ms.begin(), ours_ms.end());
  std::sort(theirs_ms.begin(), theirs_ms.end());
  const auto bound_ns = static_cast<double>(plan.lower_bound_ns);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::printf("| %s | %zu | %.1f | %.2f | %.2f | %.2f | %.4f | %.2f | %.4f |\n", name.c_str(), lengths.size(),
              static_cast<double>(tokens) / 1e6, bound_ns / 1e9, ours_ms[ours_ms.size() / 2], ours_ms.back(),
              static_cast<double>(plan.estimated_ns) / bound_ns, theirs_ms[theirs_ms.size() / 2],
              static_cast<double>(theirs_ns) / bound_ns);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 20;
  const cost::CostModel cost = cost_of_machine();
  std::printf(
      "| lengths | sequences | tokens, millions | bound s | ours ms, median | most | ÷ bound | "
      "dynamic CP ms, median | ÷ bound |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const int sequences : {4096, 1024}) {
    base::Rng rng(3, static_cast<uint64_t>(sequences));
    for (const char* name : {"wikipedia", "code"}) {
      const std::vector<int64_t> lengths = bench::read_lengths(folder + "/" + name + "_lengths.txt");
      for (const int64_t stretch : {1, 8}) {
        run(base::text(name, " x ", stretch), draw(lengths, stretch, sequences, rng), cost, repeats);
      }
    }
    run("long-tailed", draw_long_tailed(sequences, rng), cost, repeats);
  }
}
