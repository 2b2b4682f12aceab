// Checksums of a file's data, block by block, in the file's own header. A rank that needs a part of another
// rank's file reads and checks that part alone. The manifest has the header's checksum.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/stream_hash.h"
#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {

// Hashes the data of a file that is about to be written, in the order of its bytes.
class BlockHasher {
 public:
  void add(const void* data, int64_t size);
  // The header's entries for all data added so far (SafetensorsWriter's metadata).
  std::map<std::string, std::string> metadata() const;

 private:
  std::string hashes_;  // complete blocks' hashes, 16 digits each
  int64_t block_bytes_ = 0;
  base::StreamHash block_;
};

// Records which blocks of a file were found to be as they were written. Not thread-safe.
class CheckedBlocks {
 public:
  // `file` outlives this object. If its header has no block checksums, all data count as checked.
  explicit CheckedBlocks(const SafetensorsFile& file);

  // Reads those blocks with any of these bytes of the data that are not checked yet, on several threads.
  // DamagedCheckpoint naming the file and the first bytes that differ from those written.
  void require(std::span<const base::Interval> bytes);
  // For readers in byte order that are done with all bytes before `end`: releases the memory of those blocks.
  // If they are needed again, they are read and checked again.
  void release_before(int64_t end);

 private:
  std::vector<size_t> unchecked(std::span<const base::Interval> bytes) const;

  const SafetensorsFile& file_;
  std::vector<uint64_t> hashes_;
  std::vector<char> checked_;
  size_t released_ = 0;  // blocks before this one are released
};

}  // namespace sluice::checkpoint
