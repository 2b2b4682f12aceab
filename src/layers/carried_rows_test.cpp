// Tensors that travel with the residual stream over a border between stages.
#include "layers/carried_rows.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

constexpr int kTp = 2;
constexpr int64_t kShard = 3, kHidden = 4, kLayerWidth = 2, kKeyColumns = 5;

// Embeddings of layers 1 to 3, of which the border's later stage needs 2 and 3; and keys of the first slot.
CarriedRows carried_rows() {
  CarriedRows rows;
  rows.input_SC = waves({kShard, 3 * kLayerWidth}, 1);
  rows.first_layer = 1;
  rows.keys[0].kv_TK = waves({kShard * kTp, kKeyColumns}, 2);
  return rows;
}
model::BorderRows border() {
  return {.layers = {2, 4}, .layer_width = kLayerWidth, .keys = {kKeyColumns, 0}};
}

// Rows as they arrive on the other side.
at::Tensor passed(const at::Tensor& stream, const CarriedRows& from, Travels travels, CarriedRows& to) {
  const std::vector<at::Tensor> left = leaving_rows(stream, &from, border(), kTp, travels);
  std::vector<at::Tensor> room = room_for_rows(kShard, kHidden, stream.options(), border(), kTp);
  EXPECT_EQ(room.size(), left.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(left[i].is_contiguous());
    EXPECT_EQ(room[i].sizes(), left[i].sizes());
    room[i].copy_(left[i]);
  }
  return take_arrived(std::move(room), border(), travels, to);
}

TEST(CarriedRows, ABorderGivesTheNextStageWhatItNeeds) {
  const CarriedRows sent = carried_rows();
  const at::Tensor stream = waves({kShard, kHidden}, 3);
  CarriedRows received;
  expect_near(passed(stream, sent, Travels::kRows, received), stream, "stream", 0);
  EXPECT_EQ(received.first_layer, 2);
  expect_near(received.input_of(3, kLayerWidth), sent.input_of(3, kLayerWidth), "layer 3", 0);
  expect_near(received.keys[0].kv_TK, sent.keys[0].kv_TK, "keys", 0);
  EXPECT_FALSE(received.keys[1].kv_TK.defined());
  EXPECT_EQ(received.bytes(), 8 * kShard * (2 * kLayerWidth + kTp * kKeyColumns));
}

// Gradients come back to the columns that they belong to; those that no layer gave are zero.
TEST(CarriedRows, GradientsReturnToTheirColumns) {
  CarriedRows earlier = carried_rows(), later;
  const at::Tensor stream = waves({kShard, kHidden}, 3);
  passed(stream, earlier, Travels::kRows, later);
  const at::Tensor dinput = waves({kShard, kLayerWidth}, 4), dkeys = waves({kShard * kTp, kKeyColumns}, 5);
  later.add_input_gradient(3, dinput);
  later.add_input_gradient(3, dinput);
  later.add_key_gradient(0, dkeys);
  later.add_key_gradient(0, dkeys);
  later.keep_gradients_alone();
  EXPECT_EQ(later.bytes(), 8 * kShard * (2 * kLayerWidth + kTp * kKeyColumns)) << "no rows beside them";
  expect_near(passed(stream, later, Travels::kGradients, earlier), stream, "stream", 0);
  EXPECT_EQ(earlier.dinput_SC.size(1), 2 * kLayerWidth)
      << "no wider than needed before other layers add theirs";
  earlier.add_input_gradient(1, dinput);
  at::Tensor expected = at::zeros({kShard, 3 * kLayerWidth}, at::kDouble);
  expected.narrow(1, 2 * kLayerWidth, kLayerWidth).copy_(2 * dinput);
  expected.narrow(1, 0, kLayerWidth).copy_(dinput);
  expect_near(earlier.dinput_SC, expected, "layers", 0);
  expect_near(earlier.take_key_gradient(0), 2 * dkeys, "keys", 0);
  EXPECT_FALSE(earlier.take_key_gradient(0).defined()) << "taken once";
  // A stage without layers that use them sends zeros.
  CarriedRows untouched = carried_rows();
  const std::vector<at::Tensor> zeros = leaving_rows(stream, &untouched, border(), kTp, Travels::kGradients);
  for (size_t i = 1; i < zeros.size(); ++i) expect_near(zeros[i], at::zeros_like(zeros[i]), "nothing", 0);
}

TEST(CarriedRows, TheFirstGradientIsNotTheCallersMemory) {
  CarriedRows rows = carried_rows();
  const at::Tensor dkeys = waves({kShard * kTp, kKeyColumns}, 5), kept = dkeys.clone();
  rows.add_key_gradient(0, dkeys);
  rows.add_key_gradient(0, dkeys);
  expect_near(dkeys, kept, "", 0);
}

TEST(CarriedRows, ABorderWithoutThemIsTheStreamAlone) {
  const at::Tensor stream = waves({kShard, kHidden}, 3);
  const std::vector<at::Tensor> left = leaving_rows(stream, nullptr, {}, kTp, Travels::kRows);
  ASSERT_EQ(left.size(), 1);
  EXPECT_TRUE(left.front().is_same(stream)) << "no copy";
}

}  // namespace
}  // namespace sluice::layers
