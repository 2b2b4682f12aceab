// The recurrence and its convolution against their definitions, row by row, and against torch's autograd of
// these.
#include "ops/recurrence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "ops/gated_norm.h"
#include "ops/recurrence_heads.h"
#include "ops/short_convolution.h"

namespace sluice::ops {
namespace {

double error_of(const at::Tensor& actual, const at::Tensor& expected) {
  const double largest = expected.abs().max().item<double>();
  const double error = (actual - expected).abs().max().item<double>();
  return largest == 0 ? error : error / largest;
}

struct ByRows {
  at::Tensor out_THD;
  at::Tensor end_PHKD;
};

// By the definition.
ByRows by_rows(const RecurrenceInput& input, const std::vector<int64_t>& lengths,
               const at::Tensor& begin_PHKD) {
  const int64_t heads = input.v_THD.size(1), shared = heads / input.k_TGK.size(1);
  const at::Tensor q = input.q_TGK.repeat_interleave(shared, 1), k = input.k_TGK.repeat_interleave(shared, 1);
  std::vector<at::Tensor> out, ends;
  int64_t row = 0;
  for (size_t piece = 0; piece < lengths.size(); ++piece) {
    at::Tensor state = begin_PHKD[static_cast<int64_t>(piece)];
    for (int64_t i = 0; i < lengths[piece]; ++i, ++row) {
      at::Tensor decay = input.log_decay[row].exp();
      if (decay.dim() == 1) decay = decay.unsqueeze(1);
      state = state * decay.unsqueeze(2);
      at::Tensor u = input.v_THD[row];
      if (input.delta) u = u - at::einsum("hkd,hk->hd", {state, k[row]});
      if (input.rate_TH.defined()) u = u * input.rate_TH[row].unsqueeze(1);
      state = state + k[row].unsqueeze(2) * u.unsqueeze(1);
      out.push_back(at::einsum("hkd,hk->hd", {state, q[row]}));
    }
    ends.push_back(state);
  }
  const int64_t behind = input.v_THD.size(0) - row;
  if (behind > 0)
    out.push_back(at::zeros({heads, input.v_THD.size(2)}, input.v_THD.options()).expand({heads, -1}));
  at::Tensor stacked = at::stack(out);
  if (behind > 1) stacked = at::cat({stacked, at::zeros_like(stacked.narrow(0, 0, behind - 1))});
  return {stacked, at::stack(ends)};
}

enum class Published { kGla, kMamba2, kGatedDelta, kKimiDelta };

// Lengths of the pieces, and a chunk.
using Case = std::tuple<Published, std::vector<int64_t>, int64_t>;

class RecurrenceTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kKeyHeads = 2, kHeads = 4, kKeys = 5, kValues = 3;
  RecurrenceTest() {
    at::manual_seed(11);
    const auto& [published, lengths, unused] = GetParam();
    for (const int64_t length : lengths) rows_ += length;
    rows_ += 2;  // behind all pieces
    const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
    const auto random = [&](at::IntArrayRef more) {
      std::vector<int64_t> sizes{rows_};
      sizes.insert(sizes.end(), more.begin(), more.end());
      return at::randn(sizes, at::kDouble);
    };
    input_.q_TGK = leaf(random({kKeyHeads, kKeys}));
    const at::Tensor k = random({kKeyHeads, kKeys});
    input_.k_TGK = leaf(k / k.norm(2, {2}, true));
    input_.v_THD = leaf(random({kHeads, kValues}));
    const bool by_channel = published == Published::kGla || published == Published::kKimiDelta;
    const at::Tensor decay = by_channel ? random({kHeads, kKeys}) : random({kHeads});
    input_.log_decay = leaf(-decay.square());  // some all but forget
    if (published != Published::kGla) input_.rate_TH = leaf(at::sigmoid(random({kHeads})) * 2);
    input_.delta = published == Published::kGatedDelta || published == Published::kKimiDelta;
    begin_ = leaf(at::randn({std::ssize(lengths), kHeads, kKeys, kValues}, at::kDouble));
  }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all{input_.q_TGK, input_.k_TGK, input_.v_THD, input_.log_decay, begin_};
    if (input_.rate_TH.defined()) all.push_back(input_.rate_TH);
    return all;
  }
  RecurrenceInput values() const {
    return {input_.q_TGK.detach(),
            input_.k_TGK.detach(),
            input_.v_THD.detach(),
            input_.log_decay.detach(),
            input_.rate_TH.defined() ? input_.rate_TH.detach() : input_.rate_TH,
            input_.delta};
  }

  int64_t rows_ = 0;
  RecurrenceInput input_;
  at::Tensor begin_;
};

TEST_P(RecurrenceTest, IsItsDefinitionForwardAndBackward) {
  const auto& [unused, lengths, chunk] = GetParam();
  const ByRows expected = by_rows(input_, lengths, begin_);
  const at::Tensor dout = at::randn_like(expected.out_THD), dend = at::randn_like(expected.end_PHKD);
  const auto gradients = torch::autograd::grad({expected.out_THD, expected.end_PHKD}, leaves(), {dout, dend});
  const auto from_outputs =
      torch::autograd::grad({by_rows(input_, lengths, begin_).out_THD}, {begin_}, {dout});

  const RecurrenceInput values = this->values();
  const RecurrenceChunks chunks = recurrence_chunks(lengths, rows_, at::kCPU, chunk);
  const Recurrence recurrence(values, chunks);
  const at::Tensor begin = begin_.detach();
  constexpr double kTolerance = 1e-12;
  at::Tensor end;
  EXPECT_LT(error_of(recurrence.forward(begin, &end), expected.out_THD.detach()), kTolerance);
  EXPECT_LT(error_of(end, expected.end_PHKD.detach()), kTolerance);
  const RecurrenceGradient gradient = recurrence.backward(dout, begin, dend);
  EXPECT_LT(error_of(gradient.dq_TGK, gradients[0]), kTolerance) << "q";
  EXPECT_LT(error_of(gradient.dk_TGK, gradients[1]), kTolerance) << "k";
  EXPECT_LT(error_of(gradient.dv_THD, gradients[2]), kTolerance) << "v";
  EXPECT_LT(error_of(gradient.dlog_decay, gradients[3]), kTolerance) << "decay";
  if (values.rate_TH.defined()) {
    EXPECT_LT(error_of(gradient.drate_TH, gradients[5]), kTolerance) << "rate";
  }

  // Passages map states and gradients of pieces as forward and backward do.
  const RecurrencePassage there = recurrence.passage();
  RecurrencePassage back = there;
  back.added_PHKD = recurrence.begin_gradient(dout);
  EXPECT_LT(error_of(back.added_PHKD, from_outputs[0]), kTolerance);
  for (int64_t piece = 0; piece < std::ssize(lengths); ++piece) {
    for (const base::Interval columns : {base::Interval{0, 2}, base::Interval{2, 3}}) {
      const auto some = [&](const at::Tensor& x) {
        return x[piece].detach().narrow(2, columns.begin, columns.size());
      };
      EXPECT_LT(error_of(there.of(some(begin), piece, columns), some(expected.end_PHKD)), kTolerance);
      EXPECT_LT(error_of(back.back_of(some(dend), piece, columns), some(gradients[4])), kTolerance);
    }
  }
}

// Chunks are a matter of time alone; and single precision is near.
TEST_P(RecurrenceTest, ChunksOfAnySizeGiveTheSame) {
  const auto& [unused, lengths, chunk] = GetParam();
  const RecurrenceInput values = this->values();
  const RecurrenceChunks own = recurrence_chunks(lengths, rows_, at::kCPU, chunk);
  const RecurrenceChunks chosen = recurrence_chunks(lengths, rows_, at::kCPU);
  const at::Tensor out = Recurrence(values, own).forward({});
  EXPECT_LT(error_of(Recurrence(values, chosen).forward({}), out), 1e-12);
  RecurrenceInput single = values;
  for (at::Tensor* x : {&single.q_TGK, &single.k_TGK, &single.v_THD, &single.log_decay, &single.rate_TH})
    if (x->defined()) *x = x->to(at::kFloat);
  EXPECT_LT(error_of(Recurrence(single, chosen).forward({}).to(at::kDouble), out), 1e-4);
}

// The sequences are so short that heads run one part after the other, also heads that share a key head.
TEST(Recurrence, HeadsThatTakeTurnsGiveWhatAllGiveAtOnce) {
  at::manual_seed(3);
  const std::vector<int64_t> lengths(20, 2);
  const int64_t rows = 40, heads = 8, width = 32;
  for (const int64_t key_heads : {1, 2, 8}) {
    const auto random = [&](int64_t some) { return at::randn({rows, some, width}, at::kDouble); };
    const RecurrenceInput input{random(key_heads),
                                random(key_heads) / 8,
                                random(heads),
                                -at::rand({rows, heads}, at::kDouble),
                                at::rand({rows, heads}, at::kDouble),
                                true};
    const RecurrenceChunks chunks = recurrence_chunks(lengths, rows, at::kCPU);
    const at::Tensor begin = at::randn({20, heads, width, width}, at::kDouble), dout = random(heads);
    const Recurrence turns(input, chunks);
    const HeadsRecurrence all(input, chunks);
    at::Tensor end, expected_end;
    EXPECT_LT(error_of(turns.forward(begin, &end), all.forward(begin, &expected_end)), 1e-13);
    EXPECT_LT(error_of(end, expected_end), 1e-13);
    EXPECT_LT(error_of(turns.passage().transition, all.passage().transition), 1e-13);
    EXPECT_LT(error_of(turns.begin_gradient(dout), all.begin_gradient(dout)), 1e-13);
    const RecurrenceGradient actual = turns.backward(dout, begin, begin),
                             expected = all.backward(dout, begin, begin);
    EXPECT_LT(error_of(actual.dq_TGK, expected.dq_TGK), 1e-13);
    EXPECT_LT(error_of(actual.dk_TGK, expected.dk_TGK), 1e-13);
    EXPECT_LT(error_of(actual.dv_THD, expected.dv_THD), 1e-13);
    EXPECT_LT(error_of(actual.dlog_decay, expected.dlog_decay), 1e-13);
    EXPECT_LT(error_of(actual.drate_TH, expected.drate_TH), 1e-13);
  }
}

// Compares with flash-linear-attention's references (tests/parity/recurrence_parity.py), which compute in
// single precision. SLUICE_RECURRENCES names another file of them.
TEST(Recurrence, IsThatOfPublishedReferences) {
  const char* const named = std::getenv("SLUICE_RECURRENCES");
  const auto kept = std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/data/parity/recurrences.json";
  for (const base::Json& of : base::read_json(named != nullptr ? named : kept)) {
    const auto number = [&](const char* key) { return of.at(key).get<int64_t>(); };
    const int64_t heads = number("heads"), keys = number("keys"), values = number("values");
    const auto tensor = [&](const std::string& key, std::vector<int64_t> sizes) {
      if (!of.contains(key)) return at::Tensor();
      sizes.insert(sizes.begin(), -1);
      return at::tensor(of.at(key).get<std::vector<double>>(), at::kDouble).view(sizes);
    };
    const std::vector<int64_t> by_key{heads, keys}, by_value{heads, values}, state{heads, keys, values};
    const std::vector<int64_t> by_decay = of.at("by_channel").get<bool>() ? by_key : std::vector{heads};
    const RecurrenceInput input{tensor("q", by_key) / std::sqrt(static_cast<double>(keys)),
                                tensor("k", by_key),
                                tensor("v", by_value),
                                tensor("log_decay", by_decay),
                                tensor("rate", {heads}),
                                of.at("delta").get<bool>()};
    const auto lengths = of.at("lengths").get<std::vector<int64_t>>();
    const RecurrenceChunks chunks = recurrence_chunks(lengths, input.v_THD.size(0), at::kCPU);
    const Recurrence recurrence(input, chunks);
    const auto name = of.at("name").get<std::string>();
    constexpr double kTolerance = 1e-5;
    at::Tensor end;
    EXPECT_LT(error_of(recurrence.forward(tensor("begin", state), &end), tensor("out", by_value)), kTolerance)
        << name;
    EXPECT_LT(error_of(end, tensor("end", state)), kTolerance) << name;
    const RecurrenceGradient gradient =
        recurrence.backward(tensor("dout", by_value), tensor("begin", state), tensor("dend", state));
    const at::Tensor dq = gradient.dq_TGK / std::sqrt(static_cast<double>(keys));
    EXPECT_LT(error_of(dq, tensor("dq", by_key)), kTolerance) << name;
    EXPECT_LT(error_of(gradient.dk_TGK, tensor("dk", by_key)), kTolerance) << name;
    EXPECT_LT(error_of(gradient.dv_THD, tensor("dv", by_value)), kTolerance) << name;
    EXPECT_LT(error_of(gradient.dlog_decay, tensor("dlog_decay", by_decay)), kTolerance) << name;
    if (input.rate_TH.defined()) {
      EXPECT_LT(error_of(gradient.drate_TH, tensor("drate", {heads})), kTolerance) << name;
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const char* const names[] = {"Gla", "Mamba2", "GatedDelta", "KimiDelta"};
  return std::string(names[static_cast<int>(std::get<0>(info.param))]) + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Published, RecurrenceTest,
                         testing::Combine(testing::Values(Published::kGla, Published::kMamba2,
                                                          Published::kGatedDelta, Published::kKimiDelta),
                                          testing::Values(std::vector<int64_t>{1},
                                                          std::vector<int64_t>{3, 40, 1, 17},
                                                          std::vector<int64_t>{1, 1, 2, 90}),
                                          testing::Values(1, 7, 32, 64)),
                         name_of_case);

// A state that all but vanishes between rows would overflow where rows were divided by their decays.
TEST(Recurrence, ForgetsAtOnceWithoutOverflow) {
  at::manual_seed(5);
  for (const bool delta : {false, true}) {
    const at::Tensor k = at::randn({64, 1, 4}, at::kFloat);
    const RecurrenceInput input{at::randn({64, 1, 4}),      k / k.norm(2, {2}, true), at::randn({64, 1, 4}),
                                at::full({64, 1, 4}, -60.), at::rand({64, 1}),        delta};
    const RecurrenceChunks chunks = recurrence_chunks({64}, 64, at::kCPU, 64);
    const Recurrence recurrence(input, chunks);
    EXPECT_TRUE(at::isfinite(recurrence.forward({})).all().item<bool>());
    const RecurrenceGradient gradient = recurrence.backward(at::randn({64, 1, 4}), {}, {});
    for (const at::Tensor& x : {gradient.dq_TGK, gradient.dk_TGK, gradient.dlog_decay})
      EXPECT_TRUE(at::isfinite(x).all().item<bool>());
  }
}

TEST(GatedNorm, OfHeadsAndOfGroupsEqualAutograd) {
  at::manual_seed(13);
  constexpr int64_t kRows = 7, kGroups = 3, kWidth = 4;
  const auto leaf = [](std::vector<int64_t> sizes) {
    return at::randn(sizes, at::kDouble).requires_grad_(true);
  };
  const at::Tensor x = leaf({kRows, kGroups * kWidth}), gate = leaf({kRows, kGroups * kWidth});
  const at::Tensor of_head = leaf({kWidth}), of_all = leaf({kGroups * kWidth});
  const at::Tensor dy = at::randn({kRows, kGroups * kWidth}, at::kDouble);
  constexpr double kEps = 1e-3;
  const auto normed = [&](const at::Tensor& rows) {
    const at::Tensor r = rows.view({kRows, kGroups, kWidth});
    return r * at::rsqrt(r.square().mean(-1, true) + kEps);
  };
  const auto check = [&](const at::Tensor& expected, const at::Tensor& weight, const at::Tensor& y,
                         const GatedNormGradient& gradient, const at::Tensor& dweight) {
    const auto gradients = torch::autograd::grad({expected}, {x, gate, weight}, {dy});
    EXPECT_LT(error_of(y, expected.detach()), 1e-12);
    EXPECT_LT(error_of(gradient.dx_TV, gradients[0]), 1e-12);
    EXPECT_LT(error_of(gradient.dgate_TV, gradients[1]), 1e-12);
    EXPECT_LT(error_of(dweight, gradients[2]), 1e-12);
  };
  const at::Tensor xv = x.detach(), gv = gate.detach(), head = of_head.detach(), all = of_all.detach();
  const at::Tensor dhead = at::zeros_like(head), dall = at::zeros_like(all);
  const GatedNormGradient by_head = gated_head_norm_backward(dy, xv, gv, head, kEps, dhead);
  check((normed(x) * of_head).flatten(1) * at::silu(gate), of_head, gated_head_norm(xv, gv, head, kEps),
        by_head, dhead);
  const at::Tensor dopen = at::zeros_like(head);
  const GatedNormGradient by_sigmoid =
      gated_head_norm_backward(dy, xv, gv, head, kEps, dopen, HeadGate::kSigmoid);
  check((normed(x) * of_head).flatten(1) * at::sigmoid(gate), of_head,
        gated_head_norm(xv, gv, head, kEps, HeadGate::kSigmoid), by_sigmoid, dopen);
  const GatedNormGradient by_group = gated_group_norm_backward(dy, xv, gv, all, kGroups, kEps, dall);
  check(normed(x * at::silu(gate)).flatten(1) * of_all, of_all, gated_group_norm(xv, gv, all, kGroups, kEps),
        by_group, dall);
}

TEST(ShortConvolution, SeesItsOwnSequenceAndItsMarginAlone) {
  at::manual_seed(3);
  const std::vector<int64_t> lengths{1, 6, 2};
  constexpr int64_t kWidth = 4, kChannels = 3, kRows = 11;
  const at::Tensor x = at::randn({kRows, kChannels}, at::kDouble).requires_grad_(true);
  const at::Tensor w = at::randn({kChannels, kWidth}, at::kDouble).requires_grad_(true);
  const at::Tensor bias = at::randn({kChannels}, at::kDouble).requires_grad_(true);
  const at::Tensor margin =
      at::randn({std::ssize(lengths) * (kWidth - 1), kChannels}, at::kDouble).requires_grad_(true);
  std::vector<at::Tensor> pieces;
  const std::vector<int64_t> one{1}, none{0};
  int64_t row = 0;
  for (size_t i = 0; i <= lengths.size(); ++i) {
    const bool own = i < lengths.size();
    const at::Tensor before = own ? margin.narrow(0, static_cast<int64_t>(i) * (kWidth - 1), kWidth - 1)
                                  : at::zeros({kWidth - 1, kChannels}, at::kDouble);
    const int64_t length = own ? lengths[i] : kRows - row;
    const at::Tensor all = at::cat({before, x.narrow(0, row, length)}).t().unsqueeze(0);
    pieces.push_back(at::conv1d(all, w.unsqueeze(1), bias, one, none, one, kChannels).squeeze(0).t());
    row += length;
  }
  const at::Tensor expected = at::silu(at::cat(pieces)), dy = at::randn_like(expected);
  const auto gradients = torch::autograd::grad({expected}, {x, w, margin, bias}, {dy});

  const HaloRows rows = halo_rows(lengths, kRows, kWidth, at::kCPU);
  const at::Tensor all = with_halos(rows, x.detach(), margin.detach());
  EXPECT_LT(error_of(short_convolution(rows, all, {w.detach(), bias.detach()}), expected.detach()), 1e-12);
  const at::Tensor dw = at::ones({kChannels, kWidth}, at::kDouble),
                   dbias = at::ones({kChannels}, at::kDouble);
  const at::Tensor dall = short_convolution_backward(rows, dy, all, {w.detach(), bias.detach()}, {dw, dbias});
  EXPECT_LT(error_of(dall.index_select(0, rows.own_T), gradients[0]), 1e-12);
  EXPECT_LT(error_of(dall.index_select(0, rows.halo_X), gradients[2]), 1e-12);
  EXPECT_LT(error_of(dw, gradients[1] + 1), 1e-12);
  EXPECT_LT(error_of(dbias, gradients[3] + 1), 1e-12);
  // The rows that the next piece of a sequence wants.
  EXPECT_TRUE(at::equal(all.index_select(0, rows.last_X).narrow(0, 3, 3), x.detach().narrow(0, 4, 3)));
  EXPECT_TRUE(at::equal(all.index_select(0, rows.last_X).narrow(0, 0, 2), margin.detach().narrow(0, 1, 2)));
}

}  // namespace
}  // namespace sluice::ops
