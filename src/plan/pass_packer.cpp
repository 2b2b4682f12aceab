#include "plan/pass_packer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/bins.h"
#include "plan/pass_fill.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

using strategy::Unit;

using SharedOut = std::vector<std::vector<int>>;  // by pass, places of sequences, ascending
using Filled = std::vector<FilledPass>;

// That sequences are cut over. Beyond a node whole ones: heads then divide best, and no node's lanes are cut
// in two.
std::vector<int> widths_of(int node_lanes, int lanes) {
  std::vector<int> widths;
  for (int width = 1; width < lanes; width += width < node_lanes ? 1 : node_lanes) widths.push_back(width);
  widths.push_back(lanes);
  return widths;
}

class PassPacker {
 public:
  explicit PassPacker(Packing& packing)
      : packing_(packing),
        scheme_(packing.scheme),
        fill_(scheme_, packing.nodes, packing.lengths, widths_of(packing.node_lanes(), packing.lanes())),
        best_ns_(packing.options.below_ns) {}

  std::optional<TimedUnits> run() {
    const int64_t room = std::max<int64_t>(1, scheme_.lane_max_len_tokens() * lanes());
    const auto fewest = static_cast<int>((cost::Work::of(packing_.lengths).tokens + room - 1) / room);
    scheme_.scheme().pp == 1 ? run_one_stage(std::max(1, fewest)) : run_stages(std::max(1, fewest));
    return std::move(best_);
  }

 private:
  int lanes() const { return packing_.lanes(); }
  int places() const { return static_cast<int>(packing_.lengths.size()); }
  int64_t length(int place) const { return packing_.length(place); }
  bool enough() const { return best_ns_ <= packing_.options.enough_ns; }
  // The most that every sequence may have to take. Lanes share parameters where memory is short: wide units
  // fill what single lanes would each leave a little of.
  int widest_least_lanes() const { return std::min(scheme_.scheme().share, packing_.node_lanes()); }
  // Where all lanes of one stage share, one pass follows the other: what is left for one is what the others
  // leave.
  bool in_turn() const { return scheme_.scheme().share == lanes() && scheme_.scheme().pp == 1; }

  // As few passes as hold all, and a few more.
  void run_one_stage(int fewest) {
    int most = std::max(fewest, places());
    for (int passes = fewest; passes <= most && !enough(); ++passes) {
      if (least_ns(packing_.lengths) + passes * scheme_.micro_batch_ns() >= best_ns_) break;
      for (const SharedOut& shared_out : ways(passes)) {
        for (int least_lanes = 1; least_lanes <= widest_least_lanes() && !enough(); least_lanes *= 2) {
          if (!consider(filled(shared_out, best_ns_, least_lanes), shared_out)) continue;
          most = std::min(most, passes + 1);
          if (!in_turn()) break;  // wider units mostly save passes
        }
        if (passes == 1 || enough()) break;
      }
    }
  }

  // As many as keep stages busy beside what each costs.
  void run_stages(int fewest) {
    const int most = std::max(1, places());
    const int pp = scheme_.scheme().pp;
    for (const int passes : micro_batch_counts(least_ns(packing_.lengths), scheme_.micro_batch_ns(), pp,
                                               std::min(fewest, most), most)) {
      for (const SharedOut& shared_out : ways(passes)) {
        const Filled passes_of = filled(shared_out, cost::kLongestNs, 1);
        consider(passes_of, shared_out);
        if (passes > 2) consider(peaked(passes_of), peaked(shared_out));
        if (passes == 1 || enough()) break;
      }
    }
  }

  std::vector<SharedOut> ways(int passes) const {
    std::vector<SharedOut> ways;
    ways.push_back(in_runs(passes));
    if (scheme_.scheme().pp == 1) ways.push_back(in_full_runs(passes));
    ways.push_back(in_turns(passes));
    return ways;
  }

  // From the last, alternately in front and behind, towards the first in the middle.
  template <typename Of>
  static std::vector<Of> peaked(const std::vector<Of>& of) {
    std::vector<Of> peaked(of.size());
    for (size_t i = 0; i < of.size(); ++i) {
      peaked[i % 2 == 0 ? i / 2 : of.size() - 1 - i / 2] = of[of.size() - 1 - i];
    }
    return peaked;
  }

  // Of the work alone, were it even over all lanes.
  int64_t least_ns(std::span<const int64_t> lengths) const {
    const cost::Work all = cost::Work::of(lengths);
    return scheme_.load_ns({.tokens = all.tokens / lanes(), .squares = all.squares / lanes()});
  }

  // Runs of descending length with as many tokens each.
  SharedOut in_runs(int passes) const {
    const int64_t tokens = cost::Work::of(packing_.lengths).tokens;
    SharedOut shared_out(static_cast<size_t>(passes));
    int64_t before = 0;
    for (int place = 0; place < places(); ++place) {
      const int64_t middle = before + length(place) / 2;
      shared_out[static_cast<size_t>(middle * passes / std::max<int64_t>(1, tokens))].push_back(place);
      before += length(place);
    }
    return shared_out;
  }

  // Of descending length, each pass as full as it gets; the last takes what is left.
  SharedOut in_full_runs(int passes) const {
    SharedOut shared_out(static_cast<size_t>(passes));
    size_t pass = 0;
    int64_t tokens = 0;
    for (int place = 0; place < places(); ++place) {
      const bool full = tokens + length(place) > scheme_.lane_max_len_tokens() * lanes();
      if (full && pass + 1 < shared_out.size()) {
        ++pass;
        tokens = 0;
      }
      tokens += length(place);
      shared_out[pass].push_back(place);
    }
    return shared_out;
  }

  // Each to the pass that has the least tokens.
  SharedOut in_turns(int passes) const {
    SharedOut shared_out(static_cast<size_t>(passes));
    std::vector<int64_t> tokens(static_cast<size_t>(passes), 0);
    for (int place = 0; place < places(); ++place) {
      const auto least = std::ranges::min_element(tokens);
      *least += length(place);
      shared_out[static_cast<size_t>(least - tokens.begin())].push_back(place);
    }
    return shared_out;
  }

  // With the least last end that is found; nothing where the pass does not hold the sequences by a limit.
  std::optional<FilledPass> fill(const std::vector<int>& places, int64_t below_ns, int least_lanes) {
    const auto by = [&](int64_t limit_ns) { return fill_.fill(places, limit_ns, least_lanes); };
    if (!by(std::min(below_ns, cost::kLongestNs))) return std::nullopt;
    FilledPass best = fill_.filled();
    if (places.empty()) return best;
    int64_t low_ns = least_ns_of(places);
    const auto ends_by = [&](int64_t limit_ns) {
      const bool in_time = by(limit_ns);
      if (in_time) best = fill_.filled();
      if (!in_time) low_ns = limit_ns;
      return in_time;
    };
    int64_t rise_ns = low_ns / kFirstRisePart + 1;
    while (low_ns + rise_ns < best.end_ns() && !ends_by(low_ns + rise_ns)) rise_ns *= 2;
    while (best.end_ns() - low_ns > 1 + low_ns / kNegligiblePart)
      ends_by(low_ns + (best.end_ns() - low_ns) / 2);
    return best;
  }

  // Of a pass with these sequences.
  int64_t least_ns_of(const std::vector<int>& places) const {
    if (places.empty()) return 0;
    std::vector<int64_t> lengths;
    for (const int place : places) lengths.push_back(length(place));
    return least_ns(lengths) + scheme_.micro_batch_ns();
  }

  // Nothing where some pass does not hold its sequences, or ends when the plan should.
  Filled filled(const SharedOut& shared_out, int64_t below_ns, int least_lanes) {
    int64_t left_ns = below_ns;
    for (const std::vector<int>& places : shared_out) left_ns -= in_turn() ? least_ns_of(places) : 0;
    Filled passes;
    for (const std::vector<int>& places : shared_out) {
      if (in_turn()) left_ns += least_ns_of(places);
      std::optional<FilledPass> pass = fill(places, left_ns, least_lanes);
      if (!pass) return {};
      if (in_turn()) left_ns -= pass->end_ns();
      passes.push_back(std::move(*pass));
    }
    return passes;
  }

  // Whether there is a plan; the best becomes the better.
  bool consider(const Filled& passes, const SharedOut& shared_out) {
    if (passes.empty()) return false;
    std::vector<Unit> units = units_of(passes, shared_out);
    const int64_t makespan_ns = packing_.timer.makespan_ns(units, best_ns_ - 1);
    if (makespan_ns == schedule::Recurrence::kLate) return true;
    best_ns_ = makespan_ns;
    best_ = TimedUnits{std::move(units), makespan_ns};
    return true;
  }

  // In the order of injection, with the passes that share groups tie them to.
  std::vector<Unit> units_of(const Filled& filled, const SharedOut& shared_out) const {
    std::vector<Unit> units;
    int passes = 0;
    for (size_t p = 0; p < filled.size(); ++p) {
      int reached = 0;  // the end of the share groups of the pass so far
      for (Unit& unit : units_of(filled[p], shared_out[p])) {
        const int share = scheme_.scheme().share;
        if (unit.first_lane >= reached) ++passes;
        reached = std::max(reached, (unit.end_lane() + share - 1) / share * share);
        if (share > 1) unit.pass = passes - 1;
        units.push_back(std::move(unit));
      }
    }
    return strategy::in_injection_order(std::move(units), lanes());
  }

  // Of one pass, by first lane.
  std::vector<Unit> units_of(const FilledPass& filled, const std::vector<int>& places) const {
    std::vector<Unit> units;
    for (const PassLoad& load : filled.loads)
      units.push_back({.first_lane = load.lanes.first, .lanes = load.lanes.lanes, .sequences = {}});
    for (size_t i = 0; i < places.size(); ++i)
      units[static_cast<size_t>(filled.load_of[i])].sequences.push_back(packing_.sequence(places[i]));
    std::ranges::sort(units, {}, &Unit::first_lane);
    return units;
  }

  Packing& packing_;
  const SchemeCost& scheme_;
  PassFill fill_;
  int64_t best_ns_;
  std::optional<TimedUnits> best_;
};

}  // namespace

std::optional<TimedUnits> pack_passes(Packing& packing) { return PassPacker(packing).run(); }

}  // namespace sluice::plan
