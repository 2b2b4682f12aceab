// Ring attention on real threads over the fake transport against ops::attention of whole sequences on one
// rank.
#include "layers/ring_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "comm/fake.h"

namespace sluice::layers {
namespace {

constexpr int64_t kHeads = 6, kKeyHeads = 2, kDimensions = 8;

// A sequence that all lanes share (lane -1) or one of a lane's own.
struct Sequence {
  int64_t length = 0;
  int lane = -1;
};

struct Case {
  int lanes = 1;
  std::vector<Sequence> sequences;
  at::ScalarType dtype = at::kDouble;

  int64_t shared_tokens() const {
    int64_t tokens = 0;
    for (const Sequence& sequence : sequences) tokens += sequence.lane < 0 ? sequence.length : 0;
    return tokens;
  }
};

// Values of all tokens, sequence by sequence.
struct Values {
  at::Tensor q, k, v, dout;
};

struct Outcome {
  at::Tensor out, lse, dq, dk, dv;
};

Values random_values(const Case& c) {
  int64_t rows = 0;
  for (const Sequence& sequence : c.sequences) rows += sequence.length;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto random = [&](int64_t heads) {
    return at::randn({rows, heads, kDimensions}, generator, at::dtype(at::kDouble)).to(c.dtype);
  };
  return {random(kHeads), random(kKeyHeads), random(kKeyHeads), random(kHeads)};
}

ops::AttentionInput input_of(const Values& values) { return {values.q, values.k, values.v, 0.4}; }

Outcome run_whole(const Case& c, const Values& values) {
  std::vector<int64_t> lengths;
  for (const Sequence& sequence : c.sequences) lengths.push_back(sequence.length);
  const ops::PackedSequences packed = ops::packed_sequences(lengths, at::kCPU);
  const ops::AttentionInput input = input_of(values);
  const ops::AttentionResult saved = ops::attention(input, packed);
  const ops::AttentionGradient gradient{at::empty_like(values.q), at::empty_like(values.k),
                                        at::empty_like(values.v)};
  ops::attention_backward(values.dout, input, saved, packed, gradient);
  return {saved.out_TND, saved.lse_NT, gradient.dq_TND, gradient.dk_TKD, gradient.dv_TKD};
}

// The pieces of one lane in the order of sequences, and their rows in Values.
struct Lane {
  std::vector<PieceSpan> pieces;
  std::vector<base::Interval> rows;
};

Lane lane_of(const Case& c, int lane) {
  Lane result;
  int64_t row = 0;
  for (size_t i = 0; i < c.sequences.size(); ++i) {
    const auto [length, owner] = c.sequences[i];
    if (owner == lane) {
      result.pieces.push_back({.length = length});
      result.rows.push_back({row, row + length});
    }
    for (const int chunk : {lane, 2 * c.lanes - 1 - lane}) {
      const base::Interval tokens = base::even_part(length, 2 * c.lanes, chunk);
      if (owner >= 0 || tokens.empty()) continue;
      result.pieces.push_back({tokens.size(), tokens.begin, static_cast<int>(i)});
      result.rows.push_back({row + tokens.begin, row + tokens.end});
    }
    row += length;
  }
  return result;
}

at::Tensor take(const at::Tensor& whole, const std::vector<base::Interval>& rows) {
  std::vector<at::Tensor> parts;
  for (const base::Interval part : rows) parts.push_back(whole.narrow(0, part.begin, part.size()));
  return at::cat(parts);
}

void put(const at::Tensor& rows_of_lane, const std::vector<base::Interval>& rows, const at::Tensor& whole) {
  int64_t row = 0;
  for (const base::Interval part : rows) {
    whole.narrow(0, part.begin, part.size()).copy_(rows_of_lane.narrow(0, row, part.size()));
    row += part.size();
  }
}

// What one lane does; writes its rows of the outcome and returns the bytes that it sent each way.
std::pair<int64_t, int64_t> run_lane(const Case& c, const Values& values, int lane,
                                     comm::Communicator& communicator, const Outcome& outcome) {
  RingSpans ring{.lane = lane, .next = (lane + 1) % c.lanes, .previous = (lane + c.lanes - 1) % c.lanes};
  for (int other = 0; other < c.lanes; ++other) ring.lanes.push_back(lane_of(c, other).pieces);
  const std::vector<base::Interval> rows = lane_of(c, lane).rows;
  const MicroBatchLayout layout = ring_micro_batch_layout(ring, 1, at::kCPU);
  const Values own{take(values.q, rows), take(values.k, rows), take(values.v, rows), take(values.dout, rows)};
  RingChannel channel(communicator);
  const ops::AttentionResult saved = ring_attention(channel, layout, input_of(own));
  const int64_t forward_bytes = channel.sent_bytes();
  const ops::AttentionGradient gradient{at::empty_like(own.q), at::empty_like(own.k), at::empty_like(own.v)};
  ring_attention_backward(channel, layout, own.dout, input_of(own), saved, gradient);
  put(saved.out_TND, rows, outcome.out);
  put(saved.lse_NT.transpose(0, 1), rows, outcome.lse.transpose(0, 1));
  put(gradient.dq_TND, rows, outcome.dq);
  put(gradient.dk_TKD, rows, outcome.dk);
  put(gradient.dv_TKD, rows, outcome.dv);
  return {forward_bytes, channel.sent_bytes() - forward_bytes};
}

Outcome run_ring(const Case& c, const Values& values) {
  comm::FakeWorld world(c.lanes, {.max_delay_ns = 100'000});
  const Outcome outcome{at::zeros_like(values.q), at::zeros({kHeads, values.q.size(0)}, at::dtype(c.dtype)),
                        at::zeros_like(values.q), at::zeros_like(values.k), at::zeros_like(values.v)};
  std::vector<int> members(static_cast<size_t>(c.lanes));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::pair<int64_t, int64_t>> sent(members.size());
  std::vector<std::thread> threads;
  for (int lane = 0; lane < c.lanes; ++lane) {
    threads.emplace_back([&, lane] {
      const comm::FakeWorld::Participant participant(world, lane);
      const auto communicator = world.transport(lane)->communicator("ring", members);
      sent[static_cast<size_t>(lane)] = run_lane(c, values, lane, *communicator, outcome);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t forward_bytes = 0, backward_bytes = 0;
  for (const auto& [forward, backward] : sent) {
    forward_bytes += forward;
    backward_bytes += backward;
  }
  const int64_t per_token = 2 * kKeyHeads * kDimensions * static_cast<int64_t>(values.k.element_size());
  EXPECT_EQ(forward_bytes, ring_forward_bytes(c.lanes, c.shared_tokens(), per_token));
  EXPECT_EQ(backward_bytes, ring_backward_bytes(c.lanes, c.shared_tokens(), per_token));
  return outcome;
}

void expect_close(const Outcome& actual, const Outcome& expected, double tolerance) {
  const auto check = [&](const at::Tensor& a, const at::Tensor& e, const char* what) {
    EXPECT_LE((a - e).abs().max().item<double>(), tolerance * e.abs().max().item<double>()) << what;
  };
  check(actual.out, expected.out, "out");
  check(actual.lse, expected.lse, "lse");
  check(actual.dq, expected.dq, "dq");
  check(actual.dk, expected.dk, "dk");
  check(actual.dv, expected.dv, "dv");
}

class RingAttention : public testing::TestWithParam<int> {};

TEST_P(RingAttention, OfOneSequenceEqualsOnePiece) {
  const Case c{GetParam(), {{.length = 331}}};  // several tiles of queries and of keys
  const Values values = random_values(c);
  expect_close(run_ring(c, values), run_whole(c, values), 1e-13);
}

TEST_P(RingAttention, LeavesSequencesOfALaneAlone) {
  Case c{GetParam(), {{.length = 2, .lane = 0}, {.length = 29}, {.length = 5, .lane = 0}, {.length = 14}}};
  for (int lane = 0; lane < c.lanes; ++lane) c.sequences.push_back({.length = 3 + lane, .lane = lane});
  const Values values = random_values(c);
  expect_close(run_ring(c, values), run_whole(c, values), 1e-13);
}

TEST_P(RingAttention, MovesNothingForSequencesOfALane) {
  Case c{GetParam(), {}};
  for (int lane = 0; lane < c.lanes; ++lane) c.sequences.push_back({.length = 3 + lane, .lane = lane});
  const Values values = random_values(c);
  expect_close(run_ring(c, values), run_whole(c, values), 0);
}

TEST_P(RingAttention, InSinglePrecision) {
  const Case c{GetParam(), {{.length = 90}}, at::kFloat};
  const Values values = random_values(c);
  expect_close(run_ring(c, values), run_whole(c, values), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Lanes, RingAttention, testing::Range(1, 8));

TEST(RingLayout, LanesSeeTheFirstChunkOfEarlierLanesAndBothOfLaterOnes) {
  // 12 tokens on three lanes: chunks 0 and 5, 1 and 4, 2 and 3.
  const RingSpans ring{.lane = 1,
                       .next = 2,
                       .previous = 0,
                       .lanes = {{{2, 0, 7}, {2, 10, 7}}, {{2, 2, 7}, {2, 8, 7}}, {{2, 4, 7}, {2, 6, 7}}}};
  const RingLayout layout = ring_layout(ring);
  ASSERT_EQ(layout.steps.size(), 2u);
  ASSERT_EQ(layout.steps[0].size(), 1u);  // of lane 0
  EXPECT_EQ(layout.steps[0][0].queries, (base::Interval{0, 4}));
  EXPECT_EQ(layout.steps[0][0].keys, (base::Interval{0, 2}));
  ASSERT_EQ(layout.steps[1].size(), 1u);  // of lane 2
  EXPECT_EQ(layout.steps[1][0].queries, (base::Interval{2, 4}));
  EXPECT_EQ(layout.steps[1][0].keys, (base::Interval{0, 4}));
}

}  // namespace
}  // namespace sluice::layers
