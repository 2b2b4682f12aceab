#include "cost/exchange_bytes.h"

#include <gtest/gtest.h>

#include "cost/test_model.h"
#include "model/test_families.h"

namespace sluice::cost {
namespace {

constexpr int kLanes = 4;

// Five layers of 4 query heads: four with 2 key heads of 16, then one with a key head of 64.
CostModel two_widths() {
  CostModel::Options options = tiny_options();
  options.model = model::family_outline(options.model.outline(), "gemma4_text", R"({"sliding_window": 5,
      "attention_k_eq_v": true, "num_global_key_value_heads": 1, "global_head_dim": 64,
      "hidden_size_per_layer_input": 0})");
  std::vector<KindCost>& kinds = options.kinds_by_tp[1];
  kinds.insert(kinds.begin() + 1, kinds[1]);
  return CostModel(options);
}

// A lane of four has a query head and its key head of all lanes' tokens, and all lanes' outputs, beside what
// it has in a ring: its queries, keys and values.
constexpr int64_t saved_bytes(int64_t key_heads, int64_t width) {
  return (4 * width + 4 * 2 * width + 4 * width - (4 * width + 2 * key_heads * width)) * 4;
}

TEST(ExchangeBytes, EachBlockHasThoseOfItsOwnHeads) {
  const CostModel cost = two_widths();
  const strategy::Scheme scheme{.cp = kLanes};
  const base::Interval blocks = cost.program().blocks();
  ASSERT_EQ(cost.program().kinds().size(), 4U);
  constexpr int64_t kNarrow = saved_bytes(2, 16), kWide = saved_bytes(1, 64);
  EXPECT_EQ(exchange_bytes(cost, scheme, blocks.begin, kLanes).saved, kNarrow);
  EXPECT_EQ(exchange_bytes(cost, scheme, blocks.end - 1, kLanes).saved, kWide);
  EXPECT_EQ(kept_exchange_bytes(cost, scheme, blocks, kLanes), 4 * kNarrow + kWide);
  EXPECT_EQ(most_exchange_bytes(cost, scheme, kLanes).saved, kWide);
  EXPECT_EQ(exchange_bytes(cost, scheme, blocks.begin, 1).saved, 0);
}

// Three sets of the wider of keys and queries, what is made of it, and five statistics a head.
TEST(ExchangeBytes, QueriesThatTravelAreAsWideAsTheWidestBlocks) {
  const CostModel cost = two_widths();
  const int64_t queries = 4 * 64, made = 3 * queries;
  EXPECT_EQ(most_moving_query_bytes(cost, {.cp = kLanes}).forward, (3 * queries + made) * 4 + 5 * 4 * 4);
}

}  // namespace
}  // namespace sluice::cost
