#include "cost/derived_rows.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace sluice::cost {
namespace {

using TableRow = std::pair<const std::pair<int, int>, SchemeTimes>;

// Coefficient a of all ranks of a row's pipeline.
Wide total_a(const TableRow* row) { return Wide{row->second.stage.a} * row->first.first * row->first.second; }

SchemeTimes on_one_rank(const TableRow& row) {
  const auto& [degrees, times] = row;
  const auto [tp, pp] = degrees;
  return {.stage = {times.stage.a * tp * pp, times.stage.b * tp * pp, times.stage.c_ns * pp},
          .saved_bytes_per_token = times.saved_bytes_per_token * tp * pp,
          .util_len_tokens = times.util_len_tokens,
          .derived = true};
}

}  // namespace

void add_derived_rows(CostModel::Options& options) {
  auto& rows = options.scheme_times;
  std::vector<const TableRow*> fewest;
  std::set<int> stages{1};
  for (const TableRow& row : rows) {  // ascending by TP
    if (row.second.derived) continue;
    if (!fewest.empty() && row.first.first != fewest.front()->first.first) break;
    fewest.push_back(&row);
    stages.insert(row.first.second);
  }
  if (fewest.empty()) return;
  std::ranges::stable_sort(fewest, {}, total_a);
  const SchemeTimes whole = on_one_rank(*fewest[fewest.size() / 2]);
  for (const int pp : stages) {
    SchemeTimes row = whole;
    row.stage = whole.stage.share(1, pp);
    row.saved_bytes_per_token = (whole.saved_bytes_per_token + pp - 1) / pp;
    rows.try_emplace({1, pp}, row);
  }
}

}  // namespace sluice::cost
