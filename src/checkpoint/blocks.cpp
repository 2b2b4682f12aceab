#include "checkpoint/blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string_view>
#include <thread>

#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/manifest.h"

namespace sluice::checkpoint {
namespace {

using base::text;

constexpr int64_t kBlockBytes = int64_t{16} << 20;
constexpr size_t kHashDigits = 16;
constexpr const char* kBytesKey = "block_bytes";
constexpr const char* kHashesKey = "blocks";

base::Interval block_interval(size_t block, int64_t data_bytes) {
  const int64_t begin = static_cast<int64_t>(block) * kBlockBytes;
  return {begin, std::min(begin + kBlockBytes, data_bytes)};
}

}  // namespace

void BlockHasher::add(const void* data, int64_t size) {
  const auto* next = static_cast<const std::byte*>(data);
  while (size > 0) {
    const int64_t part = std::min(size, kBlockBytes - block_bytes_);
    block_.add(next, static_cast<size_t>(part));
    next += part;
    size -= part;
    block_bytes_ += part;
    if (block_bytes_ < kBlockBytes) continue;
    hashes_ += base::hash_text(block_.value());
    block_ = base::StreamHash();
    block_bytes_ = 0;
  }
}

std::map<std::string, std::string> BlockHasher::metadata() const {
  const std::string last = block_bytes_ > 0 ? base::hash_text(block_.value()) : "";
  return {{kBytesKey, std::to_string(kBlockBytes)}, {kHashesKey, hashes_ + last}};
}

CheckedBlocks::CheckedBlocks(const SafetensorsFile& file) : file_(file) {
  const auto bytes = file.metadata().find(kBytesKey);
  const auto hashes = file.metadata().find(kHashesKey);
  if (bytes == file.metadata().end() || hashes == file.metadata().end()) return;
  const std::string_view digits = hashes->second;
  const int64_t blocks = (file.data_bytes() + kBlockBytes - 1) / kBlockBytes;
  if (bytes->second != std::to_string(kBlockBytes) ||
      digits.size() != static_cast<size_t>(blocks) * kHashDigits) {
    throw DamagedCheckpoint(text(file.location().string(), " has ", digits.size() / kHashDigits,
                                 " checksums of blocks of ", bytes->second, " bytes for ", file.data_bytes(),
                                 " bytes of data"));
  }
  for (size_t at = 0; at < digits.size(); at += kHashDigits) {
    hashes_.push_back(base::parse_hash(digits.substr(at, kHashDigits)));
  }
  checked_.resize(hashes_.size());
}

// Blocks with any of these bytes that are not checked yet, ascending.
std::vector<size_t> CheckedBlocks::unchecked(std::span<const base::Interval> bytes) const {
  std::vector<char> wanted(hashes_.size(), 0);
  for (const base::Interval& interval : bytes) {
    if (interval.empty() || hashes_.empty()) continue;
    const auto first = static_cast<size_t>(interval.begin / kBlockBytes);
    const auto last = static_cast<size_t>((interval.end - 1) / kBlockBytes);
    for (size_t block = first; block <= last; ++block) wanted[block] = 1;
  }
  std::vector<size_t> blocks;
  for (size_t block = 0; block < wanted.size(); ++block) {
    if (wanted[block] != 0 && checked_[block] == 0) blocks.push_back(block);
  }
  return blocks;
}

void CheckedBlocks::require(std::span<const base::Interval> bytes) {
  const std::vector<size_t> blocks = unchecked(bytes);
  std::vector<uint64_t> found(blocks.size());
  std::vector<std::exception_ptr> failures(blocks.size());
  std::atomic<size_t> next = 0;
  const auto read = [&] {
    for (size_t i = next++; i < blocks.size(); i = next++) {
      const base::Interval interval = block_interval(blocks[i], file_.data_bytes());
      try {
        file_.fetch(interval);
        found[i] = base::hash_bytes(file_.data() + interval.begin, static_cast<size_t>(interval.size()));
      } catch (...) {
        failures[i] = std::current_exception();
        next = blocks.size();
      }
    }
  };
  {
    const size_t count = std::min(static_cast<size_t>(file_.readers()), blocks.size());
    std::vector<std::jthread> readers;
    for (size_t reader = 1; reader < count; ++reader) readers.emplace_back(read);
    read();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const base::Interval interval = block_interval(blocks[i], file_.data_bytes());
    if (found[i] != hashes_[blocks[i]]) {
      throw DamagedCheckpoint(text(file_.location().string(), " has checksum ", base::hash_text(found[i]),
                                   " in bytes ", interval.begin, " to ", interval.end,
                                   " of its data, was written with ", base::hash_text(hashes_[blocks[i]])));
    }
    checked_[blocks[i]] = 1;
    released_ = std::min(released_, blocks[i]);
  }
}

void CheckedBlocks::release_before(int64_t end) {
  for (; released_ < checked_.size(); ++released_) {
    const base::Interval interval = block_interval(released_, file_.data_bytes());
    if (interval.end > end) return;
    if (checked_[released_] != 0 && file_.release(interval)) checked_[released_] = 0;
  }
}

}  // namespace sluice::checkpoint
