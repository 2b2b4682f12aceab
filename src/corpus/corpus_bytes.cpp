#include "corpus/corpus_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "corpus/parallel.h"

namespace sluice::corpus {

namespace {

// Transferring this many bytes takes about as long as a request, so closer ranges are fetched together.
constexpr int64_t kCloseBytes = int64_t{64} << 10;
constexpr int kRequestsAtOnce = 16;

std::vector<base::Interval> joined(std::vector<base::Interval> ranges) {
  std::erase_if(ranges, [](const base::Interval& range) { return range.empty(); });
  std::ranges::sort(ranges, {}, &base::Interval::begin);
  std::vector<base::Interval> joined;
  for (const base::Interval& range : ranges) {
    if (!joined.empty() && range.begin <= joined.back().end + kCloseBytes) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

}  // namespace

CorpusBytes::CorpusBytes(const storage::Location& place) {
  if (place.is_path()) {
    local_.emplace(place.path());
    size_ = static_cast<int64_t>(local_->size());
  } else {
    remote_ = place.open();
    size_ = remote_->size();
  }
}

void CorpusBytes::read(base::Interval bytes, std::byte* out) const {
  if (bytes.empty()) return;
  if (local_) {
    std::memcpy(out, local_->data() + bytes.begin, static_cast<size_t>(bytes.size()));
    return;
  }
  std::shared_ptr<const FetchedRanges> ranges;
  {
    const std::lock_guard lock(ahead_->mutex);
    ranges = ahead_->ranges;
  }
  if (ranges) {
    const auto behind = std::ranges::upper_bound(*ranges, bytes.begin, {},
                                                 [](const Fetched& range) { return range.bytes.begin; });
    if (behind != ranges->begin() && std::prev(behind)->bytes.end >= bytes.end) {
      const Fetched& range = *std::prev(behind);
      std::memcpy(out, range.content.data() + (bytes.begin - range.bytes.begin),
                  static_cast<size_t>(bytes.size()));
      return;
    }
  }
  remote_->read(bytes, out);
}

void CorpusBytes::fetch_ahead(std::vector<base::Interval> ranges) const {
  if (!remote_) return;
  auto fetched = std::make_shared<FetchedRanges>();
  for (const base::Interval& range : joined(std::move(ranges)))
    fetched->push_back({range, std::vector<std::byte>(static_cast<size_t>(range.size()))});
  parallel_for(fetched->size(), kRequestsAtOnce,
               [&](size_t i) { remote_->read((*fetched)[i].bytes, (*fetched)[i].content.data()); });
  const std::lock_guard lock(ahead_->mutex);
  ahead_->ranges = std::move(fetched);
}

}  // namespace sluice::corpus
