// Heads that lanes exchange, beside the whole tensor.
#include "layers/head_exchange.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

// Three lanes with two, none and three rows of two sequences that lie interleaved on them.
struct HeadCase {
  std::vector<int64_t> lane_rows{2, 0, 3};
  std::vector<int64_t> wire_row{0, 2, 3, 1, 4};      // by attended row
  std::vector<int64_t> attended_row{0, 3, 1, 2, 4};  // by wire row
  HeadCut cut;

  HeadsLayout layout(int lane) const {
    return {lane, {0, 1, 2}, lane_rows, at::tensor(wire_row, at::kLong), at::tensor(attended_row, at::kLong)};
  }
  int64_t begin(int lane) const {
    int64_t rows = 0;
    for (int each = 0; each < lane; ++each) rows += lane_rows[static_cast<size_t>(each)];
    return rows;
  }
};

// The heads of a lane's cut.
at::Tensor heads_of(const at::Tensor& x_AHD, const std::vector<base::Interval>& heads) {
  std::vector<at::Tensor> parts;
  for (const base::Interval& interval : heads)
    parts.push_back(x_AHD.narrow(1, interval.begin, interval.size()));
  return at::cat(parts, 1);
}

void expect_exchanged(const HeadCase& c, at::ScalarType type) {
  const at::Tensor wire_AHD = waves({5, 6, 4}, 1).to(type);  // all lanes' rows, lane after lane
  const at::Tensor attended_AHD = wire_AHD.index_select(0, at::tensor(c.wire_row, at::kLong));
  std::vector<at::Tensor> seen(3), returned(3);
  on_ranks(3, [&](int lane, comm::Communicator& members) {
    LaneChannel channel(members);
    const auto at = static_cast<size_t>(lane);
    const int64_t rows = c.lane_rows[at];
    // An inert row lies behind the lane's own.
    const at::Tensor own = at::cat({wire_AHD.narrow(0, c.begin(lane), rows), at::full({1, 6, 4}, 99, type)});
    seen[at] = to_heads(channel, c.layout(lane), c.cut, own);
    returned[at] = at::full({rows + 1, 6, 4}, 77, type);
    to_tokens(channel, c.layout(lane), c.cut, seen[at], returned[at]);
    EXPECT_GT(channel.sent_bytes(), 0);
  });
  // How many lanes have each head.
  at::Tensor times = at::zeros({6}, at::kDouble);
  for (const auto& heads : c.cut) {
    for (const base::Interval& interval : heads) times.narrow(0, interval.begin, interval.size()).add_(1);
  }
  for (int lane = 0; lane < 3; ++lane) {
    const auto at = static_cast<size_t>(lane);
    const int64_t rows = c.lane_rows[at];
    expect_near(seen[at], heads_of(attended_AHD, c.cut[at]), "what a lane attends with", 0);
    const at::Tensor sums = wire_AHD.narrow(0, c.begin(lane), rows).to(at::kDouble) * times.view({1, 6, 1});
    if (rows > 0)
      expect_near(returned[at].narrow(0, 0, rows), sums.to(type), "heads on several lanes are summed", 0);
    expect_near(returned[at].narrow(0, rows, 1), at::zeros({1, 6, 4}, type), "inert rows", 0);
  }
}

TEST(HeadExchange, EachLaneSeesAllRowsOfItsHeadsAndOutputsReturn) {
  expect_exchanged({.cut = {{{0, 2}}, {{2, 4}}, {{4, 6}}}}, at::kDouble);
}

TEST(HeadExchange, HeadsMayBeUnevenAndInSeveralIntervals) {
  expect_exchanged({.cut = {{{0, 1}, {3, 4}}, {{1, 3}}, {{4, 6}}}}, at::kFloat);
}

// As key heads are that several lanes' queries share: the gradient is the sum, in float for 16-bit rows.
TEST(HeadExchange, HeadsOfSeveralLanesAreSummed) {
  expect_exchanged({.cut = {{{0, 4}}, {{0, 4}}, {{2, 6}}}}, at::kDouble);
  expect_exchanged({.cut = {{{0, 4}}, {{0, 4}}, {{2, 6}}}}, at::kBFloat16);
}

}  // namespace
}  // namespace sluice::layers
