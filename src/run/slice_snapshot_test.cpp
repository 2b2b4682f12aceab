#include "run/slice_snapshot.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "model/test_outline.h"
#include "model/test_tuning.h"
#include "run/snapshot_size.h"

namespace sluice::run {
namespace {

using runtime::ParameterStore;

// Each state of each bucket has a value of its own.
void fill(ParameterStore& store, double first) {
  for (const model::Bucket& bucket : store.table().buckets) {
    runtime::OwnerSlice& slice = store.owner(bucket.index);
    slice.master.fill_(first + bucket.index);
    slice.exp_avg.read().fill_(first + bucket.index + 0.25);
    slice.exp_avg_sq.read().fill_(first + bucket.index + 0.5);
  }
}

void expect_filled(const std::vector<checkpoint::OwnerState>& states, double first) {
  const auto all_are = [](const void* values, base::Interval slice, double value) {
    const auto* numbers = static_cast<const float*>(values);
    return std::all_of(numbers, numbers + slice.size(),
                       [&](float number) { return number == static_cast<float>(value); });
  };
  for (size_t i = 0; i < states.size(); ++i) {
    const double master = first + static_cast<double>(i);
    EXPECT_TRUE(all_are(states[i].master, states[i].owned, master)) << i;
    EXPECT_TRUE(all_are(states[i].exp_avg, states[i].owned, master + 0.25)) << i;
    EXPECT_TRUE(all_are(states[i].exp_avg_sq, states[i].owned, master + 0.5)) << i;
  }
}

TEST(SliceSnapshot, IsTheStateOfItsBeginningWhateverChangesBehindIt) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline(3));
  ParameterStore store(table, {.rank = 1, .world_size = 3});
  SliceSnapshot snapshot;
  for (const double first : {1.0, 2000.0}) {
    fill(store, first);
    ReadProgress progress;
    progress.begin();
    std::vector<checkpoint::OwnerState> states;
    std::thread reader([&] {
      const EndOfRead end(progress);
      states = snapshot.take(store, progress);
    });
    for (const model::Bucket& bucket : table.buckets) {
      progress.wait(bucket.index);
      store.owner(bucket.index).master.fill_(-1);
      store.owner(bucket.index).exp_avg.read().fill_(-1);
      store.owner(bucket.index).exp_avg_sq.read().fill_(-1);
    }
    reader.join();
    expect_filled(states, first);
  }
}

TEST(SliceSnapshot, OfMemoryMadeBeforeIsTheSame) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline(3));
  ParameterStore store(table, {});
  fill(store, 7);
  SliceSnapshot snapshot;
  snapshot.make_room(store);
  ReadProgress progress;
  const std::vector<checkpoint::OwnerState> states = snapshot.take(store, progress);
  fill(store, 9);
  expect_filled(states, 7);
  expect_filled(snapshot.view(store), 9);
}

TEST(SliceSnapshot, OfNarrowMastersIsWide) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline(3));
  ParameterStore store(table, {.precision = {comm::DType::kBFloat16, runtime::Masters::kBFloat16}});
  fill(store, 7);
  SliceSnapshot snapshot;
  expect_filled(snapshot.view(store), 7);
  ReadProgress progress;
  fill(store, 9);
  expect_filled(snapshot.take(store, progress), 9);
  std::vector<char> bytes(static_cast<size_t>(SliceSnapshot::bytes(table, store.options().precision, 1, 0)));
  copy_slices(store, bytes.data());
  float first = 0;
  std::memcpy(&first, bytes.data(), sizeof(first));
  EXPECT_EQ(first, 9);
}

// Frozen parameters do not change: no rank's snapshot for later memberships has room for them.
TEST(SnapshotSize, HasWhatIsTrainedAlone) {
  model::Outline outline = model::sliced_outline(3);
  model::freeze(outline, {"model.embed_tokens", "model.layers.[01]"});
  const model::ParameterTable table = model::parameter_table(outline);
  ASSERT_TRUE(has_frozen(table));
  int64_t all_bytes = 0, trained = 0;
  for (const model::Bucket& bucket : table.buckets) trained += bucket.trained ? bucket.size : 0;
  for (int rank = 0; rank < 3; ++rank) {
    ParameterStore store(table, {.rank = rank, .world_size = 3});
    fill(store, 7);
    const int64_t bytes = snapshot_bytes(table, store.options(), 3, rank);
    all_bytes += bytes;
    std::vector<float> copied(static_cast<size_t>(bytes) / sizeof(float), -1);
    copy_slices(store, reinterpret_cast<char*>(copied.data()));
    size_t at = 0;
    for (const model::Bucket& bucket : table.buckets) {
      if (!bucket.trained) continue;
      for (const float state : {0.0F, 0.25F, 0.5F}) {
        for (int64_t i = store.owner(bucket.index).owned.size(); i > 0; --i)
          ASSERT_EQ(copied.at(at++), 7 + static_cast<float>(bucket.index) + state);
      }
    }
    EXPECT_EQ(at, copied.size());
  }
  EXPECT_EQ(all_bytes, 3 * 4 * trained);
  EXPECT_FALSE(has_frozen(model::parameter_table(model::sliced_outline(3))));
}

TEST(ReadProgress, TheReadersEndLetsEveryoneGoOn) {
  ReadProgress progress;
  EXPECT_TRUE(progress.has_read(1000)) << "nobody reads";
  progress.begin();
  progress.set_read(3);
  EXPECT_TRUE(progress.has_read(3));
  EXPECT_FALSE(progress.has_read(4));
  std::thread reader([&] { const EndOfRead end(progress); });
  progress.wait(4);
  reader.join();
  EXPECT_TRUE(progress.has_read(1000));
}

}  // namespace
}  // namespace sluice::run
