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

TEST(CarriedRows, ABorderGivesTheNextStageWhatItNeeds) {
  const CarriedRows sent = carried_rows();
  const at::Tensor stream = waves({kShard, kHidden}, 3);
  const at::Tensor packed = packed_border(stream, &sent, border(), kTp, Travels::kRows);
  EXPECT_EQ(packed.numel(), kShard * (kHidden + 2 * kLayerWidth + kTp * kKeyColumns));
  CarriedRows received;
  expect_near(unpacked_border(packed, kHidden, border(), kTp, Travels::kRows, received), stream, "stream", 0);
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
  unpacked_border(packed_border(stream, &earlier, border(), kTp, Travels::kRows), kHidden, border(), kTp,
                  Travels::kRows, later);
  const at::Tensor dinput = waves({kShard, kLayerWidth}, 4), dkeys = waves({kShard * kTp, kKeyColumns}, 5);
  later.add_input_gradient(3, dinput);
  later.add_input_gradient(3, dinput);
  later.add_key_gradient(0, dkeys);
  later.add_key_gradient(0, dkeys);
  const at::Tensor packed = packed_border(stream, &later, border(), kTp, Travels::kGradients);
  expect_near(unpacked_border(packed, kHidden, border(), kTp, Travels::kGradients, earlier), stream, "stream",
              0);
  at::Tensor expected = at::zeros({kShard, 3 * kLayerWidth}, at::kDouble);
  expected.narrow(1, 2 * kLayerWidth, kLayerWidth).copy_(2 * dinput);
  expect_near(earlier.dinput_SC, expected, "layers", 0);
  expect_near(earlier.take_key_gradient(0), 2 * dkeys, "keys", 0);
  EXPECT_FALSE(earlier.take_key_gradient(0).defined()) << "taken once";
  // A stage without layers that use them sends zeros.
  CarriedRows untouched = carried_rows();
  const at::Tensor zeros = packed_border(stream, &untouched, border(), kTp, Travels::kGradients);
  expect_near(zeros.narrow(0, kShard * kHidden, zeros.numel() - kShard * kHidden),
              at::zeros({zeros.numel() - kShard * kHidden}, at::kDouble), "nothing", 0);
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
  expect_near(packed_border(stream, nullptr, {}, kTp, Travels::kRows), stream, "", 0);
}

}  // namespace
}  // namespace sluice::layers
