// Communication of recurrent layers between lanes, on real threads over the fake transport, compared with
// whole sequences on one rank; and its bytes by formula.
#include "layers/lane_recurrence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/text.h"
#include "comm/test_fake.h"
#include "layers/row_layout.h"

namespace sluice::layers {
namespace {

constexpr int64_t kKeyHeads = 2, kValueHeads = 4, kKeyWidth = 3, kValueWidth = 5, kChannels = 6;

// A sequence that all lanes share (owner -1), or a lane's own.
struct Scanned {
  int64_t length = 0;
  int owner = -1;
};

struct ScanCase {
  int lanes = 1;
  bool delta = true;
  bool by_channel = false;
  int64_t convolution = 4;
  std::vector<Scanned> sequences;
};
void PrintTo(const ScanCase& c, std::ostream* stream) { *stream << c.lanes << " lanes"; }

// The rows of one lane among all sequences' rows, and their pieces.
struct ScanLane {
  std::vector<PieceSpan> pieces;
  std::vector<base::Interval> rows;
};

ScanLane lane_of(const ScanCase& c, int lane) {
  ScanLane result;
  int64_t row = 0;
  for (size_t i = 0; i < c.sequences.size(); ++i) {
    const auto [length, owner] = c.sequences[i];
    if (owner == lane || (owner < 0 && c.lanes == 1)) {
      result.pieces.push_back({.length = length});
      result.rows.push_back({row, row + length});
    }
    for (const int chunk : {lane, 2 * c.lanes - 1 - lane}) {
      const base::Interval tokens = base::even_part(length, 2 * c.lanes, chunk);
      if (owner >= 0 || c.lanes == 1 || tokens.empty()) continue;
      result.pieces.push_back({tokens.size(), tokens.begin, static_cast<int>(i)});
      result.rows.push_back({row + tokens.begin, row + tokens.end});
    }
    row += length;
  }
  return result;
}

at::Tensor taken(const at::Tensor& whole, const ScanLane& lane) {
  std::vector<at::Tensor> parts;
  for (const base::Interval& rows : lane.rows) parts.push_back(whole.narrow(0, rows.begin, rows.size()));
  return at::cat(parts);
}

// The layer's operands, results and gradients for all rows.
struct ScanValues {
  ops::RecurrenceInput input;
  at::Tensor dout, x, w, dy;
};
struct ScanOutcome {
  at::Tensor out, dq, dk, dv, dlog_decay, drate, y, dx, dw;
};

ScanValues random_values(const ScanCase& c) {
  at::manual_seed(9);
  int64_t rows = 0;
  for (const Scanned& sequence : c.sequences) rows += sequence.length;
  const auto random = [&](std::vector<int64_t> sizes) { return at::randn(sizes, at::kDouble); };
  const at::Tensor k = random({rows, kKeyHeads, kKeyWidth});
  const at::Tensor decay =
      c.by_channel ? random({rows, kValueHeads, kKeyWidth}) : random({rows, kValueHeads});
  return {{random({rows, kKeyHeads, kKeyWidth}), k / k.norm(2, {2}, true),
           random({rows, kValueHeads, kValueWidth}), -0.2 * decay.square(),
           at::sigmoid(random({rows, kValueHeads})), c.delta},
          random({rows, kValueHeads, kValueWidth}),
          random({rows, kChannels}),
          random({kChannels, c.convolution}),
          random({rows, kChannels})};
}

// One lane's rows of everything, and the bytes that it sends forward and backward.
struct LaneRun {
  ScanOutcome outcome;
  int64_t forward_bytes = 0, backward_bytes = 0;
};

LaneRun run_lane(const ScanCase& c, const ScanValues& values, int lane, comm::Communicator* communicator) {
  const ScanLane own = lane_of(c, lane);
  if (own.rows.empty()) return {};
  LanePartSpans micro_batch{.lane = lane};
  for (int other = 0; other < c.lanes; ++other) {
    micro_batch.members.push_back(other);
    micro_batch.lanes.push_back(lane_of(c, other).pieces);
  }
  const Reach reach{.convolution = c.convolution};
  const RowLayout layout = c.lanes == 1 ? row_layout(own.pieces, 1, at::kCPU, reach)
                                        : cp_row_layout(micro_batch, 1, at::kCPU, reach);
  const RecurrentRows& rows = layout.recurrent;
  std::optional<LaneChannel> lanes;
  if (communicator != nullptr) lanes.emplace(*communicator);
  LaneChannel* const channel = lanes ? &*lanes : nullptr;
  const ops::RecurrenceInput& all = values.input;
  const ops::RecurrenceInput input{taken(all.q_TGK, own),     taken(all.k_TGK, own),   taken(all.v_THD, own),
                                   taken(all.log_decay, own), taken(all.rate_TH, own), all.delta};
  LaneRun run;
  const at::Tensor x = taken(values.x, own);
  const at::Tensor marginal = ops::with_halos(rows.rows, x, halos_of(channel, rows, x));
  run.outcome.y = ops::short_convolution(rows.rows, marginal, {values.w, {}});
  const ops::Recurrence recurrence(input, rows.chunks);
  const at::Tensor begin = begin_states(channel, rows, recurrence);
  run.outcome.out = recurrence.forward(begin);
  if (channel != nullptr) run.forward_bytes = channel->sent_bytes();

  const at::Tensor dout = taken(values.dout, own);
  const at::Tensor dend = end_gradients(channel, rows, recurrence, dout);
  const ops::RecurrenceGradient gradient = recurrence.backward(dout, begin, dend);
  run.outcome.dq = gradient.dq_TGK, run.outcome.dk = gradient.dk_TGK, run.outcome.dv = gradient.dv_THD;
  run.outcome.dlog_decay = gradient.dlog_decay, run.outcome.drate = gradient.drate_TH;
  run.outcome.dw = at::zeros_like(values.w);
  const at::Tensor drows = ops::short_convolution_backward(rows.rows, taken(values.dy, own), marginal,
                                                           {values.w, {}}, {run.outcome.dw, {}});
  run.outcome.dx = drows.index_select(0, rows.rows.own_T);
  halos_backward(channel, rows, drows.index_select(0, rows.rows.halo_X), run.outcome.dx);
  if (channel != nullptr) run.backward_bytes = channel->sent_bytes() - run.forward_bytes;
  return run;
}

// One state per border between lanes and direction; and each halo row once per lane that sees it.
struct ScanBytes {
  int64_t states = 0, margins = 0;
};
ScanBytes bytes_by_formula(const ScanCase& c) {
  ScanBytes bytes;
  for (const auto& [length, owner] : c.sequences) {
    if (owner >= 0 || c.lanes == 1) continue;
    std::vector<int> lane_of_row;
    int last = -1;
    for (int chunk = 0; chunk < 2 * c.lanes; ++chunk) {
      const base::Interval tokens = base::even_part(length, 2 * c.lanes, chunk);
      const int lane = std::min(chunk, 2 * c.lanes - 1 - chunk);
      if (tokens.empty()) continue;
      if (last >= 0 && lane != last) bytes.states += kValueHeads * kKeyWidth * kValueWidth * 8;
      last = lane;
      lane_of_row.insert(lane_of_row.end(), static_cast<size_t>(tokens.size()), lane);
    }
    for (size_t row = 0; row < lane_of_row.size(); ++row) {
      std::vector<int> seeing;
      for (size_t i = row + 1; i < std::min(lane_of_row.size(), row + static_cast<size_t>(c.convolution));
           ++i) {
        if (lane_of_row[i] != lane_of_row[row]) seeing.push_back(lane_of_row[i]);
      }
      std::ranges::sort(seeing);
      bytes.margins += (std::ranges::unique(seeing).begin() - seeing.begin()) * kChannels * 8;
    }
  }
  return bytes;
}

class LaneRecurrence : public testing::TestWithParam<ScanCase> {};

TEST_P(LaneRecurrence, IsOfWholeSequences) {
  const ScanCase& c = GetParam();
  const ScanValues values = random_values(c);
  ScanCase whole = c;
  whole.lanes = 1;
  for (Scanned& sequence : whole.sequences) sequence.owner = -1;
  const ScanOutcome expected = run_lane(whole, values, 0, nullptr).outcome;

  std::vector<LaneRun> runs(static_cast<size_t>(c.lanes));
  comm::FakeWorld world(c.lanes);
  std::vector<int> members;
  for (int lane = 0; lane < c.lanes; ++lane) members.push_back(lane);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < c.lanes; ++lane) {
    threads.emplace_back([&, lane] {
      const auto transport = world.transport(lane);
      const auto lanes = transport->communicator("lanes", members);
      runs[static_cast<size_t>(lane)] = run_lane(c, values, lane, lanes.get());
    });
  }
  for (std::thread& thread : threads) thread.join();

  const auto expect_close = [&](at::Tensor ScanOutcome::*of, const char* what) {
    const at::Tensor& all = expected.*of;
    for (int lane = 0; lane < c.lanes; ++lane) {
      const ScanLane own = lane_of(c, lane);
      if (own.rows.empty()) continue;
      const at::Tensor error = runs[static_cast<size_t>(lane)].outcome.*of - taken(all, own);
      EXPECT_LT(error.abs().max().item<double>(), 1e-11 * all.abs().max().item<double>())
          << what << ", " << lane;
    }
  };
  expect_close(&ScanOutcome::out, "outputs");
  expect_close(&ScanOutcome::dq, "queries");
  expect_close(&ScanOutcome::dk, "keys");
  expect_close(&ScanOutcome::dv, "values");
  expect_close(&ScanOutcome::dlog_decay, "decays");
  expect_close(&ScanOutcome::drate, "rates");
  expect_close(&ScanOutcome::y, "convolution");
  expect_close(&ScanOutcome::dx, "what it takes");
  at::Tensor dw = at::zeros_like(values.w);
  int64_t forward_bytes = 0, backward_bytes = 0;
  for (const LaneRun& run : runs) {
    if (run.outcome.dw.defined()) dw.add_(run.outcome.dw);
    forward_bytes += run.forward_bytes;
    backward_bytes += run.backward_bytes;
  }
  EXPECT_LT((dw - expected.dw).abs().max().item<double>(), 1e-11 * expected.dw.abs().max().item<double>());
  const ScanBytes bytes = bytes_by_formula(c);
  EXPECT_EQ(forward_bytes, bytes.states + bytes.margins);
  EXPECT_EQ(backward_bytes, bytes.states + bytes.margins);
}

// Documents shorter than the convolution, than the lanes, than a chunk, and longer; lanes' own beside them.
std::vector<ScanCase> scan_cases() {
  std::vector<ScanCase> cases;
  for (const int lanes : {2, 3, 4, 8}) {
    for (const bool delta : {true, false}) {
      for (const bool by_channel : {false, true}) {
        cases.push_back({lanes, delta, by_channel, 4, {{97}, {1}, {2, 0}, {7}, {30, lanes - 1}, {16}}});
        cases.push_back({lanes, delta, by_channel, 9, {{5}, {23}, {3}}});
        cases.push_back({lanes, delta, by_channel, 1, {{33}}});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Cases, LaneRecurrence, testing::ValuesIn(scan_cases()), [](const auto& info) {
  return base::text(info.param.lanes, "Lanes", info.param.delta ? "Delta" : "",
                    info.param.by_channel ? "ByChannel" : "", "Width", info.param.convolution);
});

// A sequence's state costs the same whatever its length and however many lanes it lies on: one per
// border.
TEST(LaneRecurrenceBytes, AreStatesWhateverTheLength) {
  for (const int lanes : {2, 4, 8}) {
    const int64_t state = kValueHeads * kKeyWidth * kValueWidth * 8;
    for (const int64_t length : {64, 4096})
      EXPECT_EQ(bytes_by_formula({lanes, true, false, 1, {{length}}}).states, 2 * (lanes - 1) * state);
  }
}

}  // namespace
}  // namespace sluice::layers
