#include "published/paper_pack.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/table_figures.h"
#include "plan/bins.h"

namespace sluice::published {
namespace {

// Eq. 1 for `count` micro-batches, with the longest one's sum of times.
int64_t estimate_ns(int64_t longest_ns, size_t count, const plan::SchemeCost& scheme,
                    ConstantRule constants) {
  if (constants == ConstantRule::kReleased) longest_ns += scheme.micro_batch_ns();
  return longest_ns * (scheme.scheme().pp - 1 + static_cast<int64_t>(count));
}

PaperPacking pack_longest(std::span<const int64_t> lengths, const plan::SchemeCost& scheme,
                          ConstantRule constants) {
  const SequenceTime time = sequence_time(constants);
  std::vector<plan::PackItem> items;
  for (size_t i = 0; i < lengths.size(); ++i) {
    items.push_back({static_cast<int>(i), lengths[i], time(scheme, lengths[i])});
  }
  PaperPacking packing{.micro_batches = plan::first_fit_decreasing(items, scheme.max_len_tokens())};
  int64_t longest_ns = 0;
  for (const std::vector<int>& bin : packing.micro_batches) {
    int64_t work_ns = 0;
    for (const int item : bin) work_ns += items[static_cast<size_t>(item)].work_ns;
    longest_ns = std::max(longest_ns, work_ns);
  }
  packing.estimated_ns = estimate_ns(longest_ns, packing.micro_batches.size(), scheme, constants);
  return packing;
}

}  // namespace

CountRange micro_batch_range(std::span<const int64_t> lengths, const plan::SchemeCost& scheme) {
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t most_len = std::max<int64_t>(scheme.max_len_tokens(), 1);
  const int64_t util_len = std::max<int64_t>(cost::util_len_tokens(scheme.cost(), scheme.scheme()), 1);
  const int64_t least = std::max<int64_t>((tokens + most_len - 1) / most_len, 1);
  const int64_t most = std::min(tokens / util_len, static_cast<int64_t>(lengths.size()));
  return {.least = static_cast<int>(least), .most = static_cast<int>(std::max(least, most))};
}

PaperPacking pack_by_paper(std::span<const int64_t> lengths, const plan::SchemeCost& scheme,
                           const PaperPackOptions& options) {
  PaperPacking best;
  if (lengths.empty()) return best;
  if (options.rule == PaperPackRule::kLongest) return pack_longest(lengths, scheme, options.constants);
  std::vector<PartitionItem> items;
  const SequenceTime time = sequence_time(options.constants);
  for (const int64_t length : lengths) items.push_back({time(scheme, length), length});
  const CountRange range = micro_batch_range(lengths, scheme);
  const auto estimate = [&](int64_t longest_ns, int count) {
    return estimate_ns(longest_ns, static_cast<size_t>(count), scheme, options.constants);
  };
  // The time that a V must stay below to be worth a search.
  const auto worth_ns = [&] {
    return best.estimated_ns -
           static_cast<int64_t>(static_cast<__int128>(best.estimated_ns) * options.tolerance_ppm / 1'000'000);
  };
  for (int count = range.least; count <= range.most || best.micro_batches.empty(); ++count) {
    SLUICE_ASSERT(count <= static_cast<int>(lengths.size()),
                  base::text("a sequence of more than ", scheme.max_len_tokens(), " tokens"));
    const bool known = !best.micro_batches.empty();
    if (known && estimate(partition_bound(items, count), count) >= worth_ns()) continue;
    Partition found = options.solver(items, {.bins = count,
                                             .capacity_tokens = scheme.max_len_tokens(),
                                             .tolerance_ppm = options.tolerance_ppm,
                                             .node_budget = options.node_budget});
    best.proved = best.proved && found.proved;
    if (!found.bins || (known && estimate(found.largest_work, count) >= best.estimated_ns)) continue;
    best.estimated_ns = estimate(found.largest_work, count);
    best.micro_batches = std::move(*found.bins);
    std::erase_if(best.micro_batches, [](const std::vector<int>& bin) { return bin.empty(); });
  }
  return best;
}

}  // namespace sluice::published
