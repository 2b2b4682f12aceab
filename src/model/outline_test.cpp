#include "model/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "model/parameter_count.h"
#include "model/parameters.h"
#include "model/program.h"
#include "model/table_positions.h"

namespace sluice::model {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Outline valid_outline() {
  return {.layers = 2, .hidden = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn_hidden = 24, .vocab = 50};
}

TEST(ValidateOutline, EachFaultNamesTheValue) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::pair<std::function<void(Outline&)>, std::string> faults[] = {
      {[](Outline& s) { s.layers = 0; }, "layers is 0"},
      {[](Outline& s) { s.latent = {.kv_rank = 8, .unrotated = 2, .rotated = 2, .values = 6}; },
       "values are 6 wide (v_head_dim), its keys 4 (qk_nope_head_dim + qk_rope_head_dim): nothing is wrong "
       "with"},
      {[](Outline& s) { s.layers = 10'000'000; }, "layers is 10000000: give a whole number from 1 to 4096"},
      {[](Outline& s) { s.hidden = -1; }, "hidden is -1"},
      {[](Outline& s) { s.heads = 0; }, "heads is 0"},
      {[](Outline& s) { s.kv_heads = 0; }, "kv_heads is 0"},
      {[](Outline& s) { s.kv_heads = 3; }, "heads is 4, no multiple of the 3 kv_heads"},
      {[](Outline& s) { s.head_dim = 5; }, "head_dim is 5: rotary positions need an even one"},
      {[](Outline& s) { s.hidden = 20, s.head_dim = 5; }, "head_dim (hidden 20 / heads 4) is 5: rotary"},
      {[](Outline& s) { s.hidden = 1'000'000, s.head_dim = 250'000; },
       "head_dim (hidden 1000000 / heads 4) is 250000: give a whole number"},
      {[](Outline& s) { s.ffn_hidden = 0; }, "ffn_hidden is 0"},
      {[](Outline& s) { s.hidden = s.ffn_hidden = 1 << 20, s.layers = 128; },
       "more than 281474976710656 parameters"},
      {[](Outline& s) { s.vocab = int64_t{1} << 40; },
       "vocab is 1099511627776: give a whole number from 1 to 16777216"},
      {[](Outline& s) { s.norm_eps = -1; }, "norm_eps is -1"},
      {[](Outline& s) { s.rope.theta = 0; }, "rope_theta is 0"},
      {[](Outline& s) { s.rope.theta = kInfinity; }, "rope_theta is inf"},
      {[](Outline& s) { s.rope = {.scaling = RopeScaling::kLinear, .factor = 0}; }, "rope factor is 0"},
      {[](Outline& s) { s.rope = {.scaling = RopeScaling::kLlama3, .low_freq_factor = 4.0}; },
       "high_freq_factor is 4: give one above low_freq_factor 4"},
      {[](Outline& s) { s.rope = {.scaling = RopeScaling::kLlama3, .original_max_position_embeddings = 0}; },
       "original_max_position_embeddings is 0"},
      {[](Outline& s) { s.rope = {.scaling = RopeScaling::kYarn, .beta_fast = 0.5}; },
       "beta_fast is 0.5: give a number from 1"},
      {[](Outline& s) { s.rope = {.scaling = RopeScaling::kYarn, .beta_slow = 0}; }, "beta_slow is 0"},
      {[](Outline& s) { s.rope = {.theta = 1, .scaling = RopeScaling::kYarn}; },
       "rope_theta is 1: rope type yarn needs one above 1"},
      {[](Outline& s) { s.rope = {.scaling = RopeScaling::kYarn, .attention_factor = -1}; },
       "attention_factor is -1"},
  };
  for (const auto& [make, fault] : faults) {
    Outline outline = valid_outline();
    make(outline);
    EXPECT_THAT([&] { validate(outline); }, ThrowsMessage<base::InputError>(HasSubstr(fault)));
  }
  EXPECT_NO_THROW(validate(valid_outline()));
}

TEST(TpFault, SaysWhatCannotBeCut) {
  const Outline outline = valid_outline();
  for (const int tp : {1, 2, 4}) EXPECT_EQ(tp_fault(outline, tp), "");
  EXPECT_EQ(tp_fault(outline, 0), "tp is 0 but must be at least 1");
  EXPECT_EQ(tp_fault(outline, 3), "tp 3 does not divide 4 heads: choose one of 1, 2, 4");
  EXPECT_EQ(tp_fault(outline, 8), "tp 8 does not divide 4 heads: choose one of 1, 2, 4");
  Outline wide = outline;
  wide.heads = 12;
  wide.kv_heads = 6;
  EXPECT_EQ(tp_fault(wide, 4),
            "tp 4 neither divides 6 kv_heads nor is a multiple of them: choose one of 1, 2, 3, 6, 12");
  EXPECT_EQ(tp_fault(wide, 12), "");
  wide.ffn_hidden = 8;
  EXPECT_EQ(tp_fault(wide, 12), "tp 12 is above ffn_hidden 8: choose one of 1, 2, 3, 6");
  wide.ffn_hidden = 24;
  wide.vocab = 10;
  EXPECT_EQ(tp_fault(wide, 12), "tp 12 is above vocab 10: choose one of 1, 2, 3, 6");
}

TEST(NamedOutline, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameter_count(named_outline("llama-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(named_outline("llama-13b")), 13'015'864'320);
  EXPECT_EQ(named_outline("llama-32b").head_dim, 104);
  EXPECT_THAT([] { named_outline("llama-1b"); },
              ThrowsMessage<base::InputError>(
                  AllOf(HasSubstr("'llama-1b'"), HasSubstr("llama-7b, llama-13b, llama-32b"))));
}

TEST(Parameters, EqualTheTable) {
  for (const bool tied : {false, true}) {
    Outline outline = valid_outline();
    outline.tie_embeddings = tied;
    EXPECT_EQ(parameter_count(outline), parameter_table(outline).size());
  }
}

TEST(Kinds, CountAMultiplyAddOfEveryMatrixElement) {
  const Outline outline = valid_outline();
  const ParameterTable table = parameter_table(outline);
  int64_t matrix_elements = 0;
  for (const Parameter& parameter : table.layer(0).parameters) {
    if (!parameter.one_dimensional()) matrix_elements += parameter.size();
  }
  EXPECT_EQ(table.program.kind_at(1).work().products, matrix_elements);
  EXPECT_EQ(table.program.kinds().back()->work().products, 50 * 16);
  EXPECT_EQ(table.program.kind_at(1).work().attention, 16);
}

RopeTable table_of(const Outline& outline) { return rope_table(outline.rope, outline.head_dim, 4096); }

// Values below were computed independently of this program, from the papers' formulas.

TEST(RopeTable, PlainFrequenciesArePowersOfTheta) {
  Outline outline = valid_outline();
  outline.head_dim = 8;
  const RopeTable table = table_of(outline);
  EXPECT_THAT(table.inverse_frequencies,
              testing::Pointwise(testing::DoubleNear(1e-15), {1.0, 0.1, 0.01, 0.001}));
  EXPECT_EQ(table.attention_scale, 1.0);
}

TEST(RopeTable, LinearDividesByTheFactor) {
  Outline outline = valid_outline();
  outline.head_dim = 8;
  outline.rope = {.scaling = RopeScaling::kLinear, .factor = 4.0};
  EXPECT_THAT(table_of(outline).inverse_frequencies,
              testing::Pointwise(testing::DoubleNear(1e-15), {0.25, 0.025, 0.0025, 0.00025}));
}

TEST(RopeTable, Llama3KeepsFastPairsSlowsSlowOnesAndBlendsBetween) {
  Outline outline = valid_outline();
  outline.head_dim = 16;
  outline.rope = {.theta = 500000.0, .scaling = RopeScaling::kLlama3, .factor = 8.0};
  EXPECT_THAT(table_of(outline).inverse_frequencies,
              testing::Pointwise(
                  testing::DoubleNear(1e-15),
                  {1.0, 0.19392274474868576, 0.03760603093086393, 0.007292664737217109, 0.0005248461609929547,
                   3.428102195952591e-05, 6.647869871181235e-06, 1.2891731721515574e-06}));
}

TEST(RopeTable, YarnRampsBetweenPairs) {
  Outline outline = valid_outline();
  outline.head_dim = 16;
  outline.rope = {.scaling = RopeScaling::kYarn, .factor = 4.0, .original_max_position_embeddings = 2048};
  RopeTable table = table_of(outline);
  EXPECT_THAT(table.inverse_frequencies,
              testing::Pointwise(testing::DoubleNear(1e-15),
                                 {1.0, 0.31622776601683794, 0.1, 0.02569350598886808, 0.00625,
                                  0.001383496476323666, 0.00025, 7.905694150420948e-05}));
  EXPECT_DOUBLE_EQ(table.attention_scale, 1.138629436111989);
  outline.rope.attention_factor = 0.5;
  EXPECT_EQ(table_of(outline).attention_scale, 0.5);
  outline.rope = {.scaling = RopeScaling::kYarn, .factor = 1.0};
  EXPECT_EQ(table_of(outline).attention_scale, 1.0);
}

TEST(RopeTable, YarnWithAnEmptyRampStaysFinite) {
  Outline outline = valid_outline();
  outline.rope = {.scaling = RopeScaling::kYarn,
                  .factor = 4.0,
                  .original_max_position_embeddings = 6,
                  .beta_fast = 1.0,
                  .beta_slow = 1.0};
  EXPECT_THAT(table_of(outline).inverse_frequencies,
              testing::Pointwise(testing::DoubleNear(1e-15), {1.0, 0.0025}));
}

TEST(TablePositions, ReachAsFarAsSequencesAndStayOnTheContextsSideOfLongRope) {
  Outline outline = valid_outline();
  EXPECT_EQ(table_positions(outline, 10'000'000, 900), 900);
  EXPECT_EQ(table_positions(outline, 512, 900), 512);
  const auto pairs = static_cast<size_t>(outline.head_dim / 2);
  outline.window_rope = {.scaling = RopeScaling::kLongRope,
                         .original_max_position_embeddings = 2048,
                         .attention_factor = 1.0,
                         .short_factors = std::vector<double>(pairs, 1.0),
                         .long_factors = std::vector<double>(pairs, 4.0)};
  for (const int64_t context : {2048, 2049, 1'000'000}) {
    const int64_t positions = table_positions(outline, context, 900);
    EXPECT_LE(positions, 2049);
    EXPECT_EQ(rope_table(*outline.window_rope, outline.head_dim, positions).inverse_frequencies,
              rope_table(*outline.window_rope, outline.head_dim, context).inverse_frequencies);
  }
}

}  // namespace
}  // namespace sluice::model
