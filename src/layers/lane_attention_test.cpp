// Attention of lanes, by every exchange, on real threads over the fake transport against ops::attention of
// whole sequences on one rank.
#include "layers/lane_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/text.h"
#include "comm/test_fake.h"
#include "model/head_parts.h"

namespace sluice::layers {
namespace {

constexpr int64_t kDimensions = 8;

// A sequence that all lanes share (lane -1) or one of a lane's own.
struct Sequence {
  int64_t length = 0;
  int lane = -1;
  std::vector<int64_t> branches = {};  // lengths of branches, which share the rest of it as their prefix

  int64_t prefix() const { return length - std::accumulate(branches.begin(), branches.end(), int64_t{0}); }
};

struct LaneCase {
  int lanes = 1;
  std::vector<Sequence> sequences;
  at::ScalarType dtype = at::kDouble;
  int head_lanes = 1;
  model::HeadCounts heads = {6, 2};
  int64_t window = 0;
  double cap = 0;
  strategy::Exchange exchange = strategy::Exchange::kRing;
  int in_node = 1;  // lanes
  bool causal = true;

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

struct LaneOutcome {
  at::Tensor out, dq, dk, dv;
};

Values random_values(const LaneCase& c) {
  int64_t rows = 0;
  for (const Sequence& sequence : c.sequences) rows += sequence.length;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto random = [&](int64_t heads) {
    return at::randn({rows, heads, kDimensions}, generator, at::dtype(at::kDouble)).to(c.dtype);
  };
  const auto [queries, keys] = c.heads;
  return {random(queries), random(keys), random(keys), random(queries)};
}

ops::AttentionInput input_of(const LaneCase& c, const Values& values) {
  return {values.q, values.k, values.v, 1.0 / std::sqrt(static_cast<double>(kDimensions)),
          c.window, c.cap,    c.causal};
}

// Every branch behind its own copy of the prefix: their lengths, and their rows in Values. Rows of a prefix
// count in the first copy alone.
struct Repeated {
  std::vector<int64_t> lengths;
  std::vector<int64_t> rows;
  std::vector<double> counts;
};

Repeated repeated(const LaneCase& c) {
  Repeated all;
  int64_t row = 0;
  const auto add = [&](int64_t begin, int64_t end, bool counts) {
    for (int64_t i = begin; i < end; ++i) all.rows.push_back(row + i);
    all.counts.insert(all.counts.end(), static_cast<size_t>(end - begin), counts ? 1.0 : 0.0);
  };
  for (const Sequence& sequence : c.sequences) {
    const int64_t prefix = sequence.prefix();
    int64_t begin = prefix;
    if (sequence.branches.empty()) all.lengths.push_back(prefix), add(0, prefix, true);
    for (const int64_t branch : sequence.branches) {
      all.lengths.push_back(prefix + branch);
      add(0, prefix, begin == prefix);
      add(begin, begin + branch, true);
      begin += branch;
    }
    row += sequence.length;
  }
  return all;
}

LaneOutcome run_repeated(const LaneCase& c, const Values& values, const std::vector<int64_t>& lengths);

LaneOutcome run_whole(const LaneCase& c, const Values& values) {
  const Repeated all = repeated(c);
  const at::Tensor row_E = at::tensor(all.rows, at::kLong);
  const at::Tensor counts_E = at::tensor(all.counts, at::kDouble).to(c.dtype).view({-1, 1, 1});
  const auto taken = [&](const at::Tensor& of) { return of.index_select(0, row_E); };
  const LaneOutcome outcome = run_repeated(
      c, {taken(values.q), taken(values.k), taken(values.v), taken(values.dout) * counts_E}, all.lengths);
  const auto home = [&](const at::Tensor& of, const at::Tensor& like) {
    return at::zeros_like(like).index_add_(0, row_E, of);
  };
  return {home(outcome.out * counts_E, values.q), home(outcome.dq, values.q), home(outcome.dk, values.k),
          home(outcome.dv, values.v)};
}

LaneOutcome run_repeated(const LaneCase& c, const Values& values, const std::vector<int64_t>& lengths) {
  const ops::PackedSequences packed = ops::packed_sequences(lengths, at::kCPU);
  const ops::AttentionInput input = input_of(c, values);
  const ops::AttentionResult saved = ops::attention(input, packed);
  const ops::AttentionGradient gradient{at::empty_like(values.q), at::empty_like(values.k),
                                        at::empty_like(values.v)};
  ops::attention_backward(values.dout, input, saved, packed, gradient);
  return {saved.out_TND, gradient.dq_TND, gradient.dk_TKD, gradient.dv_TKD};
}

// The pieces of one lane in the order of sequences, and their rows in Values.
struct Lane {
  std::vector<PieceSpan> pieces;
  std::vector<base::Interval> rows;
};

Lane lane_of(const LaneCase& c, int lane) {
  Lane result;
  int64_t row = 0;
  for (size_t i = 0; i < c.sequences.size(); ++i) {
    const Sequence& sequence = c.sequences[i];
    const int family = static_cast<int>(i) * 8;
    const bool shared = sequence.lane < 0;
    const int64_t prefix = sequence.prefix();
    const auto add = [&](base::Interval tokens) {
      int64_t begin = prefix;
      const base::Interval first = base::intersect(tokens, {0, prefix});
      if (!first.empty()) {
        result.pieces.push_back({.length = first.size(),
                                 .begin = first.begin,
                                 .shared = shared ? family : -1,
                                 .family = sequence.branches.empty() ? -1 : family});
        result.rows.push_back({row + first.begin, row + first.end});
      }
      for (size_t b = 0; b < sequence.branches.size(); ++b) {
        const base::Interval part = base::intersect(tokens, {begin, begin + sequence.branches[b]});
        if (!part.empty()) {
          result.pieces.push_back({.length = part.size(),
                                   .begin = prefix + part.begin - begin,
                                   .shared = shared ? family + 1 + static_cast<int>(b) : -1,
                                   .family = family,
                                   .branch = true});
          result.rows.push_back({row + part.begin, row + part.end});
        }
        begin += sequence.branches[b];
      }
    };
    if (sequence.lane == lane) add({0, sequence.length});
    // Causal chunks of the prefix, and of all branches together.
    if (c.exchange == strategy::Exchange::kBalanced) {
      const base::Interval tokens = base::even_part(sequence.length, c.lanes, lane);
      if (shared && !tokens.empty()) add(tokens);
      row += sequence.length;
      continue;
    }
    for (const base::Interval all : {base::Interval{0, prefix}, {prefix, sequence.length}}) {
      for (const int chunk : {lane, 2 * c.lanes - 1 - lane}) {
        const base::Interval tokens = base::even_part(all.size(), 2 * c.lanes, chunk);
        if (shared && !tokens.empty()) add({all.begin + tokens.begin, all.begin + tokens.end});
      }
    }
    row += sequence.length;
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

struct Bytes {
  int64_t forward = 0, restore = 0, backward = 0;
};

HeadsAtWork heads_of(const LaneCase& c, LaneChannel& channel) {
  return {.lanes = &channel,
          .count = c.heads,
          .dimension = kDimensions,
          .scale = 1.0 / std::sqrt(static_cast<double>(kDimensions)),
          .window = c.window,
          .cap = c.cap,
          .causal = c.causal};
}

LanePartSpans spans_of(const LaneCase& c, int lane) {
  LanePartSpans micro_batch{
      .lane = lane, .head_lanes = c.head_lanes, .in_node = c.in_node, .exchange = c.exchange};
  for (int other = 0; other < c.lanes; ++other) {
    micro_batch.members.push_back(other);
    micro_batch.lanes.push_back(lane_of(c, other).pieces);
  }
  return micro_batch;
}

AttentionMask mask_of(const LaneCase& c) { return c.causal ? AttentionMask::kCausal : AttentionMask::kFull; }
Reach lane_reach(const LaneCase& c) {
  Reach reach{.mask = mask_of(c)};
  if (c.window > 0) reach.windows = {c.window};
  return reach;
}

// Runs one lane and writes its rows of the outcome. Recomputes everything that can be recomputed.
Bytes run_lane(const LaneCase& c, const Values& values, int lane, comm::Communicator& communicator,
               const LaneOutcome& outcome) {
  const std::vector<base::Interval> rows = lane_of(c, lane).rows;
  const RowLayout layout = cp_row_layout(spans_of(c, lane), 1, at::kCPU, lane_reach(c));
  const Values own{take(values.q, rows), take(values.k, rows), take(values.v, rows), take(values.dout, rows)};
  const at::Tensor qkv = at::cat({own.q, own.k, own.v}, 1).flatten(1);
  LaneChannel channel(communicator);
  const HeadsAtWork heads = heads_of(c, channel);
  Attended attended = attend(heads, layout, qkv.clone(), {});
  const Bytes bytes{.forward = channel.sent_bytes()};
  const Attended before = attended;
  attended.qkv_AR.reset();
  attended.own_qkv_WP.reset();
  if (attended.a_TQ.defined()) attended.result.out_TND.reset();
  restore(heads, layout, qkv.clone(), attended);
  EXPECT_TRUE(attended.qkv_AR.equal(before.qkv_AR) && attended.result.out_TND.equal(before.result.out_TND));
  const int64_t restored_bytes = channel.sent_bytes();
  put(attended.output_TQ().view_as(own.q), rows, outcome.out);
  const at::Tensor dqkv = attend_backward(heads, layout, own.dout.flatten(1), attended, {});
  const at::Tensor gradient = dqkv.view({dqkv.size(0), -1, kDimensions});
  const auto [queries, keys] = c.heads;
  put(gradient.narrow(1, 0, queries), rows, outcome.dq);
  put(gradient.narrow(1, queries, keys), rows, outcome.dk);
  put(gradient.narrow(1, queries + keys, keys), rows, outcome.dv);
  return {bytes.forward, restored_bytes - bytes.forward, channel.sent_bytes() - restored_bytes};
}

// In one forward: others' queries, keys and values for a lane's heads, and others' rows of its outputs.
int64_t head_bytes_by_formula(const LaneCase& c, int64_t head_bytes) {
  int64_t bytes = 0;
  for (int lane = 0; lane < c.lanes && c.head_lanes > 1; ++lane) {
    const model::HeadPart part = model::head_part(c.heads, c.head_lanes, lane % c.head_lanes);
    const int first = lane / c.head_lanes * c.head_lanes;
    for (int other = first; other < first + c.head_lanes; ++other) {
      if (other == lane) continue;
      for (const PieceSpan& piece : lane_of(c, other).pieces)
        bytes += 2 * (part.queries.size() + part.keys.size()) * piece.length * head_bytes;
    }
  }
  return bytes;
}

// Through a window, a head group sends another only those keys that some token of the other sees.
int64_t windowed_keys(const LaneCase& c) {
  int64_t keys = 0;
  for (int from = 0; from < c.lanes; from += c.head_lanes) {
    for (int to = 0; to < c.lanes; to += c.head_lanes) {
      std::set<std::pair<int, int64_t>> seen;  // sequence, position
      for (int lane = to; lane < to + c.head_lanes && from != to; ++lane) {
        for (const PieceSpan& queries : lane_of(c, lane).pieces) {
          for (int64_t q = queries.begin; q < queries.begin + queries.length && queries.shared >= 0; ++q) {
            const int64_t last = c.causal ? q : q + c.window - 1;
            for (int64_t k = std::max<int64_t>(0, q - c.window + 1); k <= last; ++k)
              seen.emplace(queries.shared, k);
          }
        }
      }
      for (int lane = from; lane < from + c.head_lanes; ++lane) {
        for (const PieceSpan& piece : lane_of(c, lane).pieces) {
          for (int64_t k = piece.begin; k < piece.begin + piece.length; ++k)
            keys += piece.shared >= 0 && seen.contains({piece.shared, k}) ? 1 : 0;
        }
      }
    }
  }
  return keys;
}

// Keys and their gradients, queries with outputs and operands of backward: each hop has its lane's rows.
void expect_travelling_bytes(const LaneCase& c, const Bytes& sent, int64_t head_bytes) {
  const int64_t element = head_bytes / kDimensions, wide = std::max<int64_t>(4, element);
  const strategy::RowSchedule& schedule = strategy::schedule_of(c.exchange, c.lanes);
  const auto rows_of = [&](int lane) {
    int64_t rows = 0;
    for (const PieceSpan& piece : lane_of(c, lane).pieces) rows += piece.shared < 0 ? 0 : piece.length;
    return rows;
  };
  Bytes expected;
  const int64_t keys = 2 * c.heads.keys * head_bytes, queries = c.heads.queries * head_bytes;
  const int64_t statistics = c.heads.queries * wide;
  for (const auto& hop : schedule.hops) {
    const bool of_keys = hop.rows == RowTransfers::Rows::kKeys;
    expected.forward += rows_of(hop.of) * (of_keys ? keys : queries);
    expected.backward += rows_of(hop.of) * (of_keys ? keys : 3 * queries + statistics);
  }
  for (const auto& of : schedule.returns) {
    const bool of_keys = of.rows == RowTransfers::Rows::kKeys;
    expected.forward += rows_of(of.of) * (of_keys ? 0 : queries + statistics);
    expected.backward += rows_of(of.of) * (of_keys ? keys : queries);
  }
  EXPECT_EQ(sent.forward, expected.forward);
  EXPECT_EQ(sent.restore, 0);
  EXPECT_EQ(sent.backward, expected.backward);
}

void expect_bytes(const LaneCase& c, const Bytes& sent, int64_t head_bytes) {
  const auto branches = [](const Sequence& sequence) { return !sequence.branches.empty(); };
  if (c.window > 0 && std::ranges::any_of(c.sequences, branches)) return;
  if (strategy::moves_queries(c.exchange) && c.window == 0)
    return expect_travelling_bytes(c, sent, head_bytes);
  const int64_t headed = head_bytes_by_formula(c, head_bytes);
  int64_t keys = 0;  // key heads on a head group's lanes
  for (int lane = 0; lane < c.head_lanes; ++lane)
    keys += model::head_part(c.heads, c.head_lanes, lane).keys.size();
  const int runs = c.lanes / c.head_lanes;
  const int64_t ring_forward = c.window > 0 ? windowed_keys(c) * 2 * keys * head_bytes
                                            : (runs - 1) * c.shared_tokens() * 2 * keys * head_bytes;
  EXPECT_EQ(sent.forward, headed + ring_forward);
  EXPECT_EQ(sent.restore, headed);
  // On two levels sums go one hop further in each node but their own.
  const int nodes = c.window > 0 || c.in_node == 1 ? 1 : runs / c.in_node;
  EXPECT_EQ(sent.backward,
            headed + 2 * ring_forward + (nodes - 1) * c.shared_tokens() * 2 * keys * head_bytes);
  // An upper bound for all lanes: 2·(⌈H/k⌉ + copies of key heads)·d·s·(k − 1)/k per lane.
  const model::HeadCounts most = model::most_heads(c.heads, c.head_lanes);
  EXPECT_LE(headed, 2 * (most.queries + most.keys) * head_bytes * c.shared_tokens() * (c.head_lanes - 1));
}

LaneOutcome run_lanes(const LaneCase& c, const Values& values) {
  comm::FakeWorld world(c.lanes, {.max_delay_ns = 100'000});
  const LaneOutcome outcome{at::zeros_like(values.q), at::zeros_like(values.q), at::zeros_like(values.k),
                            at::zeros_like(values.v)};
  std::vector<int> members(static_cast<size_t>(c.lanes));
  std::iota(members.begin(), members.end(), 0);
  std::vector<Bytes> sent(members.size());
  std::vector<std::thread> threads;
  for (int lane = 0; lane < c.lanes; ++lane) {
    threads.emplace_back([&, lane] {
      const comm::FakeWorld::Participant participant(world, lane);
      const auto communicator = world.transport(lane)->communicator("lanes", members);
      sent[static_cast<size_t>(lane)] = run_lane(c, values, lane, *communicator, outcome);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Bytes all;
  for (const Bytes& of_lane : sent) {
    all.forward += of_lane.forward;
    all.restore += of_lane.restore;
    all.backward += of_lane.backward;
  }
  expect_bytes(c, all, kDimensions * static_cast<int64_t>(values.k.element_size()));
  return outcome;
}

void expect_close(const LaneOutcome& actual, const LaneOutcome& expected, double tolerance) {
  const auto check = [&](const at::Tensor& a, const at::Tensor& e, const char* what) {
    EXPECT_LE((a - e).abs().max().item<double>(), tolerance * e.abs().max().item<double>()) << what;
  };
  check(actual.out, expected.out, "out");
  check(actual.dq, expected.dq, "dq");
  check(actual.dk, expected.dk, "dk");
  check(actual.dv, expected.dv, "dv");
}

class RingAttention : public testing::TestWithParam<int> {};

TEST_P(RingAttention, OfOneSequenceEqualsOnePiece) {
  const LaneCase c{GetParam(), {{.length = 331}}};  // several tiles of queries and of keys
  const Values values = random_values(c);
  expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
}

TEST_P(RingAttention, LeavesSequencesOfALaneAlone) {
  LaneCase c{GetParam(),
             {{.length = 2, .lane = 0}, {.length = 29}, {.length = 5, .lane = 0}, {.length = 14}}};
  for (int lane = 0; lane < c.lanes; ++lane) c.sequences.push_back({.length = 3 + lane, .lane = lane});
  const Values values = random_values(c);
  expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
}

TEST_P(RingAttention, MovesNothingForSequencesOfALane) {
  LaneCase c{GetParam(), {}};
  for (int lane = 0; lane < c.lanes; ++lane) c.sequences.push_back({.length = 3 + lane, .lane = lane});
  const Values values = random_values(c);
  expect_close(run_lanes(c, values), run_whole(c, values), 0);
}

TEST_P(RingAttention, LooksBothWays) {
  for (const strategy::Exchange exchange :
       {strategy::Exchange::kRing, strategy::Exchange::kQueries, strategy::Exchange::kHeads}) {
    for (const int64_t window : {0, 2, 25, 400}) {
      SCOPED_TRACE(window);
      LaneCase c{GetParam(), {{.length = 131}, {.length = 1}, {.length = 14}}};
      const bool heads = exchange == strategy::Exchange::kHeads;
      if (heads && c.lanes > c.heads.queries) continue;
      if (!heads) c.sequences.insert(c.sequences.begin(), {.length = 2, .lane = 0});
      c.exchange = exchange;
      c.head_lanes = heads ? c.lanes : 1;
      c.window = window;
      c.causal = false;
      const Values values = random_values(c);
      expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
    }
  }
}

TEST(NestedAttention, LooksBothWays) {
  for (const int64_t window : {0, 3, 40}) {
    LaneCase c{.lanes = 6, .sequences = {{.length = 131}, {.length = 14}}};
    c.exchange = strategy::Exchange::kNested;
    c.head_lanes = 2;
    c.window = window;
    c.causal = false;
    const Values values = random_values(c);
    expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
  }
}

// Branches of one token and of many, behind prefixes of one token and of many, whole and cut.
std::vector<Sequence> with_branches(int lanes) {
  std::vector<Sequence> sequences = {{.length = 150, .branches = {1, 60, 22}},
                                     {.length = 31},
                                     {.length = 90, .branches = {40, 49}},
                                     {.length = 12, .branches = {3, 3, 1, 2}}};
  for (int lane = 0; lane < lanes; ++lane)
    sequences.push_back({.length = 20 + lane, .lane = lane, .branches = {9, 4 + lane, 2}});
  return sequences;
}

TEST_P(RingAttention, OfBranchesEqualsThemBehindTheirOwnPrefixes) {
  for (const int64_t window : {0, 2, 4, 25, 70}) {
    SCOPED_TRACE(window);
    LaneCase c{GetParam(), with_branches(GetParam())};
    c.window = window;
    const Values values = random_values(c);
    expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
  }
}

TEST_P(RingAttention, InSinglePrecision) {
  const LaneCase c{GetParam(), {{.length = 90}}, at::kFloat};
  const Values values = random_values(c);
  expect_close(run_lanes(c, values), run_whole(c, values), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Lanes, RingAttention, testing::Range(1, 8));

// Windows of two tokens, within chunks, over several of them and beyond the sequence; of packed sequences
// too.
TEST_P(RingAttention, ThroughAWindow) {
  for (const int64_t window : {2, 9, 47, 130, 500}) {
    SCOPED_TRACE(window);
    LaneCase c{GetParam(), {{.length = 131}, {.length = 3}, {.length = 40}, {.length = 26}}};
    for (int lane = 0; lane < c.lanes; ++lane) c.sequences.push_back({.length = 5 + lane, .lane = lane});
    c.window = window;
    const Values values = random_values(c);
    expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
  }
}

// Keys that come from other lanes are capped as a lane's own.
TEST_P(RingAttention, OfCappedScores) {
  for (const int64_t window : {0, 9}) {
    SCOPED_TRACE(window);
    const LaneCase c{
        .lanes = GetParam(), .sequences = {{.length = 131}, {.length = 40}}, .window = window, .cap = 0.7};
    const Values values = random_values(c);
    expect_close(run_lanes(c, values), run_whole(c, values), 1e-13);
  }
}

// Runs of every number of lanes that divides 1 to 8 of them: rings, heads, and both nested.
std::vector<std::pair<int, int>> lanes_and_runs() {
  std::vector<std::pair<int, int>> all;
  for (int lanes = 2; lanes <= 8; ++lanes) {
    for (int run = 2; run <= lanes; ++run) {
      if (lanes % run == 0) all.emplace_back(lanes, run);
    }
  }
  return all;
}

class HeadExchange : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  static LaneCase of(std::vector<Sequence> sequences, model::HeadCounts heads,
                     at::ScalarType dtype = at::kDouble) {
    return {.lanes = GetParam().first,
            .sequences = std::move(sequences),
            .dtype = dtype,
            .head_lanes = GetParam().second,
            .heads = heads};
  }
  static void expect_as_whole(const LaneCase& c, double tolerance) {
    const Values values = random_values(c);
    expect_close(run_lanes(c, values), run_whole(c, values), tolerance);
  }
};

// Twelve heads are even over 2, 3, 4 and 6 lanes and uneven over 5, 7 and 8; keys are copied where lanes end
// inside a group.
TEST_P(HeadExchange, OfOneSequenceEqualsOnePiece) {
  for (const model::HeadCounts heads : {model::HeadCounts{12, 12}, {12, 4}, {8, 1}, {9, 3}})
    expect_as_whole(of({{.length = 331}}, heads), 1e-13);
}

TEST_P(HeadExchange, OfPackedSequences) {
  const std::vector<Sequence> sequences = {
      {.length = 29}, {.length = 1}, {.length = 160}, {.length = 3}, {.length = 77}};
  expect_as_whole(of(sequences, {12, 4}), 1e-13);
}

TEST_P(HeadExchange, OfBranches) {
  for (const int64_t window : {0, 25}) {
    LaneCase c =
        of({{.length = 150, .branches = {1, 60, 22}}, {.length = 29}, {.length = 90, .branches = {40, 49}}},
           {12, 4});
    c.window = window;
    expect_as_whole(c, 1e-13);
  }
}

TEST_P(HeadExchange, ThroughAWindow) {
  for (const int64_t window : {3, 50}) {
    LaneCase c = of({{.length = 29}, {.length = 160}}, {12, 4});
    c.window = window;
    expect_as_whole(c, 1e-13);
  }
}

TEST_P(HeadExchange, OfCappedScores) {
  LaneCase c = of({{.length = 29}, {.length = 160}}, {12, 4});
  c.cap = 0.7;
  expect_as_whole(c, 1e-13);
}

TEST_P(HeadExchange, InSinglePrecision) { expect_as_whole(of({{.length = 90}}, {12, 4}, at::kFloat), 2e-6); }

// Copies' gradients are added in float: the error is that of rounding what travels.
TEST_P(HeadExchange, InBfloat16) { expect_as_whole(of({{.length = 120}}, {8, 1}, at::kBFloat16), 2e-2); }

INSTANTIATE_TEST_SUITE_P(Lanes, HeadExchange, testing::ValuesIn(lanes_and_runs()), [](const auto& info) {
  return base::text(info.param.first, "LanesInRunsOf", info.param.second);
});

// Rows that travel otherwise: so many lanes under each schedule that there is.
class RowsThatTravel : public testing::TestWithParam<std::tuple<int, strategy::Exchange, int>> {
 protected:
  static LaneCase of(std::vector<Sequence> sequences, model::HeadCounts heads = {6, 2},
                     at::ScalarType dtype = at::kDouble) {
    const auto [lanes, exchange, in_node] = GetParam();
    LaneCase c{.lanes = lanes, .sequences = std::move(sequences), .dtype = dtype, .heads = heads};
    c.exchange = exchange;
    c.in_node = in_node;
    return c;
  }
  static void expect_as_whole(const LaneCase& c, double tolerance) {
    const Values values = random_values(c);
    expect_close(run_lanes(c, values), run_whole(c, values), tolerance);
  }
};

TEST_P(RowsThatTravel, OfOneSequenceEqualsOnePiece) {
  for (const model::HeadCounts heads : {model::HeadCounts{6, 6}, {6, 2}, {3, 1}})
    expect_as_whole(of({{.length = 331}}, heads), 1e-13);
}

TEST_P(RowsThatTravel, OfPackedSequencesBesideThoseOfALane) {
  LaneCase c = of({{.length = 2, .lane = 0}, {.length = 29}, {.length = 1}, {.length = 160}, {.length = 14}});
  for (int lane = 0; lane < c.lanes; ++lane) c.sequences.push_back({.length = 3 + lane, .lane = lane});
  expect_as_whole(c, 1e-13);
}

TEST_P(RowsThatTravel, OfBranches) {
  for (const int64_t window : {0, 25}) {
    LaneCase c =
        of({{.length = 150, .branches = {1, 60, 22}}, {.length = 29}, {.length = 90, .branches = {40, 49}}});
    c.window = window;
    expect_as_whole(c, 1e-13);
  }
}

TEST_P(RowsThatTravel, ThroughAWindow) {
  for (const int64_t window : {3, 50}) {
    LaneCase c = of({{.length = 29}, {.length = 160}});
    c.window = window;
    expect_as_whole(c, 1e-13);
  }
}

TEST_P(RowsThatTravel, OfCappedScores) {
  LaneCase c = of({{.length = 29}, {.length = 160}});
  c.cap = 0.7;
  expect_as_whole(c, 1e-13);
}

TEST_P(RowsThatTravel, InSinglePrecision) { expect_as_whole(of({{.length = 90}}, {6, 2}, at::kFloat), 2e-6); }

TEST_P(RowsThatTravel, InBfloat16) { expect_as_whole(of({{.length = 120}}, {6, 2}, at::kBFloat16), 2e-2); }

std::vector<std::tuple<int, strategy::Exchange, int>> schedules() {
  using strategy::Exchange;
  std::vector<std::tuple<int, Exchange, int>> all;
  for (const int lanes : {2, 3, 4, 5, 8}) {
    all.emplace_back(lanes, Exchange::kBalanced, 1);
    all.emplace_back(lanes, Exchange::kQueries, 1);
  }
  for (const auto& [lanes, in_node] : {std::pair{4, 2}, {6, 2}, {6, 3}, {8, 4}, {8, 2}})
    all.emplace_back(lanes, Exchange::kRing, in_node);
  return all;
}

std::string schedule_name(const testing::TestParamInfo<std::tuple<int, strategy::Exchange, int>>& info) {
  const auto& [lanes, exchange, in_node] = info.param;
  const std::string name = exchange == strategy::Exchange::kRing       ? "Ring"
                           : exchange == strategy::Exchange::kBalanced ? "Balanced"
                                                                       : "Queries";
  return base::text(name, "Of", lanes, "With", in_node, "OfANode");
}

INSTANTIATE_TEST_SUITE_P(Schedules, RowsThatTravel, testing::ValuesIn(schedules()), schedule_name);

TEST(RowTransfers, ThroughAWindowLanesOfWhichNobodySeesAnythingAreLeftOut) {
  // 24 tokens on four lanes, three a chunk; through a window of three, lanes see their neighbours alone.
  RingSpans ring{.lane = 0, .members = {4, 5, 6, 7}, .lanes = {}};
  for (int64_t lane = 0; lane < 4; ++lane) ring.lanes.push_back({{3, 3 * lane, 7}, {3, 3 * (7 - lane), 7}});
  const RowTransfers transfers = window_row_transfers(ring, 3);
  ASSERT_EQ(transfers.steps.size(), 3u);
  const auto& [to, from] =
      std::pair(transfers.steps[0].hops[0].leaves ? transfers.steps[0].hops[0] : transfers.steps[0].hops[1],
                transfers.steps[0].hops[0].leaves ? transfers.steps[0].hops[1] : transfers.steps[0].hops[0]);
  EXPECT_EQ(to.member, 5);  // lane 1 sees the first chunk's end; lane 3 is not seen
  EXPECT_EQ(to.own_rows, (std::vector<base::Interval>{{1, 3}}));
  EXPECT_EQ(from.count, 0);
  EXPECT_EQ(transfers.steps[2].remote_attention->of, 1);  // lane 1's last chunk stands before this lane's
  EXPECT_EQ(transfers.steps[2].remote_attention->count, 2);
  EXPECT_EQ(transfers.steps[2].remote_attention->blocks,
            (std::vector<ops::AttentionBlock>{{{3, 5}, {0, 2}, 2}}));
  EXPECT_EQ(window_row_transfers(ring, 1).steps.size(), 1u);
}

TEST(RowTransfers, LanesOfARingSeeTheFirstChunkOfEarlierLanesAndBothOfLaterOnes) {
  // 12 tokens on three lanes: chunks 0 and 5, 1 and 4, 2 and 3.
  const RingSpans ring{.lane = 1,
                       .members = {0, 1, 2},
                       .lanes = {{{2, 0, 7}, {2, 10, 7}}, {{2, 2, 7}, {2, 8, 7}}, {{2, 4, 7}, {2, 6, 7}}}};
  const RowTransfers transfers = row_transfers(ring, strategy::ring_schedule(3));
  const auto blocks = [&](size_t step) { return transfers.steps[step].remote_attention->blocks; };
  EXPECT_EQ(blocks(1), (std::vector<ops::AttentionBlock>{{{0, 4}, {0, 2}}}));  // lane 0
  EXPECT_EQ(blocks(2), (std::vector<ops::AttentionBlock>{{{2, 4}, {0, 4}}}));  // lane 2
}

}  // namespace
}  // namespace sluice::layers
