// Traffic under each schedule of rows (strategy/row_schedule.h), as tables in Markdown. The tables also have
// the part that lanes wait for, if they share a switch or if each pair has its own link. bench/record.py
// row_schedules writes them. Schedules are walked step by step, hop by hop; nothing is timed.
//
//   row_schedules_bench
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strategy/row_schedule.h"

namespace {

using sluice::strategy::RowSchedule;
using Rows = RowSchedule::Rows;

// Bytes of one row.
struct Model {
  const char* name;
  double heads, key_heads, dimensions = 128, element = 2, statistic = 4;

  double queries() const { return heads * dimensions * element; }
  double keys() const { return 2 * key_heads * dimensions * element; }
  double hop(Rows rows, bool forward) const {
    if (rows == Rows::kKeys) return keys();
    return forward ? queries() : 3 * queries() + heads * statistic;
  }
  double returned(Rows rows, bool forward) const {
    if (rows == Rows::kKeys) return forward ? 0 : keys();
    return queries() + (forward ? heads * statistic : 0);
  }
};

struct Schedule {
  const char* name;
  std::function<RowSchedule(int lanes)> of;
};

const std::vector<Schedule>& schedules() {
  using namespace sluice::strategy;
  static const std::vector<Schedule> all = {
      {"ring", [](int lanes) { return ring_schedule(lanes); }},
      {"balanced", balanced_schedule},
      {"queries", query_schedule},
  };
  return all;
}

enum class Links : uint8_t { kSwitch, kMesh };

// A switch: a lane has one way to it for all it sends, and one for all it receives. A mesh: each pair of
// lanes has an equal part of both, with the same total width.
class Traffic {
 public:
  explicit Traffic(int lanes) : lanes_(lanes) {}
  void add(int from, int to, double bytes) {
    pairs_[{from, to}] += bytes;
    sent_[from] += bytes;
    received_[to] += bytes;
  }
  double seconds(Links links, double bytes_per_s) const {
    double most = 0;
    if (links == Links::kMesh) {
      for (const auto& [_, bytes] : pairs_) most = std::max(most, bytes * (lanes_ - 1));
    } else {
      for (const auto* side : {&sent_, &received_})
        for (const auto& [_, bytes] : *side) most = std::max(most, bytes);
    }
    return most / bytes_per_s;
  }
  double most_sent() const {
    double most = 0;
    for (const auto& [_, bytes] : sent_) most = std::max(most, bytes);
    return most;
  }

 private:
  int lanes_;
  std::map<std::pair<int, int>, double> pairs_;
  std::map<int, double> sent_, received_;
};

// Traffic in each step, for one row per lane: hops that start in this step, and returns of the step before.
std::vector<Traffic> traffic_of(const RowSchedule& schedule, const Model& model, bool forward) {
  std::vector<Traffic> steps(static_cast<size_t>(schedule.steps) + 1, Traffic(schedule.lanes));
  for (const RowSchedule::Hop& hop : schedule.hops)
    steps[static_cast<size_t>(hop.issued)].add(hop.from, hop.to, model.hop(hop.rows, forward));
  for (const RowSchedule::Return& of : schedule.returns)
    steps[static_cast<size_t>(of.issued) + 1].add(of.from, of.to, model.returned(of.rows, forward));
  return steps;
}

double sent(const RowSchedule& schedule, const Model& model, bool forward) {
  Traffic all(schedule.lanes);
  for (const RowSchedule::Hop& hop : schedule.hops) all.add(hop.from, hop.to, model.hop(hop.rows, forward));
  for (const RowSchedule::Return& of : schedule.returns)
    all.add(of.from, of.to, model.returned(of.rows, forward));
  return all.most_sent();
}

void print_volumes() {
  std::printf(
      "Kilobytes that the lane which sends most sends of a layer for each of its tokens, forward and "
      "backward:\n\n");
  std::printf("| | lanes | ring | balanced | queries |\n|---|---:|---:|---:|---:|\n");
  for (const Model& model :
       {Model{"32 heads, keys of their own", 32, 32}, Model{"32 heads, 8 of keys", 32, 8}}) {
    for (const int lanes : {4, 8, 16}) {
      std::printf("| %s | %d |", model.name, lanes);
      for (const Schedule& schedule : schedules()) {
        const RowSchedule of = schedule.of(lanes);
        std::printf(" %.1f, %.1f |", sent(of, model, true) / 1e3, sent(of, model, false) / 1e3);
      }
      std::printf("\n");
    }
  }
  std::printf("\n");
}

// The whole attention of a lane takes `whole`; with contiguous parts a step takes twice the mean step.
double taken(const RowSchedule& schedule, const Model& model, bool forward, double tokens, double whole,
             Links links, double bytes_per_s) {
  const double step = (schedule.contiguous ? 2 : 1) * whole / schedule.lanes;
  const std::vector<Traffic> traffic = traffic_of(schedule, model, forward);
  double seconds = 0;
  for (int index = 0; index <= schedule.steps; ++index) {
    const bool attends = index < schedule.steps;
    const double own = index == 0 && schedule.contiguous ? step / 2 : step;
    seconds +=
        std::max(attends ? own : 0, tokens * traffic[static_cast<size_t>(index)].seconds(links, bytes_per_s));
  }
  return seconds;
}

void print_exposed() {
  std::printf(
      "Microseconds that one layer waits, forward and backward, eight lanes of 400 GB/s each way, 300 "
      "Tflop/s in attention's\n"
      "forward and 225 in its backward:\n\n");
  std::printf("| | tokens | links | ring | balanced | queries |\n|---|---:|---|---:|---:|---:|\n");
  constexpr int kLanes = 8;
  constexpr double kBytes = 400e9;
  for (const Model& model :
       {Model{"32 heads, keys of their own", 32, 32}, Model{"32 heads, 8 of keys", 32, 8}}) {
    for (const double length : {8'192.0, 32'768.0, 131'072.0}) {
      const double flops = 4 * model.heads * model.dimensions * length * length / 2 / kLanes;
      for (const Links links : {Links::kSwitch, Links::kMesh}) {
        std::printf("| %s | %.0f | %s |", model.name, length, links == Links::kSwitch ? "switch" : "mesh");
        for (const Schedule& schedule : schedules()) {
          const RowSchedule of = schedule.of(kLanes);
          double waited[2];
          for (const bool forward : {true, false}) {
            const double whole = forward ? flops / 300e12 : 2.5 * flops / 225e12;
            waited[forward ? 0 : 1] =
                taken(of, model, forward, length / kLanes, whole, links, kBytes) - whole;
          }
          std::printf(" %.0f, %.0f |", waited[0] * 1e6, waited[1] * 1e6);
        }
        std::printf("\n");
      }
    }
  }
  std::printf("\n");
}

// A ring of contiguous parts: in every step, lanes wait for those that have keys to attend to.
void print_light_seq() {
  std::printf(
      "Steps of attention, the mean lane's work being 1, and what contiguous parts in a ring take over "
      "balanced ones:\n\n");
  std::printf("| lanes | ring of contiguous parts | balanced | ratio |\n|---:|---:|---:|---:|\n");
  for (const int lanes : {4, 5, 8, 16, 64}) {
    const double whole = lanes / 2.0;  // in units of a step
    const double ring = 0.5 + lanes - 1,
                 balanced = 0.5 + (sluice::strategy::balanced_schedule(lanes).steps - 1);
    std::printf("| %d | %.3f | %.3f | %.2f |\n", lanes, ring / whole, balanced / whole, ring / balanced);
  }
  std::printf("\n");
}

void print_token_ring() {
  const Model model{"", 32, 32};
  constexpr double kTokens = 24'000.0 / 4;
  const double bytes_per_pair = model.keys() * kTokens / 7.6e-3;
  std::printf(
      "Milliseconds of a step's transfers, four lanes with 6,000 tokens of 32 heads each, links between two "
      "lanes of %.1f GB/s:\n\n",
      bytes_per_pair / 1e9);
  std::printf("| | each pair a link | one link a lane |\n|---|---:|---:|\n");
  for (const Schedule& schedule : schedules()) {
    double most[2] = {0, 0};
    for (const Traffic& step : traffic_of(schedule.of(4), model, true)) {
      most[0] = std::max(most[0], kTokens * step.seconds(Links::kMesh, 3 * bytes_per_pair));
      most[1] = std::max(most[1], kTokens * step.seconds(Links::kSwitch, bytes_per_pair));
    }
    std::printf("| %s | %.1f | %.1f |\n", schedule.name, most[0] * 1e3, most[1] * 1e3);
  }
}

}  // namespace

int main() {
  print_volumes();
  print_exposed();
  print_light_seq();
  print_token_ring();
  return 0;
}
