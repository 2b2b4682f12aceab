#include "strategy/strategy.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "strategy/text_cursor.h"

namespace sluice::strategy {
namespace {

struct Term {
  int count = 1;
  Scheme scheme;
};

std::vector<Term> parse_terms(TextCursor& cursor) {
  if (cursor.at_end()) cursor.fail("it names no pipeline; write for example tp2,cp4");
  std::vector<Term> terms;
  while (true) {
    Term term;
    if (cursor.next_is_digit()) {
      term.count = cursor.positive_integer("the number of pipelines");
      cursor.expect('x');
    }
    term.scheme = parse_scheme(cursor);
    terms.push_back(term);
    if (cursor.at_end()) return terms;
    cursor.expect('+');
  }
}

// Compares the values that two pointers point to; null equals null alone.
template <typename T>
bool are_equal(const std::shared_ptr<const T>& one, const std::shared_ptr<const T>& other) {
  return one == other || (one != nullptr && other != nullptr && *one == *other);
}

void validate_pipeline(const Pipeline& pipeline, int index) {
  const Scheme& scheme = pipeline.scheme;
  const std::string name = base::text("pipeline ", index, " ", to_text(scheme));
  if (scheme.tp < 1 || scheme.pp < 1 || scheme.cp < 1 || scheme.fsdp < 1 || scheme.ep < 1) {
    throw base::InputError(base::text(name, ": a degree is below 1: give 1 or more"));
  }
  if (const std::string fault = fsdp_fault(scheme); !fault.empty())
    throw base::InputError(base::text(name, ": ", fault));
  const bool too_large =
      int64_t{scheme.tp} * scheme.pp > kMaxRanks || int64_t{scheme.tp} * scheme.pp * scheme.cp > kMaxRanks;
  if (too_large)
    throw base::InputError(base::text(name, ": it has more than ", kMaxRanks, " ranks: lower a degree"));
  if (static_cast<int>(pipeline.ranks.size()) != scheme.ranks()) {
    throw base::InputError(base::text(name, ": it needs ", scheme.ranks(), " ranks but lists ",
                                      pipeline.ranks.size(), ": list each once"));
  }
  if (pipeline.placement) {
    const std::string fault = placement_fault(*pipeline.placement, scheme.ep);
    if (!fault.empty())
      throw base::InputError(base::text(name, ": ", fault, ": give each expert a lane, or no expert a slot"));
  }
  for (int stage = 0; scheme.fsdp > 1 && stage < scheme.pp; ++stage) {
    for (int lane = 0; lane < scheme.cp; ++lane) {
      const std::vector<int> group = pipeline.fsdp_group(stage, lane, 0);
      if (std::ranges::is_sorted(group)) continue;
      throw base::InputError(base::text(name, ": ranks ", group.front(), " to ", group.back(),
                                        " share parameters, so list them in ascending order"));
    }
  }
}

}  // namespace

std::vector<int> Pipeline::tp_group(int stage, int lane) const {
  std::vector<int> group;
  for (int t = 0; t < scheme.tp; ++t) group.push_back(rank_of(stage, lane, t));
  return group;
}

std::vector<int> Pipeline::fsdp_group(int stage, int lane, int t) const {
  std::vector<int> group;
  const int first = scheme.first_of_fsdp_group(lane);
  for (int of = first; of < first + scheme.fsdp; ++of) group.push_back(rank_of(stage, of, t));
  return group;
}

std::span<const int> Pipeline::experts_of(int64_t layer, int lane) const {
  if (!placement || layer < 0) return {};
  return placement->of_lane(layer, scheme.ep, lane - scheme.first_of_ep_group(lane));
}

bool Device::operator==(const Device& other) const {
  return slowdown_percent == other.slowdown_percent && memory_bytes == other.memory_bytes &&
         are_equal(low_precision, other.low_precision);
}

bool Pipeline::operator==(const Pipeline& other) const {
  return are_equal(placement, other.placement) && scheme == other.scheme && ranks == other.ranks &&
         device == other.device && slowdown_percent == other.slowdown_percent;
}

int Strategy::ranks() const {
  int count = 0;
  for (const Pipeline& pipeline : pipelines) count += pipeline.scheme.ranks();
  return count;
}

std::string to_text(const Strategy& strategy) {
  std::vector<std::string> terms;
  const std::vector<Pipeline>& pipelines = strategy.pipelines;
  for (size_t begin = 0, end = 0; begin < pipelines.size(); begin = end) {
    while (end < pipelines.size() && pipelines[end].scheme == pipelines[begin].scheme) ++end;
    terms.push_back(base::text(end - begin, "x", to_text(pipelines[begin].scheme)));
  }
  return base::join(terms, " + ");
}

Strategy parse_strategy(std::string_view text, int world_size) {
  TextCursor cursor(text, "strategy");
  const std::vector<Term> terms = parse_terms(cursor);
  int64_t needed = 0;
  for (const Term& term : terms) needed += int64_t{term.count} * term.scheme.ranks();
  if (needed > world_size) {
    cursor.fail(base::text("it uses ", needed, " ranks but there are ", world_size,
                           ": start more ranks or choose a smaller strategy"));
  }
  Strategy strategy;
  int next_rank = 0;
  for (const Term& term : terms) {
    for (int i = 0; i < term.count; ++i) {
      Pipeline pipeline{term.scheme, std::vector<int>(static_cast<size_t>(term.scheme.ranks()))};
      std::iota(pipeline.ranks.begin(), pipeline.ranks.end(), next_rank);
      next_rank += term.scheme.ranks();
      strategy.pipelines.push_back(std::move(pipeline));
    }
  }
  return strategy;
}

Strategy on_devices(Strategy strategy, std::span<const Device> devices) {
  for (Pipeline& pipeline : strategy.pipelines) {
    pipeline.device = devices.empty() ? Device{} : devices[static_cast<size_t>(pipeline.ranks.front())];
    if (devices.empty()) continue;
    for (const int rank : pipeline.ranks) {
      const Device& other = devices[static_cast<size_t>(rank)];
      pipeline.device.slowdown_percent = std::max(pipeline.device.slowdown_percent, other.slowdown_percent);
      pipeline.device.memory_bytes = std::min(pipeline.device.memory_bytes, other.memory_bytes);
    }
  }
  return strategy;
}

Strategy with_slowdowns(Strategy strategy, std::span<const int> pace_percent) {
  for (Pipeline& pipeline : strategy.pipelines) {
    pipeline.slowdown_percent = pace_percent.empty() ? 100 : 0;
    if (pace_percent.empty()) continue;
    for (const int rank : pipeline.ranks)
      pipeline.slowdown_percent =
          std::max(pipeline.slowdown_percent, pace_percent[static_cast<size_t>(rank)]);
  }
  return strategy;
}

Strategy with_placements(Strategy strategy, const ExpertPlacements& placements) {
  for (Pipeline& pipeline : strategy.pipelines) {
    const auto found = placements.find(pipeline.scheme.ep);
    pipeline.placement = found == placements.end() ? nullptr : found->second;
  }
  return strategy;
}

std::vector<Place> places(const Strategy& strategy, int world_size) {
  std::vector<Place> result(static_cast<size_t>(world_size), Place{.pipeline = -1});
  for (size_t p = 0; p < strategy.pipelines.size(); ++p) {
    const Scheme& scheme = strategy.pipelines[p].scheme;
    for (int stage = 0; stage < scheme.pp; ++stage) {
      for (int lane = 0; lane < scheme.cp; ++lane) {
        for (int t = 0; t < scheme.tp; ++t) {
          const int rank = strategy.pipelines[p].rank_of(stage, lane, t);
          result.at(static_cast<size_t>(rank)) = Place{static_cast<int>(p), stage, lane, t};
        }
      }
    }
  }
  return result;
}

void validate(const Strategy& strategy, int world_size) {
  if (strategy.pipelines.empty())
    throw base::InputError("a strategy has no pipeline: give it one, such as 1x<1,1,1>");
  std::vector<int> user(static_cast<size_t>(world_size), -1);
  for (size_t p = 0; p < strategy.pipelines.size(); ++p) {
    const Pipeline& pipeline = strategy.pipelines[p];
    const int index = static_cast<int>(p);
    validate_pipeline(pipeline, index);
    for (const int rank : pipeline.ranks) {
      if (rank < 0 || rank >= world_size) {
        throw base::InputError(base::text("pipeline ", p, " ", to_text(pipeline.scheme), ": rank ", rank,
                                          " is outside [0, ", world_size, "): number ranks from 0"));
      }
      int& holder = user[static_cast<size_t>(rank)];
      if (holder >= 0) {
        throw base::InputError(base::text("rank ", rank, " is used twice, by pipelines ", holder, " and ", p,
                                          ": give it to one"));
      }
      holder = index;
    }
  }
}

}  // namespace sluice::strategy
