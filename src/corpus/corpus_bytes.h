// The bytes of a corpus's .bin or .mask, on this machine or in a bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/interval.h"
#include "storage/location.h"

namespace sluice::corpus {

// Thread-safe.
class CorpusBytes {
 public:
  // InputError if the file does not exist.
  explicit CorpusBytes(const storage::Location& place);

  int64_t size() const { return size_; }
  bool is_remote() const { return remote_ != nullptr; }
  // Copies the bytes to `out`: from memory, from a file, or from a range that was fetched ahead; else with a
  // request to the bucket. InputError if the object was replaced since it was opened; RunError if the bucket
  // cannot be reached.
  void read(base::Interval bytes, std::byte* out) const;
  // Fetches ranges of an object in a bucket at once, neighbouring ranges together, and keeps them until the
  // next call: reads within them need no request. No effect for a file.
  void fetch_ahead(std::vector<base::Interval> ranges) const;

 private:
  struct Fetched {
    base::Interval bytes;
    std::vector<std::byte> content;
  };
  using FetchedRanges = std::vector<Fetched>;  // in order

  int64_t size_ = 0;
  std::optional<base::MappedFile> local_;
  std::shared_ptr<storage::Source> remote_;
  struct Ahead {
    std::mutex mutex;
    std::shared_ptr<const FetchedRanges> ranges;
  };
  std::unique_ptr<Ahead> ahead_ = std::make_unique<Ahead>();
};

}  // namespace sluice::corpus
