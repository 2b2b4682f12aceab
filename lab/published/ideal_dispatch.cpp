#include <algorithm>
#include <limits>
#include <utility>

#include "published/dispatch.h"

namespace sluice::published {
namespace {

using Wide = __int128;
constexpr int64_t kSchemePrice = int64_t{1} << 20;

class IdealSearch {
 public:
  IdealSearch(std::span<const int64_t> lengths, std::span<const plan::SchemeCost* const> pipelines,
              IdealDispatch start, ConstantRule constants, int64_t node_budget)
      : times_(lengths, pipelines, sequence_time(constants)),
        order_(longest_first(lengths)),
        loads_(times_.empty_loads()),
        pipeline_of_(lengths.size(), 0),
        found_(std::move(start)),
        nodes_left_(node_budget) {
    set_prices();
    found_.lower_ns = root_bound_ns();
  }

  IdealDispatch run() {
    if (found_.best.estimated_ns > found_.lower_ns) place(0, 0, 0);
    if (nodes_left_ > 0) found_.lower_ns = found_.best.estimated_ns;
    found_.proved = found_.best.estimated_ns == found_.lower_ns;
    return std::move(found_);
  }

 private:
  // Prices begin inverse to the middle sequence's times, then change in shrinking steps that raise the bound.
  void set_prices() {
    prices_.assign(times_.schemes(), kSchemePrice);
    if (order_.empty()) return set_least();
    const int middle = order_[order_.size() / 2];
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t k = 0; k < prices_.size(); ++k) least = std::min(least, time_in_the_middle(middle, k));
    for (size_t k = 0; k < prices_.size(); ++k) {
      prices_[k] = std::max<int64_t>(
          1, static_cast<int64_t>(Wide{kSchemePrice} * least / time_in_the_middle(middle, k)));
    }
    set_least();
    for (int64_t parts = 8; parts <= 256; parts *= 2) {
      for (size_t k = 0; k < prices_.size(); ++k) raise_price(k, parts);
    }
  }
  int64_t time_in_the_middle(int middle, size_t scheme) const {
    const int64_t ns = times_.scheme_ns(middle, scheme);
    // A scheme that does not hold the sequence counts as extremely slow.
    return ns == DispatchTimes::kDoesNotFit ? int64_t{1} << 40 : std::max<int64_t>(ns, 1);
  }
  void raise_price(size_t scheme, int64_t parts) {
    for (const int64_t sign : {1, -1}) {
      const std::vector<int64_t> before = prices_;
      const int64_t bound_ns = root_bound_ns();
      prices_[scheme] = std::max<int64_t>(1, prices_[scheme] + sign * (prices_[scheme] / parts));
      set_least();
      if (root_bound_ns() > bound_ns) return;
      prices_ = before;
      set_least();
    }
  }

  // The least priced time of all sequences from each place of the order on.
  void set_least() {
    least_from_.assign(order_.size() + 1, 0);
    for (size_t i = order_.size(); i > 0; --i) {
      Wide least = Wide{1} << 120;
      for (size_t k = 0; k < prices_.size(); ++k) {
        const int64_t ns = times_.scheme_ns(order_[i - 1], k);
        if (ns != DispatchTimes::kDoesNotFit) least = std::min(least, Wide{prices_[k]} * ns);
      }
      least_from_[i - 1] = least_from_[i] + least;
    }
    total_price_ = 0;
    for (size_t p = 0; p < loads_.size(); ++p) total_price_ += price_of(static_cast<int>(p));
  }
  int64_t price_of(int pipeline) const { return prices_[times_.scheme_of(pipeline)]; }

  // The larger of the longest sequence's earliest end and the average.
  int64_t root_bound_ns() const {
    if (order_.empty()) return 0;
    int64_t alone_ns = std::numeric_limits<int64_t>::max();
    for (size_t p = 0; p < loads_.size(); ++p) {
      const int64_t ns = times_.ns(order_[0], static_cast<int>(p));
      if (ns != DispatchTimes::kDoesNotFit) alone_ns = std::min(alone_ns, loads_[p].total_with(ns));
    }
    return std::max(alone_ns, average_ns(0, 0));
  }
  int64_t average_ns(Wide priced, size_t next) const {
    return static_cast<int64_t>((priced + least_from_[next] + total_price_ - 1) / total_price_);
  }

  // Places sequences from `next` in the order; `most_ns` is the largest load so far, `priced` the sum of
  // loads at their prices.
  void place(size_t next, int64_t most_ns, Wide priced) {
    if (next == order_.size()) {
      found_.best = {pipeline_of_, most_ns};
      return;
    }
    const int sequence = order_[next];
    std::vector<std::pair<int64_t, int>> choices;  // end, pipeline
    for (const int pipeline : times_.largest_first()) {
      const int64_t ns = times_.ns(sequence, pipeline);
      if (ns == DispatchTimes::kDoesNotFit) break;
      if (!repeats(pipeline)) choices.emplace_back(load(pipeline).total_with(ns), pipeline);
    }
    std::stable_sort(choices.begin(), choices.end());
    for (const auto& [end_ns, pipeline] : choices) {
      if (--nodes_left_ <= 0) return;
      const DispatchLoad before = load(pipeline);
      const Wide more = Wide{price_of(pipeline)} * (end_ns - before.total_ns());
      const int64_t most = std::max(most_ns, end_ns);
      if (std::max(most, average_ns(priced + more, next + 1)) >= found_.best.estimated_ns) continue;
      load(pipeline).add(times_.ns(sequence, pipeline));
      pipeline_of_[static_cast<size_t>(sequence)] = pipeline;
      place(next + 1, most, priced + more);
      load(pipeline) = before;
      if (found_.best.estimated_ns == found_.lower_ns) return;
    }
  }
  DispatchLoad& load(int pipeline) { return loads_[static_cast<size_t>(pipeline)]; }
  // Whether a pipeline before this one has the same scheme and load.
  bool repeats(int pipeline) {
    for (int other = 0; other < pipeline; ++other) {
      if (times_.scheme_of(other) == times_.scheme_of(pipeline) && load(other) == load(pipeline)) return true;
    }
    return false;
  }

  DispatchTimes times_;
  std::vector<int> order_;
  std::vector<DispatchLoad> loads_;
  std::vector<int> pipeline_of_;
  IdealDispatch found_;
  int64_t nodes_left_;
  std::vector<int64_t> prices_;  // by scheme
  std::vector<Wide> least_from_;
  Wide total_price_ = 0;
};

}  // namespace

std::optional<IdealDispatch> ideal_dispatch(std::span<const int64_t> lengths,
                                            std::span<const plan::SchemeCost* const> pipelines,
                                            const DispatchOptions& start, int64_t node_budget) {
  std::optional<Dispatch> greedy = dispatch(lengths, pipelines, start);
  if (!greedy) return std::nullopt;
  return IdealSearch(lengths, pipelines, {.best = std::move(*greedy)}, start.constants, node_budget).run();
}

}  // namespace sluice::published
