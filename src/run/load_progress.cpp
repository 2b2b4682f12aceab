#include "run/load_progress.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sluice::run {

namespace {

constexpr int64_t kNumberBytes = 4;

// Numbers of this rank's slice of the bucket. A coded bucket's slice counts words, so its part of all words
// is taken of the plain bucket's numbers.
int64_t owned_numbers(const model::Bucket& bucket, int64_t owned) {
  if (!bucket.coded || bucket.size == 0) return owned;
  const auto plain = static_cast<__int128>(model::plain_bucket(bucket).size);
  return static_cast<int64_t>(plain * owned / bucket.size);
}

}  // namespace

std::string bytes_loaded(int64_t done_bytes, int64_t all_bytes) {
  done_bytes = std::min(done_bytes, all_bytes);
  const auto part =
      all_bytes == 0 ? 100 : static_cast<int64_t>(static_cast<__int128>(done_bytes) * 100 / all_bytes);
  return base::text(base::human_bytes(static_cast<double>(done_bytes)), " of ",
                    base::human_bytes(static_cast<double>(all_bytes)), " (", part, " %)");
}

LoadProgress::LoadProgress(survive::Activity& activity, const runtime::ParameterStore& store)
    : activity_(activity) {
  for (const model::Bucket& bucket : store.table().buckets)
    all_numbers_ += owned_numbers(bucket, store.owner(bucket.index).owned.size());
}

// Ranks that share a coded matrix all read it whole, so more may be read than is owned.
void LoadProgress::add(int64_t numbers) {
  read_numbers_ += numbers;
  activity_.progress(bytes_loaded(read_numbers_ * kNumberBytes, all_numbers_ * kNumberBytes));
}

runtime::MasterSource LoadProgress::counted(runtime::MasterSource source) {
  return [this, source = std::move(source)](int bucket, base::Interval interval, float* values) {
    source(bucket, interval, values);
    add(interval.size());
  };
}

runtime::PlainSource LoadProgress::counted_plain(runtime::PlainSource source) {
  return
      [this, source = std::move(source)](const model::Bucket& plain, base::Interval interval, float* values) {
        source(plain, interval, values);
        add(interval.size());
      };
}

}  // namespace sluice::run
